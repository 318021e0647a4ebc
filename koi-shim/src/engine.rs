//! Starting the engine: literal words, a given environment, its own process group.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::daemon::unblock_signals_in;
use crate::error::ShimError;
use crate::log_ring::LogRing;
use crate::spec::{CLUSTER_VARIABLE, NONCE_VARIABLE, REPLICA_VARIABLE, ShimSpec};

/// Path of the engine's log.
#[must_use]
pub fn log_path(state_dir: &Path, spec: &ShimSpec) -> PathBuf {
    state_dir.join(&spec.log_file)
}

/// Starts the engine of a specification.
///
/// # Errors
/// When the program cannot be started; the system's reason is kept.
pub fn spawn(spec: &ShimSpec, log: &LogRing) -> Result<Child, ShimError> {
    let (program, words) = spec
        .argv
        .split_first()
        .ok_or_else(|| ShimError::BadSpec(vec!["argv: is empty".to_owned()]))?;
    let failed = |source| ShimError::Spawn {
        program: program.clone(),
        source,
    };
    let mut command = Command::new(program);
    command
        .args(words)
        .env_clear()
        .envs(&spec.env)
        .env(REPLICA_VARIABLE, spec.replica_id.to_string())
        .env(NONCE_VARIABLE, &spec.nonce)
        .current_dir(&spec.cwd)
        .stdin(Stdio::null())
        .stdout(log.writer().map_err(failed)?)
        .stderr(log.writer().map_err(failed)?)
        .process_group(0);
    if let Some(cluster) = std::env::var_os(CLUSTER_VARIABLE) {
        command.env(CLUSTER_VARIABLE, cluster);
    }
    unblock_signals_in(&mut command);
    command.spawn().map_err(failed)
}
