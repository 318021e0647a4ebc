//! Errors on the wire: one place where a refusal becomes a gRPC status.

use koi_core::server::Refusal;
use koi_core::violation::FieldViolation;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::store::StoreError;

/// Most violations in one answer.
const MAX_VIOLATIONS: usize = 100;

/// `INVALID_ARGUMENT` with every problem as a field violation.
#[must_use]
pub fn invalid(violations: &[FieldViolation]) -> Status {
    let mut details = ErrorDetails::new();
    for v in violations.iter().take(MAX_VIOLATIONS) {
        details.add_bad_request_violation(v.field.clone(), v.message.clone());
    }
    let text = match violations {
        [one] => format!("{}: {}", one.field, one.message),
        many => format!("{} fields are wrong", many.len()),
    };
    Status::with_error_details(Code::InvalidArgument, text, details)
}

/// One wrong field of a request.
#[must_use]
pub fn invalid_field(field: &str, message: impl Into<String>) -> Status {
    invalid(&[FieldViolation {
        field: field.to_owned(),
        message: message.into(),
    }])
}

/// The status of a refusal.
#[must_use]
pub fn refused(refusal: &Refusal) -> Status {
    let text = refusal.to_string();
    match refusal {
        Refusal::Invalid(violations) => invalid(violations),
        Refusal::NotFound(_) => Status::not_found(text),
        Refusal::Conflict(_) => Status::aborted(text),
        Refusal::Unavailable(_) => Status::unavailable(text),
        Refusal::Overloaded => Status::resource_exhausted(text),
    }
}

/// The status of a database failure; details stay in the log.
#[must_use]
pub fn store_failed(error: &StoreError) -> Status {
    if matches!(error, StoreError::BadPageToken) {
        return invalid_field("page.token", "is not a token of this list");
    }
    if error.is_transient() {
        tracing::warn!(%error, "a read failed");
        Status::unavailable(error.remedy().unwrap_or("the database is away; try again"))
    } else {
        tracing::error!(%error, "a read failed");
        Status::internal("the database answered with something unexpected; see the server's log")
    }
}
