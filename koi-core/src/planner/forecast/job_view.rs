//! A job as every forecast of it sees it: workload, what is left of a batch, limits, reference of J.
//! Spec §7, §10.2.

use crate::job::{JobClass, Slo, Workload};
use crate::planner::context::PlanningContext;
use crate::planner::learned::Learned;
use crate::planner::workload::{batch_progress, planned_workload};
use crate::score::ObjectiveLimit;
use crate::slow_loop::{IdealPoint, ideal_point};
use crate::snapshot::Snapshot;
use crate::store::JobRecord;
use crate::surrogate::BatchProgress;
use crate::variables::{OUTCOME_COUNT, Outcome};

/// A job with everything that does not depend on the ladder.
#[derive(Debug, Clone)]
pub struct JobView<'a> {
    /// Job.
    pub record: &'a JobRecord,
    /// What is planned for.
    pub workload: Workload,
    /// What is left of a batch, had its ladder started already.
    pub progress: Option<BatchProgress>,
    /// Limits whose breach is counted.
    pub limits: Vec<ObjectiveLimit>,
    /// Reference of J.
    pub ideal: IdealPoint,
    /// What the surrogate's learned members know of its model.
    pub learned: Learned<'a>,
    /// Weights of J: the operator's where pinned, else those of the class as they stand.
    pub weights: [f64; OUTCOME_COUNT],
}

impl<'a> JobView<'a> {
    /// The view of a job in a snapshot.
    #[must_use]
    pub fn of(
        record: &'a JobRecord,
        snapshot: &'a Snapshot,
        context: &PlanningContext<'a>,
    ) -> Self {
        let measured = snapshot.measured.get(&record.id);
        let spec = &record.spec;
        let history = snapshot
            .experience
            .similar(spec.class, spec.model.facts.class());
        let workload = planned_workload(spec, measured);
        Self {
            record,
            progress: batch_progress(record, measured, snapshot.now),
            limits: limits(record),
            ideal: attainable(ideal_point(&history, context.params), spec.class, &workload),
            weights: if spec.preference.pinned {
                spec.preference.weights
            } else {
                snapshot.state.slow.weights_of(spec.class)
            },
            workload,
            learned: Learned::of(record, snapshot, context),
        }
    }

    /// What would be left of the batch if serving began after so many seconds.
    #[must_use]
    pub fn progress_after(&self, start_seconds: f64) -> Option<BatchProgress> {
        self.progress.map(|p| BatchProgress {
            seconds_left: p.seconds_left - start_seconds,
            ..p
        })
    }
}

/// The reference with a throughput that the job could have: an online job generates what is asked
/// of it and no more, so an ideal above its demand would be the same gap for every ladder, and by
/// the max-norm would hide all other objectives.
fn attainable(mut ideal: IdealPoint, class: JobClass, workload: &Workload) -> IdealPoint {
    let demand = workload.arrival_rate_rps * workload.osl.mean;
    if class == JobClass::Online && demand > 0.0 {
        let capped = ideal
            .ideal
            .get(Outcome::ThroughputTokensPerSec)
            .map(|best| best.min(demand));
        ideal.ideal.set(Outcome::ThroughputTokensPerSec, capped);
    }
    ideal
}

/// SLO targets and hard preferences together.
fn limits(record: &JobRecord) -> Vec<ObjectiveLimit> {
    let spec = &record.spec;
    let slo = match spec.slo {
        Slo::Online {
            p99_ttft_ms,
            p99_tpot_ms,
        } => [
            p99_ttft_ms.map(|limit| ObjectiveLimit {
                outcome: Outcome::P99TtftMs,
                limit,
            }),
            p99_tpot_ms.map(|limit| ObjectiveLimit {
                outcome: Outcome::P99TpotMs,
                limit,
            }),
        ],
        Slo::Batch { .. } => [
            Some(ObjectiveLimit {
                outcome: Outcome::SloMargin,
                limit: 0.0,
            }),
            None,
        ],
    };
    let hard = spec.preference.hard.iter();
    let hard = hard.map(|(outcome, limit)| ObjectiveLimit {
        outcome: *outcome,
        limit: *limit,
    });
    slo.into_iter().flatten().chain(hard).collect()
}
