//! Starting a replica: an empty state folder, a specification, a shim that reports back.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use koi_shim::ShimError;
use koi_shim::files::{
    EXIT_FILE, FolderLock, IDENTITY_FILE, SHIM_LOG_FILE, SOCKET_FILE, SPEC_FILE, read_json,
    try_lock, write_json,
};
use koi_shim::process::boot_id;
use koi_shim::record::{ExitRecord, Identity};
use koi_shim::spec::{CLUSTER_VARIABLE, FORMAT, ShimSpec};
use koi_shim::tree::{Depth, OwnedTree};
use tokio::process::Command;
use tokio::time::timeout;

use crate::supervise::recovery::{engine_of, read_or_set_aside};
use crate::supervise::{
    LOG_FILE, REPLICA_FILE, ReplicaMeta, ReplicaProcess, SERVED_FILE, Supervision,
};

/// Longest wait for a shim to report that the engine's process exists.
const SHIM_START_LIMIT: Duration = Duration::from_secs(15);

/// One replica to start.
#[derive(Debug, Clone)]
pub struct LaunchSpec {
    /// What is to be remembered of it; `nonce` is the mark of this launch.
    pub meta: ReplicaMeta,
    /// Command, first the program.
    pub argv: Vec<String>,
    /// The engine's whole environment.
    pub env: BTreeMap<String, String>,
    /// Size at which its log is turned over, in bytes.
    pub log_max_bytes: u64,
    /// Seconds between TERM and KILL when a stop names none.
    pub grace_s: u32,
}

/// A replica could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A living shim holds the folder.
    #[error("replica {0} already runs")]
    AlreadyRuns(String),
    /// Something of an earlier launch of this boot still runs: adopt it first.
    #[error("an earlier launch of replica {0} has not ended")]
    Unfinished(String),
    /// A file could not be written, e.g. because the disk is full.
    #[error(transparent)]
    Folder(#[from] ShimError),
    /// The shim could not be started or did not report in time.
    #[error("cannot start {shim}: {source}")]
    Shim {
        /// The executable.
        shim: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The shim refused.
    #[error("the shim refused (exit code {code:?}): {message}")]
    Refused {
        /// Exit code, see [`ShimError::exit_code`].
        code: Option<i32>,
        /// Its words.
        message: String,
    },
}

/// Starts a replica and returns once its first process exists; readiness is another matter.
///
/// # Errors
/// [`LaunchError`]; nothing runs then.
pub async fn launch(
    supervision: &Supervision,
    spec: &LaunchSpec,
) -> Result<ReplicaProcess, LaunchError> {
    let state_dir = supervision.folder(&spec.meta.replica_id);
    create_folder(&state_dir)?;
    let lock = lock_in_time(&state_dir)
        .await?
        .ok_or_else(|| LaunchError::AlreadyRuns(spec.meta.replica_id.to_string()))?;
    let prepared = prepare_folder(&state_dir, spec);
    lock.release()?;
    prepared?;
    run_shim(supervision, "run", &state_dir).await?;
    let path = state_dir.join(IDENTITY_FILE);
    let identity: Identity = read_json(&path)?.ok_or_else(|| ShimError::Damaged {
        path,
        why: "missing although the shim reported success".to_owned(),
    })?;
    Ok(ReplicaProcess {
        state_dir,
        meta: spec.meta.clone(),
        identity,
    })
}

fn create_folder(state_dir: &Path) -> Result<(), ShimError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state_dir)
        .map_err(|source| ShimError::File {
            path: state_dir.to_owned(),
            source,
        })
}

/// The folder's lock; `None` when a shim holds it for longer than one needs to finish.
async fn lock_in_time(state_dir: &Path) -> Result<Option<FolderLock>, ShimError> {
    for _ in 0..20 {
        if let Some(lock) = try_lock(state_dir)? {
            return Ok(Some(lock));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(None)
}

fn prepare_folder(state_dir: &Path, spec: &LaunchSpec) -> Result<(), LaunchError> {
    let file = |source| ShimError::File {
        path: state_dir.to_owned(),
        source,
    };
    if is_unfinished(state_dir)? {
        return Err(LaunchError::Unfinished(spec.meta.replica_id.to_string()));
    }
    for old in [
        IDENTITY_FILE,
        EXIT_FILE,
        SOCKET_FILE,
        SHIM_LOG_FILE,
        SPEC_FILE,
        REPLICA_FILE,
        SERVED_FILE,
    ] {
        ignore_missing(fs::remove_file(state_dir.join(old))).map_err(file)?;
    }
    // The previous run's last lines stay readable without being taken for this run's.
    let log = state_dir.join(LOG_FILE);
    ignore_missing(fs::rename(&log, log.with_extension("log.prev"))).map_err(file)?;
    write_json(&state_dir.join(REPLICA_FILE), &spec.meta)?;
    write_json(&state_dir.join(SPEC_FILE), &shim_spec(state_dir, spec))?;
    Ok(())
}

fn ignore_missing(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            Ok(())
        } else {
            Err(error)
        }
    })
}

/// True when something of an earlier launch of this boot still runs. The caller holds the folder's
/// lock, so no shim does. A missing record of the end is no proof of life: a full disk leaves none.
fn is_unfinished(state_dir: &Path) -> Result<bool, ShimError> {
    let system = |call| move |source| ShimError::System { call, source };
    let Some(identity) = read_or_set_aside::<Identity>(&state_dir.join(IDENTITY_FILE))? else {
        return unrecorded_runs(state_dir).map_err(system("read /proc"));
    };
    let exit: Option<ExitRecord> = read_or_set_aside(&state_dir.join(EXIT_FILE))?;
    let ended = exit.is_some_and(|e| e.nonce == identity.nonce && e.group_gone_at.is_some());
    if ended || identity.boot_id != boot_id().map_err(system("boot_id"))? {
        return Ok(false);
    }
    let left = OwnedTree::of(&identity).members(Depth::Marked);
    Ok(!left.map_err(system("read /proc"))?.is_empty())
}

/// Without a record of who runs, the mark of the last specification tells.
fn unrecorded_runs(state_dir: &Path) -> io::Result<bool> {
    let Ok(spec) = ShimSpec::read(state_dir) else {
        return Ok(false);
    };
    let marked = OwnedTree::of_nonce(&spec.nonce).members(Depth::Marked)?;
    Ok(!marked.is_empty() || engine_of(state_dir, &spec.nonce)?.is_some())
}

fn shim_spec(state_dir: &Path, spec: &LaunchSpec) -> ShimSpec {
    ShimSpec {
        format: FORMAT,
        replica_id: spec.meta.replica_id.clone(),
        nonce: spec.meta.nonce.clone(),
        argv: spec.argv.clone(),
        env: spec.env.clone(),
        cwd: state_dir.to_owned(),
        log_file: LOG_FILE.into(),
        log_max_bytes: spec.log_max_bytes,
        grace_s: spec.grace_s,
        agent_note: serde_json::to_string(&spec.meta).unwrap_or_default(),
    }
}

/// Runs the shim's foreground part; the background part has reported when it returns.
pub(super) async fn run_shim(
    supervision: &Supervision,
    action: &str,
    state_dir: &Path,
) -> Result<(), LaunchError> {
    let failed = |source| LaunchError::Shim {
        shim: supervision.shim.clone(),
        source,
    };
    let mut command = Command::new(&supervision.shim);
    command
        .arg(action)
        .arg("--state-dir")
        .arg(state_dir)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if let Some(cluster) = &supervision.cluster_id {
        command.env(CLUSTER_VARIABLE, cluster);
    }
    let child = command.spawn().map_err(failed)?;
    let out = timeout(SHIM_START_LIMIT, child.wait_with_output())
        .await
        .map_err(|_| failed(io::ErrorKind::TimedOut.into()))?
        .map_err(failed)?;
    if out.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&out.stderr)
        .trim()
        .chars()
        .take(2000)
        .collect();
    Err(LaunchError::Refused {
        code: out.status.code(),
        message,
    })
}
