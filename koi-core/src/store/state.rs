//! The decision state as a fold of transactions; the reference meaning of every [`StoreTx`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Change, Expect, JobRecord, ReplicaRecord, StoreTx};
use crate::causal::{Belief, BeliefEvent};
use crate::host::HostRecord;
use crate::ids::{Epoch, HostId, JobId, PlanSeq, ReplicaId};
use crate::slow_loop::SlowState;
use crate::tick::TickRecord;

/// Everything a decision is made from. Evidence, plans, audit lines and windows are history and
/// live only in the database.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ServerState {
    /// Fencing token of the current writer.
    pub epoch: Epoch,
    /// Newest plan.
    pub plan_seq: PlanSeq,
    /// Newest tick.
    pub tick: Option<TickRecord>,
    /// Jobs that are not finished, and those that finished but still hold replicas.
    pub jobs: BTreeMap<JobId, JobRecord>,
    /// Hosts that ever said hello.
    pub hosts: BTreeMap<HostId, HostRecord>,
    /// Replicas whose devices are reserved.
    pub replicas: BTreeMap<ReplicaId, ReplicaRecord>,
    /// Beliefs that have moved, by subject (edge or mechanism id).
    pub beliefs: BTreeMap<String, Belief>,
    /// The slow loop.
    pub slow: SlowState,
}

/// Why a transaction may not be applied. Nothing of it has happened.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TxRefusal {
    /// Another server has taken over.
    #[error("epoch {offered} is fenced off, the store is at {stored}")]
    Fenced {
        /// Epoch of the transaction.
        offered: Epoch,
        /// Epoch of the store.
        stored: Epoch,
    },
    /// A condition does not hold.
    #[error("the state has moved on: {0}")]
    Conflict(String),
    /// A device would be reserved twice.
    #[error("device {uuid} is reserved by {holder}, {wanted} cannot have it")]
    DeviceTaken {
        /// Device.
        uuid: String,
        /// Replica that holds it.
        holder: ReplicaId,
        /// Replica that wants it.
        wanted: ReplicaId,
    },
}

/// How to take one change back.
enum Undo {
    Job(JobId, Option<Box<JobRecord>>),
    Host(HostId, Option<Box<HostRecord>>),
    Replica(ReplicaId, Option<Box<ReplicaRecord>>),
    Tick(Option<Box<TickRecord>>),
    PlanSeq(PlanSeq),
    Beliefs(Vec<(String, Option<Belief>)>),
    Slow(Box<SlowState>),
    Nothing,
}

fn put_back<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, before: Option<Box<V>>) {
    match before {
        Some(value) => drop(map.insert(key, *value)),
        None => drop(map.remove(&key)),
    }
}

impl ServerState {
    /// Applies a transaction whole or not at all.
    ///
    /// # Errors
    /// [`TxRefusal`]; the state is unchanged then.
    pub fn apply(&mut self, tx: &StoreTx) -> Result<(), TxRefusal> {
        if tx.epoch < self.epoch {
            return Err(TxRefusal::Fenced { offered: tx.epoch, stored: self.epoch });
        }
        for expect in &tx.expects {
            self.check(expect)?;
        }
        let mut undo = Vec::new();
        for change in &tx.changes {
            undo.push(self.inverse(change));
            if let Err(refusal) = self.apply_change(change) {
                undo.pop();
                self.take_back(undo);
                return Err(refusal);
            }
        }
        self.epoch = tx.epoch;
        self.forget_finished();
        Ok(())
    }

    fn check(&self, expect: &Expect) -> Result<(), TxRefusal> {
        let conflict = |what: String| Err(TxRefusal::Conflict(what));
        match expect {
            Expect::PlanSeq(seq) if *seq != self.plan_seq => {
                conflict(format!("newest plan is {}, expected {seq}", self.plan_seq))
            }
            Expect::TickPhase(id, phase) => match &self.tick {
                Some(t) if t.id == *id && t.phase == *phase => Ok(()),
                other => conflict(format!("tick {id} is not in {}: {other:?}", phase.code())),
            },
            Expect::TickOpen(id) => match &self.tick {
                Some(t) if t.id == *id && t.closed_at.is_none() => Ok(()),
                other => conflict(format!("tick {id} is not open: {other:?}")),
            },
            Expect::JobVersion(id, version) => {
                let stored = self.jobs.get(id).map_or(0, |j| j.version);
                if stored == *version {
                    Ok(())
                } else {
                    conflict(format!("job {id} is at version {stored}, expected {version}"))
                }
            }
            Expect::PlanSeq(_) => Ok(()),
        }
    }

    fn apply_change(&mut self, change: &Change) -> Result<(), TxRefusal> {
        match change {
            Change::Job(job) => self.put_job(job)?,
            Change::Host(host) => {
                self.hosts.insert(host.facts.host.clone(), (**host).clone());
            }
            Change::Replica(replica) => self.put_replica(replica)?,
            Change::ReplicaReleased(id) => {
                self.replicas.remove(id);
            }
            Change::Tick(tick) => self.tick = Some((**tick).clone()),
            Change::Plan(plan) => self.plan_seq = plan.seq,
            Change::BeliefEvents(events) => self.add_belief_events(events),
            Change::Slow(slow) => self.slow = (**slow).clone(),
            Change::Evidence(_) | Change::Request(_) | Change::Audit(_) => {}
        }
        Ok(())
    }

    fn put_job(&mut self, job: &JobRecord) -> Result<(), TxRefusal> {
        let stored = self.jobs.get(&job.id).map_or(0, |j| j.version);
        if job.version != stored + 1 {
            return Err(TxRefusal::Conflict(format!(
                "job {} is at version {stored}, the write carries {}",
                job.id, job.version
            )));
        }
        let twin = self.jobs.values().find(|j| {
            j.spec.name == job.spec.name && j.id != job.id && !j.state.is_finished()
        });
        if let (Some(twin), false) = (twin, job.state.is_finished()) {
            return Err(TxRefusal::Conflict(format!(
                "a live job named {} exists: {}",
                job.spec.name, twin.id
            )));
        }
        self.jobs.insert(job.id, job.clone());
        Ok(())
    }

    fn put_replica(&mut self, replica: &ReplicaRecord) -> Result<(), TxRefusal> {
        for uuid in &replica.gpu_uuids {
            let holder =
                self.replicas.values().find(|r| r.id != replica.id && r.gpu_uuids.contains(uuid));
            if let Some(holder) = holder {
                return Err(TxRefusal::DeviceTaken {
                    uuid: uuid.clone(),
                    holder: holder.id.clone(),
                    wanted: replica.id.clone(),
                });
            }
        }
        self.replicas.insert(replica.id.clone(), replica.clone());
        Ok(())
    }

    fn add_belief_events(&mut self, events: &[BeliefEvent]) {
        for event in events {
            let belief = self.beliefs.entry(event.subject.clone()).or_insert(event.seed);
            belief.add(event);
        }
    }

    /// A finished job without replicas is history.
    fn forget_finished(&mut self) {
        let held: std::collections::BTreeSet<JobId> =
            self.replicas.values().map(|r| r.job).collect();
        self.jobs.retain(|id, job| !job.state.is_finished() || held.contains(id));
    }

    /// What would take a change back; asked before the change is applied.
    fn inverse(&self, change: &Change) -> Undo {
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
                    .map(|e| (e.subject.clone(), self.beliefs.get(&e.subject).copied()))
                    .collect(),
            ),
            Change::Slow(_) => Undo::Slow(Box::new(self.slow.clone())),
            Change::Evidence(_) | Change::Request(_) | Change::Audit(_) => Undo::Nothing,
        }
    }

    fn inverse_replica(&self, id: &ReplicaId) -> Undo {
        Undo::Replica(id.clone(), self.replicas.get(id).cloned().map(Box::new))
    }

    fn take_back(&mut self, undo: Vec<Undo>) {
        for step in undo.into_iter().rev() {
            match step {
                Undo::Job(id, before) => put_back(&mut self.jobs, id, before),
                Undo::Host(id, before) => put_back(&mut self.hosts, id, before),
                Undo::Replica(id, before) => put_back(&mut self.replicas, id, before),
                Undo::Tick(before) => self.tick = before.map(|t| *t),
                Undo::PlanSeq(before) => self.plan_seq = before,
                Undo::Beliefs(before) => {
                    for (subject, belief) in before {
                        put_back(&mut self.beliefs, subject, belief.map(Box::new));
                    }
                }
                Undo::Slow(before) => self.slow = *before,
                Undo::Nothing => {}
            }
        }
    }

    /// Replicas of a job in id order.
    pub fn replicas_of(&self, job: JobId) -> impl Iterator<Item = &ReplicaRecord> {
        self.replicas.values().filter(move |r| r.job == job)
    }

    /// The live job of this name.
    #[must_use]
    pub fn job_named(&self, name: &str) -> Option<&JobRecord> {
        self.jobs.values().find(|j| j.spec.name.as_str() == name)
    }
}
