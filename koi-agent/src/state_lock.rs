//! One agent per state folder: a lock that the kernel gives up when its holder dies.
//!
//! Two agents on one folder would start and stop each other's engines. The file's content, the
//! holder's pid, is for people; only the lock counts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use koi_shim::ShimError;
use koi_shim::files::{FolderLock, try_lock_file};

/// The lock's file within the state folder.
pub const AGENT_LOCK_FILE: &str = "agent.lock";

/// Tries, and the pause between them: an agent that was just killed may need a moment to be gone.
const TRIES: u32 = 20;
const TRY_PAUSE: Duration = Duration::from_millis(100);

/// The folder cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StateLockError {
    /// Another agent works on it.
    #[error(
        "another koi-agent{} already works on {}; stop it, or set another state_dir",
        .holder.as_ref().map(|pid| format!(" (pid {pid})")).unwrap_or_default(),
        .state_dir.display()
    )]
    Held {
        /// The folder.
        state_dir: PathBuf,
        /// Its process id, as far as it could write it down.
        holder: Option<u32>,
    },
    /// The lock's file cannot be opened.
    #[error(transparent)]
    File(#[from] ShimError),
}

impl StateLockError {
    /// True when starting again does not help.
    #[must_use]
    pub const fn is_permanent(&self) -> bool {
        matches!(self, Self::Held { .. })
    }
}

/// Proof that no other agent works on a state folder, for as long as it is kept.
#[derive(Debug)]
pub struct StateLock {
    #[expect(dead_code, reason = "held for its lifetime")]
    lock: FolderLock,
}

impl StateLock {
    /// Takes the folder, waiting a moment for an agent that is about to be gone.
    ///
    /// # Errors
    /// [`StateLockError`]; nothing of the folder was touched then.
    pub async fn take(state_dir: &Path) -> Result<Self, StateLockError> {
        let path = state_dir.join(AGENT_LOCK_FILE);
        for tried in 0..TRIES {
            if tried > 0 {
                tokio::time::sleep(TRY_PAUSE).await;
            }
            if let Some(lock) = try_lock_file(&path)? {
                // Only a hint: a full disk must not keep an agent from starting.
                drop(fs::write(&path, std::process::id().to_string()));
                return Ok(Self { lock });
            }
        }
        let holder = fs::read_to_string(&path).ok();
        Err(StateLockError::Held {
            state_dir: state_dir.to_owned(),
            holder: holder.and_then(|text| text.trim().parse().ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_folder::TestFolder;

    #[tokio::test]
    async fn one_agent_at_a_time_has_a_state_folder() {
        let folder = TestFolder::new();
        let first = StateLock::take(folder.path()).await.unwrap();
        let second = StateLock::take(folder.path()).await.unwrap_err();
        assert!(second.is_permanent());
        let words = second.to_string();
        assert!(
            words.contains(&format!("(pid {})", std::process::id())),
            "{words}"
        );
        assert!(words.contains(folder.path().to_str().unwrap()), "{words}");
        drop(first);
        StateLock::take(folder.path()).await.unwrap();
    }
}
