//! S6: one transaction for plan, generations, reservations and desired sets.

use std::collections::BTreeSet;

use super::{Decision, Refusal, Reply, ServerMachine};
use crate::ids::{HostId, JobId};
use crate::ladder::CommittedLadder;
use crate::plan::{ActionKind, Considered, PlanAction, PlanTally, Slot, replica_id};
use crate::plan_check::CheckedPlan;
use crate::slow_loop::PlannedProbe;
use crate::store::{
    Change, Expect, JobRecord, JobState, PlanRecord, ReplicaPhase, ReplicaRecord, ReplicaRole,
    Rollout, RolloutKind, StoreTx, TxKind,
};
use crate::tick::{Phase, TickRecord};
use crate::time::UtcMicros;

/// A checked plan with what is stored beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanToCommit {
    /// The tick, already in its next phase.
    pub tick: TickRecord,
    /// Phase the stored tick is in.
    pub from: Phase,
    /// The plan.
    pub plan: CheckedPlan,
    /// Hash of the snapshot it was made from.
    pub snapshot_hash: String,
    /// Seed of its search.
    pub seed: u64,
}

impl ServerMachine {
    pub(super) fn commit_plan(
        &self,
        now: UtcMicros,
        commit: PlanToCommit,
    ) -> Result<Decision, Refusal> {
        let seq = self.state.plan_seq.next();
        let mut tick = commit.tick;
        tick.plan_seq = Some(seq);
        let expects = vec![
            Expect::TickPhase(tick.id, commit.from),
            Expect::PlanSeq(self.state.plan_seq),
        ];
        let draft = commit.plan.draft();
        let mut actions = draft.actions.clone();
        let mut changes = Vec::new();
        let mut hosts = BTreeSet::new();
        for action in &mut actions {
            self.yield_to_events(action);
            self.action_changes(now, action, &mut changes, &mut hosts)?;
        }
        let tally = tally(commit.plan.tally(), &actions);
        for host in hosts.iter().filter_map(|h| self.state.hosts.get(h)) {
            let mut host = host.clone();
            host.generation = host.generation.next();
            changes.push(Change::Host(Box::new(host)));
        }
        changes.push(Change::Plan(Box::new(PlanRecord {
            seq,
            parent: self.state.plan_seq,
            tick: tick.id,
            created_at: now,
            rationale: draft.rationale.clone(),
            actions,
            considered: bounded(&draft.considered),
            objective: draft.objective,
            bound: draft.bound,
            snapshot_hash: commit.snapshot_hash,
            seed: commit.seed,
            tally,
        })));
        changes.push(Change::Tick(Box::new(tick)));
        let epoch = self.state.epoch;
        let tx = StoreTx {
            kind: TxKind::PlanCommitted,
            epoch,
            at: now,
            expects,
            changes,
        };
        Ok(Decision {
            tx: Some(tx),
            reply: Reply::Object(seq.to_string()),
        })
    }

    /// The cluster goes on while a plan is made. An action whose ground has gone leaves its job as
    /// it is; that takes nothing from the others, because no action counts on what another frees.
    fn yield_to_events(&self, action: &mut PlanAction) {
        if !action.kind.has_ladder() {
            return;
        }
        let Some(job) = self.state.jobs.get(&action.job) else {
            return;
        };
        let in_rollout = job
            .rollout
            .is_some()
            .then(|| "it is being rolled out".to_owned());
        let lost_ground = in_rollout.or_else(|| action.slots.iter().find_map(|s| self.lost(s)));
        if let Some(why) = lost_ground {
            let serves = job.active.is_some();
            *action = PlanAction {
                kind: if serves {
                    ActionKind::Keep
                } else {
                    ActionKind::Defer
                },
                ladder: None,
                promise: None,
                slots: Vec::new(),
                swap_reason: None,
                rationale: format!("not done, since the plan was made {why}"),
                ..action.clone()
            };
        }
    }

    /// Why a slot cannot be used any more.
    fn lost(&self, slot: &Slot) -> Option<String> {
        let Some(host) = self.state.hosts.get(&slot.host) else {
            return Some(format!("node {} is gone", slot.host));
        };
        if host.cordoned || host.draining_since.is_some() {
            return Some(format!("node {} was cordoned", slot.host));
        }
        let here = |uuid: &String| host.facts.gpus.iter().any(|g| g.uuid == *uuid);
        if let Some(uuid) = slot.gpu_uuids.iter().find(|uuid| !here(uuid)) {
            return Some(format!("device {uuid} left node {}", slot.host));
        }
        let mut holders = self.state.replicas.values();
        let holder = holders.find(|r| r.gpu_uuids.iter().any(|u| slot.gpu_uuids.contains(u)))?;
        Some(format!("its devices were given to {}", holder.id))
    }

    fn action_changes(
        &self,
        now: UtcMicros,
        action: &PlanAction,
        changes: &mut Vec<Change>,
        hosts: &mut BTreeSet<HostId>,
    ) -> Result<(), Refusal> {
        let Some(job) = self
            .state
            .jobs
            .get(&action.job)
            .filter(|j| !j.state.is_finished())
        else {
            // Cancelled since the snapshot: the rest of the plan is still good.
            return Ok(());
        };
        match action.kind {
            ActionKind::Place | ActionKind::Retry | ActionKind::Swap | ActionKind::Resume => {
                self.start_rollout(now, job, action, changes, hosts)
            }
            ActionKind::Keep | ActionKind::Defer | ActionKind::Diagnose => {
                changes.extend(noted(job, action));
                Ok(())
            }
            ActionKind::Preempt | ActionKind::Terminate => Err(Refusal::Conflict(format!(
                "{} of {} belongs to the lifecycle path, not to a planner's plan",
                action.kind.name(),
                job.spec.name
            ))),
        }
    }

    fn start_rollout(
        &self,
        now: UtcMicros,
        job: &JobRecord,
        action: &PlanAction,
        changes: &mut Vec<Change>,
        hosts: &mut BTreeSet<HostId>,
    ) -> Result<(), Refusal> {
        let (Some(ladder), Some(promise)) = (action.ladder.clone(), action.promise.clone()) else {
            return Err(Refusal::Conflict(format!(
                "{} has no ladder",
                job.spec.name
            )));
        };
        let mut job = job.clone();
        job.version += 1;
        job.last_generation = job.last_generation.next();
        job.note = Some(action.rationale.clone());
        job.ticks_waited = 0;
        let generation = job.last_generation;
        let target = CommittedLadder {
            generation,
            ladder,
            promise,
            committed_at: now,
        };
        let kind = if job.active.is_some() {
            RolloutKind::Canary
        } else {
            RolloutKind::Place
        };
        job.state = JobState::Running;
        job.rollout = Some(Rollout {
            kind,
            target,
            ready_at: None,
            deadline: now.plus_seconds(i64::from(self.settings.rollout.start_deadline_s)),
            reason: action.rationale.clone(),
        });
        for slot in &action.slots {
            hosts.insert(slot.host.clone());
            changes.push(Change::Replica(Box::new(ReplicaRecord {
                id: replica_id(&job.spec.name, generation, slot),
                job: job.id,
                host: slot.host.clone(),
                gpu_uuids: slot.gpu_uuids.clone(),
                role: ReplicaRole::Serve,
                phase: ReplicaPhase::Launching,
                endpoint: None,
                reserved_at: now,
                ready_at: None,
                n_starts: 0,
            })));
        }
        changes.push(Change::Job(Box::new(job)));
        Ok(())
    }
}

/// A job that only changes what is said of it; nothing when that is the same.
fn noted(job: &JobRecord, action: &PlanAction) -> Option<Change> {
    let waits = action.kind == ActionKind::Defer;
    if !waits && job.note.as_deref() == Some(action.rationale.as_str()) {
        return None;
    }
    let mut job = job.clone();
    job.version += 1;
    job.note = Some(action.rationale.clone());
    job.ticks_waited += u32::from(waits);
    Some(Change::Job(Box::new(job)))
}

/// What is left of a plan's changes by choice after actions that lost their ground were taken out.
fn tally(planned: &PlanTally, actions: &[PlanAction]) -> PlanTally {
    let is_done = |job: &JobId| {
        let mut of_job = actions.iter().filter(|a| a.job == *job);
        of_job.any(|a| matches!(a.kind, ActionKind::Swap | ActionKind::Preempt))
    };
    let made = |planned: &[PlannedProbe]| -> Vec<PlannedProbe> {
        let done = planned.iter().filter(|p| is_done(&p.job));
        done.cloned().collect()
    };
    PlanTally {
        voluntary: planned.voluntary.iter().copied().filter(is_done).collect(),
        probes: made(&planned.probes),
        explorations: made(&planned.explorations),
    }
}

/// At most so many options are stored with a plan; the best come first.
const MAX_CONSIDERED: usize = 2000;

fn bounded(considered: &[Considered]) -> Vec<Considered> {
    considered.iter().take(MAX_CONSIDERED).cloned().collect()
}
