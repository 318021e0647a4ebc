//! `koi-shim adopt`: take the place of a dead shim without touching a living engine.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;

use crate::control::ControlSocket;
use crate::daemon::{SignalFile, close_inherited_files, daemonize};
use crate::engine::log_path;
use crate::error::ShimError;
use crate::files::{EXIT_FILE, FolderLock, IDENTITY_FILE, lock, read_json, write_json};
use crate::log_ring::LogRing;
use crate::process::{NonceMark, boot_id, nonce_mark, now, reference, stat};
use crate::record::{ExitRecord, Identity};
use crate::run::never_started;
use crate::spec::{FORMAT, ShimSpec};
use crate::supervise::{EngineHandle, Supervisor};
use crate::tree::{Depth, OwnedTree, signal_exactly};

/// Longest wait for the leftovers of an engine that is already dead.
const SWEEP_LIMIT: Duration = Duration::from_secs(8);
const SWEEP_STEP: Duration = Duration::from_millis(20);

/// Serves a folder whose shim is dead: watches the same engine when it lives, otherwise removes
/// what is left of its tree and writes `exit.json`.
///
/// # Errors
/// When a shim lives, the record is of another boot or of a process that is somebody else's, or a
/// file cannot be read. Nothing is signalled then.
pub fn adopt(state_dir: &Path) -> Result<(), ShimError> {
    close_inherited_files();
    let spec = ShimSpec::read(state_dir)?;
    let lock = lock(state_dir)?;
    let boot = boot_id().map_err(|source| ShimError::System {
        call: "boot_id",
        source,
    })?;
    let identity: Option<Identity> = read_json(&state_dir.join(IDENTITY_FILE))?;
    let Some(identity) = identity.filter(|i| i.nonce == spec.nonce) else {
        return bury(
            state_dir,
            &OwnedTree::of_nonce(&spec.nonce),
            never_started(&spec, boot, None),
        );
    };
    if identity.boot_id != boot {
        return Err(ShimError::NotOurs {
            pid: identity.engine.pid,
            why: "the host was rebooted since".to_owned(),
        });
    }
    if identity.format > FORMAT {
        return Err(ShimError::Damaged {
            path: state_dir.join(IDENTITY_FILE),
            why: format!("format {} is newer than {FORMAT}", identity.format),
        });
    }
    // The watch is opened before the check, so that what was checked is what is watched.
    let handle = EngineHandle::open(identity.engine, false);
    match engine_state(&identity) {
        EngineState::Gone => {
            let record = ended_unseen(&spec, &identity, state_dir)?;
            bury(state_dir, &OwnedTree::of(&identity), record)
        }
        EngineState::Foreign(why) => Err(ShimError::NotOurs {
            pid: identity.engine.pid,
            why,
        }),
        EngineState::Ours => take_over(state_dir, lock, spec, identity, handle?),
    }
}

enum EngineState {
    Ours,
    Gone,
    Foreign(String),
}

/// A pid of another start time means that our engine is gone and the number was reused. A process
/// with our start time but another launch's mark contradicts the record, so it is left alone.
fn engine_state(identity: &Identity) -> EngineState {
    let Some(found) = stat(identity.engine.pid) else {
        return EngineState::Gone;
    };
    if found.process != identity.engine || !found.is_alive() {
        return EngineState::Gone;
    }
    match nonce_mark(identity.engine.pid, &identity.nonce) {
        NonceMark::Match => EngineState::Ours,
        NonceMark::Other => EngineState::Foreign("it carries another launch's nonce".to_owned()),
        // A process title may have overwritten the environment; group and session still tell.
        NonceMark::Absent if found.pgid == identity.pgid && found.sid == identity.session.pid => {
            EngineState::Ours
        }
        NonceMark::Absent => EngineState::Foreign("it carries no nonce".to_owned()),
    }
}

fn take_over(
    state_dir: &Path,
    lock: FolderLock,
    spec: ShimSpec,
    identity: Identity,
    engine: EngineHandle,
) -> Result<(), ShimError> {
    // The lock belongs to the open file, so the forked child keeps it when the parent exits.
    let Some(line) = daemonize(state_dir)? else {
        return Ok(());
    };
    let prepared = (|| {
        let signals = SignalFile::open()?;
        let socket = ControlSocket::bind(state_dir)?;
        let path = log_path(state_dir, &spec);
        let log = LogRing::open(&path, spec.log_max_bytes)
            .map_err(|source| ShimError::File { path, source })?;
        let me = reference(std::process::id()).ok_or_else(|| ShimError::System {
            call: "read /proc/self/stat",
            source: std::io::ErrorKind::NotFound.into(),
        })?;
        let identity = Identity {
            shim: me,
            adoptions: identity.adoptions + 1,
            ..identity
        };
        write_json(&state_dir.join(IDENTITY_FILE), &identity)?;
        Ok(Supervisor::new(
            state_dir,
            lock,
            (spec, identity),
            (signals, socket, log),
            engine,
        ))
    })();
    match prepared {
        Ok(supervisor) => {
            line.serving();
            supervisor.serve()
        }
        Err(error) => {
            line.failed(&error);
            Err(error)
        }
    }
}

fn ended_unseen(
    spec: &ShimSpec,
    identity: &Identity,
    state_dir: &Path,
) -> Result<ExitRecord, ShimError> {
    let seen: Option<ExitRecord> = read_json(&state_dir.join(EXIT_FILE))?;
    Ok(seen
        .filter(|record| record.nonce == spec.nonce)
        .unwrap_or_else(|| ExitRecord {
            engine: Some(identity.engine),
            group_gone_at: None,
            ..never_started(spec, identity.boot_id.clone(), None)
        }))
}

/// Kills what is left of a tree whose first process is gone, and records the end.
fn bury(state_dir: &Path, tree: &OwnedTree, mut record: ExitRecord) -> Result<(), ShimError> {
    let path = state_dir.join(EXIT_FILE);
    let look = || {
        tree.members(Depth::Marked)
            .map_err(|source| ShimError::System {
                call: "/proc",
                source,
            })
    };
    record.group_gone_at = None;
    write_json(&path, &record)?;
    let mut waited = Duration::ZERO;
    let mut killed = std::collections::BTreeSet::new();
    loop {
        let left = look()?;
        if left.is_empty() {
            break;
        }
        if waited >= SWEEP_LIMIT {
            return Err(ShimError::Damaged {
                path,
                why: format!(
                    "{} processes do not die; the first is {}",
                    left.len(),
                    left[0].process.pid
                ),
            });
        }
        killed.extend(
            left.iter()
                .filter(|m| signal_exactly(m.process, Signal::KILL))
                .map(|m| m.process),
        );
        sleep(SWEEP_STEP);
        waited += SWEEP_STEP;
    }
    record.leftovers_killed += u32::try_from(killed.len()).unwrap_or(u32::MAX);
    record.group_gone_at = Some(now());
    write_json(&path, &record)
}
