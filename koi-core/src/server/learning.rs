//! S1 to S3: the tick moves on together with what it learned.

use std::collections::BTreeMap;

use super::{Decision, Refusal, Reply, ServerMachine};
use crate::causal::BeliefEvent;
use crate::ids::{JobId, TickId};
use crate::lifecycle::MechanismRecord;
use crate::slow_loop::SlowTick;
use crate::store::{AuditRecord, Change, Expect, StoreTx, TxKind};
use crate::tick::Phase;
use crate::time::UtcMicros;
use crate::validation::EvidenceRow;
use crate::validation::contrast::ContrastUpdate;
use crate::validation::meta::CalibrationRecord;

/// What a phase of the tick produced. Empty for phases that only read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Learned {
    /// S2: evidence rows.
    pub evidence: Vec<EvidenceRow>,
    /// S2: generated tokens counted per job so far.
    pub tokens_done: BTreeMap<JobId, u64>,
    /// S3: belief events.
    pub belief_events: Vec<BeliefEvent>,
    /// S3: deployments and sums of contrasts.
    pub contrasts: Option<Box<ContrastUpdate>>,
    /// S3: how the detector is set, where the tick set it anew.
    pub calibration: Option<Box<CalibrationRecord>>,
    /// S3: the slow loop's tick with its next state.
    pub slow: Option<Box<SlowTick>>,
    /// S3: mechanisms that are archived from now on.
    pub archived: Vec<String>,
}

impl ServerMachine {
    pub(super) fn advance_tick(
        &self,
        now: UtcMicros,
        tick: TickId,
        (from, to): (Phase, Phase),
        learned: Learned,
    ) -> Result<Decision, Refusal> {
        let open = self
            .state
            .tick
            .as_ref()
            .filter(|t| t.id == tick && t.phase == from);
        let mut record = open
            .ok_or_else(|| Refusal::Conflict(format!("tick {tick} is not in {}", from.code())))?
            .clone();
        record.phase = to;
        record.n_evidence_rows += u32::try_from(learned.evidence.len()).unwrap_or(u32::MAX);
        let kind = match to {
            Phase::SlowUpdate => TxKind::EvidenceWritten,
            Phase::Plan { .. } => TxKind::LearningApplied,
            Phase::Freeze
            | Phase::Observe
            | Phase::Validate
            | Phase::CheckPlan { .. }
            | Phase::Deploy
            | Phase::Exit { .. } => TxKind::TickAdvanced,
        };
        let changes = self.learned_changes(now, record, learned);
        let expects = vec![Expect::TickPhase(tick, from)];
        let tx = StoreTx {
            kind,
            epoch: self.state.epoch,
            at: now,
            expects,
            changes,
        };
        Ok(Decision {
            tx: Some(tx),
            reply: Reply::Done,
        })
    }

    fn learned_changes(
        &self,
        now: UtcMicros,
        tick: crate::tick::TickRecord,
        learned: Learned,
    ) -> Vec<Change> {
        let mut changes = vec![Change::Tick(Box::new(tick))];
        if !learned.evidence.is_empty() {
            changes.push(Change::Evidence(learned.evidence));
        }
        for (id, tokens) in learned.tokens_done {
            if let Some(job) = self.state.jobs.get(&id).filter(|j| j.tokens_done < tokens) {
                let mut job = job.clone();
                job.version += 1;
                job.tokens_done = tokens;
                changes.push(Change::Job(Box::new(job)));
            }
        }
        if !learned.belief_events.is_empty() {
            changes.push(Change::BeliefEvents(learned.belief_events));
        }
        changes.extend(learned.contrasts.map(Change::Contrasts));
        changes.extend(learned.calibration.map(Change::Calibration));
        if let Some(tick) = learned.slow {
            changes.push(Change::Slow(Box::new(tick.state.clone())));
            changes.push(Change::SlowTick(tick));
        }
        for id in learned.archived {
            let stored = self.state.mechanisms.get(&id);
            let record = MechanismRecord::archived(&id, stored, now);
            changes.push(Change::Mechanism(Box::new(record)));
            changes.push(Change::Audit(Box::new(AuditRecord {
                actor: "review".to_owned(),
                action: "archive_mechanism".to_owned(),
                object: id,
                reason: "falsified often enough".to_owned(),
            })));
        }
        changes
    }
}
