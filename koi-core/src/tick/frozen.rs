//! The surrogate as it was when a ladder was committed: what verdicts are held against, however much
//! the learned members have heard since. Stored with the promise. Spec §4.

use crate::ladder::{CommittedLadder, Rank};
use crate::store::JobRecord;
use crate::surrogate::members::Members;
use crate::surrogate::own::{Seen, Stood, log_errors};
use crate::surrogate::points::matrices;
use crate::surrogate::{Answer, Demand, Deployment, Prediction, predict, predict_frozen};
use crate::telemetry::trajectory::TrajectoryPoint;
use crate::validation::EvidenceRow;
use crate::variables::{Mediator, Outcome};

/// A rank of a job: what was promised of it, and what each member had said.
fn promised<'a>(job: &'a JobRecord, rank: &Rank) -> Option<(&'a Prediction, Option<&'a Members>)> {
    let rollout = job.rollout.as_ref().map(|r| &r.target);
    let ladders = [job.active.as_ref(), rollout].into_iter().flatten();
    let place = |ladder: &CommittedLadder| {
        let ranks = &ladder.ladder.ranks;
        ranks.iter().position(|r| std::ptr::eq(r, rank))
    };
    ladders
        .filter_map(|ladder| Some((ladder, place(ladder)?)))
        .find_map(|(ladder, at)| {
            let promise = &ladder.promise;
            Some((promise.ranks.get(at)?, promise.members.get(at)))
        })
}

/// Predicts with the members that were frozen with the rank's ladder; with first principles alone
/// where the ladder was planned with nothing else.
pub(super) fn predict_as_promised(
    (job, rank): (&JobRecord, &Rank),
    deployment: &Deployment<'_>,
    demand: &Demand<'_>,
) -> Answer {
    match promised(job, rank).and_then(|(_, members)| members) {
        Some(members) => predict_frozen(deployment, demand, members),
        None => predict(deployment, demand),
    }
}

/// Where a judged rank stood, and what first principles and forests missed there. Where a mean stood
/// in for a percentile, because too few requests finished, latencies teach nothing.
pub(super) fn stood(
    (job, rank): (&JobRecord, &Rank),
    row: &EvidenceRow,
    points: &[TrajectoryPoint],
) -> Option<Stood> {
    let (prediction, members) = promised(job, rank)?;
    let members = members?;
    let model = &job.spec.model.facts;
    let has_percentiles = points.iter().all(|p| !p.observation.mean_based);
    let seen = |outcome: Outcome| {
        let is_latency = matches!(outcome, Outcome::P99TpotMs | Outcome::P99TtftMs);
        let verdict = row.variables.get(outcome.name())?;
        if is_latency && !has_percentiles {
            return None;
        }
        Some(Seen {
            observed: verdict.observed_mean,
            predicted: verdict.predicted_mean,
        })
    };
    let mean = |mediator: Mediator| Some(row.variables.get(mediator.name())?.observed_mean);
    Some(Stood {
        matrices: matrices(model),
        weights: model.served_dtype(rank.configuration.shape().weight_dtype),
        spot: members.spot.moved(
            mean(Mediator::RunningRequests),
            mean(Mediator::InputLengthObserved),
            mean(Mediator::OutputLengthObserved),
        ),
        log_errors: log_errors(
            prediction,
            members,
            [
                seen(Outcome::P99TpotMs),
                seen(Outcome::P99TtftMs),
                seen(Outcome::ThroughputTokensPerSec),
            ],
        ),
    })
}

#[cfg(test)]
mod tests;
