//! Starting and ending engines on this host: gate, ports, model folder, command, shim, proof.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use koi_core::ids::ReplicaId;
use koi_core::job::EngineName;
use koi_core::rollout::DesiredReplica;

use crate::engine::{EngineLaunch, EngineSettings, command};
use crate::gpu::GpuProbe;
use crate::gpu::gate::{GateRefusal, gate};
use crate::host::utc_now;
use crate::models::ModelFolders;
use crate::ports::{PortLease, PortLedger};
use crate::supervise::adoption::forget;
use crate::supervise::launch::{LaunchSpec, launch};
use crate::supervise::orphans;
use crate::supervise::{ExitProof, ReplicaMeta, ReplicaProcess, Supervision, new_nonce};

/// Size at which an engine's log is turned over.
const LOG_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Ports beside the API's: engines open sockets of their own.
const SECONDARY_PORTS: usize = 8;
/// Seconds between TERM and KILL when a stop names none.
const DEFAULT_GRACE_S: u32 = 30;
/// Longest wait for device memory to come free before a launch.
const GATE_WAIT: Duration = Duration::from_secs(20);
/// Pause between looks.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// What a dead engine leaves behind for so long is killed.
const KILL_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// A launch that went through.
#[derive(Debug)]
pub struct Launched {
    /// The process.
    pub process: ReplicaProcess,
    /// Engine version found on this host.
    pub engine_version: String,
    /// Arguments it was started with.
    pub engine_args: Vec<String>,
}

/// A launch that did not go through.
#[derive(Debug)]
pub struct LaunchFailure {
    /// Why.
    pub reason: String,
    /// True when trying again cannot help.
    pub fatal: bool,
}

/// Starts and ends engines.
pub struct Launcher {
    /// Shims.
    pub supervision: Supervision,
    /// Engines offered.
    pub engines: EngineSettings,
    /// Versions found at start.
    pub versions: BTreeMap<EngineName, String>,
    /// Model folders.
    pub models: ModelFolders,
    /// Address engines listen on.
    pub address: String,
    /// Devices.
    pub gpus: Box<dyn GpuProbe>,
    /// Ports.
    pub ports: Mutex<PortLedger>,
    /// One launch at a time.
    pub turn: tokio::sync::Mutex<()>,
}

impl Launcher {
    /// Devices.
    #[must_use]
    pub fn gpus(&self) -> &dyn GpuProbe {
        self.gpus.as_ref()
    }

    fn ports(&self) -> std::sync::MutexGuard<'_, PortLedger> {
        self.ports
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Makes the ledger of ports anew from what was found; before the first launch. `unsure` are
    /// replicas whose folder says little more than their ports.
    pub fn rebuild_ports(&self, running: &[ReplicaProcess], unsure: &[ReplicaMeta]) {
        let lease = |meta: &ReplicaMeta| {
            let lease = PortLease {
                api: meta.port,
                secondary: meta.secondary_ports.clone(),
            };
            (meta.replica_id.clone(), lease)
        };
        let running = running.iter().map(|p| lease(&p.meta)).collect();
        let unsure = unsure.iter().map(lease).collect();
        if let Err(error) = self.ports().rebuild(running, unsure) {
            tracing::error!(%error, "the ledger of ports could not be written");
        }
    }

    /// Starts a replica; returns once its first process exists.
    ///
    /// # Errors
    /// [`LaunchFailure`]; nothing runs then.
    pub async fn launch(&self, want: &DesiredReplica) -> Result<Launched, LaunchFailure> {
        let _turn = self.turn.lock().await;
        let again = |reason: String| LaunchFailure {
            reason,
            fatal: false,
        };
        let never = |reason: String| LaunchFailure {
            reason,
            fatal: true,
        };
        let found = self.versions.get(&want.engine).cloned().unwrap_or_default();
        if found != want.engine_version {
            return Err(never(format!(
                "the plan was rendered for {} {:?}, this host has {found:?}",
                want.engine.name(),
                want.engine_version
            )));
        }
        self.wait_for_devices(&want.gpu_uuids)
            .await
            .map_err(again)?;
        let model = self.models.locate(&want.model_id, &want.model_config_json);
        let model = model.map_err(|e| never(format!("model folder: {e}")))?;
        let model = model
            .to_str()
            .ok_or_else(|| never(format!("model folder {}: not UTF-8", model.display())))?;
        let spec = self.spec(want, model)?;
        let process = launch(&self.supervision, &spec).await.map_err(|e| {
            self.release(&want.id);
            again(e.to_string())
        })?;
        Ok(Launched {
            process,
            engine_version: found,
            engine_args: want.engine_args.clone(),
        })
    }

    /// Memory of a stopped engine takes a moment to come free; a foreign holder is named.
    async fn wait_for_devices(&self, uuids: &[String]) -> Result<(), String> {
        let begun = std::time::Instant::now();
        loop {
            let refusals = match self.gpus.read() {
                Ok(look) => match gate(&look, uuids, &BTreeSet::new()) {
                    Ok(()) => return Ok(()),
                    Err(refusals) => {
                        self.stop_orphans(Some(&holders(&refusals))).await;
                        let refusals: Vec<String> =
                            refusals.iter().map(ToString::to_string).collect();
                        refusals.join("; ")
                    }
                },
                Err(error) => error.to_string(),
            };
            if begun.elapsed() > GATE_WAIT {
                return Err(format!("the devices are not free: {refusals}"));
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// Stops engines of this host that no folder knows, all of them or those of some processes.
    pub async fn stop_orphans(&self, only: Option<&BTreeSet<u32>>) {
        if only.is_some_and(BTreeSet::is_empty) {
            return;
        }
        if let Err(error) = orphans::stop(&self.supervision, only).await {
            tracing::warn!(%error, "engines whose folder is gone are not all stopped");
        }
    }

    fn spec(&self, want: &DesiredReplica, model: &str) -> Result<LaunchSpec, LaunchFailure> {
        let again = |error: &dyn std::fmt::Display| LaunchFailure {
            reason: error.to_string(),
            fatal: false,
        };
        let held = {
            let mut ports = self.ports();
            if ports.of(&want.id).is_some() {
                ports.release(&want.id).map_err(|e| again(&e))?;
            }
            ports
                .lease(&want.id, SECONDARY_PORTS)
                .map_err(|e| again(&e))?
        };
        let launch = EngineLaunch {
            engine: want.engine,
            model: model.to_owned(),
            served_model_name: want.model_id.clone(),
            engine_args: want.engine_args.clone(),
            host: self.address.clone(),
            port: held.lease.api,
            secondary_ports: held.lease.secondary.clone(),
            gpu_uuids: want.gpu_uuids.clone(),
            extra_env: BTreeMap::new(),
        };
        let folder = self.supervision.folder(&want.id);
        let rendered = command(&self.engines, &launch, &folder).map_err(|violations| {
            let lines = violations
                .iter()
                .map(|v| format!("{}: {}", v.field, v.message));
            // The same words make the same command: another try would end here again.
            LaunchFailure {
                reason: format!("no command line: {}", lines.collect::<Vec<_>>().join("; ")),
                fatal: true,
            }
        })?;
        let lease = held.hand_over();
        let labels = BTreeMap::from([
            ("engine_version".to_owned(), want.engine_version.clone()),
            ("engine_args".to_owned(), want.engine_args.join("\n")),
        ]);
        Ok(LaunchSpec {
            meta: ReplicaMeta {
                replica_id: want.id.clone(),
                nonce: new_nonce().map_err(|e| again(&e))?,
                engine: want.engine,
                served_model_name: want.model_id.clone(),
                host: self.address.clone(),
                port: lease.api,
                secondary_ports: lease.secondary,
                gpu_uuids: want.gpu_uuids.clone(),
                launched_at: utc_now(),
                labels,
            },
            argv: rendered.argv,
            env: rendered.env,
            log_max_bytes: LOG_MAX_BYTES,
            grace_s: DEFAULT_GRACE_S,
        })
    }

    fn release(&self, id: &ReplicaId) {
        if let Err(error) = self.ports().release(id) {
            tracing::warn!(replica = %id, %error, "ports were not given back");
        }
    }

    /// Waits until no process of the replica is left and its device memory is free. Once the engine
    /// itself is gone, whatever is left after a while is killed, a shim that hangs included; only
    /// what is recorded for the replica or carries its mark is touched.
    pub async fn prove_exit(&self, id: &ReplicaId, process: Option<&ReplicaProcess>) {
        let mut begun = std::time::Instant::now();
        let Some(process) = process else {
            self.release(id);
            return;
        };
        loop {
            match self.look_for(process).await {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => tracing::warn!(replica = %id, %error, "cannot look for survivors"),
            }
            if begun.elapsed() > KILL_AGAIN_AFTER {
                if let Err(error) = process.clear_away().await {
                    tracing::warn!(replica = %id, %error, "what it left behind stays");
                }
                begun = std::time::Instant::now();
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        self.release(id);
        tracing::info!(replica = %id, "nothing is left of it");
    }

    async fn look_for(&self, process: &ReplicaProcess) -> std::io::Result<bool> {
        let survivors: BTreeSet<u32> = match process.proof_of_exit().await? {
            ExitProof::Gone => BTreeSet::new(),
            ExitProof::Survivors(members) => members.iter().map(|m| m.process.pid).collect(),
        };
        // A shim that still holds the folder has something to write down, or hangs.
        if !survivors.is_empty() || process.is_held() {
            return Ok(false);
        }
        let look = self.gpus.read().map_err(std::io::Error::other)?;
        let held = process
            .meta
            .gpu_uuids
            .iter()
            .filter_map(|uuid| look.of(uuid));
        Ok(held
            .flat_map(|r| &r.holders)
            .all(|h| h.pid != process.identity.engine.pid))
    }

    /// Deletes what is kept of a replica.
    pub fn forget(&self, id: &ReplicaId) {
        self.release(id);
        let folder: PathBuf = self.supervision.folder(id);
        if folder.exists()
            && let Err(error) = forget(&folder)
        {
            tracing::warn!(replica = %id, %error, "its folder stays");
        }
    }
}

/// Processes that keep a launch off its devices.
fn holders(refusals: &[GateRefusal]) -> BTreeSet<u32> {
    let held = refusals.iter().filter_map(|refusal| match refusal {
        GateRefusal::Held { pid, .. } => Some(*pid),
        GateRefusal::Unknown { .. }
        | GateRefusal::Unattributed { .. }
        | GateRefusal::NotKnown { .. } => None,
    });
    held.collect()
}
