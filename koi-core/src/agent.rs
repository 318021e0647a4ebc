//! The agent as a state machine: converge to the newest desired set, refuse older ones, keep
//! serving whatever happens to the server.
//!
//! The shell launches, probes, scrapes and kills; this module says what and when. It decides
//! nothing of its own: no placement, no scaling. Spec §14; reliability rows D1–D17, E1–E8.

mod converge;
mod replica;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::ReplicaId;
use crate::rollout::{DesiredReplica, DesiredSet, DesiredVersion, ObservedReplica};
use crate::time::UtcMicros;

pub use replica::LocalReplica;

/// Restart rules. Seconds and counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentParams {
    /// Wait before the first restart after a crash.
    pub first_backoff_s: u32,
    /// Wait before the second; doubles from there.
    pub backoff_s: u32,
    /// Longest wait.
    pub max_backoff_s: u32,
    /// So many starts within the window and the agent gives up.
    pub max_starts: u32,
    /// The window.
    pub starts_window_s: u32,
    /// From asking an engine to stop to killing it.
    pub stop_grace_s: u32,
}

impl Default for AgentParams {
    fn default() -> Self {
        Self {
            first_backoff_s: 1,
            backoff_s: 10,
            max_backoff_s: 300,
            max_starts: 5,
            starts_window_s: 1800,
            stop_grace_s: 30,
        }
    }
}

/// What the machine is told.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentInput {
    /// The server sent a desired set.
    Desired(DesiredSet),
    /// The launch went through; the engine is loading.
    Launched {
        /// Which.
        id: ReplicaId,
        /// Port it listens on.
        port: u16,
        /// Engine version found.
        engine_version: String,
        /// Arguments it was started with.
        engine_args: Vec<String>,
    },
    /// The launch did not go through.
    LaunchFailed {
        /// Which.
        id: ReplicaId,
        /// Why.
        reason: String,
        /// True when trying again cannot help.
        fatal: bool,
    },
    /// A real token came back.
    Ready(ReplicaId),
    /// The engine is gone or was found hung and killed.
    Exited {
        /// Which.
        id: ReplicaId,
        /// Exit status and the last words of its log.
        reason: String,
    },
    /// The engine makes no progress although it has work and does not answer a probe.
    Hung(ReplicaId),
    /// The process lives but nobody listens on its port any more: no client reaches it again.
    Refusing(ReplicaId),
    /// Requests in flight, from the last scrape.
    InFlight(ReplicaId, u64),
    /// No process is left and its device memory is free.
    ExitProven(ReplicaId),
    /// Time has passed.
    Timer,
}

/// What the shell has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEffect {
    /// Make the desired set durable, before anything that follows from it.
    Persist(Box<DesiredSet>),
    /// Start an engine; answer with `Launched` or `LaunchFailed`, then watch and probe it.
    Launch(Box<DesiredReplica>),
    /// Ask an engine to finish and stop; after the grace kill it.
    Terminate {
        /// Which.
        id: ReplicaId,
        /// Seconds until it is killed.
        grace_s: u32,
    },
    /// Make sure that nothing is left; answer with `ExitProven` when that is so.
    ProveExit(ReplicaId),
    /// Delete what is kept of a replica: it is gone and the server knows.
    Forget(ReplicaId),
    /// Something changed: send the observed state now.
    Report,
}

/// The agent's decisions. Holds no handle to anything outside.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentMachine {
    params: AgentParams,
    gpu_uuids: BTreeSet<String>,
    desired: DesiredSet,
    /// False until the server has spoken since this start: nothing new is launched before.
    confirmed: bool,
    replicas: BTreeMap<ReplicaId, LocalReplica>,
    refusal: Option<String>,
}

impl AgentMachine {
    /// A machine over the host's devices, the cached desired set (or an empty one) and the
    /// replicas that were adopted.
    #[must_use]
    pub fn new(
        params: AgentParams,
        gpu_uuids: BTreeSet<String>,
        cached: DesiredSet,
        adopted: Vec<LocalReplica>,
    ) -> Self {
        let mut replicas: BTreeMap<ReplicaId, LocalReplica> =
            adopted.into_iter().map(|r| (r.id.clone(), r)).collect();
        for want in &cached.replicas {
            if let Some(replica) = replicas.get_mut(&want.id) {
                replica.gpu_uuids = Some(want.gpu_uuids.clone());
            }
        }
        Self {
            params,
            gpu_uuids,
            desired: cached,
            confirmed: false,
            replicas,
            refusal: None,
        }
    }

    /// Highest version made durable.
    #[must_use]
    pub fn highest(&self) -> DesiredVersion {
        self.desired.version
    }

    /// Why the newest desired set was refused, if it was.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Replicas for the server's eyes.
    #[must_use]
    pub fn observed(&self) -> Vec<ObservedReplica> {
        self.replicas.values().map(LocalReplica::observed).collect()
    }

    /// Replicas that run or are about to.
    pub fn replicas(&self) -> impl Iterator<Item = &LocalReplica> {
        self.replicas.values()
    }

    /// What is wanted of a replica, when it is in the desired set.
    #[must_use]
    pub fn wanted(&self, id: &ReplicaId) -> Option<&DesiredReplica> {
        self.desired.replicas.iter().find(|r| r.id == *id)
    }

    /// One step.
    pub fn step(&mut self, now: UtcMicros, input: AgentInput) -> Vec<AgentEffect> {
        let before = self.observed();
        let mut effects = Vec::new();
        for replica in self.replicas.values_mut() {
            replica.wait_from(now);
        }
        self.take(now, input, &mut effects);
        self.converge(now, &mut effects);
        if self.observed() != before && !effects.contains(&AgentEffect::Report) {
            effects.push(AgentEffect::Report);
        }
        effects
    }

    fn take(&mut self, now: UtcMicros, input: AgentInput, effects: &mut Vec<AgentEffect>) {
        match input {
            AgentInput::Desired(set) => self.accept(set, effects),
            AgentInput::Launched {
                id,
                port,
                engine_version,
                engine_args,
            } => self.with(&id, |r| r.launched(now, port, engine_version, engine_args)),
            AgentInput::LaunchFailed { id, reason, fatal } => {
                self.with(&id, |r| r.launch_failed(reason, fatal));
                effects.push(AgentEffect::ProveExit(id));
            }
            AgentInput::Ready(id) => self.with(&id, LocalReplica::ready),
            AgentInput::Exited { id, reason } => {
                let mut news = false;
                self.with(&id, |r| news = r.exited(reason));
                if news {
                    effects.push(AgentEffect::ProveExit(id));
                }
            }
            AgentInput::Hung(id) => {
                self.end(id, ("hung: work waits, no engine step", 0), effects);
            }
            AgentInput::Refusing(id) => {
                // Requests that it took before may still finish.
                let grace_s = self.params.stop_grace_s;
                self.end(id, ("its port refuses connections", grace_s), effects);
            }
            AgentInput::InFlight(id, n) => self.with(&id, |r| r.in_flight = Some(n)),
            AgentInput::ExitProven(id) => {
                let params = self.params.clone();
                self.with(&id, |r| r.exit_proven(now, &params));
            }
            AgentInput::Timer => {}
        }
    }

    /// Takes an engine out of service that lives and is of no use.
    fn end(
        &mut self,
        id: ReplicaId,
        (reason, grace_s): (&str, u32),
        effects: &mut Vec<AgentEffect>,
    ) {
        let mut news = false;
        self.with(&id, |r| news = r.exited(reason.to_owned()));
        if news {
            effects.push(AgentEffect::Terminate {
                id: id.clone(),
                grace_s,
            });
            effects.push(AgentEffect::ProveExit(id));
        }
    }

    fn with(&mut self, id: &ReplicaId, change: impl FnOnce(&mut LocalReplica)) {
        if let Some(replica) = self.replicas.get_mut(id) {
            change(replica);
        }
    }

    /// Takes a desired set if it is not older than what was seen and fits the host's inventory;
    /// refused whole otherwise.
    fn accept(&mut self, set: DesiredSet, effects: &mut Vec<AgentEffect>) {
        if set.version < self.desired.version {
            self.refusal = Some(format!(
                "version {:?} is older than {:?}, which was seen before",
                set.version, self.desired.version
            ));
            effects.push(AgentEffect::Report);
            return;
        }
        if let Err(why) = self.fits(&set) {
            self.refusal = Some(why);
            effects.push(AgentEffect::Report);
            return;
        }
        self.refusal = None;
        self.confirmed = true;
        effects.push(AgentEffect::Persist(Box::new(set.clone())));
        self.desired = set;
        effects.push(AgentEffect::Report);
    }

    fn fits(&self, set: &DesiredSet) -> Result<(), String> {
        let mut used = BTreeMap::new();
        let mut ids = BTreeSet::new();
        for replica in &set.replicas {
            if !ids.insert(&replica.id) {
                return Err(format!("{} is listed twice", replica.id));
            }
            for uuid in &replica.gpu_uuids {
                if !self.gpu_uuids.contains(uuid) {
                    return Err(format!(
                        "{} wants device {uuid}, which is not here",
                        replica.id
                    ));
                }
                if let Some(other) = used.insert(uuid, &replica.id) {
                    return Err(format!(
                        "{} and {other} both want device {uuid}",
                        replica.id
                    ));
                }
            }
        }
        Ok(())
    }
}
