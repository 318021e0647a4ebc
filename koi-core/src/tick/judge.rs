//! S2: observed against predicted, per rank, into evidence rows. Writes nothing, moves no belief.

use std::collections::BTreeMap;

use super::frozen;
use super::observatory::{Observatory, RankKey, find_rank};
use crate::catalog::Catalog;
use crate::causal::{CausalModel, FeatureValues, applicable};
use crate::job::{JobClass, Workload};
use crate::ladder::{CommittedLadder, Rank};
use crate::model::{MixerKind, ModelFacts};
use crate::params::Params;
use crate::snapshot::Snapshot;
use crate::store::JobRecord;
use crate::surrogate::{Answer, Demand, Deployment};
use crate::telemetry::trajectory::TrajectoryPoint;
use crate::validation::{EvidenceRow, RankValidationInput, Stamp, validate_rank};
use crate::variables::{Mediator, MediatorValues, OutcomeValues};

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
    let mut rows = Vec::new();
    for key in keys {
        let Some((job, rank)) = find_rank(&snapshot.state, key) else {
            continue;
        };
        let Some(ladder) = ladder_with(job, key) else {
            continue;
        };
        let Some(points) = observatory.take_points(key) else {
            continue;
        };
        rows.push(judge_rank(snapshot, ctx, key, (job, ladder, rank), &points));
    }
    rows
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
    points: &[TrajectoryPoint],
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
    let sigmas = BTreeMap::new();
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
        sigmas: &sigmas,
    };
    let row = validate_rank(&input, ctx.model, ctx.params);
    EvidenceRow {
        stood: frozen::stood((job, rank), &row, points),
        ..row
    }
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
    let usd_per_hour = snapshot
        .state
        .hosts
        .values()
        .find(|h| h.facts.environment == rank.environment)
        .and_then(|h| snapshot.state.gpu_usd_per_hour(h))
        .map(|usd| usd * f64::from(shape.gpus()));
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

/// Requests kept in flight at one replica, as seen.
fn in_flight(v: &MediatorValues) -> Option<u32> {
    let running = v.get(Mediator::RunningRequests)?;
    let waiting = v.get(Mediator::QueueDepth).unwrap_or(0.0);
    Some((running + waiting).round().clamp(1.0, 4096.0) as u32)
}

/// The declared workload with the lengths that were seen; the shape around the mean is kept.
fn workload_at(declared: &Workload, seen: &MediatorValues) -> Workload {
    let mut workload = declared.clone();
    for (stats, mediator) in [
        (&mut workload.isl, Mediator::InputLengthObserved),
        (&mut workload.osl, Mediator::OutputLengthObserved),
    ] {
        if let Some(mean) = seen.get(mediator).filter(|m| *m >= 1.0) {
            let scale = mean / stats.mean.max(1e-9);
            stats.mean = mean;
            stats.p50 *= scale;
            stats.p95 *= scale;
            stats.p99 *= scale;
        }
    }
    workload
}

/// What scopes compare: the configuration, the model and the workload by catalog id.
#[must_use]
pub fn features(job: &JobRecord, rank: &Rank) -> FeatureValues {
    let model = &job.spec.model.facts;
    let workload = &job.spec.workload;
    let mut values = FeatureValues::of_class(job.spec.class);
    for (id, value) in rank.configuration.iter() {
        values.insert(id, value.into());
    }
    values
        .with_number("num_hidden_layers", f64::from(model.layers))
        .with_number("hidden_size", f64::from(model.hidden))
        .with_number("num_attn_heads", f64::from(model.heads))
        .with_number("num_kv_heads", f64::from(model.kv_heads))
        .with_number("model_params_b", model.params_total as f64 / 1e9)
        .with_flag("is_moe", model.moe.is_some())
        .with_flag("is_multimodal", model.has_other_parts())
        .with_flag(
            "has_recurrent_layers",
            model.kinds.iter().any(|k| k.state_bytes > 0),
        )
        .with_number("sliding_window_tokens", window_tokens(model))
        .with_number("isl_token_avg", workload.isl.mean)
        .with_number("osl_token_avg", workload.osl.mean)
        .with_number("request_arrival_rate", workload.arrival_rate_rps)
        .with_number("shared_prefix_length_avg", workload.shared_prefix_tokens)
        .with_number(
            "workload_prefix_concentration",
            workload.prefix_concentration,
        )
        .with_text("gpu_type", &rank.environment.gpu_type)
        .with_text("market", rank.environment.market.name())
}

/// The widest sliding window of the model's layers; 0 where none has one.
fn window_tokens(model: &ModelFacts) -> f64 {
    let sliding = model.kinds.iter().filter(|k| k.mixer == MixerKind::Sliding);
    f64::from(sliding.filter_map(|k| k.window).max().unwrap_or(0))
}
