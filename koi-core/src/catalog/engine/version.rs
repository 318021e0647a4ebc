//! A released engine version as numbers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A released engine version. A build tag after `+` or `-`, and the marks of release candidates,
/// post-releases and development builds take no part in comparisons: they have the flags of their
/// release.
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
        let mut parts: Vec<&str> = release.split('.').collect();
        while parts.last().is_some_and(|part| is_mark(part)) {
            parts.pop();
        }
        if let Some(last) = parts.last_mut() {
            *last = without_candidate(last);
        }
        let numbers: Option<Vec<u32>> = parts.iter().map(|n| n.parse().ok()).collect();
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

/// `post1`, `dev308`.
fn is_mark(part: &str) -> bool {
    ["post", "dev"].iter().any(|mark| {
        part.strip_prefix(mark)
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()))
    })
}

/// `0rc1` → `0`.
fn without_candidate(part: &str) -> &str {
    part.split_once("rc")
        .filter(|(_, n)| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()))
        .map_or(part, |(number, _)| number)
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
