//! What went wrong, with the exit code that programs see and the sentence that people see.

use std::error::Error;
use std::io::ErrorKind;

use koi_core::violation::FieldViolation;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::output::{Format, escape};

/// Exit codes, as `koi --help` documents them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCode {
    /// The command ran and failed.
    Failed = 1,
    /// Wrong usage, or input that was refused.
    Invalid = 2,
    /// No such job, node, plan or tick, or no such file.
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
  3  not found: a job, node, plan or tick, or a file named on the command line
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

    /// A file or folder named on the command line that cannot be read: not found, or wrong usage.
    #[must_use]
    pub fn unreadable(path: &std::path::Path, error: &std::io::Error) -> Self {
        let shown = path.display();
        let (code, why) = match error.kind() {
            ErrorKind::NotFound => (ExitCode::NotFound, "no such file".to_owned()),
            ErrorKind::IsADirectory => (ExitCode::Invalid, "a folder, not a file".to_owned()),
            _ => (ExitCode::Invalid, error.to_string()),
        };
        Self::new(code, format!("cannot read {shown}: {why}"))
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
        let is_local = status.source().is_some();
        let code = match status.code() {
            // A deadline that passed on this side is a cancelled call.
            Code::Unknown | Code::Internal | Code::Cancelled if is_local => ExitCode::Unavailable,
            code => exit_code(code),
        };
        let message = match status.code() {
            // Only what was made on this side has a cause; a server's own words come without.
            Code::DeadlineExceeded => late(server),
            Code::Cancelled if is_local => late(server),
            _ if is_local => lost_connection(status, server),
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

    /// The failure in the form of the output: for people, or one document for programs.
    #[must_use]
    pub fn shown(&self, format: Format) -> String {
        let document = serde_json::json!({ "error": self.message, "violations": self.violations });
        let made = match format {
            Format::Table => None,
            Format::Json => serde_json::to_string(&document).ok(),
            Format::Yaml => serde_yaml_ng::to_string(&document).ok(),
        };
        made.unwrap_or_else(|| format!("error: {}", self.text()))
    }

    /// The message and one line per problem, safe for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = lines(&self.message);
        for v in self.violations.iter().filter(|v| !self.says(v)) {
            let field = if v.field.is_empty() {
                String::new()
            } else {
                format!("{}: ", escape(&v.field))
            };
            text.push_str(&format!("\n  {field}{}", lines(&v.message)));
        }
        text
    }

    /// Whether the message is this one problem, as a server writes it.
    fn says(&self, v: &FieldViolation) -> bool {
        let rest = self.message.strip_prefix(v.field.as_str());
        rest.and_then(|rest| rest.strip_prefix(": ")) == Some(v.message.as_str())
    }
}

/// A text of several lines, safe for a terminal: what follows the first is set in, so that none can
/// pass for a line of ours.
fn lines(text: &str) -> String {
    let lines: Vec<String> = text.trim_end().split('\n').map(escape).collect();
    lines.join("\n    ")
}

/// Causes of an error that are looked at.
const MAX_CAUSES: usize = 16;

fn late(server: &str) -> String {
    format!("{server} did not answer in time; try again, or raise --timeout-s")
}

/// The line for a server that does not answer.
#[must_use]
pub fn unreachable_server(server: &str) -> String {
    format!(
        "no server answers at {server}; start one with `koi up`, or name yours with --server or KOI_SERVER"
    )
}

/// What a connection that was not made, or broke, means: nobody there, TLS at one end only, or a
/// certificate that is not trusted here.
#[must_use]
pub fn lost_connection(error: &(dyn Error + 'static), server: &str) -> String {
    let mut chain = vec![error];
    while let Some(next) = chain.last().and_then(|e| Error::source(*e))
        && chain.len() < MAX_CAUSES
    {
        chain.push(next);
    }
    let cause = chain.last().map_or_else(String::new, ToString::to_string);
    let words = |parts: &[&str]| {
        let texts = chain.iter().map(|e| format!("{e} {e:?}"));
        texts
            .into_iter()
            .any(|t| parts.iter().any(|p| t.contains(p)))
    };
    let is_https = server.starts_with("https://");
    if is_https && words(&["InvalidContentType", "corrupt message"]) {
        return format!("{server} does not speak TLS; if it is yours, name it with http://");
    }
    if words(&["InvalidCertificate", "invalid peer certificate"]) {
        return format!(
            "the certificate of {server} is not trusted: {cause}; --ca-file names the authority that signed it"
        );
    }
    let spoke = [
        "FRAME_SIZE_ERROR",
        "frame with invalid size",
        "PROTOCOL_ERROR",
        "HandshakeFailure",
        "invalid compression flag",
    ];
    if words(&spoke) {
        let hint = if is_https {
            ""
        } else {
            "; if it speaks TLS, name it with https:// and --ca-file"
        };
        return format!("what answers at {server} is not a Koi server ({cause}){hint}");
    }
    unreachable_server(server)
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
    fn the_one_problem_that_is_the_message_is_not_said_twice() {
        let mut failure = Failure {
            code: ExitCode::Invalid,
            message: "name: must not be empty".to_owned(),
            violations: vec![FieldViolation {
                field: "name".to_owned(),
                message: "must not be empty".to_owned(),
            }],
        };
        assert_eq!(failure.text(), "name: must not be empty");
        failure.violations[0].message.push_str(" or long");
        assert_eq!(failure.text().lines().count(), 2);
    }

    #[test]
    fn text_of_several_lines_is_shown_as_such_and_cannot_pass_for_ours() {
        let failure = Failure::new(ExitCode::Invalid, "a.toml: TOML error\n  |\n\u{1b}1 | x\n");
        assert_eq!(
            failure.text(),
            "a.toml: TOML error\n      |\n    \\u{1b}1 | x"
        );
    }

    #[test]
    fn programs_get_a_failure_as_a_document() {
        let violation = FieldViolation {
            field: "name".to_owned(),
            message: "a \u{1b}b".to_owned(),
        };
        let failure = Failure::invalid("job.yaml", vec![violation]);
        let shown = failure.shown(Format::Json);
        assert!(!shown.contains(['\n', '\u{1b}']), "{shown}");
        let read: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(read["error"], "job.yaml: 1 problem");
        assert_eq!(read["violations"][0]["field"], "name");
        assert!(failure.shown(Format::Table).starts_with("error: job.yaml"));
    }

    #[test]
    fn an_unreachable_server_says_what_to_do() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let failure =
            Failure::from_status(&Status::from_error(Box::new(refused)), "http://127.0.0.1:1");
        assert_eq!(failure.code, ExitCode::Unavailable);
        assert!(failure.message.contains("koi up"), "{}", failure.message);
    }

    #[test]
    fn the_words_of_a_server_that_cannot_answer_now_are_its_own() {
        let status = Status::unavailable("the database is away; try again");
        let failure = Failure::from_status(&status, "http://127.0.0.1:1");
        assert_eq!(failure.code, ExitCode::Unavailable);
        assert_eq!(failure.message, "the database is away; try again");
    }
}
