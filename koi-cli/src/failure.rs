//! What went wrong, with the exit code that programs see and the sentence that people see.

use koi_core::violation::FieldViolation;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::output::escape;

/// Exit codes, as `koi --help` documents them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCode {
    /// The command ran and failed.
    Failed = 1,
    /// Wrong usage, or input that was refused.
    Invalid = 2,
    /// No such job, node, plan or tick.
    NotFound = 3,
    /// The server cannot be reached or cannot answer now.
    Unavailable = 4,
    /// No credential, or one that may not do this.
    Denied = 5,
    /// The thing exists already or is in another state.
    Conflict = 6,
}

/// The table of exit codes shown by `koi --help`.
pub const EXIT_CODES: &str = "Exit codes:
  0  done
  1  failed
  2  wrong usage or refused input; every problem is listed
  3  not found
  4  server unreachable or unable to answer now
  5  no credential, or not allowed
  6  exists already, or in another state

Example:
  koi up --detach && koi jobs";

/// A failure of a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Exit code.
    pub code: ExitCode,
    /// One sentence, with the next step where there is one.
    pub message: String,
    /// Problems of the input.
    pub violations: Vec<FieldViolation>,
}

impl Failure {
    /// A failure without field violations.
    #[must_use]
    pub fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            violations: vec![],
        }
    }

    /// Input that was refused, with every problem.
    #[must_use]
    pub fn invalid(what: &str, violations: Vec<FieldViolation>) -> Self {
        let plural = if violations.len() == 1 {
            "problem"
        } else {
            "problems"
        };
        let message = format!("{what}: {} {plural}", violations.len());
        Self {
            code: ExitCode::Invalid,
            message,
            violations,
        }
    }

    /// What a gRPC status means to the person at the terminal.
    #[must_use]
    pub fn from_status(status: &Status, server: &str) -> Self {
        let code = exit_code(status.code());
        let message = match status.code() {
            Code::Unavailable | Code::Unknown if is_transport(status) => unreachable_server(server),
            Code::DeadlineExceeded => {
                format!("{server} did not answer in time; try again, or raise --timeout-s")
            }
            Code::Unauthenticated => {
                format!(
                    "{server} refused the credential ({}); pass --token-file or run as the user of koi up",
                    status.message()
                )
            }
            _ => status.message().to_owned(),
        };
        let violations = status
            .get_details_bad_request()
            .map(|bad| bad.field_violations)
            .unwrap_or_default()
            .into_iter()
            .map(|v| FieldViolation {
                field: v.field,
                message: v.description,
            })
            .collect();
        Self {
            code,
            message,
            violations,
        }
    }

    /// The message and one line per problem, safe for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = escape(&self.message);
        for v in &self.violations {
            let field = if v.field.is_empty() {
                String::new()
            } else {
                format!("{}: ", escape(&v.field))
            };
            text.push_str(&format!("\n  {field}{}", escape(&v.message)));
        }
        text
    }
}

/// The line for a server that does not answer.
#[must_use]
pub fn unreachable_server(server: &str) -> String {
    format!(
        "no server answers at {server}; start one with `koi up`, or name yours with --server or KOI_SERVER"
    )
}

fn is_transport(status: &Status) -> bool {
    let text = status.message();
    status.code() == Code::Unavailable
        || text.contains("transport error")
        || text.contains("tcp connect error")
}

fn exit_code(code: Code) -> ExitCode {
    match code {
        Code::InvalidArgument | Code::OutOfRange => ExitCode::Invalid,
        Code::NotFound => ExitCode::NotFound,
        Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted => {
            ExitCode::Unavailable
        }
        Code::PermissionDenied | Code::Unauthenticated => ExitCode::Denied,
        Code::AlreadyExists | Code::Aborted | Code::FailedPrecondition => ExitCode::Conflict,
        Code::Unknown => ExitCode::Unavailable,
        Code::Ok | Code::Cancelled | Code::Unimplemented | Code::Internal | Code::DataLoss => {
            ExitCode::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::{ErrorDetails, FieldViolation as WireViolation};

    use super::*;

    #[test]
    fn field_violations_of_a_status_become_lines() {
        let mut details = ErrorDetails::new();
        details.set_bad_request(vec![
            WireViolation::new("slo.p99_ttft_ms", "must be above 0"),
            WireViolation::new("name", "evil \u{1b}[2J"),
        ]);
        let status =
            Status::with_error_details(Code::InvalidArgument, "the job was refused", details);
        let failure = Failure::from_status(&status, "http://x");
        assert_eq!(failure.code, ExitCode::Invalid);
        assert_eq!(
            failure.text(),
            "the job was refused\n  slo.p99_ttft_ms: must be above 0\n  name: evil \\u{1b}[2J"
        );
    }

    #[test]
    fn an_unreachable_server_says_what_to_do() {
        let failure = Failure::from_status(
            &Status::unavailable("tcp connect error"),
            "http://127.0.0.1:1",
        );
        assert_eq!(failure.code, ExitCode::Unavailable);
        assert!(failure.message.contains("koi up"), "{}", failure.message);
    }
}
