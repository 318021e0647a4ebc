//! The frozen view that S0 takes: everything S1–S6 of one tick decide from, owned and immutable.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::host::{HostRecord, Liveness};
use crate::ids::{HostId, JobId, TickId};
use crate::store::{JobRecord, ServerState};
use crate::time::UtcMicros;
use crate::variables::{MediatorValues, OutcomeValues};

/// What S1 measured of one job since the last tick, pooled over its replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredJob {
    /// Finished requests per second.
    pub rate_rps: f64,
    /// Mean prompt and generated tokens, when requests finished.
    pub lengths: Option<(f64, f64)>,
    /// Observed V.
    pub mediators: MediatorValues,
    /// Observed Y.
    pub outcomes: OutcomeValues,
    /// Generated tokens since the job started, for batch budgets.
    pub tokens_done: u64,
}

/// A frozen cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The tick that froze it.
    pub tick: TickId,
    /// When.
    pub now: UtcMicros,
    /// Seed of everything random in this tick.
    pub seed: u64,
    /// Hash of the catalog it is to be read with.
    pub catalog_hash: String,
    /// Jobs, hosts, replicas, beliefs, slow state.
    pub state: ServerState,
    /// How long each agent has been silent; a host that is not named never connected.
    pub liveness: BTreeMap<HostId, Liveness>,
    /// Seconds since each known agent's last word, at least since the server's start.
    pub silence_s: BTreeMap<HostId, f64>,
    /// What stored evidence says; filled by S1.
    pub experience: crate::experience::Experience,
    /// What contrasts know of every edge; absent while no contrasts are kept.
    #[serde(default)]
    pub edge_powers: Option<crate::score::eig::EdgePowers>,
    /// What was measured; filled by S1.
    pub measured: BTreeMap<JobId, MeasuredJob>,
    /// Digest of the measured points of others that the planner reads beside the snapshot; empty
    /// without any. Filled by S1.
    #[serde(default)]
    pub points_digest: String,
}

impl Snapshot {
    /// Stable hash of the whole view, 16 hex digits. Equal snapshots give equal plans.
    ///
    /// # Panics
    /// Never: the view has only string keys and finite numbers.
    #[must_use]
    pub fn hash(&self) -> String {
        let text = serde_json::to_vec(self)
            .expect("invariant: a snapshot has only string-like keys and serialisable values");
        Sha256::digest(&text)
            .iter()
            .take(8)
            .map(|b| format!("{b:02x}"))
            .collect()
    }

    /// Jobs that a plan must speak about: neither finished nor being cancelled.
    pub fn visible_jobs(&self) -> impl Iterator<Item = &JobRecord> {
        self.state.jobs.values().filter(|j| !j.state.is_finished())
    }

    /// Jobs that run.
    #[must_use]
    pub fn active_jobs(&self) -> u32 {
        let active = self.state.jobs.values().filter(|j| j.active.is_some());
        u32::try_from(active.count()).unwrap_or(u32::MAX)
    }

    /// True when the host may get new work: alive, neither cordoned nor draining.
    #[must_use]
    pub fn takes_work(&self, host: &HostRecord) -> bool {
        !host.cordoned
            && host.draining_since.is_none()
            && self.liveness.get(&host.facts.host) == Some(&Liveness::Alive)
    }

    /// Seconds since a host's last word; 0 where nothing is known of a silence.
    #[must_use]
    pub fn silence_of(&self, host: &HostId) -> f64 {
        let banded = match self.liveness.get(host) {
            Some(Liveness::Unreachable) => Liveness::UNREACHABLE_SECONDS,
            Some(Liveness::Alive | Liveness::Suspect) | None => 0.0,
        };
        self.silence_s.get(host).map_or(banded, |s| s.max(banded))
    }

    /// Devices that some replica has reserved.
    #[must_use]
    pub fn reserved_devices(&self) -> BTreeSet<&str> {
        self.state
            .replicas
            .values()
            .flat_map(|r| r.gpu_uuids.iter().map(String::as_str))
            .collect()
    }

    /// Devices of a host that nobody has reserved, in index order.
    #[must_use]
    pub fn free_devices(&self, host: &HostRecord) -> Vec<String> {
        let reserved = self.reserved_devices();
        let mut free: Vec<_> = host
            .facts
            .gpus
            .iter()
            .filter(|g| !reserved.contains(g.uuid.as_str()))
            .collect();
        free.sort_by_key(|g| g.index);
        free.into_iter().map(|g| g.uuid.clone()).collect()
    }
}
