//! What takes a change of the state back, when a later one of its transaction is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::{BeliefMove, ServerState};
use super::{Change, JobRecord, ReplicaRecord};
use crate::catalog::price::{Price, PriceKey};
use crate::causal::BeliefKey;
use crate::host::HostRecord;
use crate::ids::{HostId, JobId, PlanSeq, ReplicaId};
use crate::lifecycle::MechanismRecord;
use crate::slow_loop::SlowState;
use crate::tick::TickRecord;
use crate::validation::contrast::ContrastBook;
use crate::validation::meta::Calibration;

/// How to take one change back.
pub(super) enum Undo {
    Job(JobId, Option<Box<JobRecord>>),
    Host(HostId, Option<Box<HostRecord>>),
    Replica(ReplicaId, Option<Box<ReplicaRecord>>),
    Tick(Option<Box<TickRecord>>),
    PlanSeq(PlanSeq),
    Beliefs(Vec<(BeliefKey, Option<BeliefMove>)>),
    Slow(Box<SlowState>),
    Mechanism(String, Option<Box<MechanismRecord>>),
    Prices(Vec<(PriceKey, Option<Price>)>),
    Contrasts(Box<ContrastBook>),
    Calibration(Arc<Calibration>),
    Nothing,
}

fn put_back<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, before: Option<Box<V>>) {
    match before {
        Some(value) => drop(map.insert(key, *value)),
        None => drop(map.remove(&key)),
    }
}

impl ServerState {
    /// What would take a change back; asked before the change is applied.
    pub(super) fn inverse(&self, change: &Change) -> Undo {
        match change {
            Change::Job(job) => Undo::Job(job.id, self.jobs.get(&job.id).cloned().map(Box::new)),
            Change::Host(host) => {
                let id = host.facts.host.clone();
                Undo::Host(id.clone(), self.hosts.get(&id).cloned().map(Box::new))
            }
            Change::Replica(r) => self.inverse_replica(&r.id),
            Change::ReplicaReleased(id) => self.inverse_replica(id),
            Change::Tick(_) => Undo::Tick(self.tick.clone().map(Box::new)),
            Change::Plan(_) => Undo::PlanSeq(self.plan_seq),
            Change::BeliefEvents(events) => Undo::Beliefs(
                events
                    .iter()
                    .flat_map(|e| &e.changes)
                    .map(|c| (c.key.clone(), self.beliefs.get(&c.key).copied()))
                    .collect(),
            ),
            Change::Slow(_) => Undo::Slow(Box::new(self.slow.clone())),
            Change::Contrasts(_) => Undo::Contrasts(Box::new(self.contrasts.clone())),
            Change::Calibration(_) => Undo::Calibration(self.calibration.clone()),
            Change::Mechanism(record) => {
                let before = self.mechanisms.get(&record.id).cloned().map(Box::new);
                Undo::Mechanism(record.id.clone(), before)
            }
            Change::Prices(rows) => Undo::Prices(
                rows.iter()
                    .map(|r| (r.key.clone(), self.prices.price(&r.key).cloned()))
                    .collect(),
            ),
            Change::PricesRemoved(filter) => Undo::Prices(
                self.prices
                    .iter()
                    .filter(|(key, _)| filter.has(key))
                    .map(|(key, price)| (key.clone(), Some(price.clone())))
                    .collect(),
            ),
            Change::Evidence(_) | Change::SlowTick(_) | Change::Request(_) | Change::Audit(_) => {
                Undo::Nothing
            }
        }
    }

    fn inverse_replica(&self, id: &ReplicaId) -> Undo {
        Undo::Replica(id.clone(), self.replicas.get(id).cloned().map(Box::new))
    }

    pub(super) fn take_back(&mut self, undo: Vec<Undo>) {
        for step in undo.into_iter().rev() {
            match step {
                Undo::Job(id, before) => put_back(&mut self.jobs, id, before),
                Undo::Host(id, before) => put_back(&mut self.hosts, id, before),
                Undo::Replica(id, before) => put_back(&mut self.replicas, id, before),
                Undo::Tick(before) => self.tick = before.map(|t| *t),
                Undo::PlanSeq(before) => self.plan_seq = before,
                Undo::Beliefs(before) => {
                    for (key, sum) in before {
                        put_back(&mut self.beliefs, key, sum.map(Box::new));
                    }
                }
                Undo::Slow(before) => self.slow = *before,
                Undo::Contrasts(before) => self.contrasts = *before,
                Undo::Calibration(before) => self.calibration = before,
                Undo::Mechanism(id, before) => put_back(&mut self.mechanisms, id, before),
                Undo::Prices(before) => {
                    for (key, price) in before {
                        match price {
                            Some(price) => drop(self.prices.put(key, price)),
                            None => drop(self.prices.remove(&key)),
                        }
                    }
                }
                Undo::Nothing => {}
            }
        }
    }
}
