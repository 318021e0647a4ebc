//! Replicas as processes: launch under a shim, find again after a restart, stop, prove the end.
//!
//! Nothing here decides what should run. A replica outlives the agent; what the agent knows of it
//! is read back from its state folder and checked against the kernel (spec §14, §18.4).

pub mod adoption;
pub mod binaries;
pub mod control;
pub mod evidence;
pub mod launch;
pub mod listener;
pub mod orphans;
mod recovery;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use koi_core::ids::ReplicaId;
use koi_core::job::EngineName;
use koi_core::time::UtcMicros;
use koi_shim::ShimError;
use koi_shim::files::{EXIT_FILE, IDENTITY_FILE, read_json, write_json};
use koi_shim::record::{ExitRecord, Identity, Member, Operation, Reply, ShimStatus};
use serde::{Deserialize, Serialize};

use crate::supervise::control::{ControlError, ask};

/// File with what the agent knows of a replica, beside the shim's own.
pub const REPLICA_FILE: &str = "replica.json";
/// File that says a token came back from the launch it names.
pub const SERVED_FILE: &str = "served.json";
/// The engine's output within the state folder.
pub const LOG_FILE: &str = "engine.log";

/// Where replicas live and what supervises them.
#[derive(Debug, Clone)]
pub struct Supervision {
    /// Folder with one state folder per replica.
    pub state_root: PathBuf,
    /// The shim's executable.
    pub shim: PathBuf,
    /// Passed on to every process as `KOI_CLUSTER_ID`.
    pub cluster_id: Option<String>,
}

impl Supervision {
    /// State folder of a replica. Replica ids hold no separators, so it is always beneath the root.
    #[must_use]
    pub fn folder(&self, replica: &ReplicaId) -> PathBuf {
        self.state_root.join(replica.to_string())
    }
}

/// What the agent must still know of a replica after its own restart; `replica.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaMeta {
    /// The replica.
    pub replica_id: ReplicaId,
    /// Random mark of the launch.
    pub nonce: String,
    /// Engine.
    pub engine: EngineName,
    /// Name under which the model is served.
    pub served_model_name: String,
    /// Address the engine listens on.
    pub host: String,
    /// Port of the HTTP API.
    pub port: u16,
    /// Further ports that belong to the engine.
    pub secondary_ports: Vec<u16>,
    /// Devices by UUID.
    pub gpu_uuids: Vec<String>,
    /// When the launch was begun.
    pub launched_at: UtcMicros,
    /// Whatever else the caller wants back after a restart.
    pub labels: BTreeMap<String, String>,
}

/// `served.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Served {
    nonce: String,
}

/// A replica whose shim served when it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaProcess {
    /// Its state folder.
    pub state_dir: PathBuf,
    /// What the agent knows of it.
    pub meta: ReplicaMeta,
    /// Who supervises and who is supervised.
    pub identity: Identity,
}

/// Whether anything of a replica is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitProof {
    /// No process of its tree, its session or its mark.
    Gone,
    /// These are left.
    Survivors(Vec<Member>),
}

impl ReplicaProcess {
    /// Asks the shim how things are.
    ///
    /// # Errors
    /// When the shim does not answer.
    pub async fn status(&self) -> Result<ShimStatus, ControlError> {
        match ask(&self.state_dir, &self.meta.nonce, Operation::Status).await? {
            Reply::Status(status) => Ok(*status),
            other => Err(ControlError::unexpected(&other)),
        }
    }

    /// Asks whether the shim serves.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), ControlError> {
        self.command(Operation::Ping).await
    }

    /// TERM to the engine, KILL to its tree after the grace. Returns at once; the end is seen by
    /// [`control::watch`] or [`Self::exit_record`].
    ///
    /// # Errors
    /// When the shim does not answer.
    pub async fn terminate(&self, grace_s: Option<u32>) -> Result<(), ControlError> {
        self.command(Operation::Term { grace_s }).await
    }

    /// KILL to the whole tree. Returns at once.
    ///
    /// # Errors
    /// When the shim does not answer.
    pub async fn kill(&self) -> Result<(), ControlError> {
        self.command(Operation::Kill).await
    }

    async fn command(&self, operation: Operation) -> Result<(), ControlError> {
        match ask(&self.state_dir, &self.meta.nonce, operation).await? {
            Reply::Ok => Ok(()),
            other => Err(ControlError::unexpected(&other)),
        }
    }

    /// Waits for the end of the engine without polling.
    ///
    /// # Errors
    /// When the shim cannot be reached.
    pub async fn watch(&self) -> Result<control::Watch, ControlError> {
        control::watch(&self.state_dir, &self.meta.nonce).await
    }

    /// How it ended, once `exit.json` of this launch is there.
    ///
    /// # Errors
    /// When the file cannot be read. A damaged one is moved aside and counts as missing.
    pub fn exit_record(&self) -> Result<Option<ExitRecord>, ShimError> {
        exit_record(&self.state_dir, &self.meta.nonce)
    }

    /// The shim may have been replaced meanwhile; the newest record knows it.
    #[must_use]
    pub fn newest_identity(&self) -> Identity {
        read_json::<Identity>(&self.state_dir.join(IDENTITY_FILE))
            .ok()
            .flatten()
            .filter(|i| i.nonce == self.meta.nonce)
            .unwrap_or_else(|| self.identity.clone())
    }

    /// Looks through all processes of the host for anything that belongs to this launch.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub async fn proof_of_exit(&self) -> io::Result<ExitProof> {
        let left = evidence::members(&self.newest_identity()).await?;
        Ok(if left.is_empty() {
            ExitProof::Gone
        } else {
            ExitProof::Survivors(left)
        })
    }

    /// Notes that a token came back: after its own restart, the agent goes on with this engine
    /// where it stood instead of taking it out of service until it answers a probe.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn note_served(&self) -> io::Result<()> {
        let served = Served {
            nonce: self.meta.nonce.clone(),
        };
        write_json(&self.state_dir.join(SERVED_FILE), &served).map_err(io::Error::other)
    }

    /// True when a token came back from this launch at some time.
    #[must_use]
    pub fn has_served(&self) -> bool {
        // A damaged note only costs a probe.
        read_json::<Served>(&self.state_dir.join(SERVED_FILE))
            .ok()
            .flatten()
            .is_some_and(|served| served.nonce == self.meta.nonce)
    }

    /// Path of the engine's log.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.state_dir.join(LOG_FILE)
    }
}

/// `exit.json` of a folder when it belongs to the launch with this nonce.
fn exit_record(state_dir: &Path, nonce: &str) -> Result<Option<ExitRecord>, ShimError> {
    let record: Option<ExitRecord> = recovery::read_or_set_aside(&state_dir.join(EXIT_FILE))?;
    Ok(record.filter(|r| r.nonce == nonce))
}

/// A fresh mark for a launch: 32 hexadecimal digits from the system's generator.
///
/// # Errors
/// When the system has no randomness.
pub fn new_nonce() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}
