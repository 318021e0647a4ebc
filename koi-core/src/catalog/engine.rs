//! The engine's command line as a table: which flag writes which X variable, since when, how.
//!
//! Not the rendering of one configuration: that is [`crate::configuration`]. Versions are compared
//! as numbers, never as text.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A released engine version; what follows a `+` or `-` does not take part in comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EngineVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number; 0 when left out.
    pub patch: u32,
}

/// The text is not a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an engine version of the form 0.32.0")]
pub struct NotAVersion {
    /// What was offered, cut to 40 characters.
    pub text: String,
}

impl FromStr for EngineVersion {
    type Err = NotAVersion;
    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let bad = || NotAVersion {
            text: text.chars().take(40).collect(),
        };
        let release = text.split(['+', '-']).next().unwrap_or("");
        let numbers: Option<Vec<u32>> = release.split('.').map(|n| n.parse().ok()).collect();
        match numbers.as_deref() {
            Some([major, minor]) => Ok(Self {
                major: *major,
                minor: *minor,
                patch: 0,
            }),
            Some([major, minor, patch]) => Ok(Self {
                major: *major,
                minor: *minor,
                patch: *patch,
            }),
            _ => Err(bad()),
        }
    }
}

impl TryFrom<String> for EngineVersion {
    type Error = NotAVersion;
    fn try_from(text: String) -> Result<Self, NotAVersion> {
        text.parse()
    }
}

impl From<EngineVersion> for String {
    fn from(version: EngineVersion) -> Self {
        version.to_string()
    }
}

impl fmt::Display for EngineVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// How a value becomes arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FlagWriter {
    /// `FLAG=VALUE`.
    Value(String),
    /// One argument for true, another for false.
    Switch {
        /// Argument for true.
        on: String,
        /// Argument for false.
        off: String,
    },
    /// One argument list per name; a name without an entry is refused.
    Choice(BTreeMap<String, Vec<String>>),
    /// An argument when the number is above one, nothing at one.
    AboveOne(String),
}

/// One flag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlagRow {
    /// X variable that the flag writes.
    pub feature: String,
    /// How.
    pub write: FlagWriter,
    /// First version that has the flag.
    pub since: EngineVersion,
    /// First version that no longer has it.
    #[serde(default)]
    pub until: Option<EngineVersion>,
}

impl FlagRow {
    /// Whether a version has the flag.
    #[must_use]
    pub fn exists_in(&self, version: EngineVersion) -> bool {
        self.since <= version && self.until.is_none_or(|until| version < until)
    }
}

/// The flag table of one engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineFlags {
    /// Engine family.
    pub engine: String,
    /// Oldest version that the table describes.
    pub oldest: EngineVersion,
    /// First version that the table no longer claims to describe.
    pub before: EngineVersion,
    /// Rows in the order in which arguments are written.
    #[serde(rename = "flag")]
    pub flags: Vec<FlagRow>,
}

impl EngineFlags {
    /// The row that writes a feature in a version.
    #[must_use]
    pub fn row(&self, feature: &str, version: EngineVersion) -> Option<&FlagRow> {
        self.flags
            .iter()
            .find(|row| row.feature == feature && row.exists_in(version))
    }
}
