//! Errors on the wire: one place where a refusal becomes a gRPC status.

use std::borrow::Cow;

use koi_core::server::Refusal;
use koi_core::violation::FieldViolation;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::store::StoreError;

/// Most violations in one answer.
const MAX_VIOLATIONS: usize = 100;
/// Most bytes of one field's name and of one message: both may repeat what the client sent.
const MAX_FIELD_BYTES: usize = 160;
const MAX_MESSAGE_BYTES: usize = 400;
/// Most bytes of all violations together. They travel as a header, in base64, and clients take 8 KiB of
/// headers by default: what is longer would reach them as no answer at all.
const MAX_DETAIL_BYTES: usize = 4_000;
/// Longest text that can be asked for.
const MAX_SEARCH_BYTES: usize = 400;

/// A text, cut in the middle of nothing: what is missing is said.
fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(most);
    Cow::Owned(format!("{}… ({} bytes in all)", &text[..end], text.len()))
}

/// `INVALID_ARGUMENT` with every problem as a field violation, as far as they fit an answer.
#[must_use]
pub fn invalid(violations: &[FieldViolation]) -> Status {
    let mut details = ErrorDetails::new();
    let mut room = MAX_DETAIL_BYTES;
    for (told, v) in violations.iter().enumerate() {
        let field = shortened(&v.field, MAX_FIELD_BYTES);
        let message = shortened(&v.message, MAX_MESSAGE_BYTES);
        let size = field.len() + message.len() + 8;
        if told == MAX_VIOLATIONS || size > room {
            let left = format!("{} more problems are not listed", violations.len() - told);
            details.add_bad_request_violation("", left);
            break;
        }
        room -= size;
        details.add_bad_request_violation(field, message);
    }
    let text = match violations {
        [one] => {
            let text = format!("{}: {}", one.field, one.message);
            shortened(&text, MAX_MESSAGE_BYTES).into_owned()
        }
        many => format!("{} fields are wrong", many.len()),
    };
    Status::with_error_details(Code::InvalidArgument, text, details)
}

/// Whether the database can be asked for a text.
///
/// # Errors
/// Why not, for a field violation.
pub fn searchable(text: &str) -> Result<(), String> {
    if text.len() > MAX_SEARCH_BYTES {
        return Err(format!("at most {MAX_SEARCH_BYTES} bytes"));
    }
    koi_core::printable::check_shown(text)
}

/// One wrong field of a request.
#[must_use]
pub fn invalid_field(field: &str, message: impl Into<String>) -> Status {
    invalid(&[FieldViolation {
        field: field.to_owned(),
        message: message.into(),
    }])
}

/// `NOT_FOUND` for a name, with the nearest one that exists, else the command that lists them.
#[must_use]
pub fn not_found(kind: &str, name: &str, near: Option<&str>, list: &str) -> Status {
    let name = shortened(name, MAX_FIELD_BYTES);
    let next = near.map_or_else(
        || format!("`{list}` names all"),
        |near| format!("did you mean {near}?"),
    );
    Status::not_found(format!("there is no {kind} {name}; {next}"))
}

/// The status of a refusal.
#[must_use]
pub fn refused(refusal: &Refusal) -> Status {
    let text = shortened(&refusal.to_string(), MAX_MESSAGE_BYTES).into_owned();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn violation(field: &str, message: &str) -> FieldViolation {
        FieldViolation {
            field: field.to_owned(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn an_answer_fits_a_header_whatever_was_sent() {
        let huge = "ü".repeat(50_000);
        let one = invalid(&[violation("cloud", &huge)]);
        assert!(one.message().len() < 500 && one.details().len() < 1_500);
        assert!(one.message().contains("bytes in all"));
        let many: Vec<FieldViolation> = (0..5_000)
            .map(|i| violation(&format!("prices[{i}].cloud"), &huge))
            .collect();
        let status = invalid(&many);
        assert!(status.details().len() < 6_000, "{}", status.details().len());
        let told = status.get_error_details();
        let told = told.bad_request().unwrap();
        let last = &told.field_violations.last().unwrap().description;
        let named = told.field_violations.len() - 1;
        assert_eq!(
            *last,
            format!("{} more problems are not listed", 5_000 - named)
        );
    }

    #[test]
    fn a_name_that_is_not_there_comes_with_the_nearest_one() {
        let told = |near| {
            not_found("job", "chta", near, "koi jobs")
                .message()
                .to_owned()
        };
        assert_eq!(
            told(Some("chat")),
            "there is no job chta; did you mean chat?"
        );
        assert_eq!(told(None), "there is no job chta; `koi jobs` names all");
    }

    #[test]
    fn what_no_row_can_have_is_not_asked_for() {
        assert!(searchable("meta-llama/Llama-3.1-8B").is_ok());
        for bad in ["a\0b", "a\nb", &"x".repeat(401)] {
            assert!(searchable(bad).is_err(), "{bad:?}");
        }
    }
}
