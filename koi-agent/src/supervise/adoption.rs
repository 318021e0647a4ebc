//! Finding replicas again: after the agent's own restart, or after the death of one shim.
//!
//! A living shim is simply used. A dead shim with a living engine is replaced. What belongs to
//! another boot or to somebody else is reported and never signalled. Damaged files are recovered
//! from other proofs where there are any.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use koi_shim::ShimError;
use koi_shim::files::{IDENTITY_FILE, SPEC_FILE, lock, try_lock};
use koi_shim::process::boot_id;
use koi_shim::record::{ExitRecord, Operation, Reply};

use crate::supervise::control::ask;
use crate::supervise::launch::{LaunchError, run_shim};
use crate::supervise::recovery::{identity_of, meta_of};
use crate::supervise::{ReplicaMeta, ReplicaProcess, Supervision, exit_record};

/// Most state folders that are looked at.
const MAX_FOLDERS: usize = 1024;

/// What was found in one state folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adopted {
    /// Its shim serves.
    Running(Box<ReplicaProcess>),
    /// Its shim was dead; a new one watches the same engine.
    Reshimmed(Box<ReplicaProcess>),
    /// It has ended and nothing of it is left.
    Ended(Box<ReplicaMeta>, Box<ExitRecord>),
    /// It ran before the last boot of the host and cannot be running.
    OtherBoot(Box<ReplicaMeta>),
    /// No shim serves it and none can be had, e.g. because the disk is full or a stopped shim holds
    /// the folder; nothing was touched. Whether the engine lives, only the kernel can say: see
    /// [`ReplicaProcess::has_ended`].
    Unserved(Box<ReplicaProcess>, String),
    /// The folder says nothing usable; nothing was touched.
    Unusable(String),
}

/// One folder and what was found in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptOutcome {
    /// The folder.
    pub state_dir: PathBuf,
    /// The finding.
    pub found: Adopted,
}

/// Looks at every state folder. A problem of one never hides another.
///
/// # Errors
/// When the root itself cannot be listed; a missing root holds nothing.
pub async fn adopt_all(supervision: &Supervision) -> io::Result<Vec<AdoptOutcome>> {
    let mut outcomes = Vec::new();
    for state_dir in folders(&supervision.state_root)? {
        let found = adopt_one(supervision, &state_dir).await;
        outcomes.push(AdoptOutcome { state_dir, found });
    }
    Ok(outcomes)
}

fn folders(root: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries.take(MAX_FOLDERS) {
        let entry = entry?;
        // Only real folders with a specification: a link planted here leads nowhere.
        if entry.file_type()?.is_dir() && entry.path().join(SPEC_FILE).exists() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Looks at one state folder and takes over what is found; also the answer to a lost shim.
pub async fn adopt_one(supervision: &Supervision, state_dir: &Path) -> Adopted {
    match try_adopt(supervision, state_dir).await {
        Ok(found) => found,
        Err(error) => Adopted::Unusable(error.to_string()),
    }
}

async fn try_adopt(supervision: &Supervision, state_dir: &Path) -> Result<Adopted, LaunchError> {
    let meta = meta_of(state_dir)?;
    if let Some(exit) = finished(state_dir, &meta)? {
        return Ok(Adopted::Ended(Box::new(meta), Box::new(exit)));
    }
    if let Ok(Reply::Ok) = ask(state_dir, &meta.nonce, Operation::Ping).await {
        let process = recorded(state_dir, meta).await?;
        return Ok(Adopted::Running(Box::new(process)));
    }
    match try_lock(state_dir)? {
        Some(lock) => lock.release()?,
        None => return held(state_dir, meta).await,
    }
    let identity = identity_of(state_dir, &meta).await?;
    let boot = boot_id().map_err(|source| ShimError::System {
        call: "boot_id",
        source,
    })?;
    if identity.as_ref().is_some_and(|i| i.boot_id != boot) {
        return Ok(Adopted::OtherBoot(Box::new(meta)));
    }
    match (run_shim(supervision, "adopt", state_dir).await, identity) {
        (Ok(()), _) => {}
        (Err(error), Some(identity)) if !is_somebody_elses(&error) => {
            let process = ReplicaProcess {
                state_dir: state_dir.to_owned(),
                meta,
                identity,
            };
            return Ok(Adopted::Unserved(Box::new(process), error.to_string()));
        }
        (Err(error), _) => return Err(error),
    }
    Ok(match finished(state_dir, &meta)? {
        Some(exit) => Adopted::Ended(Box::new(meta), Box::new(exit)),
        None => Adopted::Reshimmed(Box::new(recorded(state_dir, meta).await?)),
    })
}

/// What is noted about the replica of a folder, whether or not it runs.
#[must_use]
pub fn noted(state_dir: &Path) -> Option<ReplicaMeta> {
    meta_of(state_dir).ok()
}

/// A shim holds the folder and does not answer. Either it finishes right now or it hangs; the
/// record tells.
async fn held(state_dir: &Path, meta: ReplicaMeta) -> Result<Adopted, LaunchError> {
    if let Some(exit) = finished(state_dir, &meta)? {
        return Ok(Adopted::Ended(Box::new(meta), Box::new(exit)));
    }
    let process = recorded(state_dir, meta).await?;
    let why = "its shim does not answer".to_owned();
    Ok(Adopted::Unserved(Box::new(process), why))
}

/// The shim found that the recorded process is not ours (its exit code 4).
fn is_somebody_elses(error: &LaunchError) -> bool {
    matches!(error, LaunchError::Refused { code: Some(4), .. })
}

fn finished(state_dir: &Path, meta: &ReplicaMeta) -> Result<Option<ExitRecord>, ShimError> {
    Ok(exit_record(state_dir, &meta.nonce)?.filter(|exit| exit.group_gone_at.is_some()))
}

async fn recorded(state_dir: &Path, meta: ReplicaMeta) -> Result<ReplicaProcess, ShimError> {
    let identity = identity_of(state_dir, &meta).await?;
    let identity = identity.ok_or_else(|| ShimError::Damaged {
        path: state_dir.join(IDENTITY_FILE),
        why: "is damaged or missing, and no process of the launch can be found".to_owned(),
    })?;
    Ok(ReplicaProcess {
        state_dir: state_dir.to_owned(),
        meta,
        identity,
    })
}

/// Removes the folder of a replica that has ended.
///
/// # Errors
/// When a shim still holds it or it cannot be removed.
pub fn forget(state_dir: &Path) -> Result<(), ShimError> {
    let lock = lock(state_dir)?;
    let done = fs::remove_dir_all(state_dir).map_err(|source| ShimError::File {
        path: state_dir.to_owned(),
        source,
    });
    lock.release()?;
    done
}
