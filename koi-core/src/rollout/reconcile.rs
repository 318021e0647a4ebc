//! One look at stored state and live observations: what has to be written now.
//!
//! Level-triggered: it compares what is with what is stored, so a lost message, a failed write or
//! a restarted server costs a round, never an update.

use std::collections::{BTreeMap, BTreeSet};

use super::RolloutParams;
use super::live::{Live, ObservedPhase, ObservedReplica};
use crate::ids::{Generation, HostId};
use crate::job::Slo;
use crate::store::{
    Change, Endpoint, JobRecord, JobState, ReplicaPhase, ReplicaRecord, ReplicaRole, Rollout,
    RolloutKind, ServerState,
};
use crate::time::UtcMicros;

/// Smallest share of judged windows inside the SLO for a canary to be promoted.
const CANARY_PASS_SHARE: f64 = 0.5;

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

struct Look<'a> {
    state: &'a ServerState,
    live: &'a Live,
    params: &'a RolloutParams,
    now: UtcMicros,
    replicas: BTreeMap<crate::ids::ReplicaId, ReplicaRecord>,
    released: BTreeSet<crate::ids::ReplicaId>,
    jobs: BTreeMap<crate::ids::JobId, JobRecord>,
    touched: BTreeSet<HostId>,
}

impl<'a> Look<'a> {
    fn new(
        state: &'a ServerState,
        live: &'a Live,
        params: &'a RolloutParams,
        now: UtcMicros,
    ) -> Self {
        Self {
            state,
            live,
            params,
            now,
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
        self.state
            .replicas_of(job.id)
            .filter(|r| r.id.generation == generation && !self.released.contains(&r.id))
            .map(|r| self.current(r).clone())
            .collect()
    }

    fn replicas(&mut self) {
        for replica in self.state.replicas.values() {
            self.withdraw_or_drain(replica);
            if let Some(seen) = self.live.replica(&replica.host, &replica.id) {
                self.observe(replica, seen);
            }
        }
    }

    /// Withdrawn long enough: clients have noticed, drain.
    fn withdraw_or_drain(&mut self, replica: &ReplicaRecord) {
        if let ReplicaRole::Withdrawn { since } = replica.role
            && self.now.seconds_since(since) >= f64::from(self.params.withdraw_s)
        {
            self.set_role(replica, ReplicaRole::Drain { since: self.now });
        }
    }

    fn set_role(&mut self, replica: &ReplicaRecord, role: ReplicaRole) {
        let mut record = self.current(replica).clone();
        record.role = role;
        if !matches!(role, ReplicaRole::Withdrawn { .. }) {
            self.touched.insert(record.host.clone());
        }
        self.replicas.insert(record.id.clone(), record);
    }

    fn observe(&mut self, replica: &ReplicaRecord, seen: &ObservedReplica) {
        let draining = matches!(self.current(replica).role, ReplicaRole::Drain { .. });
        if draining && seen.phase == ObservedPhase::Stopped && seen.exit_proven {
            self.released.insert(replica.id.clone());
            self.replicas.remove(&replica.id);
            self.touched.insert(replica.host.clone());
            return;
        }
        let phase = match seen.phase {
            ObservedPhase::Ready => ReplicaPhase::Ready,
            ObservedPhase::Failed => ReplicaPhase::Failed {
                reason: seen.reason.clone(),
            },
            ObservedPhase::Launching | ObservedPhase::Backoff => ReplicaPhase::Launching,
            ObservedPhase::Draining | ObservedPhase::Stopped => replica.phase.clone(),
        };
        let endpoint = seen
            .port
            .filter(|_| phase == ReplicaPhase::Ready)
            .map(|port| Endpoint {
                address: self.address(&replica.host),
                port,
            });
        let mut record = self.current(replica).clone();
        if record.phase == phase
            && record.n_starts == seen.n_starts
            && (endpoint.is_none() || record.endpoint == endpoint)
        {
            return;
        }
        if phase == ReplicaPhase::Ready && record.ready_at.is_none() {
            record.ready_at = Some(self.now);
        }
        record.phase = phase;
        record.n_starts = seen.n_starts;
        record.endpoint = endpoint.or(record.endpoint);
        self.replicas.insert(record.id.clone(), record);
    }

    fn address(&self, host: &HostId) -> String {
        self.state
            .hosts
            .get(host)
            .map(|h| h.facts.address.clone())
            .unwrap_or_default()
    }

    fn job(&mut self, job: &JobRecord) {
        if job.state.is_finished() {
            self.withdraw_all(job, |_| true);
            return;
        }
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
        let serving: Vec<_> = self
            .state
            .replicas_of(job.id)
            .filter(|r| which(r.id.generation) && !self.released.contains(&r.id))
            .filter(|r| self.current(r).role == ReplicaRole::Serve)
            .cloned()
            .collect();
        for replica in serving {
            let role = if self.current(&replica).phase == ReplicaPhase::Ready {
                ReplicaRole::Withdrawn { since: self.now }
            } else {
                ReplicaRole::Drain { since: self.now }
            };
            self.set_role(&replica, role);
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
        let target = rollout.target.generation;
        let replicas = self.of_generation(job, target);
        let failed = replicas.iter().find_map(|r| match &r.phase {
            ReplicaPhase::Failed { reason } => Some(format!("{} failed: {reason}", r.id)),
            ReplicaPhase::Launching | ReplicaPhase::Ready => None,
        });
        let all_ready =
            !replicas.is_empty() && replicas.iter().all(|r| r.phase == ReplicaPhase::Ready);
        match (failed, rollout.ready_at, all_ready) {
            (Some(reason), _, _) => self.revert(job, rollout, &reason),
            (None, None, true) if rollout.kind == RolloutKind::Place => self.promote(job, rollout),
            (None, None, true) => {
                let now = self.now;
                self.put_job(job, |j| {
                    if let Some(r) = &mut j.rollout {
                        r.ready_at = Some(now);
                    }
                });
            }
            (None, None, false) if self.now > rollout.deadline => {
                self.revert(job, rollout, "not ready by its deadline");
            }
            (None, Some(ready_at), _) => self.judge(job, rollout, ready_at),
            (None, None, false) => {}
        }
    }

    /// The canary's verdict once its window is over: the SLO rule over the windows that could be
    /// judged, against the old generation's own share; without load there is nothing against it.
    fn judge(&mut self, job: &JobRecord, rollout: &Rollout, ready_at: UtcMicros) {
        if self.now.seconds_since(ready_at) < f64::from(self.params.canary_window_s) {
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
        });
        self.withdraw_all(job, |g| g != generation);
    }

    fn revert(&mut self, job: &JobRecord, rollout: &Rollout, reason: &str) {
        let target = rollout.target.generation;
        let reason = reason.chars().take(1000).collect::<String>();
        self.put_job(job, |j| {
            j.rollout = None;
            j.recent_failures += 1;
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
