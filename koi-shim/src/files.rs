//! Files of a replica's state folder: names, bounded reads, atomic durable writes, the lock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ShimError;

/// What to run; written by the agent.
pub const SPEC_FILE: &str = "spec.json";
/// Who runs; written by the shim.
pub const IDENTITY_FILE: &str = "identity.json";
/// How it ended; written by the shim.
pub const EXIT_FILE: &str = "exit.json";
/// Control socket of the shim.
pub const SOCKET_FILE: &str = "ctl.sock";
/// Held by the living shim of the folder.
pub const LOCK_FILE: &str = "shim.lock";
/// The shim's own messages.
pub const SHIM_LOG_FILE: &str = "shim.log";

/// Largest JSON file that is read, in bytes.
pub const MAX_JSON_BYTES: u64 = 1 << 20;

/// Reads a JSON file of at most [`MAX_JSON_BYTES`]; `None` when it does not exist.
///
/// # Errors
/// When the file is a link, too large, unreadable or not the expected JSON.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ShimError> {
    let file = match OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32 | OFlags::NONBLOCK.bits() as i32)
        .open(path)
    {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(ShimError::File {
                path: path.to_owned(),
                source,
            });
        }
    };
    let mut text = Vec::new();
    file.take(MAX_JSON_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|source| ShimError::File {
            path: path.to_owned(),
            source,
        })?;
    if text.len() as u64 > MAX_JSON_BYTES {
        return Err(ShimError::Damaged {
            path: path.to_owned(),
            why: format!("larger than {MAX_JSON_BYTES} bytes"),
        });
    }
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| ShimError::Damaged {
            path: path.to_owned(),
            why: error.to_string(),
        })
}

/// Moves a file that cannot be used out of the way, so that it can still be looked at, and returns
/// where it went: `NAME.damaged` beside it, in place of an earlier one.
///
/// # Errors
/// When it cannot be renamed.
pub fn set_aside(path: &Path) -> Result<PathBuf, ShimError> {
    let mut kept = path.as_os_str().to_owned();
    kept.push(".damaged");
    let kept = PathBuf::from(kept);
    fs::rename(path, &kept)
        .map(|()| kept)
        .map_err(|source| ShimError::File {
            path: path.to_owned(),
            source,
        })
}

/// Replaces a file whole: written beside, synced, renamed, folder synced.
///
/// # Errors
/// When any step fails; the old file is then still there.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), ShimError> {
    let wrap = |source| ShimError::File {
        path: path.to_owned(),
        source,
    };
    let text = serde_json::to_vec(value).map_err(|error| wrap(io::Error::other(error)))?;
    write_atomic(path, &text).map_err(wrap)
}

/// Replaces a file whole with `content`, durably, mode 0600.
///
/// # Errors
/// When any step fails; the old file is then still there.
pub fn write_atomic(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Proof that no other shim serves a folder; released by the kernel when the holder dies.
///
/// Dropping it only closes this process's descriptor: a forked child that still has the same open
/// file keeps the lock. That is how an adopting shim hands it to its background part.
#[derive(Debug)]
pub struct FolderLock(File);

impl FolderLock {
    /// Gives the lock up at once, even while another thread's freshly forked child still has a
    /// copy of the descriptor.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn release(self) -> Result<(), ShimError> {
        flock(&self.0, FlockOperation::Unlock).map_err(ShimError::system("flock"))
    }
}

/// Takes the lock of a folder, waiting a moment for somebody who only looks whether it is taken.
///
/// # Errors
/// [`ShimError::AlreadySupervised`] when a living shim holds it.
pub fn lock(state_dir: &Path) -> Result<FolderLock, ShimError> {
    for _ in 0..20 {
        if let Some(lock) = try_lock(state_dir)? {
            return Ok(lock);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Err(ShimError::AlreadySupervised(state_dir.to_owned()))
}

/// Takes the lock of a folder; `None` when a living shim holds it.
///
/// # Errors
/// When the lock file cannot be opened.
pub fn try_lock(state_dir: &Path) -> Result<Option<FolderLock>, ShimError> {
    try_lock_file(&state_dir.join(LOCK_FILE))
}

/// Takes the lock of a file, which is made when it is missing; `None` when somebody holds it.
///
/// # Errors
/// When the file cannot be opened.
pub fn try_lock_file(path: &Path) -> Result<Option<FolderLock>, ShimError> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path)
        .map_err(|source| ShimError::File {
            path: path.to_owned(),
            source,
        })?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(FolderLock(file))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(ShimError::File {
            path: path.to_owned(),
            source: errno.into(),
        }),
    }
}
