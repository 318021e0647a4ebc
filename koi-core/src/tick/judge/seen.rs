//! Under which load and at which price a rank was seen: what its contrasts are predicted at.

use crate::ids::ReplicaId;
use crate::job::JobClass;
use crate::ladder::Rank;
use crate::snapshot::Snapshot;
use crate::store::JobRecord;
use crate::telemetry::trajectory::TrajectoryPoint;
use crate::tick::observatory::RankKey;
use crate::validation::contrast::{Conditions, DeploymentId, DeploymentRow, Subject};
use crate::variables::{Mediator, MediatorValues};

/// What a row says of its deployment beside the verdicts.
pub(super) fn deployment_row(
    snapshot: &Snapshot,
    key: RankKey,
    (job, rank): (&JobRecord, &Rank),
    points: &[TrajectoryPoint],
) -> DeploymentRow {
    let id = DeploymentId {
        job: key.job,
        generation: key.generation,
        rank: key.rank,
    };
    let is_news = snapshot.state.contrasts.wants_subject(id);
    DeploymentRow {
        subject: is_news.then(|| Box::new(subject(id, job, rank))),
        conditions: Conditions {
            usd_per_hour_per_replica: usd_per_hour_per_replica(snapshot, rank),
            ..conditions(job, points)
        },
        superseded: job.last_generation > key.generation,
    }
}

fn subject(id: DeploymentId, job: &JobRecord, rank: &Rank) -> Subject {
    let spec = &job.spec;
    Subject {
        id,
        environment: rank.environment.clone(),
        configuration: rank.configuration.clone(),
        n_replicas: rank.n_replicas,
        model_id: spec.model.id.clone(),
        model: spec.model.facts.clone(),
        class: spec.class,
        slo: spec.slo,
        workload: spec.workload.clone(),
    }
}

fn conditions(job: &JobRecord, points: &[TrajectoryPoint]) -> Conditions {
    let mean = |of: &dyn Fn(&TrajectoryPoint) -> Option<f64>| {
        let seen: Vec<f64> = points.iter().filter_map(of).collect();
        (!seen.is_empty()).then(|| seen.iter().sum::<f64>() / seen.len() as f64)
    };
    let mediator = |m: Mediator| mean(&|p| p.observation.mediators.get(m));
    let osl = mediator(Mediator::OutputLengthObserved);
    let tokens = mean(&|p| p.observation.throughput_per_replica_tokens_per_sec);
    let per_request = osl.unwrap_or(job.spec.workload.osl.mean).max(1.0);
    Conditions {
        isl_tokens: mediator(Mediator::InputLengthObserved),
        osl_tokens: osl,
        rate_rps_per_replica: tokens.map(|t| t / per_request),
        replicas: mean(&|p| Some(f64::from(p.observation.replicas.max(1)))),
        in_flight: match job.spec.class {
            JobClass::Online => None,
            JobClass::Batch => mean(&|p| in_flight(&p.observation.mediators).map(f64::from)),
        },
        usd_per_hour_per_replica: None,
    }
}

/// Price of one replica of a rank, where its environment has one.
pub(super) fn usd_per_hour_per_replica(snapshot: &Snapshot, rank: &Rank) -> Option<f64> {
    let gpus = f64::from(rank.configuration.shape().gpus());
    let mut hosts = snapshot.state.hosts.values();
    let host = hosts.find(|h| h.facts.environment == rank.environment)?;
    Some(snapshot.state.gpu_usd_per_hour(host)? * gpus)
}

/// The engine that serves the rank, with the version installed where its first replica runs.
pub(super) fn engine_of(snapshot: &Snapshot, key: RankKey, job: &JobRecord) -> String {
    let state = &snapshot.state;
    let is_of_rank = |id: &ReplicaId| (id.generation, id.rank) == (key.generation, key.rank);
    let replica = state
        .replicas
        .values()
        .find(|r| r.job == key.job && is_of_rank(&r.id));
    let version = replica
        .and_then(|r| state.hosts.get(&r.host))
        .and_then(|h| h.facts.engines.iter().find(|e| e.engine == job.spec.engine))
        .map_or("unknown", |e| e.version.as_str());
    format!("{} {version}", job.spec.engine.name())
}

/// Requests kept in flight at one replica, as seen.
pub(super) fn in_flight(v: &MediatorValues) -> Option<u32> {
    let running = v.get(Mediator::RunningRequests)?;
    let waiting = v.get(Mediator::QueueDepth).unwrap_or(0.0);
    Some((running + waiting).round().clamp(1.0, 4096.0) as u32)
}
