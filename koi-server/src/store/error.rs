//! What can go wrong with the store, and who has to do something about it.

use koi_core::store::TxRefusal;

use super::commit::TxKey;

/// Who acts on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The caller: the request cannot succeed as it is.
    Caller,
    /// Nobody: it passes, try again later.
    Transient,
    /// A developer or operator.
    Bug,
}

/// Whether the transaction may have happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It did not.
    NotApplied,
    /// The connection went away at COMMIT: look the key up, or commit again under the same key.
    Unknown,
}

/// Why the database did not do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outage {
    /// Cannot be reached, or the connection broke.
    ConnectionLost,
    /// Starting, stopping or recovering.
    Restarting,
    /// All connections are in use, here or there.
    TooManyConnections,
    /// A statement or a lock took too long.
    Timeout,
    /// Gave way to another transaction.
    Serialization,
    /// A standby, or set read-only.
    ReadOnly,
    /// No space is left for the database's files.
    DiskFull,
    /// Memory, or another of the database's own limits.
    ResourcesExhausted,
}

/// What a full disk is called wherever somebody reads of it.
const DISK_FULL: &str = "the database's disk is full: free or add space on the volume of Postgres's data \
    (a private one keeps it in postgres/ below data_dir); Koi then goes on by itself";

impl Outage {
    /// Name for metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConnectionLost => "connection_lost",
            Self::Restarting => "restarting",
            Self::TooManyConnections => "too_many_connections",
            Self::Timeout => "timeout",
            Self::Serialization => "serialization",
            Self::ReadOnly => "read_only",
            Self::DiskFull => "disk_full",
            Self::ResourcesExhausted => "resources_exhausted",
        }
    }

    /// True when the same transaction may succeed within moments.
    pub(super) const fn passes_soon(self) -> bool {
        match self {
            Self::ConnectionLost | Self::Restarting | Self::Serialization => true,
            Self::TooManyConnections
            | Self::Timeout
            | Self::ReadOnly
            | Self::DiskFull
            | Self::ResourcesExhausted => false,
        }
    }

    /// True for what a database that answers lacks until somebody acts.
    pub(super) const fn lasts(self) -> bool {
        matches!(
            self,
            Self::DiskFull | Self::ReadOnly | Self::ResourcesExhausted
        )
    }

    /// What somebody has to do about it, where waiting does not help.
    const fn remedy(self) -> Option<&'static str> {
        match self {
            Self::DiskFull => Some(DISK_FULL),
            Self::ReadOnly
            | Self::ResourcesExhausted
            | Self::ConnectionLost
            | Self::Restarting
            | Self::TooManyConnections
            | Self::Timeout
            | Self::Serialization => None,
        }
    }
}

/// The store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state does not allow the transaction. Nothing of it has happened.
    #[error(transparent)]
    Refused(#[from] TxRefusal),
    /// Another transaction was committed under this key.
    #[error("transaction key {0} was used for another transaction")]
    KeyReused(TxKey),
    /// The URL of the database is not one.
    #[error("the database URL cannot be read")]
    BadUrl(#[source] sqlx::Error),
    /// The page token is not one that this listing gave out.
    #[error("the page token does not belong to this listing; start again without one")]
    BadPageToken,
    /// A batch of telemetry breaks a bound.
    #[error("telemetry refused: {0}")]
    BadTelemetry(String),
    /// The database is away for now.
    #[error("{}", unavailable(*outage))]
    Unavailable {
        /// Why.
        outage: Outage,
        /// Whether a transaction may have happened.
        outcome: Outcome,
        /// What was said.
        #[source]
        source: sqlx::Error,
    },
    /// The time for a commit ran out.
    #[error("the database did not commit within {limit_ms} ms")]
    Deadline {
        /// The time.
        limit_ms: u128,
        /// Whether the transaction may have happened.
        outcome: Outcome,
    },
    /// A stored document cannot be read: damaged, or written by a newer build.
    #[error("{table} {key} is stored in a form that this build cannot read")]
    Corrupt {
        /// Table.
        table: &'static str,
        /// Row.
        key: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A value cannot be written as a document.
    #[error("a value cannot be stored")]
    Unstorable(#[source] serde_json::Error),
    /// The schema could not be brought up to date.
    #[error("the database cannot be migrated")]
    Migration(#[source] sqlx::migrate::MigrateError),
    /// A statement is wrong, or the database breaks its promises.
    #[error("the database refused a statement")]
    Bug(#[source] sqlx::Error),
}

impl StoreError {
    /// True when nothing is wrong but the database's absence: try again later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.class() == ErrorClass::Transient
    }

    /// What somebody has to do, where that is known and waiting does not help.
    #[must_use]
    pub const fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Unavailable { outage, .. } => outage.remedy(),
            _ => None,
        }
    }

    /// True when another server has taken the lead.
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        matches!(self, Self::Refused(TxRefusal::Fenced { .. }))
    }

    /// Who has to act.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Refused(_) | Self::KeyReused(_) | Self::BadUrl(_) => ErrorClass::Caller,
            Self::BadPageToken | Self::BadTelemetry(_) => ErrorClass::Caller,
            Self::Unavailable { .. } | Self::Deadline { .. } => ErrorClass::Transient,
            Self::Corrupt { .. } | Self::Unstorable(_) => ErrorClass::Bug,
            Self::Migration(_) | Self::Bug(_) => ErrorClass::Bug,
        }
    }

    /// Whether a transaction that ended in this error may have happened.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Unavailable { outcome, .. } | Self::Deadline { outcome, .. } => *outcome,
            Self::Refused(_)
            | Self::KeyReused(_)
            | Self::BadUrl(_)
            | Self::BadPageToken
            | Self::BadTelemetry(_)
            | Self::Corrupt { .. }
            | Self::Unstorable(_)
            | Self::Migration(_)
            | Self::Bug(_) => Outcome::NotApplied,
        }
    }

    pub(super) fn with_outcome(mut self, unknown: bool) -> Self {
        if let Self::Unavailable { outcome, .. } | Self::Deadline { outcome, .. } = &mut self
            && unknown
        {
            *outcome = Outcome::Unknown;
        }
        self
    }

    pub(super) const fn passes_soon(&self) -> bool {
        matches!(self, Self::Unavailable { outage, .. } if outage.passes_soon())
    }
}

fn unavailable(outage: Outage) -> String {
    let passes = || format!("the database is not available ({})", outage.name());
    outage.remedy().map_or_else(passes, str::to_owned)
}

impl From<sqlx::Error> for StoreError {
    fn from(source: sqlx::Error) -> Self {
        match outage_of(&source) {
            Some(outage) => Self::Unavailable {
                outage,
                outcome: Outcome::NotApplied,
                source,
            },
            None => Self::Bug(source),
        }
    }
}

impl From<sqlx::migrate::MigrateError> for StoreError {
    fn from(error: sqlx::migrate::MigrateError) -> Self {
        use sqlx::migrate::MigrateError::{Execute, ExecuteMigration};
        match error {
            Execute(source) | ExecuteMigration(source, _) if outage_of(&source).is_some() => {
                source.into()
            }
            other => Self::Migration(other),
        }
    }
}

fn outage_of(error: &sqlx::Error) -> Option<Outage> {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => {
            Some(Outage::ConnectionLost)
        }
        sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => Some(Outage::ConnectionLost),
        sqlx::Error::PoolTimedOut => Some(Outage::TooManyConnections),
        sqlx::Error::Database(database) => outage_of_code(&database.code()?),
        _ => None,
    }
}

/// SQLSTATE to outage; codes that no waiting cures are bugs.
fn outage_of_code(code: &str) -> Option<Outage> {
    Some(match code {
        "57P01" | "57P02" | "57P03" | "57P05" => Outage::Restarting,
        "40001" | "40P01" => Outage::Serialization,
        "57014" | "55P03" | "25P03" | "25P04" => Outage::Timeout,
        "25006" => Outage::ReadOnly,
        "53300" => Outage::TooManyConnections,
        "53100" => Outage::DiskFull,
        "53000" | "53200" | "53400" => Outage::ResourcesExhausted,
        code if code.starts_with("08") => Outage::ConnectionLost,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_by_what_cures_them() {
        let soon = |code| outage_of_code(code).is_some_and(Outage::passes_soon);
        for code in ["57P01", "57P02", "57P03", "08006", "40001", "40P01"] {
            assert!(soon(code), "{code} passes by itself");
        }
        for code in ["25006", "53100", "57014", "55P03", "53300"] {
            assert!(
                outage_of_code(code).is_some() && !soon(code),
                "{code} takes longer"
            );
        }
        for code in ["23505", "42P01", "22P02"] {
            assert_eq!(outage_of_code(code), None, "{code} is a bug");
        }
    }
    #[test]
    fn a_full_disk_is_called_one_and_says_what_to_do() {
        assert_eq!(outage_of_code("53100"), Some(Outage::DiskFull));
        assert_eq!(outage_of_code("53200"), Some(Outage::ResourcesExhausted));
        let of = |outage| StoreError::Unavailable {
            outage,
            outcome: Outcome::NotApplied,
            source: sqlx::Error::PoolClosed,
        };
        let full = of(Outage::DiskFull);
        assert!(full.is_transient(), "space may come back at any time");
        let said = full.to_string();
        assert!(said.contains("disk is full") && said.contains("add space"));
        assert_eq!(full.remedy(), Some(said.as_str()));
        assert_eq!(of(Outage::Restarting).remedy(), None);
    }
}
