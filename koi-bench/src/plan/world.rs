//! Seeded clusters as snapshots, and a plan carried out on one as if every roll-out succeeded.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::anyhow;
use koi_core::build::BUILD_ID;
use koi_core::catalog::Catalog;
use koi_core::environment::Environment;
use koi_core::experience::Experience;
use koi_core::gpu::GpuFacts;
use koi_core::host::{EngineInstall, HostFacts, HostPrice, HostRecord, Liveness};
use koi_core::ids::{Generation, HostGeneration, HostId, JobId, TickId};
use koi_core::job::{
    ArrivalPattern, Constraints, EngineName, JobClass, JobModel, JobSpec, LengthStats,
    OnDisconnect, Preference, Slo, Workload,
};
use koi_core::ladder::CommittedLadder;
use koi_core::params::Params;
use koi_core::plan::replica_id;
use koi_core::plan_check::CheckedPlan;
use koi_core::rng::Rng;
use koi_core::slow_loop::SlowState;
use koi_core::slow_loop::weights::{BATCH_WEIGHTS, ONLINE_WEIGHTS};
use koi_core::snapshot::Snapshot;
use koi_core::store::{JobRecord, JobState, ReplicaPhase, ReplicaRecord, ReplicaRole, ServerState};
use koi_core::time::UtcMicros;

use crate::truth::scenario::{Model, models};

const NOW: UtcMicros = UtcMicros(1_800_000_000_000_000);
/// Environment, devices and USD per hour of the hosts that are dealt out in turn; list prices of
/// `configs/fleets/demo.toml`.
const HOSTS: [(&str, u32, f64); 6] = [
    ("on_demand/aws/us-east-1/us-east-1a/H100", 8, 55.04),
    ("spot/nebius/eu-north1/eu-north1-a/H100", 8, 10.00),
    (
        "on_demand/gcp/us-central1/us-central1-a/A100",
        4,
        20.275_192,
    ),
    ("spot/gcp/us-central1/us-central1-a/A100", 4, 11.038_185),
    ("on_demand/aws/us-east-1/us-east-1a/L40S", 4, 10.492_64),
    ("on_demand/aws/us-east-1/us-east-1a/L40S", 4, 10.492_64),
];

/// A cluster of waiting jobs.
pub(crate) fn snapshot(n_jobs: u32, n_hosts: u32, seed: u64) -> anyhow::Result<Snapshot> {
    let mut state = ServerState {
        slow: SlowState::initial(&Params::default()),
        ..ServerState::default()
    };
    let mut liveness = BTreeMap::new();
    for index in 0..n_hosts {
        let record = host(index)?;
        liveness.insert(record.facts.host.clone(), Liveness::Alive);
        state.hosts.insert(record.facts.host.clone(), record);
    }
    let models = models()?;
    let mut rng = Rng::stream(seed, "bench.plan.jobs");
    for index in 0..n_jobs {
        let record = job(index, &models, &mut rng)?;
        state.jobs.insert(record.id, record);
    }
    Ok(Snapshot {
        tick: TickId(1),
        now: NOW,
        seed,
        catalog_hash: Catalog::embedded().hash().to_owned(),
        state,
        liveness,
        silence_s: BTreeMap::new(),
        edge_powers: None,
        experience: Experience::default(),
        measured: BTreeMap::new(),
        points_digest: String::new(),
    })
}

fn host(index: u32) -> anyhow::Result<HostRecord> {
    host_of(
        &format!("host-{index}"),
        HOSTS[index as usize % HOSTS.len()],
    )
}

/// A host by name: environment, devices and USD per hour.
pub(crate) fn host_of(
    name: &str,
    (environment, n_gpus, usd_per_hour): (&str, u32, f64),
) -> anyhow::Result<HostRecord> {
    let environment: Environment = environment.parse().map_err(|e| anyhow!("{e}"))?;
    let catalog = Catalog::embedded();
    let gpu = catalog
        .gpu_type(&environment.gpu_type)
        .ok_or_else(|| anyhow!("the catalog has no {}", environment.gpu_type))?;
    let host: HostId = name.parse().map_err(|e| anyhow!("{e}"))?;
    let gpus = (0..n_gpus).map(|i| GpuFacts {
        uuid: format!("GPU-{name}-{i}"),
        index: i,
        name: gpu.id.clone(),
        memory_bytes: gpu.memory_bytes as u64,
        power_limit_w: Some(gpu.power_limit_w),
    });
    let facts = HostFacts {
        host,
        instance_type: format!("{}x{n_gpus}", gpu.id.to_lowercase()),
        gpus: gpus.collect(),
        nvlink: gpu.nvlink_bytes_per_second.is_some(),
        price: Some(HostPrice {
            usd_per_hour,
            source: "configs/fleets/demo.toml".to_owned(),
            date: "2026-11-30".to_owned(),
        }),
        address: "127.0.0.1".to_owned(),
        boot_id: "bench".to_owned(),
        build_id: BUILD_ID.to_owned(),
        engines: vec![EngineInstall {
            engine: EngineName::Sim,
            version: "0.32.0".to_owned(),
        }],
        simulated: true,
        environment,
    };
    Ok(HostRecord {
        facts: facts.check().map_err(|problems| anyhow!("{problems:?}"))?,
        cordoned: false,
        draining_since: None,
        generation: HostGeneration(0),
        first_seen: NOW,
    })
}

fn job(index: u32, models: &[Model], rng: &mut Rng) -> anyhow::Result<JobRecord> {
    Ok(JobRecord {
        id: JobId(uuid::Uuid::from_u128(u128::from(index) + 1)),
        spec: spec(index, models, rng)?,
        state: JobState::Waiting,
        submitted_at: NOW,
        last_generation: Generation(0),
        active: None,
        rollout: None,
        note: None,
        ticks_waited: 0,
        tokens_done: 0,
        recent_failures: 0,
        version: 1,
    })
}

/// Three online jobs to one batch, over all models, with rates and lengths drawn from a decade.
fn spec(index: u32, models: &[Model], rng: &mut Rng) -> anyhow::Result<JobSpec> {
    let batch = index % 4 == 3;
    let model = &models[rng.below(models.len())];
    let mut between = |low: f64, high: f64| low * (high / low).powf(rng.unit());
    let (prompt, answer, rate) = (
        between(300.0, 3000.0),
        between(80.0, 500.0),
        between(0.3, 3.0),
    );
    let (class, slo, weights) = if batch {
        let slo = Slo::Batch {
            total_token_budget: between(1e6, 1e7) as u64,
            deadline: NOW.plus_seconds(between(7_200.0, 86_400.0) as i64),
        };
        (JobClass::Batch, slo, BATCH_WEIGHTS)
    } else {
        let slo = Slo::Online {
            p99_ttft_ms: Some(between(1_500.0, 6_000.0)),
            p99_tpot_ms: Some(between(60.0, 150.0)),
        };
        (JobClass::Online, slo, ONLINE_WEIGHTS)
    };
    Ok(JobSpec {
        name: format!("job-{index}").parse().map_err(|e| anyhow!("{e}"))?,
        tenant: "default".parse().map_err(|e| anyhow!("{e}"))?,
        class,
        engine: EngineName::Sim,
        model: JobModel {
            id: format!("bench/{}", model.name),
            facts: model.facts.clone(),
            config_json: model.config_json.to_owned(),
        },
        workload: Workload {
            arrival_rate_rps: if batch { 0.0 } else { rate },
            arrival_pattern: ArrivalPattern::Poisson,
            peak_to_mean: 1.3,
            isl: lengths(prompt),
            osl: lengths(answer),
            shared_prefix_tokens: 0.0,
            prefix_concentration: 0.0,
            multi_turn_ratio: 0.0,
            session_affinity: false,
        },
        slo,
        preference: Preference {
            weights,
            pinned: false,
            hard: BTreeMap::new(),
            tau: 0.10,
        },
        constraints: unconstrained(),
        priority: 5,
        on_disconnect: OnDisconnect::KeepServing,
    })
}

fn lengths(mean: f64) -> LengthStats {
    LengthStats {
        mean,
        p50: 0.85 * mean,
        p95: 2.1 * mean,
        p99: 3.3 * mean,
    }
}

pub(crate) fn unconstrained() -> Constraints {
    Constraints {
        allowed_gpu_types: BTreeSet::new(),
        denied_gpu_types: BTreeSet::new(),
        allowed_environments: BTreeSet::new(),
        denied_environments: BTreeSet::new(),
        spot_allowed: true,
        max_usd_per_hour: None,
        min_replicas: 1,
        max_replicas: 8,
        min_available: 0,
        allow_gap: false,
    }
}

/// Makes the plan's ladders the running ones.
pub(super) fn execute(snapshot: &mut Snapshot, checked: &CheckedPlan) {
    let state = &mut snapshot.state;
    for action in checked.actions() {
        let (Some(ladder), Some(promise)) = (&action.ladder, &action.promise) else {
            continue;
        };
        let Some(job) = state.jobs.get_mut(&action.job) else {
            continue;
        };
        let generation = job.last_generation.next();
        job.last_generation = generation;
        job.state = JobState::Running;
        job.active = Some(CommittedLadder {
            generation,
            ladder: ladder.clone(),
            promise: promise.clone(),
            committed_at: NOW,
        });
        for slot in &action.slots {
            let id = replica_id(&job.spec.name, generation, slot);
            let replica = ReplicaRecord {
                id: id.clone(),
                job: action.job,
                host: slot.host.clone(),
                gpu_uuids: slot.gpu_uuids.clone(),
                role: ReplicaRole::Serve,
                phase: ReplicaPhase::Ready,
                endpoint: None,
                reserved_at: NOW,
                ready_at: Some(NOW),
                n_starts: 1,
            };
            state.replicas.insert(id, replica);
        }
    }
    snapshot.tick = snapshot.tick.next();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_have_the_asked_size_and_follow_the_seed() {
        let one = snapshot(8, 7, 1).unwrap();
        assert_eq!((one.state.jobs.len(), one.state.hosts.len()), (8, 7));
        assert_eq!(one.hash(), snapshot(8, 7, 1).unwrap().hash());
        assert_ne!(one.hash(), snapshot(8, 7, 2).unwrap().hash());
    }
}
