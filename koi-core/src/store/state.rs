//! The decision state as a fold of transactions; the reference meaning of every [`StoreTx`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::holders::Holders;
use super::{Change, Expect, JobRecord, PlanRecord, ReplicaRecord, StoreTx};
use crate::catalog::price::PriceBook;
use crate::causal::{Belief, BeliefEvent, BeliefKey, CausalModel};
use crate::host::{HostPrice, HostRecord};
use crate::ids::{Epoch, HostId, JobId, PlanSeq, ReplicaId};
use crate::lifecycle::MechanismRecord;
use crate::slow_loop::SlowState;
use crate::tick::TickRecord;
use crate::validation::contrast::ContrastBook;
use crate::validation::meta::Calibration;

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
    /// How far beliefs have moved from their seeds: the sum of the events of each.
    pub beliefs: BTreeMap<BeliefKey, BeliefMove>,
    /// The slow loop.
    pub slow: SlowState,
    /// Deployments and the sums of their contrasts. Documents carry the sums alone.
    #[serde(serialize_with = "sums_alone", skip_deserializing)]
    pub contrasts: ContrastBook,
    /// How the detector is set. No plan is made from it, so that documents leave it out.
    #[serde(skip)]
    pub calibration: Arc<Calibration>,
    /// Mechanisms beside the catalog's seeds, and seeds whose status changed.
    #[serde(default)]
    pub mechanisms: BTreeMap<String, MechanismRecord>,
    /// The price feed. A snapshot leaves it out: `priced` says what follows from it.
    #[serde(default)]
    pub prices: PriceBook,
    /// Hosts for which another price holds than the one they state. Derived from hosts, feed and
    /// list by [`ServerState::reprice`], never stored.
    #[serde(default)]
    pub priced: BTreeMap<HostId, HostPrice>,
}

/// The sum of a belief's events, in millionths of a count. The seed is the catalog's, so the belief
/// is always seed plus this, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BeliefMove {
    /// Σ Δα.
    pub alpha_micro: i64,
    /// Σ Δβ.
    pub beta_micro: i64,
}

impl BeliefMove {
    /// The belief that started at this seed.
    #[must_use]
    pub const fn from_seed(self, seed: Belief) -> Belief {
        seed.plus(self.alpha_micro, self.beta_micro)
    }
}

/// A document of the state carries what decisions read: the sums, not the lives behind them.
fn sums_alone<S: serde::Serializer>(book: &ContrastBook, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(book.sums())
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

impl ServerState {
    /// Applies a transaction whole or not at all.
    ///
    /// # Errors
    /// [`TxRefusal`]; the state is unchanged then.
    pub fn apply(&mut self, tx: &StoreTx) -> Result<(), TxRefusal> {
        if tx.epoch < self.epoch {
            return Err(TxRefusal::Fenced {
                offered: tx.epoch,
                stored: self.epoch,
            });
        }
        for expect in &tx.expects {
            self.check(expect)?;
        }
        let mut undo = Vec::new();
        let mut holders = Holders::default();
        for change in &tx.changes {
            undo.push(self.inverse(change));
            if let Err(refusal) = self.apply_change(change, &mut holders) {
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
                    conflict(format!(
                        "job {id} is at version {stored}, expected {version}"
                    ))
                }
            }
            Expect::PlanSeq(_) => Ok(()),
        }
    }

    fn apply_change(&mut self, change: &Change, holders: &mut Holders) -> Result<(), TxRefusal> {
        match change {
            Change::Job(job) => self.put_job(job)?,
            Change::Host(host) => {
                self.hosts.insert(host.facts.host.clone(), (**host).clone());
            }
            Change::Replica(replica) => self.put_replica(replica, holders)?,
            Change::ReplicaReleased(id) => {
                if let Some(released) = self.replicas.remove(id) {
                    holders.release(&released);
                }
            }
            Change::Tick(tick) => self.put_tick(tick)?,
            Change::Plan(plan) => self.put_plan(plan)?,
            Change::BeliefEvents(events) => self.add_belief_events(events),
            Change::Slow(slow) => self.slow = (**slow).clone(),
            Change::Calibration(set) => self.calibration = Arc::new(set.calibration.clone()),
            Change::Contrasts(update) => self.contrasts.write(update).map_err(|id| {
                TxRefusal::Conflict(format!(
                    "deployment {} g{} r{} is not known and not described",
                    id.job, id.generation, id.rank
                ))
            })?,
            Change::Mechanism(record) => {
                self.mechanisms
                    .insert(record.id.clone(), (**record).clone());
            }
            Change::Prices(rows) => {
                for row in rows {
                    self.prices.put(row.key.clone(), row.price.clone());
                }
            }
            Change::PricesRemoved(filter) => self.prices.remove_matching(filter),
            Change::Evidence(_) | Change::SlowTick(_) | Change::Request(_) | Change::Audit(_) => {}
        }
        Ok(())
    }

    fn put_job(&mut self, job: &JobRecord) -> Result<(), TxRefusal> {
        let stored = self.jobs.get(&job.id);
        let version = stored.map_or(0, |j| j.version);
        if job.version != version + 1 {
            return Err(TxRefusal::Conflict(format!(
                "job {} is at version {version}, the write carries {}",
                job.id, job.version
            )));
        }
        // A live job that keeps its name was looked at when it got it.
        let keeps = stored.is_some_and(|j| !j.state.is_finished() && j.spec.name == job.spec.name);
        if !keeps
            && !job.state.is_finished()
            && let Some(twin) = self
                .job_named(job.spec.name.as_str())
                .filter(|j| j.id != job.id)
        {
            return Err(TxRefusal::Conflict(format!(
                "a live job named {} exists: {}",
                job.spec.name, twin.id
            )));
        }
        self.jobs.insert(job.id, job.clone());
        Ok(())
    }

    /// Ticks are written in order; an old one is history.
    fn put_tick(&mut self, tick: &TickRecord) -> Result<(), TxRefusal> {
        if let Some(newest) = self.tick.as_ref().filter(|t| t.id > tick.id) {
            return Err(TxRefusal::Conflict(format!(
                "tick {} is over, the newest is {}",
                tick.id, newest.id
            )));
        }
        self.tick = Some(tick.clone());
        Ok(())
    }

    /// A plan follows the newest one; numbers may be left out, never taken twice.
    fn put_plan(&mut self, plan: &PlanRecord) -> Result<(), TxRefusal> {
        if plan.parent != self.plan_seq || plan.seq <= plan.parent {
            return Err(TxRefusal::Conflict(format!(
                "plan {} follows {}, the newest is {}",
                plan.seq, plan.parent, self.plan_seq
            )));
        }
        self.plan_seq = plan.seq;
        Ok(())
    }

    fn put_replica(
        &mut self,
        replica: &ReplicaRecord,
        holders: &mut Holders,
    ) -> Result<(), TxRefusal> {
        if !self.jobs.contains_key(&replica.job) {
            return Err(TxRefusal::Conflict(format!(
                "there is no job {}",
                replica.job
            )));
        }
        let stored = self.replicas.get(&replica.id);
        if let Some(owner) = stored.map(|r| r.job).filter(|owner| *owner != replica.job) {
            return Err(TxRefusal::Conflict(format!(
                "replica {} still belongs to job {owner}, not {}",
                replica.id, replica.job
            )));
        }
        let keeps = stored.is_some_and(|r| r.gpu_uuids == replica.gpu_uuids);
        if !keeps {
            let wanted: BTreeSet<&String> = replica.gpu_uuids.iter().collect();
            if wanted.len() != replica.gpu_uuids.len() {
                return Err(TxRefusal::Conflict(format!(
                    "replica {} lists a device twice",
                    replica.id
                )));
            }
            holders.of(&self.replicas).reserve(stored, replica)?;
        }
        self.replicas.insert(replica.id.clone(), replica.clone());
        Ok(())
    }

    fn add_belief_events(&mut self, events: &[BeliefEvent]) {
        for change in events.iter().flat_map(|e| &e.changes) {
            let sum = self.beliefs.entry(change.key.clone()).or_default();
            sum.alpha_micro = sum.alpha_micro.saturating_add(change.alpha_micro);
            sum.beta_micro = sum.beta_micro.saturating_add(change.beta_micro);
        }
    }

    /// Every belief: seed plus Σ of its events. Proposals that are not seeded start at Beta(1, 1).
    #[must_use]
    pub fn beliefs_from(&self, model: &CausalModel) -> BTreeMap<BeliefKey, Belief> {
        let mut beliefs = model.seed_beliefs();
        for (key, moved) in &self.beliefs {
            let belief = beliefs
                .entry(key.clone())
                .or_insert_with(|| Belief::of_counts(1, 1));
            *belief = moved.from_seed(*belief);
        }
        beliefs
    }

    /// A finished job without replicas is history.
    fn forget_finished(&mut self) {
        if self.jobs.values().any(|j| j.state.is_finished()) {
            let held: BTreeSet<JobId> = self.replicas.values().map(|r| r.job).collect();
            self.jobs
                .retain(|id, job| !job.state.is_finished() || held.contains(id));
        }
    }

    /// Replicas of a job in id order.
    pub fn replicas_of(&self, job: JobId) -> impl Iterator<Item = &ReplicaRecord> {
        self.replicas.values().filter(move |r| r.job == job)
    }

    /// The live job of this name; a finished one that still holds replicas is not it.
    #[must_use]
    pub fn job_named(&self, name: &str) -> Option<&JobRecord> {
        self.jobs
            .values()
            .find(|j| j.spec.name.as_str() == name && !j.state.is_finished())
    }
}
