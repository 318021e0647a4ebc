//! Engines of this host whose state folder is gone: nobody can adopt them, and they hold devices.
//!
//! Ours is a process that carries this cluster's id, a replica and a nonce in its environment, and
//! whose working folder lies, or lay, in this host's folder of replicas under that replica's name. It
//! is an orphan when the folder knows nothing of that nonce any more. Anything else, whatever it holds,
//! is reported by the gate and never signalled (spec §14, §18.4; reliability D3, E8).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use koi_core::ids::ReplicaId;
use koi_shim::files::SPEC_FILE;
use koi_shim::process::scan;
use koi_shim::record::ProcessRef;
use koi_shim::spec::{CLUSTER_VARIABLE, NONCE_VARIABLE, REPLICA_VARIABLE, ShimSpec, is_nonce};
use koi_shim::tree::{Depth, OwnedTree, signal_exactly};
use rustix::process::Signal;

use crate::supervise::Supervision;

/// Time between TERM and KILL.
const GRACE: Duration = Duration::from_secs(3);
/// Longest wait for killed processes to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(3);
/// Pause between looks.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// What the kernel writes behind a working folder that was removed.
const REMOVED: &[u8] = b" (deleted)";

/// The processes of a launch that nothing on this host's disk knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// The replica it was.
    pub replica: ReplicaId,
    /// Its launch's mark.
    pub nonce: String,
    /// Processes that carry the mark.
    pub processes: Vec<ProcessRef>,
}

/// Every orphan of this host.
///
/// # Errors
/// When `/proc` cannot be listed.
pub fn find(supervision: &Supervision) -> io::Result<Vec<Orphan>> {
    let root = real(&supervision.state_root);
    let mut found: BTreeMap<String, Orphan> = BTreeMap::new();
    for stat in scan()?.into_iter().filter(|s| s.is_alive()) {
        let Some((replica, nonce)) = mark_of(stat.process.pid, supervision, &root) else {
            continue;
        };
        if is_known(&root.join(replica.to_string()), &nonce) {
            continue;
        }
        let orphan = found.entry(nonce.clone()).or_insert_with(|| Orphan {
            replica,
            nonce,
            processes: Vec::new(),
        });
        orphan.processes.push(stat.process);
    }
    Ok(found.into_values().collect())
}

/// The path as the kernel writes it; one that was removed keeps its name below its parent.
fn real(root: &Path) -> PathBuf {
    let below = || {
        let parent = fs::canonicalize(root.parent()?).ok()?;
        Some(parent.join(root.file_name()?))
    };
    let found = fs::canonicalize(root).ok().or_else(below);
    found.unwrap_or_else(|| root.to_owned())
}

/// The replica and nonce of a process of this cluster and this host.
fn mark_of(pid: u32, supervision: &Supervision, root: &Path) -> Option<(ReplicaId, String)> {
    let mut environ = Vec::new();
    let file = fs::File::open(format!("/proc/{pid}/environ")).ok()?;
    file.take(1 << 20).read_to_end(&mut environ).ok()?;
    let variable = |name: &str| {
        let entry = environ.split(|byte| *byte == 0).find_map(|entry| {
            let value = entry.strip_prefix(name.as_bytes())?;
            value.strip_prefix(b"=")
        });
        entry.and_then(|value| std::str::from_utf8(value).ok())
    };
    if variable(CLUSTER_VARIABLE) != supervision.cluster_id.as_deref() {
        return None;
    }
    let replica: ReplicaId = variable(REPLICA_VARIABLE)?.parse().ok()?;
    let nonce = variable(NONCE_VARIABLE).filter(|n| is_nonce(n))?;
    let folder = working_folder(pid)?;
    (folder == root.join(replica.to_string())).then(|| (replica, nonce.to_owned()))
}

fn working_folder(pid: u32) -> Option<PathBuf> {
    let link = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    let bytes = link.as_os_str().as_bytes();
    let bytes = bytes.strip_suffix(REMOVED).unwrap_or(bytes);
    Some(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// Whether the folder may still lead to the launch. One that is damaged is left to adoption.
fn is_known(folder: &Path, nonce: &str) -> bool {
    match fs::symlink_metadata(folder.join(SPEC_FILE)) {
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        Ok(_) => ShimSpec::read(folder).map_or(true, |spec| spec.nonce == nonce),
    }
}

/// Stops orphans: TERM to what carries the mark, KILL to what is left of its tree. With `only`, those
/// alone that one of these processes belongs to.
///
/// # Errors
/// When `/proc` cannot be read or processes do not die.
pub async fn stop(supervision: &Supervision, only: Option<&BTreeSet<u32>>) -> io::Result<usize> {
    let looked = supervision.clone();
    let found = tokio::task::spawn_blocking(move || find(&looked)).await;
    let mut stopped = 0;
    for orphan in found.map_err(io::Error::other)?? {
        let tree = OwnedTree::of_launch(&orphan.nonce, orphan.processes.clone());
        let members = tree.members(Depth::Marked)?;
        if only.is_some_and(|pids| !members.iter().any(|m| pids.contains(&m.process.pid))) {
            continue;
        }
        let pids: Vec<u32> = members.iter().map(|m| m.process.pid).collect();
        tracing::warn!(replica = %orphan.replica, ?pids, "its folder is gone: stopping it");
        for process in &orphan.processes {
            // One that ended meanwhile is not signalled.
            let _sent = signal_exactly(*process, Signal::TERM);
        }
        end(&tree).await?;
        stopped += 1;
    }
    Ok(stopped)
}

async fn end(tree: &OwnedTree) -> io::Result<()> {
    let begun = std::time::Instant::now();
    loop {
        let left = tree.members(Depth::Marked)?;
        if left.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > GRACE + KILL_LIMIT {
            let n = left.len();
            return Err(io::Error::other(format!("{n} processes do not die")));
        }
        if begun.elapsed() > GRACE {
            for member in left {
                let _sent = signal_exactly(member.process, Signal::KILL);
            }
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}
