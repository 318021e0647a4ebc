//! The store in memory: the decision state of [`ServerState`] with the history that Postgres keeps.
//!
//! Not a database: nothing outlives the value. One conformance suite (`tests/it/store`) holds it and
//! Postgres to the same answers, so that what the simulator finds is true of the real one. Spec §18.1.

use std::collections::{BTreeMap, BTreeSet};

use koi_core::causal::{BeliefEvent, BeliefKey, BeliefSource};
use koi_core::ids::{Epoch, Generation, JobId, PlanSeq, TickId};
use koi_core::lifecycle::MechanismTrack;
use koi_core::slow_loop::SlowTick;
use koi_core::store::{
    AuditRecord, Change, JobRecord, PlanRecord, RequestRecord, ServerState, StoreTx, TxRefusal,
};
use koi_core::tick::TickRecord;
use koi_core::time::UtcMicros;
use koi_core::validation::EvidenceRow;

/// Identity of an evidence row.
type EvidenceId = (TickId, JobId, u32, Generation);

/// What may move beliefs once: an evidence row, or forgetting in a tick.
type SourceId = (TickId, Option<(JobId, u32, Generation)>);

/// State and history.
#[derive(Debug, Clone, Default)]
pub struct MemStore {
    state: ServerState,
    jobs: BTreeMap<JobId, JobRecord>,
    finished_at: BTreeMap<JobId, UtcMicros>,
    ticks: BTreeMap<TickId, TickRecord>,
    plans: BTreeMap<PlanSeq, PlanRecord>,
    evidence: BTreeMap<EvidenceId, EvidenceRow>,
    belief_events: Vec<BeliefEvent>,
    moved: BTreeSet<SourceId>,
    requests: BTreeMap<(String, String), RequestRecord>,
    audit: Vec<(UtcMicros, AuditRecord)>,
    slow_ticks: BTreeMap<TickId, SlowTick>,
    applied: BTreeMap<u128, StoreTx>,
}

impl MemStore {
    /// Takes the next fencing token.
    pub fn acquire_epoch(&mut self) -> Epoch {
        self.state.epoch = self.state.epoch.next();
        self.state.epoch
    }

    /// The decision state.
    #[must_use]
    pub fn load_state(&self) -> ServerState {
        self.state.clone()
    }

    /// Applies a transaction whole or not at all.
    ///
    /// # Errors
    /// [`TxRefusal`]; nothing has happened then.
    pub fn commit(&mut self, tx: &StoreTx) -> Result<(), TxRefusal> {
        if let Err(refusal) = self.check_history(tx) {
            // What the state refuses comes first.
            self.state.clone().apply(tx)?;
            return Err(refusal);
        }
        self.state.apply(tx)?;
        for change in &tx.changes {
            self.remember(change, tx.at);
        }
        Ok(())
    }

    /// Applies a transaction once under this key, however often it is offered.
    ///
    /// # Errors
    /// [`TxRefusal`]; another transaction under a key that was used is a conflict.
    pub fn commit_with_key(&mut self, key: u128, tx: &StoreTx) -> Result<(), TxRefusal> {
        match self.applied.get(&key) {
            Some(before) if before == tx => Ok(()),
            Some(_) => Err(TxRefusal::Conflict(format!(
                "key {key} was used for another transaction"
            ))),
            None => {
                self.commit(tx)?;
                self.applied.insert(key, tx.clone());
                Ok(())
            }
        }
    }

    /// What only the history can refuse: a job that is over, a source that already moved beliefs, a
    /// key that was used for another request.
    fn check_history(&self, tx: &StoreTx) -> Result<(), TxRefusal> {
        let conflict = |what: String| Err(TxRefusal::Conflict(what));
        let mut moved = BTreeSet::new();
        let mut requests = BTreeMap::new();
        for change in &tx.changes {
            match change {
                Change::Job(job) if self.is_history(job.id) => {
                    return conflict(format!("job {} is over", job.id));
                }
                Change::BeliefEvents(events) => {
                    let mut is_second = |e: &&BeliefEvent| {
                        let id = source_id(e);
                        self.moved.contains(&id) || !moved.insert(id)
                    };
                    if let Some(event) = events.iter().find(|e| is_second(e)) {
                        let text = format!("beliefs already moved by {:?}", event.source);
                        return conflict(text);
                    }
                }
                Change::Request(r) => {
                    let key = (r.identity.clone(), r.key.clone());
                    let first = self.requests.get(&key).unwrap_or(r);
                    let stored = requests.entry(key).or_insert(&first.payload_hash);
                    if **stored != r.payload_hash {
                        return conflict(format!("key {} was used for another request", r.key));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_history(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job) && !self.state.jobs.contains_key(&job)
    }

    fn remember(&mut self, change: &Change, at: UtcMicros) {
        match change {
            Change::Job(job) => {
                if job.state.is_finished() {
                    self.finished_at.entry(job.id).or_insert(at);
                } else {
                    self.finished_at.remove(&job.id);
                }
                self.jobs.insert(job.id, (**job).clone());
            }
            Change::Tick(tick) => drop(self.ticks.insert(tick.id, (**tick).clone())),
            Change::Plan(plan) => drop(self.plans.insert(plan.seq, (**plan).clone())),
            Change::Evidence(rows) => {
                for row in rows {
                    let id = (row.tick, row.job, row.rank, row.generation);
                    self.evidence.entry(id).or_insert_with(|| row.clone());
                }
            }
            Change::BeliefEvents(events) => {
                self.moved.extend(events.iter().map(source_id));
                self.belief_events.extend(events.iter().cloned());
            }
            Change::Request(r) => {
                let key = (r.identity.clone(), r.key.clone());
                self.requests.entry(key).or_insert_with(|| (**r).clone());
            }
            Change::SlowTick(tick) => {
                self.slow_ticks.insert(tick.tick, (**tick).clone());
            }
            Change::Audit(record) => self.audit.push((at, (**record).clone())),
            Change::Host(_)
            | Change::Replica(_)
            | Change::ReplicaReleased(_)
            | Change::Slow(_)
            | Change::Calibration(_)
            | Change::Mechanism(_)
            | Change::Contrasts(_)
            | Change::Prices(_)
            | Change::PricesRemoved(_) => {}
        }
    }

    /// Jobs that are over with the moment they ended, the last one first.
    #[must_use]
    pub fn jobs_finished(&self) -> Vec<(UtcMicros, JobRecord)> {
        let mut ids: Vec<(UtcMicros, JobId)> =
            self.finished_at.iter().map(|(id, at)| (*at, *id)).collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids.into_iter()
            .filter_map(|(at, id)| Some((at, self.jobs.get(&id)?.clone())))
            .collect()
    }

    /// A job by its id or by its name, finished ones included; of several that had the name the live
    /// one, else the newest.
    #[must_use]
    pub fn job_by_name_or_id(&self, text: &str) -> Option<&JobRecord> {
        let by_id = self.jobs.values().find(|j| j.id.to_string() == text);
        let named = self.jobs.values().filter(|j| j.spec.name.as_str() == text);
        by_id.or_else(|| named.max_by_key(|j| (!j.state.is_finished(), j.submitted_at)))
    }

    /// A plan by number, or the newest.
    #[must_use]
    pub fn plan(&self, seq: Option<PlanSeq>) -> Option<&PlanRecord> {
        match seq {
            Some(seq) => self.plans.get(&seq),
            None => self.plans.values().next_back(),
        }
    }

    /// The newest plan with an action for the job.
    #[must_use]
    pub fn plan_for_job(&self, job: JobId) -> Option<&PlanRecord> {
        self.plans
            .values()
            .rev()
            .find(|plan| plan.actions.iter().any(|a| a.job == job))
    }

    /// Plans, the newest first.
    pub fn plans(&self) -> impl Iterator<Item = &PlanRecord> {
        self.plans.values().rev()
    }

    /// A tick by number, or the newest.
    #[must_use]
    pub fn tick(&self, id: Option<TickId>) -> Option<&TickRecord> {
        match id {
            Some(id) => self.ticks.get(&id),
            None => self.ticks.values().next_back(),
        }
    }

    /// Ticks, the newest first.
    pub fn ticks(&self) -> impl Iterator<Item = &TickRecord> {
        self.ticks.values().rev()
    }

    /// The evidence of a tick, by job, rank and generation.
    pub fn evidence_of_tick(&self, tick: TickId) -> impl Iterator<Item = &EvidenceRow> {
        self.evidence.values().filter(move |row| row.tick == tick)
    }

    /// The newest evidence of a job, at most `limit` rows.
    #[must_use]
    pub fn evidence_of_job(&self, job: JobId, limit: usize) -> Vec<&EvidenceRow> {
        let mut rows: Vec<_> = self
            .evidence
            .values()
            .filter(|row| row.job == job)
            .collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.tick), row.rank, row.generation));
        rows.truncate(limit);
        rows
    }

    /// The newest ticks of the slow loop, at most `limit`, oldest first.
    #[must_use]
    pub fn slow_history(&self, limit: usize) -> Vec<&SlowTick> {
        let surplus = self.slow_ticks.len().saturating_sub(limit);
        self.slow_ticks.values().skip(surplus).collect()
    }

    /// What was decided about each mechanism over its life.
    #[must_use]
    pub fn mechanism_tracks(&self) -> BTreeMap<String, MechanismTrack> {
        let mut tracks: BTreeMap<String, MechanismTrack> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for row in self.evidence.values() {
            for verdict in row.mechanisms.iter().filter(|m| m.quadrant.is_some()) {
                let id = &verdict.id;
                let track = tracks.entry(id.clone()).or_default();
                track.n_decided += 1;
                let deployment = format!("{} {}", row.job, row.generation.0);
                track.n_deployments += u32::from(seen.insert((id.clone(), deployment)));
                let environment = row.environment.to_string();
                track.n_environments += u32::from(seen.insert((id.clone(), environment)));
                track.first_tick = Some(track.first_tick.map_or(row.tick, |t| t.min(row.tick)));
                track.last_tick = track.last_tick.max(Some(row.tick));
            }
        }
        tracks
    }

    /// Every belief event, in order.
    #[must_use]
    pub fn belief_events(&self) -> &[BeliefEvent] {
        &self.belief_events
    }

    /// How many events moved each belief.
    #[must_use]
    pub fn belief_event_counts(&self) -> BTreeMap<BeliefKey, u64> {
        let mut counts = BTreeMap::new();
        for change in self.belief_events.iter().flat_map(|e| &e.changes) {
            *counts.entry(change.key.clone()).or_default() += 1;
        }
        counts
    }

    /// The answer remembered under a client's key.
    #[must_use]
    pub fn request(&self, identity: &str, key: &str) -> Option<&RequestRecord> {
        self.requests.get(&(identity.to_owned(), key.to_owned()))
    }

    /// The audit trail, the newest line first.
    pub fn audit(&self) -> impl Iterator<Item = &(UtcMicros, AuditRecord)> {
        self.audit.iter().rev()
    }
}

fn source_id(event: &BeliefEvent) -> SourceId {
    match &event.source {
        BeliefSource::Evidence {
            job,
            rank,
            generation,
        } => (event.tick, Some((*job, *rank, *generation))),
        BeliefSource::Forget => (event.tick, None),
    }
}
