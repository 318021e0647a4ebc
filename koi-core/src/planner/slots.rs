//! Host and devices of every replica of the chosen ladders: one by one against what is still free,
//! the largest chains first, so that what the rows promised is found. Spec §10, §15; trap 16.

use std::collections::BTreeMap;

use super::pools::Pools;
use crate::ids::{HostId, JobId};
use crate::placement::candidate::{
    DEFAULT_SIGNAL_MAX_AGE_SECONDS, NodeCandidate, NodeSignals, PlacementPolicy, PlacementStrategy,
    Signal, Warmth,
};
use crate::placement::order;
use crate::plan::Slot;
use crate::snapshot::Snapshot;
use crate::store::ReplicaPhase;

/// Replicas of one rank that need a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Whose.
    pub job: JobId,
    /// Model, for warmth.
    pub model: String,
    /// Rank within the ladder.
    pub rank: u32,
    /// Pool.
    pub pool: usize,
    /// GPUs of one chain.
    pub chain_size: u32,
    /// Chains.
    pub n_chains: u32,
}

/// A job whose replicas found no place although the capacity rows allowed them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no host is left for a replica of job {job}")]
pub struct NoSlot {
    /// Whose.
    pub job: JobId,
}

/// What is still free while slots are given out.
struct Ledger<'a> {
    snapshot: &'a Snapshot,
    /// Free devices in index order, by pool and host.
    free: Vec<BTreeMap<HostId, Vec<String>>>,
    /// Replicas by host, those just placed included.
    n_services: BTreeMap<HostId, u32>,
}

/// Places every wanted replica.
///
/// # Errors
/// [`NoSlot`] with the first job that does not fit.
pub fn assign(
    wants: &[Want],
    pools: &Pools,
    snapshot: &Snapshot,
) -> Result<BTreeMap<JobId, Vec<Slot>>, NoSlot> {
    let mut ledger = Ledger::of(pools, snapshot);
    let mut order: Vec<&Want> = wants.iter().collect();
    // Sizes divide each other, so largest first never blocks what the rows allow.
    order.sort_by_key(|w| (std::cmp::Reverse(w.chain_size), w.job, w.rank));
    let mut slots: BTreeMap<JobId, Vec<Slot>> = BTreeMap::new();
    for want in order {
        for index in 0..want.n_chains {
            let (host, gpu_uuids) = ledger.take(want).ok_or(NoSlot { job: want.job })?;
            let slot = Slot {
                rank: want.rank,
                index,
                host,
                gpu_uuids,
            };
            slots.entry(want.job).or_default().push(slot);
        }
    }
    for list in slots.values_mut() {
        list.sort_by_key(|s| (s.rank, s.index));
    }
    Ok(slots)
}

impl<'a> Ledger<'a> {
    fn of(pools: &Pools, snapshot: &'a Snapshot) -> Self {
        let hosts = |pool: &super::pools::Pool| {
            pool.hosts
                .iter()
                .map(|h| (h.host.clone(), h.free.clone()))
                .collect()
        };
        let mut n_services: BTreeMap<HostId, u32> = BTreeMap::new();
        for replica in snapshot.state.replicas.values() {
            *n_services.entry(replica.host.clone()).or_default() += 1;
        }
        Self {
            snapshot,
            free: pools.pools.iter().map(hosts).collect(),
            n_services,
        }
    }

    /// Chooses a host by the placement order and takes its lowest free devices.
    fn take(&mut self, want: &Want) -> Option<(HostId, Vec<String>)> {
        let hosts = self.free.get(want.pool)?;
        let candidates: Vec<NodeCandidate> = hosts
            .iter()
            .map(|(host, devices)| NodeCandidate {
                name: host.clone(),
                warmth: warmth(self.snapshot, host, &want.model),
                free_gpus: devices.len() as u32,
                signals: self.signals(host),
            })
            .collect();
        let policy = PlacementPolicy {
            strategy: PlacementStrategy::WarmthFirst,
            now: self.snapshot.now,
            signal_max_age_seconds: DEFAULT_SIGNAL_MAX_AGE_SECONDS,
        };
        let slot = order::Slot {
            gpus: want.chain_size,
        };
        let host = order::place_slots(&candidates, &[slot], &policy)
            .into_iter()
            .next()?
            .ok()?;
        *self.n_services.entry(host.clone()).or_default() += 1;
        let free = self.free.get_mut(want.pool)?.get_mut(&host)?;
        let n = want.chain_size as usize;
        (free.len() >= n).then(|| (host, free.drain(..n).collect()))
    }

    /// What the snapshot knows of a node: how many replicas it holds.
    fn signals(&self, host: &HostId) -> NodeSignals {
        let count = f64::from(self.n_services.get(host).copied().unwrap_or(0));
        NodeSignals {
            active_service_count: Some(Signal {
                value: count,
                observed_at: self.snapshot.now,
            }),
            ..NodeSignals::default()
        }
    }
}

/// Warmth of a host for a model: warm when a replica of it is ready there, warming when one starts.
fn warmth(snapshot: &Snapshot, host: &HostId, model: &str) -> Warmth {
    let state = &snapshot.state;
    let serves = |job: &JobId| {
        state
            .jobs
            .get(job)
            .is_some_and(|j| j.spec.model.id == model)
    };
    let phases = state
        .replicas
        .values()
        .filter(|r| &r.host == host && serves(&r.job))
        .map(|r| &r.phase);
    let rate = |phase: &ReplicaPhase| match phase {
        ReplicaPhase::Ready => Warmth::Warm,
        ReplicaPhase::Launching => Warmth::Warming,
        ReplicaPhase::Failed { .. } => Warmth::Cold,
    };
    phases.map(rate).max().unwrap_or(Warmth::Cold)
}
