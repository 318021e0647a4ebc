//! S2: observed against predicted, per rank, into evidence rows. Writes nothing, moves no belief.

mod seen;

use std::collections::BTreeMap;

use super::frozen;
use super::observatory::{Observatory, RankKey, find_rank};
use crate::catalog::Catalog;
use crate::causal::{CausalModel, FeatureValues, applicable};
use crate::job::{JobClass, Workload};
use crate::ladder::{CommittedLadder, Rank};
use crate::params::{LearningContrast, Params};
use crate::snapshot::Snapshot;
use crate::store::JobRecord;
use crate::surrogate::{Answer, Demand, Deployment};
use crate::telemetry::trajectory::TrajectoryPoint;
use crate::validation::contrast::{CompareContext, DeploymentId, compare, deployment};
use crate::validation::icp::combined;
use crate::validation::{
    Basis, EvidenceRow, Icp, RankValidationInput, Stamp, Statistics, validate_rank,
};
use crate::variables::{Mediator, MediatorValues, OutcomeValues};
use seen::{deployment_row, engine_of, in_flight, usd_per_hour_per_replica};

/// What S2 judges with.
#[derive(Clone, Copy)]
pub struct JudgeContext<'a> {
    /// Closed world.
    pub catalog: &'a Catalog,
    /// Edges and mechanisms.
    pub model: &'a CausalModel,
    /// Hyper-parameters.
    pub params: &'a Params,
}

/// Judges every rank whose trajectory has closed enough points since its last verdict.
pub fn judge(
    snapshot: &Snapshot,
    observatory: &mut Observatory,
    ctx: JudgeContext<'_>,
) -> Vec<EvidenceRow> {
    let keys: Vec<RankKey> = observatory.keys().collect();
    let is_known = |key: &RankKey| {
        find_rank(&snapshot.state, *key).is_some_and(|(job, _)| ladder_with(job, *key).is_some())
    };
    let taken: Vec<(RankKey, Vec<TrajectoryPoint>)> = keys
        .into_iter()
        .filter(is_known)
        .filter_map(|key| Some((key, observatory.take_points(key)?)))
        .collect();
    let mut statistics = std::mem::take(&mut observatory.statistics);
    let rows = judge_points(snapshot, &taken, &mut statistics, ctx);
    observatory.statistics = statistics;
    rows
}

/// Judges ranks by points that closed since their last verdict; a rank that the snapshot does not
/// know has no row. The statistics take this tick in.
pub fn judge_points(
    snapshot: &Snapshot,
    taken: &[(RankKey, Vec<TrajectoryPoint>)],
    statistics: &mut Statistics,
    ctx: JudgeContext<'_>,
) -> Vec<EvidenceRow> {
    let mut rows = Vec::new();
    for (key, points) in taken {
        let Some((job, rank)) = find_rank(&snapshot.state, *key) else {
            continue;
        };
        let Some(ladder) = ladder_with(job, *key) else {
            continue;
        };
        rows.push(judge_rank(
            snapshot,
            ctx,
            *key,
            (job, ladder, rank),
            (points, &mut *statistics),
        ));
    }
    // The seed is the tick: a tick that is judged again calibrates alike.
    statistics.step(snapshot.tick, ctx.params, snapshot.tick.0.unsigned_abs());
    let of_residuals = statistics.residuals_by_edge(ctx.model, ctx.params);
    if ctx.params.learning_contrast == LearningContrast::On {
        let context = CompareContext {
            catalog: ctx.catalog,
            model: ctx.model,
            params: ctx.params,
            residual_invariance: &of_residuals,
        };
        compare(&snapshot.state.contrasts, &mut rows, context);
    } else {
        put_invariance(&mut rows, &of_residuals, ctx);
    }
    rows
}

/// Without contrasts leg (a) decides alone.
fn put_invariance(
    rows: &mut [EvidenceRow],
    of_residuals: &BTreeMap<String, Icp>,
    ctx: JudgeContext<'_>,
) {
    for verdict in rows.iter_mut().flat_map(|r| &mut r.mechanisms) {
        let edges = ctx.model.mechanism(&verdict.id).map(|m| &m.edges);
        for edge in edges.into_iter().flatten() {
            let leg = of_residuals.get(edge).copied().unwrap_or(Icp::Undecided);
            let icp = combined(ctx.params.invariance_rule, leg, None);
            if icp != Icp::Undecided {
                verdict.icp.insert(edge.clone(), icp);
            }
        }
    }
}

fn ladder_with(job: &JobRecord, key: RankKey) -> Option<&CommittedLadder> {
    let rollout = job.rollout.as_ref().map(|r| &r.target);
    [job.active.as_ref(), rollout]
        .into_iter()
        .flatten()
        .find(|l| l.generation == key.generation)
}

fn judge_rank(
    snapshot: &Snapshot,
    ctx: JudgeContext<'_>,
    key: RankKey,
    (job, ladder, rank): (&JobRecord, &CommittedLadder, &Rank),
    (points, statistics): (&[TrajectoryPoint], &mut Statistics),
) -> EvidenceRow {
    let observed: Vec<_> = points
        .iter()
        .map(|p| (p.observation.mediators, p.observation.outcomes))
        .collect();
    let predicted: Vec<_> = points
        .iter()
        .map(|p| predicted_at(snapshot, ctx.catalog, job, rank, p))
        .collect();
    let features = features(job, rank);
    let applicable = applicable(ctx.model, &features, rank.mechanism_id.as_deref());
    let at = key.rank as usize;
    let promise = ladder.promise.ranks.get(at).map(|p| Stamp {
        outcomes: p.outcomes,
        bands: ladder.promise.bands.get(at).cloned().unwrap_or_default(),
    });
    let id = DeploymentId {
        job: key.job,
        generation: key.generation,
        rank: key.rank,
    };
    let own_bias = statistics.own_bias(id, ctx.params);
    let input = RankValidationInput {
        tick: snapshot.tick,
        job: key.job,
        rank: key.rank,
        generation: key.generation,
        environment: &rank.environment,
        observed: &observed,
        predicted: &predicted,
        promised: promise.as_ref(),
        applicable: &applicable,
        model_class: job.spec.model.facts.class(),
        own_bias: &own_bias,
        calibration: &statistics.calibration,
    };
    let mut row = validate_rank(&input, ctx.model, ctx.params);
    let engine = engine_of(snapshot, key, job);
    statistics
        .residuals
        .observe(&input, &row, &engine, ctx.params);
    statistics.own.observe(&row);
    if ctx.params.learning_contrast == LearningContrast::On {
        row.deployment = Some(deployment_row(snapshot, key, (job, rank), points));
    }
    row.stood = frozen::stood((job, rank), &row, points);
    let until = points.iter().map(|p| p.end).max();
    row.basis = until.map(|until| Basis { engine, until });
    row
}

/// The surrogate's answer for the rank at the workload that the point showed. Absent where it has
/// none: a verdict needs both sides.
fn predicted_at(
    snapshot: &Snapshot,
    catalog: &Catalog,
    job: &JobRecord,
    rank: &Rank,
    point: &TrajectoryPoint,
) -> (MediatorValues, OutcomeValues) {
    let absent = (MediatorValues::absent(), OutcomeValues::absent());
    let Some(gpu) = catalog.gpu_type(&rank.environment.gpu_type) else {
        return absent;
    };
    let shape = rank.configuration.shape();
    let workload = workload_at(&job.spec.workload, &point.observation.mediators);
    let replicas = f64::from(point.observation.replicas.max(1));
    let throughput = point
        .observation
        .throughput_per_replica_tokens_per_sec
        .unwrap_or(0.0);
    let usd_per_hour = usd_per_hour_per_replica(snapshot, rank);
    let deployment = Deployment {
        model: &job.spec.model.facts,
        gpu,
        shape,
        n_replicas: replicas as u32,
        price_usd_per_hour_per_replica: usd_per_hour,
    };
    let concurrency = match job.spec.class {
        JobClass::Online => None,
        JobClass::Batch => in_flight(&point.observation.mediators),
    };
    let demand = Demand {
        workload: &workload,
        class: job.spec.class,
        slo: &job.spec.slo,
        rate_rps_per_replica: throughput / workload.osl.mean.max(1.0),
        batch_concurrency: concurrency,
    };
    match frozen::predict_as_promised((job, rank), &deployment, &demand) {
        Answer::Prediction(p) => (p.mediators, p.outcomes),
        Answer::DoesNotFit(_) | Answer::Unsupported(_) => absent,
    }
}

/// The declared workload with the lengths that were seen; the shape around the mean is kept.
fn workload_at(declared: &Workload, seen: &MediatorValues) -> Workload {
    let mut workload = declared.clone();
    for (stats, mediator) in [
        (&mut workload.isl, Mediator::InputLengthObserved),
        (&mut workload.osl, Mediator::OutputLengthObserved),
    ] {
        if let Some(mean) = seen.get(mediator).filter(|m| *m >= 1.0) {
            stats.scale_to_mean(mean);
        }
    }
    workload
}

/// What scopes compare: the configuration, the model and the workload by catalog id.
#[must_use]
pub fn features(job: &JobRecord, rank: &Rank) -> FeatureValues {
    deployment::features(
        (job.spec.class, &job.spec.workload),
        &job.spec.model.facts,
        (&rank.environment, &rank.configuration),
    )
}
