//! Settings files: why one cannot be used, with every problem of it at once.
//!
//! Reading the file is its shell's business, and which keys it has; what both shells do with the text
//! is here.

use std::path::{Path, PathBuf};

use crate::violation::FieldViolation;

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// File.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// What the file says is wrong.
    #[error("{path}: {}", shown(problems))]
    Invalid {
        /// File.
        path: PathBuf,
        /// Every problem, by key; without a key where it is the syntax.
        problems: Vec<FieldViolation>,
    },
}

/// Problems on one line, each with its key.
#[must_use]
pub fn shown(problems: &[FieldViolation]) -> String {
    let one = |p: &FieldViolation| match p.field.as_str() {
        "" => p.message.clone(),
        field => format!("{field}: {}", p.message),
    };
    problems.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl SettingsError {
    /// True when only another file helps; one that is missing is not there after a restart either.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Invalid { .. } => true,
            Self::Read { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        }
    }
}

/// The settings that a file's text spells out.
///
/// # Errors
/// [`SettingsError`] naming the file, and every problem of it.
pub fn of_file<T>(
    path: &Path,
    text: std::io::Result<String>,
    parse: impl FnOnce(&str) -> Result<T, Vec<FieldViolation>>,
) -> Result<T, SettingsError> {
    let text = text.map_err(|source| SettingsError::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(&text).map_err(|problems| SettingsError::Invalid {
        path: path.to_owned(),
        problems,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    fn fails(text: std::io::Result<String>) -> SettingsError {
        let parse = |_: &str| {
            let problem = |field: &str| FieldViolation {
                field: field.to_owned(),
                message: "is wrong".to_owned(),
            };
            Err::<(), _>(vec![problem(""), problem("tls.key_file")])
        };
        of_file(Path::new("server.toml"), text, parse).unwrap_err()
    }

    #[test]
    fn every_problem_is_shown_with_its_key() {
        let error = fails(Ok(String::new()));
        let want = "server.toml: is wrong; tls.key_file: is wrong";
        assert_eq!(error.to_string(), want);
        assert!(error.is_permanent());
    }

    #[test]
    fn only_a_file_that_may_come_back_is_worth_another_start() {
        assert!(fails(Err(Error::from(ErrorKind::NotFound))).is_permanent());
        assert!(!fails(Err(Error::from(ErrorKind::PermissionDenied))).is_permanent());
    }
}
