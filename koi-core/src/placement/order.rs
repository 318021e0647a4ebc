//! The order of candidates: strictly lexicographic, never a sum. ADR-0007 D3; spec §15.
//!
//! Every candidate gets a key and keys are compared whole, so the order is total and transitive;
//! skipping a missing signal pairwise would not be (trap 15). An absent signal ranks below any
//! present one in its tier.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::candidate::{NodeCandidate, PlacementPolicy, PlacementStrategy, ValidSignals, Warmth};
use crate::ids::HostId;

/// Slots of one decision; a plan's largest scale-up is far below.
pub const MAX_SLOTS: usize = 10_000;

/// What a candidate is compared by, tier by tier; a larger key is the better candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlacementKey {
    /// First tier, always.
    pub warmth: Warmth,
    /// Signals in use, absent where not valid.
    pub signals: ValidSignals,
    /// Which order of tiers applies: the job's, or `warmth_first` when no top candidate has a signal.
    pub strategy: PlacementStrategy,
    /// Last tier: the name that sorts first is better.
    pub name: HostId,
}

impl PlacementKey {
    /// Tiers after warmth; larger is better, absent lowest.
    fn tiers(&self) -> [Option<f64>; 4] {
        let s = &self.signals;
        let less = |x: Option<f64>| x.map(|x| -x);
        match self.strategy {
            PlacementStrategy::WarmthFirst => [
                less(s.active_service_count),
                less(s.gpu_utilization),
                None,
                None,
            ],
            PlacementStrategy::EfficiencyAware => [
                s.kv_cache_hit_rate,
                s.tokens_per_joule,
                less(s.gpu_utilization),
                less(s.active_service_count),
            ],
        }
    }

    /// `Greater` when this candidate is better.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        let mine = self.tiers();
        let theirs = other.tiers();
        let tiers = mine
            .iter()
            .zip(&theirs)
            .map(|(a, b)| compare_present_last(*a, *b));
        std::iter::once(self.warmth.cmp(&other.warmth))
            .chain(tiers)
            .chain(std::iter::once(other.name.cmp(&self.name)))
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

/// Absent below present; present by value.
fn compare_present_last(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Keys of the candidates, in their order.
///
/// # Formula   efficiency_aware falls back to warmth_first for all candidates when none of the top
/// warmth class has a valid hit rate or a valid tokens per joule
/// # Source    ADR-0007 D3; spec §15
#[must_use]
pub fn placement_keys(candidates: &[NodeCandidate], policy: &PlacementPolicy) -> Vec<PlacementKey> {
    let top = candidates.iter().map(|c| c.warmth).max();
    let signals: Vec<ValidSignals> = candidates.iter().map(|c| c.signals.valid(policy)).collect();
    let any_signal = candidates.iter().zip(&signals).any(|(candidate, s)| {
        Some(candidate.warmth) == top
            && (s.kv_cache_hit_rate.is_some() || s.tokens_per_joule.is_some())
    });
    let strategy = if any_signal {
        policy.strategy
    } else {
        PlacementStrategy::WarmthFirst
    };
    candidates
        .iter()
        .zip(signals)
        .map(|(c, signals)| PlacementKey {
            warmth: c.warmth,
            signals,
            strategy,
            name: c.name.clone(),
        })
        .collect()
}

/// The candidates' keys, best first.
#[must_use]
pub fn rank(candidates: &[NodeCandidate], policy: &PlacementPolicy) -> Vec<PlacementKey> {
    let mut keys = placement_keys(candidates, policy);
    keys.sort_by(|a, b| b.compare(a));
    keys
}

/// One replica to place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// GPUs it needs on one host.
    pub gpus: u32,
}

/// Why a slot has no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum NoHost {
    /// No candidate has that many GPUs left.
    #[error("no host has {needed} free GPUs; the most on one host is {most_free}")]
    NotEnoughGpus {
        /// GPUs the slot needs.
        needed: u32,
        /// Most that are free on one host.
        most_free: u32,
    },
    /// A slot without GPUs.
    #[error("a slot needs at least one GPU")]
    EmptySlot,
    /// Past [`MAX_SLOTS`].
    #[error("more than 10000 slots in one decision")]
    TooManySlots,
}

/// Places slots one by one, each against what the slots before it left over (trap 16): free GPUs fall,
/// and a node's service count, where it is known, rises.
///
/// # Shapes    one answer per slot, in the order of `slots`
/// # Errors    per slot, [`NoHost`]; later slots are still tried
/// # Source    spec §15
#[must_use]
pub fn place_slots(
    candidates: &[NodeCandidate],
    slots: &[Slot],
    policy: &PlacementPolicy,
) -> Vec<Result<HostId, NoHost>> {
    let mut candidates = candidates.to_vec();
    let place = |(index, slot): (usize, &Slot)| {
        if index >= MAX_SLOTS {
            return Err(NoHost::TooManySlots);
        }
        place_slot(&mut candidates, *slot, policy)
    };
    slots.iter().enumerate().map(place).collect()
}

fn place_slot(
    candidates: &mut [NodeCandidate],
    slot: Slot,
    policy: &PlacementPolicy,
) -> Result<HostId, NoHost> {
    if slot.gpus == 0 {
        return Err(NoHost::EmptySlot);
    }
    let fitting: Vec<NodeCandidate> = candidates
        .iter()
        .filter(|c| c.free_gpus >= slot.gpus)
        .cloned()
        .collect();
    let best = placement_keys(&fitting, policy)
        .into_iter()
        .max_by(PlacementKey::compare);
    let Some(best) = best else {
        let most_free = candidates.iter().map(|c| c.free_gpus).max().unwrap_or(0);
        return Err(NoHost::NotEnoughGpus {
            needed: slot.gpus,
            most_free,
        });
    };
    for taken in candidates.iter_mut().filter(|c| c.name == best.name) {
        taken.free_gpus = taken.free_gpus.saturating_sub(slot.gpus);
        if let Some(count) = &mut taken.signals.active_service_count {
            count.value += 1.0;
        }
    }
    Ok(best.name)
}

#[cfg(test)]
mod tests;
