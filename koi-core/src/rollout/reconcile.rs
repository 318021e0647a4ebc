//! One look at stored state and live observations: what has to be written now.
//!
//! Level-triggered: it compares what is with what is stored, so a lost message, a failed write or
//! a restarted server costs a round, never an update.

mod replicas;

use std::collections::{BTreeMap, BTreeSet};

use super::RolloutParams;
use super::live::{Live, ObservedPhase};
use crate::ids::{Generation, HostId, JobId, JobName, ReplicaId};
use crate::job::Slo;
use crate::store::{
    Change, JobRecord, JobState, ReplicaPhase, ReplicaRecord, ReplicaRole, Rollout, RolloutKind,
    ServerState,
};
use crate::time::UtcMicros;

/// Smallest share of judged windows inside the SLO for a canary to be promoted.
const CANARY_PASS_SHARE: f64 = 0.5;

/// An agent that speaks of generations further ahead than this is not believed.
const MAX_GENERATION_LIFT: u32 = 1_000_000;
/// Most characters of an agent's words that are stored.
const MAX_REASON: usize = 1000;

/// Between a replica's id and why it has not started so far.
const NOT_YET: &str = " does not start yet: ";

/// Everything one look decided.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reconciled {
    /// Row changes; empty when nothing has to be written.
    pub changes: Vec<Change>,
}

/// Compares state and observations.
#[must_use]
pub fn reconcile(
    state: &ServerState,
    live: &Live,
    params: &RolloutParams,
    now: UtcMicros,
) -> Reconciled {
    let mut look = Look::new(state, live, params, now);
    look.replicas();
    for job in state.jobs.values() {
        look.job(job);
    }
    Reconciled {
        changes: look.into_changes(),
    }
}

fn failure(replica: &ReplicaRecord) -> Option<(&ReplicaId, &str)> {
    match &replica.phase {
        ReplicaPhase::Failed { reason } => Some((&replica.id, reason)),
        ReplicaPhase::Launching | ReplicaPhase::Ready => None,
    }
}

struct Look<'a> {
    state: &'a ServerState,
    live: &'a Live,
    params: &'a RolloutParams,
    now: UtcMicros,
    of_job: BTreeMap<JobId, Vec<&'a ReplicaRecord>>,
    /// Highest generation that any agent speaks of, by the job's name.
    spoken_of: BTreeMap<&'a JobName, Generation>,
    replicas: BTreeMap<ReplicaId, ReplicaRecord>,
    released: BTreeSet<ReplicaId>,
    jobs: BTreeMap<JobId, JobRecord>,
    touched: BTreeSet<HostId>,
}

impl<'a> Look<'a> {
    fn new(
        state: &'a ServerState,
        live: &'a Live,
        params: &'a RolloutParams,
        now: UtcMicros,
    ) -> Self {
        let mut of_job: BTreeMap<JobId, Vec<&ReplicaRecord>> = BTreeMap::new();
        for replica in state.replicas.values() {
            of_job.entry(replica.job).or_default().push(replica);
        }
        let mut spoken_of: BTreeMap<&JobName, Generation> = BTreeMap::new();
        for id in live.hosts.values().flat_map(|h| h.replicas.keys()) {
            let highest = spoken_of.entry(&id.job).or_default();
            *highest = id.generation.max(*highest);
        }
        Self {
            state,
            live,
            params,
            now,
            of_job,
            spoken_of,
            replicas: BTreeMap::new(),
            released: BTreeSet::new(),
            jobs: BTreeMap::new(),
            touched: BTreeSet::new(),
        }
    }

    /// The record as this look has left it so far.
    fn current<'b>(&'b self, replica: &'b ReplicaRecord) -> &'b ReplicaRecord {
        self.replicas.get(&replica.id).unwrap_or(replica)
    }

    fn of_generation(&self, job: &JobRecord, generation: Generation) -> Vec<ReplicaRecord> {
        self.of_job
            .get(&job.id)
            .into_iter()
            .flatten()
            .filter(|r| r.id.generation == generation && !self.released.contains(&r.id))
            .map(|r| self.current(r).clone())
            .collect()
    }

    fn job(&mut self, job: &JobRecord) {
        if job.state.is_finished() {
            self.withdraw_all(job, |_| true);
            return;
        }
        self.lift_generation(job);
        if let Slo::Batch {
            total_token_budget, ..
        } = job.spec.slo
            && job.tokens_done >= total_token_budget
        {
            self.finish(job, "completed: the token budget is generated");
            return;
        }
        match &job.rollout {
            Some(rollout) => self.rollout(job, rollout),
            None => self.active_losses(job),
        }
    }

    /// Agents may know generations that this database lost (a restored backup, an earlier job of
    /// the name): their ids are never given out again.
    fn lift_generation(&mut self, job: &JobRecord) {
        let ceiling = job.last_generation.0.saturating_add(MAX_GENERATION_LIFT);
        let highest = self.spoken_of.get(&job.spec.name).copied();
        if let Some(highest) = highest.filter(|g| *g > job.last_generation && g.0 <= ceiling) {
            self.put_job(job, |j| j.last_generation = highest);
        }
    }

    fn finish(&mut self, job: &JobRecord, reason: &str) {
        self.put_job(job, |j| {
            j.state = JobState::Finished {
                reason: reason.to_owned(),
            };
            j.rollout = None;
        });
        self.withdraw_all(job, |_| true);
    }

    /// Takes replicas out: published ones are withdrawn first, others drain at once.
    fn withdraw_all(&mut self, job: &JobRecord, which: impl Fn(Generation) -> bool) {
        let own = self.of_job.get(&job.id).into_iter().flatten();
        let serving: Vec<_> = own
            .filter(|r| which(r.id.generation) && !self.released.contains(&r.id))
            .filter(|r| self.current(r).role == ReplicaRole::Serve)
            .copied()
            .collect();
        for replica in serving {
            let role = if self.current(replica).phase == ReplicaPhase::Ready {
                ReplicaRole::Withdrawn { since: self.now }
            } else {
                ReplicaRole::Drain { since: self.now }
            };
            self.set_role(replica, role);
        }
    }

    fn put_job(&mut self, job: &JobRecord, change: impl FnOnce(&mut JobRecord)) {
        let mut record = self.jobs.remove(&job.id).unwrap_or_else(|| {
            let mut fresh = job.clone();
            fresh.version += 1;
            fresh
        });
        change(&mut record);
        self.jobs.insert(job.id, record);
    }

    fn rollout(&mut self, job: &JobRecord, rollout: &Rollout) {
        let replicas = self.of_generation(job, rollout.target.generation);
        if let Some((id, reason)) = replicas.iter().find_map(failure) {
            self.revert(job, rollout, &format!("{id} failed: {reason}"));
            return;
        }
        self.say_why_it_does_not_start(job, &replicas);
        // The stored phase may be an old word: a generation is only let in on a fresh one.
        let all_serve = !replicas.is_empty()
            && replicas.iter().all(|r| {
                r.phase == ReplicaPhase::Ready && self.live.serves(&r.host, &r.id, self.now)
            });
        match rollout.ready_at {
            None if all_serve && rollout.kind == RolloutKind::Place => self.promote(job, rollout),
            None if all_serve => self.start_canary_window(job),
            None if self.now > rollout.deadline => {
                self.revert(job, rollout, "not ready by its deadline");
            }
            None => {}
            Some(ready_at) => self.judge(job, rollout, ready_at, all_serve),
        }
    }

    /// A replica that its agent starts again and again is news long before the agent gives up.
    fn say_why_it_does_not_start(&mut self, job: &JobRecord, replicas: &[ReplicaRecord]) {
        let words = replicas.iter().find_map(|r| {
            let seen = self.live.replica(&r.host, &r.id)?;
            let waits = seen.phase == ObservedPhase::Backoff && !seen.reason.is_empty();
            waits.then(|| format!("{}{NOT_YET}{}", r.id, seen.reason))
        });
        let Some(words) = words else { return };
        let note: String = words.chars().take(MAX_REASON).collect();
        if job.note.as_deref() != Some(note.as_str()) {
            self.put_job(job, |j| j.note = Some(note));
        }
    }

    fn start_canary_window(&mut self, job: &JobRecord) {
        let now = self.now;
        self.put_job(job, |j| {
            if let Some(r) = &mut j.rollout {
                r.ready_at = Some(now);
            }
        });
    }

    /// The canary's verdict once its window is over: the SLO rule over the windows that could be
    /// judged, against the old generation's own share; without load there is nothing against it.
    fn judge(&mut self, job: &JobRecord, rollout: &Rollout, ready_at: UtcMicros, all_serve: bool) {
        let window = f64::from(self.params.canary_window_s);
        let open_for = self.now.seconds_since(ready_at);
        if open_for < window {
            return;
        }
        if !all_serve {
            // It crashed or fell silent after it was ready; it has one more start's time.
            if open_for > window + f64::from(self.params.start_deadline_s) {
                self.revert(
                    job,
                    rollout,
                    "ready once, not at the end of its canary window",
                );
            }
            return;
        }
        let share = |generation: Generation| {
            self.live
                .slo
                .get(&(job.id, generation))
                .and_then(|tally| tally.share())
        };
        let new = share(rollout.target.generation);
        let old = job.active.as_ref().and_then(|a| share(a.generation));
        let bar = old.map_or(CANARY_PASS_SHARE, |old| old.min(CANARY_PASS_SHARE));
        match new {
            Some(new) if new < bar => {
                let reason = format!(
                    "canary kept the SLO in {:.0} % of its windows, {:.0} % were needed",
                    new * 100.0,
                    bar * 100.0
                );
                self.revert(job, rollout, &reason);
            }
            Some(_) | None => self.promote(job, rollout),
        }
    }

    fn promote(&mut self, job: &JobRecord, rollout: &Rollout) {
        let target = rollout.target.clone();
        let generation = target.generation;
        self.put_job(job, |j| {
            j.state = JobState::Running;
            j.active = Some(target);
            j.rollout = None;
            j.recent_failures = 0;
            // What kept an attempt from starting is of no interest once it serves.
            j.note = j.note.take().filter(|n| !n.contains(NOT_YET));
        });
        self.withdraw_all(job, |g| g != generation);
    }

    fn revert(&mut self, job: &JobRecord, rollout: &Rollout, reason: &str) {
        let target = rollout.target.generation;
        let reason = reason.chars().take(MAX_REASON).collect::<String>();
        self.put_job(job, |j| {
            j.rollout = None;
            j.recent_failures = j.recent_failures.saturating_add(1);
            j.note = Some(format!("generation {target} was reverted: {reason}"));
            if j.active.is_none() {
                j.state = JobState::LaunchFailed { reason };
            }
        });
        self.withdraw_all(job, |g| g == target);
    }

    /// Replicas of the serving ladder that the agents gave up on free their devices; a ladder
    /// that has lost all of them waits again.
    fn active_losses(&mut self, job: &JobRecord) {
        let Some(active) = &job.active else { return };
        let replicas = self.of_generation(job, active.generation);
        for replica in &replicas {
            let failed = matches!(replica.phase, ReplicaPhase::Failed { .. });
            if failed && replica.role == ReplicaRole::Serve {
                self.set_role(replica, ReplicaRole::Drain { since: self.now });
            }
        }
        let left = replicas.iter().any(|r| {
            r.role == ReplicaRole::Serve && !matches!(r.phase, ReplicaPhase::Failed { .. })
        });
        if !left && job.state == JobState::Running {
            self.put_job(job, |j| {
                j.state = JobState::Waiting;
                j.active = None;
                j.note = Some("every replica of its ladder was lost".to_owned());
            });
        }
    }

    fn into_changes(self) -> Vec<Change> {
        let hosts = self
            .touched
            .iter()
            .filter_map(|id| self.state.hosts.get(id))
            .map(|host| {
                let mut host = host.clone();
                host.generation = host.generation.next();
                Change::Host(Box::new(host))
            });
        let hosts: Vec<Change> = hosts.collect();
        let replicas = self
            .replicas
            .into_values()
            .map(|r| Change::Replica(Box::new(r)));
        let released = self.released.into_iter().map(Change::ReplicaReleased);
        let jobs = self.jobs.into_values().map(|j| Change::Job(Box::new(j)));
        released.chain(replicas).chain(jobs).chain(hosts).collect()
    }
}
