//! The agent as a state machine: converge to the newest desired set, refuse older ones, keep
//! serving whatever happens to the server.
//!
//! The shell launches, probes, scrapes and kills; this module says what and when. It decides
//! nothing of its own: no placement, no scaling. Spec §14; reliability rows D1–D17, E1–E8.

mod replica;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::ReplicaId;
use crate::rollout::{
    DesiredReplica, DesiredSet, DesiredVersion, ObservedPhase, ObservedReplica, ReplicaMode,
};
use crate::time::UtcMicros;

pub use replica::LocalReplica;
use replica::Stage;

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
        let replicas = adopted.into_iter().map(|r| (r.id.clone(), r)).collect();
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
        match input {
            AgentInput::Desired(set) => self.accept(set, &mut effects),
            AgentInput::Launched {
                id,
                port,
                engine_version,
                engine_args,
            } => {
                self.with(&id, |r| r.launched(now, port, engine_version, engine_args));
            }
            AgentInput::LaunchFailed { id, reason, fatal } => {
                let params = self.params.clone();
                self.with(&id, |r| r.launch_failed(now, reason, fatal, &params));
            }
            AgentInput::Ready(id) => self.with(&id, |r| r.ready(now)),
            AgentInput::Exited { id, reason } => {
                self.with(&id, |r| r.exited(reason));
                effects.push(AgentEffect::ProveExit(id));
            }
            AgentInput::Hung(id) => {
                self.with(&id, |r| {
                    r.exited("hung: work waits, no engine step".to_owned())
                });
                effects.push(AgentEffect::Terminate {
                    id: id.clone(),
                    grace_s: 0,
                });
                effects.push(AgentEffect::ProveExit(id));
            }
            AgentInput::InFlight(id, n) => self.with(&id, |r| r.in_flight = Some(n)),
            AgentInput::ExitProven(id) => {
                let params = self.params.clone();
                self.with(&id, |r| r.exit_proven(now, &params));
            }
            AgentInput::Timer => {}
        }
        self.converge(now, &mut effects);
        if self.observed() != before {
            effects.push(AgentEffect::Report);
        }
        effects
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
        for replica in &set.replicas {
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

    fn converge(&mut self, now: UtcMicros, effects: &mut Vec<AgentEffect>) {
        if self.confirmed {
            self.add_wanted(now);
            self.drop_unwanted(effects);
        }
        let wanted: BTreeMap<ReplicaId, DesiredReplica> = self
            .desired
            .replicas
            .iter()
            .map(|r| (r.id.clone(), r.clone()))
            .collect();
        for (id, replica) in &mut self.replicas {
            let want = wanted.get(id);
            let drain = match want {
                Some(w) => w.mode == ReplicaMode::Drain,
                None => self.confirmed,
            };
            if drain {
                let grace = want.map_or(self.params.stop_grace_s, |w| w.drain_grace_s);
                drain_step(now, replica, grace, self.params.stop_grace_s, effects);
            } else if let (Some(want), true) = (want, self.confirmed) {
                serve_step(now, replica, want, &self.params, effects);
            }
        }
    }

    fn add_wanted(&mut self, now: UtcMicros) {
        for want in &self.desired.replicas {
            self.replicas
                .entry(want.id.clone())
                .or_insert_with(|| LocalReplica::pending(want.id.clone(), now));
        }
    }

    /// A stopped replica that the server no longer names is forgotten.
    fn drop_unwanted(&mut self, effects: &mut Vec<AgentEffect>) {
        let gone: Vec<ReplicaId> = self
            .replicas
            .values()
            .filter(|r| matches!(r.stage, Stage::Stopped))
            .filter(|r| self.wanted(&r.id).is_none())
            .map(|r| r.id.clone())
            .collect();
        for id in gone {
            self.replicas.remove(&id);
            effects.push(AgentEffect::Forget(id));
        }
    }
}

/// Moves a replica that is to go one step further: wait for its requests, ask it to stop, prove.
fn drain_step(
    now: UtcMicros,
    replica: &mut LocalReplica,
    drain_grace_s: u32,
    stop_grace_s: u32,
    effects: &mut Vec<AgentEffect>,
) {
    match &replica.stage {
        Stage::Pending { .. } | Stage::Backoff { .. } | Stage::Failed => {
            replica.stage = Stage::Stopping;
            effects.push(AgentEffect::ProveExit(replica.id.clone()));
        }
        Stage::Launching { .. } => {
            replica.stage = Stage::Draining {
                since: now,
                wait: false,
            }
        }
        Stage::Ready => {
            replica.in_flight = None;
            replica.stage = Stage::Draining {
                since: now,
                wait: true,
            };
        }
        Stage::Draining { since, wait } => {
            let idle = replica.in_flight == Some(0);
            let over = now.seconds_since(*since) >= f64::from(drain_grace_s);
            if !wait || idle || over {
                replica.stage = Stage::Stopping;
                let id = replica.id.clone();
                effects.push(AgentEffect::Terminate {
                    id: id.clone(),
                    grace_s: stop_grace_s,
                });
                effects.push(AgentEffect::ProveExit(id));
            }
        }
        Stage::Stopping | Stage::Proving { .. } | Stage::Stopped => {}
    }
}

/// Moves a replica that is to serve one step further.
fn serve_step(
    now: UtcMicros,
    replica: &mut LocalReplica,
    want: &DesiredReplica,
    params: &AgentParams,
    effects: &mut Vec<AgentEffect>,
) {
    match &replica.stage {
        Stage::Pending { not_before } | Stage::Backoff { until: not_before }
            if now >= *not_before =>
        {
            replica.starting(now, params);
            effects.push(AgentEffect::Launch(Box::new(want.clone())));
        }
        Stage::Launching { since }
            if now.seconds_since(*since) > f64::from(want.start_deadline_s) =>
        {
            replica.give_up("not ready by its start deadline");
            let id = replica.id.clone();
            effects.push(AgentEffect::Terminate {
                id: id.clone(),
                grace_s: 0,
            });
            effects.push(AgentEffect::ProveExit(id));
        }
        Stage::Stopped => replica.stage = Stage::Pending { not_before: now },
        Stage::Pending { .. }
        | Stage::Backoff { .. }
        | Stage::Launching { .. }
        | Stage::Ready
        | Stage::Draining { .. }
        | Stage::Stopping
        | Stage::Proving { .. }
        | Stage::Failed => {}
    }
}

/// Phase the server sees for a stage.
fn phase_of(stage: &Stage) -> ObservedPhase {
    match stage {
        Stage::Pending { .. } | Stage::Launching { .. } => ObservedPhase::Launching,
        Stage::Ready => ObservedPhase::Ready,
        Stage::Draining { .. } | Stage::Stopping => ObservedPhase::Draining,
        Stage::Proving { give_up: false } | Stage::Backoff { .. } => ObservedPhase::Backoff,
        Stage::Proving { give_up: true } | Stage::Failed => ObservedPhase::Failed,
        Stage::Stopped => ObservedPhase::Stopped,
    }
}
