//! Damaged files of a state folder: moved aside, named in the log, and written anew from another
//! proof, so that Koi's own engine is never taken for somebody else's.
//!
//! What the agent knew is kept a second time in `spec.json`. Who runs is told by the living shim;
//! where that is dead, by the engine itself: its launch's mark, or its working folder together
//! with the log it writes to. Nothing is signalled here.

use std::fs;
use std::path::Path;

use koi_shim::ShimError;
use koi_shim::files::{IDENTITY_FILE, read_json, set_aside, write_json};
use koi_shim::process::{NonceMark, ProcessStat, boot_id, nonce_mark, now, scan};
use koi_shim::record::{Identity, Operation, ProcessRef, Reply};
use koi_shim::spec::{FORMAT, ShimSpec};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::supervise::control::ask;
use crate::supervise::{LOG_FILE, REPLICA_FILE, ReplicaMeta};

/// Reads a file; a damaged one is moved aside, named in the log, and counts as missing.
pub(super) fn read_or_set_aside<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ShimError> {
    match read_json(path) {
        Err(ShimError::Damaged { why, .. }) => {
            let kept = set_aside(path)?;
            tracing::warn!(
                file = %path.display(),
                kept = %kept.display(),
                why,
                "a damaged file was moved aside"
            );
            Ok(None)
        }
        read => read,
    }
}

/// Writes what was recovered; where that fails, it is recovered again next time.
fn write_anew<T: Serialize>(path: &Path, value: &T) {
    match write_json(path, value) {
        Ok(()) => tracing::warn!(file = %path.display(), "written anew"),
        Err(error) => tracing::warn!(%error, "not written anew"),
    }
}

/// The agent's own notes, checked against the specification that runs and its copy of them.
pub(super) fn meta_of(state_dir: &Path) -> Result<ReplicaMeta, ShimError> {
    let path = state_dir.join(REPLICA_FILE);
    let damaged = |why: &str| ShimError::Damaged {
        path: path.clone(),
        why: why.to_owned(),
    };
    let spec = ShimSpec::read(state_dir)?;
    let (meta, is_copy) = match read_or_set_aside::<ReplicaMeta>(&path)? {
        Some(meta) => (meta, false),
        None => {
            let copy = serde_json::from_str(&spec.agent_note)
                .map_err(|_| damaged("is damaged or missing, and spec.json holds no copy of it"))?;
            (copy, true)
        }
    };
    if spec.nonce != meta.nonce || spec.replica_id != meta.replica_id {
        return Err(damaged("is of another launch than spec.json"));
    }
    if state_dir
        .file_name()
        .is_none_or(|name| name != meta.replica_id.to_string().as_str())
    {
        return Err(damaged("names another replica than its folder"));
    }
    if is_copy {
        write_anew(&path, &meta);
    }
    Ok(meta)
}

/// Who supervises and who is supervised; `None` when nothing of the launch can be found.
pub(super) async fn identity_of(
    state_dir: &Path,
    meta: &ReplicaMeta,
) -> Result<Option<Identity>, ShimError> {
    let path = state_dir.join(IDENTITY_FILE);
    let ours = |i: &Identity| i.nonce == meta.nonce;
    if let Some(identity) = read_or_set_aside(&path)?.filter(ours) {
        return Ok(Some(identity));
    }
    let told = match ask(state_dir, &meta.nonce, Operation::Status).await {
        Ok(Reply::Status(status)) => Some(status.identity).filter(ours),
        _ => None,
    };
    let found = match told {
        Some(identity) => Some(identity),
        None => identity_from_kernel(state_dir, meta)?,
    };
    if let Some(identity) = &found {
        write_anew(&path, identity);
    }
    Ok(found)
}

/// A record of the engine that runs in this folder, made from what the kernel shows of it.
fn identity_from_kernel(
    state_dir: &Path,
    meta: &ReplicaMeta,
) -> Result<Option<Identity>, ShimError> {
    let system = |call| move |source| ShimError::System { call, source };
    let Some((engine, leader)) = engine_of(state_dir, &meta.nonce).map_err(system("read /proc"))?
    else {
        return Ok(None);
    };
    Ok(Some(Identity {
        format: FORMAT,
        replica_id: meta.replica_id.clone(),
        nonce: meta.nonce.clone(),
        boot_id: boot_id().map_err(system("boot_id"))?,
        shim: leader,
        session: leader,
        engine: engine.process,
        pgid: engine.pgid,
        started_at: now(),
        adoptions: 0,
    }))
}

/// The first process of the launch in this folder and the leader of its session, if it runs.
///
/// # Errors
/// When `/proc` cannot be listed.
pub(super) fn engine_of(
    state_dir: &Path,
    nonce: &str,
) -> std::io::Result<Option<(ProcessStat, ProcessRef)>> {
    let all = scan()?;
    let engine = all
        .iter()
        .filter(|s| s.is_alive() && s.pgid == s.process.pid && s.sid != s.process.pid)
        .filter(|s| is_marked(s.process.pid, state_dir, nonce))
        .min_by_key(|s| (s.process.start_ticks, s.process.pid));
    Ok(engine.map(|engine| {
        let leader = all.iter().find(|s| s.process.pid == engine.sid);
        // The kernel keeps the number of a session while it has members: a dead leader's start is
        // lost, and nobody else can have its number.
        let leader = leader.map_or(
            ProcessRef {
                pid: engine.sid,
                start_ticks: engine.process.start_ticks,
            },
            |s| s.process,
        );
        (engine.clone(), leader)
    }))
}

/// A process title may overwrite the environment; the working folder together with the log it
/// writes to still tells. Neither alone would: an operator's shell may stand in the folder.
fn is_marked(pid: u32, state_dir: &Path, nonce: &str) -> bool {
    match nonce_mark(pid, nonce) {
        NonceMark::Match => true,
        NonceMark::Other => false,
        NonceMark::Absent => {
            let Ok(folder) = fs::canonicalize(state_dir) else {
                return false;
            };
            let leads_to = |link: &str, target: &Path| {
                fs::read_link(format!("/proc/{pid}/{link}")).is_ok_and(|found| found == target)
            };
            leads_to("cwd", &folder) && leads_to("fd/1", &folder.join(LOG_FILE))
        }
    }
}
