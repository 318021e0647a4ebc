//! An engine's command line as a table: which flag writes which X variable, since when, how.
//!
//! Not the rendering of one configuration: that is [`crate::configuration`]. Versions are compared
//! as numbers, never as text. A version outside the table is refused and never mapped to a
//! neighbour: an argument that the engine does not know keeps it from starting.

mod version;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use version::{EngineVersion, NotAVersion};

use super::value::Value;

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
    /// An argument for true, nothing for false.
    WhenTrue(String),
    /// An argument for false, nothing for true.
    WhenFalse(String),
    /// One argument list per name; a name without an entry is refused.
    Choice(BTreeMap<String, Vec<String>>),
    /// An argument when the number is above one, nothing at one.
    AboveOne(String),
    /// A key of a JSON object; keys of one flag are written as one argument.
    Json {
        /// The flag.
        flag: String,
        /// Path in the object, parts joined by dots.
        key: String,
        /// Whether true is written as false and false as true.
        #[serde(default)]
        inverted: bool,
    },
    /// The version has no flag and always behaves as this value; another value is refused.
    Implied(Value),
}

impl FlagWriter {
    /// Flags that the writer may write, up to the `=`.
    #[must_use]
    pub fn flags(&self) -> BTreeSet<&str> {
        let arguments: Vec<&str> = match self {
            Self::Value(flag)
            | Self::AboveOne(flag)
            | Self::WhenTrue(flag)
            | Self::WhenFalse(flag)
            | Self::Json { flag, .. } => vec![flag],
            Self::Switch { on, off } => vec![on, off],
            Self::Choice(choices) => choices.values().flatten().map(String::as_str).collect(),
            Self::Implied(_) => Vec::new(),
        };
        let name = |argument: &'_ str| argument.find('=').unwrap_or(argument.len());
        arguments.into_iter().map(|a| &a[..name(a)]).collect()
    }
}

/// How a row came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checked {
    /// Read in the source named by the file: a parser, a data sheet.
    #[default]
    Source,
    /// Worked out from rows that were read.
    Derived,
    /// Written from memory or from third parties.
    Unverified,
}

impl Checked {
    /// The word in the catalog.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Derived => "derived",
            Self::Unverified => "unverified",
        }
    }
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
    /// Legal values in these versions, where they are fewer than the domain's.
    #[serde(default)]
    pub only: Option<Vec<Value>>,
    /// How the row came to be known.
    #[serde(default)]
    pub checked: Checked,
    /// What else is to be known.
    #[serde(default)]
    pub note: Option<String>,
}

impl FlagRow {
    /// Whether a version has the flag.
    #[must_use]
    pub fn exists_in(&self, version: EngineVersion) -> bool {
        self.since <= version && self.until.is_none_or(|until| version < until)
    }

    /// Whether some version has both rows.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.exists_in(other.since) || other.exists_in(self.since)
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
    /// Versions whose argument parser was read.
    pub read: Vec<EngineVersion>,
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

    /// Whether any version of the engine can be told this feature.
    #[must_use]
    pub fn knows(&self, feature: &str) -> bool {
        self.flags.iter().any(|row| row.feature == feature)
    }

    /// Whether the table describes a version.
    #[must_use]
    pub fn describes(&self, version: EngineVersion) -> bool {
        self.oldest <= version && version < self.before
    }
}
