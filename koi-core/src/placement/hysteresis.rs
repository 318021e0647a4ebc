//! Hysteresis of rescheduling: a need must last before it is acted on, and few moves run at once.
//!
//! The need itself (a replica lost, a host reclaimed) comes from outside; a signal never is one
//! (ADR-0007 D4). Spec §15.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::ReplicaId;

/// How patient and how parallel rescheduling is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HysteresisSpec {
    /// Reconciles in a row that must see the need; 1 acts at once.
    pub stable_reconciles_required: u32,
    /// Reschedules that may run at the same time; 0 holds everything.
    pub max_concurrent_reschedules: u32,
}

impl Default for HysteresisSpec {
    fn default() -> Self {
        Self {
            stable_reconciles_required: 2,
            max_concurrent_reschedules: 1,
        }
    }
}

/// What hysteresis remembers between reconciles. It never holds more replicas than the last reconcile
/// named plus those that are moving.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Hysteresis {
    seen: BTreeMap<ReplicaId, u32>,
    moving: BTreeSet<ReplicaId>,
}

impl Hysteresis {
    /// One reconcile: `needing` are the replicas that must be rescheduled as seen now. Answers with
    /// those to start now: longest need first, then by id. They count as moving until
    /// [`Self::finished`].
    pub fn reconcile(
        &mut self,
        needing: &BTreeSet<ReplicaId>,
        spec: HysteresisSpec,
    ) -> Vec<ReplicaId> {
        let count = |id: &ReplicaId| self.seen.get(id).copied().unwrap_or(0).saturating_add(1);
        self.seen = needing
            .iter()
            .filter(|id| !self.moving.contains(*id))
            .map(|id| (id.clone(), count(id)))
            .collect();
        let mut ready: Vec<(u32, ReplicaId)> = self
            .seen
            .iter()
            .filter(|(_, seen)| **seen >= spec.stable_reconciles_required)
            .map(|(id, seen)| (*seen, id.clone()))
            .collect();
        ready.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let room = (spec.max_concurrent_reschedules as usize).saturating_sub(self.moving.len());
        let started: Vec<ReplicaId> = ready.into_iter().take(room).map(|(_, id)| id).collect();
        for id in &started {
            self.seen.remove(id);
            self.moving.insert(id.clone());
        }
        started
    }

    /// A reschedule ended, well or badly; its place is free and its need starts from zero.
    pub fn finished(&mut self, replica: &ReplicaId) {
        self.moving.remove(replica);
        self.seen.remove(replica);
    }

    /// Reschedules that are running.
    #[must_use]
    pub fn moving(&self) -> &BTreeSet<ReplicaId> {
        &self.moving
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[u32]) -> BTreeSet<ReplicaId> {
        names
            .iter()
            .map(|i| format!("chat.g1.r0.{i}").parse().unwrap())
            .collect()
    }

    fn started(hysteresis: &mut Hysteresis, needing: &[u32], spec: HysteresisSpec) -> Vec<u32> {
        hysteresis
            .reconcile(&ids(needing), spec)
            .iter()
            .map(|id| id.index)
            .collect()
    }

    const SPEC: HysteresisSpec = HysteresisSpec {
        stable_reconciles_required: 3,
        max_concurrent_reschedules: 1,
    };

    #[test]
    fn a_need_must_last() {
        let mut h = Hysteresis::default();
        assert_eq!(started(&mut h, &[0], SPEC), [0_u32; 0]);
        assert_eq!(started(&mut h, &[0], SPEC), [0_u32; 0]);
        assert_eq!(started(&mut h, &[0], SPEC), [0]);
    }

    #[test]
    fn a_need_that_flaps_never_moves() {
        let mut h = Hysteresis::default();
        for _ in 0..50 {
            assert_eq!(started(&mut h, &[0], SPEC), [0_u32; 0]);
            assert_eq!(started(&mut h, &[0], SPEC), [0_u32; 0]);
            assert_eq!(started(&mut h, &[], SPEC), [0_u32; 0]);
        }
    }

    #[test]
    fn few_move_at_once_and_the_longest_need_goes_first() {
        let mut h = Hysteresis::default();
        for needing in [&[5][..], &[5, 1], &[5, 1]] {
            h.reconcile(&ids(needing), SPEC);
        }
        assert_eq!(h.moving(), &ids(&[5]));
        assert_eq!(
            started(&mut h, &[5, 1], SPEC),
            [0_u32; 0],
            "one is moving already"
        );
        h.finished(&"chat.g1.r0.5".parse().unwrap());
        assert_eq!(started(&mut h, &[1], SPEC), [1]);
    }

    #[test]
    fn a_finished_reschedule_starts_over() {
        let mut h = Hysteresis::default();
        let at_once = HysteresisSpec {
            stable_reconciles_required: 1,
            max_concurrent_reschedules: 2,
        };
        assert_eq!(started(&mut h, &[0, 1, 2], at_once), [0, 1]);
        h.finished(&"chat.g1.r0.0".parse().unwrap());
        assert_eq!(
            started(&mut h, &[0, 1, 2], at_once),
            [2],
            "the longest need goes before a repeated one"
        );
        assert_eq!(
            started(
                &mut h,
                &[0],
                HysteresisSpec {
                    max_concurrent_reschedules: 0,
                    ..at_once
                }
            ),
            [0_u32; 0]
        );
    }
}
