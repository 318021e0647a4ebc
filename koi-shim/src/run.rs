//! `koi-shim run`: start the engine of a folder and stay with it.

use std::path::Path;
use std::process::Child;

use crate::control::ControlSocket;
use crate::daemon::{SignalFile, close_inherited_files, daemonize};
use crate::engine::{log_path, spawn};
use crate::error::ShimError;
use crate::files::{EXIT_FILE, IDENTITY_FILE, lock, write_json};
use crate::log_ring::LogRing;
use crate::process::{boot_id, now, reference};
use crate::record::{ExitRecord, Identity, ProcessRef, StopRequest};
use crate::spec::{FORMAT, ShimSpec};
use crate::supervise::{EngineHandle, Supervisor};

/// Reads the folder's specification, goes to the background, starts the engine and supervises it.
/// The starting process returns once the engine runs; the background process when all is over.
///
/// # Errors
/// When the specification is bad, another shim lives, or the engine cannot be started.
pub fn run(state_dir: &Path) -> Result<(), ShimError> {
    close_inherited_files();
    let spec = ShimSpec::read(state_dir)?;
    let Some(line) = daemonize(state_dir)? else {
        return Ok(());
    };
    match start(state_dir, spec) {
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

fn start(state_dir: &Path, spec: ShimSpec) -> Result<Supervisor, ShimError> {
    let lock = lock(state_dir)?;
    let signals = SignalFile::open()?;
    let socket = ControlSocket::bind(state_dir)?;
    let path = log_path(state_dir, &spec);
    let log = LogRing::open(&path, spec.log_max_bytes)
        .map_err(|source| ShimError::File { path, source })?;
    let boot = boot_id().map_err(|source| ShimError::System {
        call: "boot_id",
        source,
    })?;
    let mut child = match spawn(&spec, &log) {
        Ok(child) => child,
        Err(error) => {
            let record = never_started(&spec, boot, Some(error.to_string()));
            write_json(&state_dir.join(EXIT_FILE), &record)?;
            return Err(error);
        }
    };
    match record_start(state_dir, &spec, boot, &child) {
        Ok((identity, engine)) => Ok(Supervisor::new(
            state_dir,
            lock,
            (spec, identity),
            (signals, socket, log),
            engine,
        )),
        Err(error) => {
            // An engine that nobody could find again must not stay.
            drop(child.kill());
            Err(error)
        }
    }
}

fn record_start(
    state_dir: &Path,
    spec: &ShimSpec,
    boot_id: String,
    child: &Child,
) -> Result<(Identity, EngineHandle), ShimError> {
    let identity = identify(spec, boot_id, child)?;
    write_json(&state_dir.join(IDENTITY_FILE), &identity)?;
    let engine = EngineHandle::open(identity.engine, true)?;
    Ok((identity, engine))
}

/// The end of a launch whose engine never ran.
pub(crate) fn never_started(
    spec: &ShimSpec,
    boot_id: String,
    spawn_error: Option<String>,
) -> ExitRecord {
    let at = now();
    ExitRecord {
        format: FORMAT,
        replica_id: spec.replica_id.clone(),
        nonce: spec.nonce.clone(),
        boot_id,
        engine: None,
        code: None,
        signal: None,
        spawn_error,
        requested: StopRequest::None,
        exited_at: at,
        group_gone_at: Some(at),
        leftovers_killed: 0,
    }
}

fn identify(spec: &ShimSpec, boot_id: String, child: &Child) -> Result<Identity, ShimError> {
    let of = |pid: u32| -> Result<ProcessRef, ShimError> {
        reference(pid).ok_or_else(|| ShimError::System {
            call: "read /proc/<pid>/stat",
            source: std::io::ErrorKind::NotFound.into(),
        })
    };
    let me = of(std::process::id())?;
    Ok(Identity {
        format: FORMAT,
        replica_id: spec.replica_id.clone(),
        nonce: spec.nonce.clone(),
        boot_id,
        shim: me,
        session: me,
        engine: of(child.id())?,
        pgid: child.id(),
        started_at: now(),
        adoptions: 0,
    })
}
