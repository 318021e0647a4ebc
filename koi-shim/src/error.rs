//! What can go wrong in the shim, with the exit code each problem has.

use std::io;
use std::path::PathBuf;

/// A problem of the shim.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// The specification cannot be used; every problem is listed.
    #[error("spec.json is not usable: {}", .0.join("; "))]
    BadSpec(Vec<String>),
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Another shim holds the folder.
    #[error("{0} is already supervised by a living shim")]
    AlreadySupervised(PathBuf),
    /// The recorded process is not the one that runs now, so it is left alone.
    #[error("pid {pid} is not the recorded engine: {why}; nothing was signalled")]
    NotOurs {
        /// Process id of the record.
        pid: u32,
        /// The difference.
        why: String,
    },
    /// The engine could not be started.
    #[error("cannot start {program:?}: {source}")]
    Spawn {
        /// First word of the command.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{call}: {source}")]
    System {
        /// The call.
        call: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The daemon died before it said that it serves.
    #[error("the shim did not start: {0}")]
    NotReady(String),
}

impl ShimError {
    /// Wraps a failed system call.
    pub fn system(call: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |source| Self::System {
            call,
            source: source.into(),
        }
    }

    /// Exit code of the process: 2 for a bad specification, 3 when a shim lives, 4 when the
    /// recorded process is somebody else's, 1 for the rest.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::BadSpec(_) => 2,
            Self::AlreadySupervised(_) => 3,
            Self::NotOurs { .. } => 4,
            Self::File { .. }
            | Self::Damaged { .. }
            | Self::Spawn { .. }
            | Self::System { .. }
            | Self::NotReady(_) => 1,
        }
    }
}
