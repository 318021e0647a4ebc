//! What agents last said, kept in memory only: lost with the server, rebuilt by their next word.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::desired::DesiredVersion;
use crate::gpu::GpuReading;
use crate::host::Liveness;
use crate::ids::{Generation, HostGeneration, HostId, JobId, ReplicaId};
use crate::time::UtcMicros;

/// A replica's phase as its agent sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObservedPhase {
    /// Started, or about to be.
    Launching,
    /// Answered with a real token and makes progress.
    Ready,
    /// Finishing what is in flight.
    Draining,
    /// Waiting before the next start.
    Backoff,
    /// Given up.
    Failed,
    /// Not running.
    Stopped,
}

impl ObservedPhase {
    /// Every phase.
    pub const ALL: [Self; 6] = [
        Self::Launching,
        Self::Ready,
        Self::Draining,
        Self::Backoff,
        Self::Failed,
        Self::Stopped,
    ];

    /// Name on the wire and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Launching => "launching",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Backoff => "backoff",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }

    /// The phase of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }
}

/// One replica as its agent sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObservedReplica {
    /// Identity.
    pub id: ReplicaId,
    /// Phase.
    pub phase: ObservedPhase,
    /// Why, for failed and backoff.
    pub reason: String,
    /// Port it listens on, once known.
    pub port: Option<u16>,
    /// Engine starts so far.
    pub n_starts: u32,
    /// No process is left and its device memory is free again.
    pub exit_proven: bool,
    /// Engine version found at launch.
    pub engine_version: String,
    /// Arguments the engine was started with.
    pub engine_args: Vec<String>,
}

/// The whole observed state of a host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ObservedState {
    /// Version of the desired set it converges to.
    pub applied: DesiredVersion,
    /// Replicas.
    pub replicas: Vec<ObservedReplica>,
    /// Devices.
    pub gpus: Vec<GpuReading>,
    /// A desired set that was refused whole, and why.
    pub refusal: Option<String>,
}

/// One host as the server hears it.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveHost {
    /// Last word of any kind.
    pub heard_at: UtcMicros,
    /// True while a stream is open.
    pub connected: bool,
    /// Replicas by id.
    pub replicas: BTreeMap<ReplicaId, ObservedReplica>,
    /// Devices by UUID.
    pub gpus: BTreeMap<String, GpuReading>,
    /// Version it converges to.
    pub applied: DesiredVersion,
    /// Last refusal.
    pub refusal: Option<String>,
    /// Host generation last sent on this stream; `None` before the first.
    pub pushed: Option<HostGeneration>,
}

/// Judged windows of one generation: how many there were and how many kept the SLO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SloTally {
    /// Windows with enough finished requests to judge.
    pub judged: u32,
    /// Windows inside every target.
    pub inside: u32,
}

impl SloTally {
    /// Share inside, when anything was judged.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        (self.judged > 0).then(|| f64::from(self.inside) / f64::from(self.judged))
    }
}

/// Everything heard since the server started.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Live {
    /// First step of this server: a host that was not heard since has been silent at least so long.
    pub started_at: Option<UtcMicros>,
    /// Hosts that said hello.
    pub hosts: BTreeMap<HostId, LiveHost>,
    /// Judged windows by generation since it was ready; the canary's verdict.
    pub slo: BTreeMap<(JobId, Generation), SloTally>,
}

impl Live {
    /// A host said hello on a new stream.
    pub fn hello(&mut self, host: HostId, now: UtcMicros, observed: ObservedState) {
        let mut live = LiveHost {
            heard_at: now,
            connected: true,
            replicas: BTreeMap::new(),
            gpus: BTreeMap::new(),
            applied: DesiredVersion::default(),
            refusal: None,
            pushed: None,
        };
        live.replace(observed);
        self.hosts.insert(host, live);
    }

    /// A host sent its whole observed state.
    pub fn observed(&mut self, host: &HostId, now: UtcMicros, observed: ObservedState) {
        if let Some(live) = self.hosts.get_mut(host) {
            live.heard_at = now;
            live.replace(observed);
        }
    }

    /// A host said anything at all.
    pub fn heard(&mut self, host: &HostId, now: UtcMicros) {
        if let Some(live) = self.hosts.get_mut(host) {
            live.heard_at = now;
        }
    }

    /// A host's stream ended.
    pub fn gone(&mut self, host: &HostId) {
        if let Some(live) = self.hosts.get_mut(host) {
            live.connected = false;
            live.pushed = None;
        }
    }

    /// What the agent said of a replica, if its host has been heard since the server started.
    #[must_use]
    pub fn replica(&self, host: &HostId, id: &ReplicaId) -> Option<&ObservedReplica> {
        self.hosts.get(host)?.replicas.get(id)
    }

    /// True when the agent's own word, not older than a minute, is that it serves.
    #[must_use]
    pub fn serves(&self, host: &HostId, id: &ReplicaId, now: UtcMicros) -> bool {
        let Some(live) = self.hosts.get(host) else {
            return false;
        };
        let silence = now.seconds_since(live.heard_at);
        let seen = live.replicas.get(id);
        Liveness::of_silence(silence) != Liveness::Unreachable
            && seen.is_some_and(|r| r.phase == ObservedPhase::Ready)
    }

    /// Seconds since the last word of every host that was heard, and since this server's start
    /// of every other known one.
    #[must_use]
    pub fn silence_s<'a>(
        &self,
        known: impl Iterator<Item = &'a HostId>,
        now: UtcMicros,
    ) -> BTreeMap<HostId, f64> {
        let heard = |id: &HostId| self.hosts.get(id).map(|h| h.heard_at).or(self.started_at);
        known
            .filter_map(|id| Some((id.clone(), now.seconds_since(heard(id)?).max(0.0))))
            .collect()
    }

    /// Silence band of every host that was heard.
    #[must_use]
    pub fn liveness(&self, now: UtcMicros) -> BTreeMap<HostId, Liveness> {
        self.hosts
            .iter()
            .map(|(id, h)| {
                (
                    id.clone(),
                    Liveness::of_silence(now.seconds_since(h.heard_at)),
                )
            })
            .collect()
    }
}

impl LiveHost {
    fn replace(&mut self, observed: ObservedState) {
        self.replicas = observed
            .replicas
            .into_iter()
            .map(|r| (r.id.clone(), r))
            .collect();
        self.gpus = observed
            .gpus
            .into_iter()
            .map(|g| (g.uuid.clone(), g))
            .collect();
        self.applied = observed.applied;
        self.refusal = observed.refusal;
    }
}
