//! The study's fleet: places, jobs, and the snapshot that S1 and S2 read.

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow};
use koi_core::catalog::{Catalog, GpuType, Value};
use koi_core::configuration::Configuration;
use koi_core::environment::Environment;
use koi_core::experience::Experience;
use koi_core::host::Liveness;
use koi_core::ids::{Generation, JobId, TickId};
use koi_core::job::{
    ArrivalPattern, EngineName, JobClass, JobModel, JobSpec, LengthStats, OnDisconnect, Preference,
    Slo, Workload,
};
use koi_core::params::Params;
use koi_core::rng::Rng;
use koi_core::slow_loop::SlowState;
use koi_core::slow_loop::weights::ONLINE_WEIGHTS;
use koi_core::snapshot::Snapshot;
use koi_core::store::{JobRecord, JobState, ServerState};
use koi_core::time::UtcMicros;
use koi_sim::world::{Chain, ChainError, ChainInput, Demand, Levers, Steady};

use crate::plan::world::{host_of, unconstrained};
use crate::truth::scenario::{Model, models};

/// When the study begins.
pub(super) const START: UtcMicros = UtcMicros(1_800_000_000_000_000);
/// Longest prompt and answer together.
pub(super) const LONGEST: i64 = 8_192;
/// Places with the devices and the price of their host; list prices of `configs/fleets/demo.toml`
/// where it has one.
const PLACES: [(&str, u32, f64); 8] = [
    ("on_demand/aws/us-east-1/us-east-1a/H100", 8, 55.04),
    ("spot/nebius/eu-north1/eu-north1-a/H100", 8, 10.0),
    ("on_demand/gcp/us-central1/us-central1-a/A100", 8, 40.55),
    ("spot/gcp/us-central1/us-central1-a/A100", 8, 22.08),
    ("reserved/aws/us-east-2/us-east-2b/H200", 8, 41.0),
    ("on_demand/aws/us-west-2/us-west-2a/H100", 8, 55.04),
    ("reserved/gcp/europe-west4/europe-west4-a/A100", 8, 29.0),
    ("spot/aws/us-east-2/us-east-2a/H200", 8, 23.0),
];
/// Names, mean prompt and answer, shared prefix and its share of requests.
const MIXES: [(&str, f64, f64, f64, f64); 4] = [
    ("chat", 900.0, 180.0, 512.0, 0.7),
    ("rag", 2200.0, 120.0, 768.0, 0.6),
    ("story", 300.0, 420.0, 128.0, 0.5),
    ("summary", 1600.0, 260.0, 256.0, 0.5),
];
/// Spread of the logarithm of lengths.
const LOG_SPREAD: f64 = 0.5;

/// A place of the fleet.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) environment: Environment,
    pub(super) text: &'static str,
    pub(super) gpu: GpuType,
}

/// A job of the study beside its record: what the world knows of it.
#[derive(Debug, Clone)]
pub(super) struct StudyJob {
    pub(super) id: JobId,
    pub(super) demand: Demand,
    pub(super) place: usize,
    pub(super) configuration: Configuration,
}

/// The fleet before anything is deployed.
pub(super) struct Fleet {
    pub(super) places: Vec<Place>,
    pub(super) jobs: Vec<StudyJob>,
    pub(super) snapshot: Snapshot,
}

/// The places of a study, `n` of eight.
pub(super) fn places(catalog: &Catalog, n: usize) -> anyhow::Result<Vec<Place>> {
    let place = |(text, _, _): &(&'static str, u32, f64)| {
        let environment: Environment = text.parse().map_err(|e| anyhow!("{e}"))?;
        let gpu = catalog
            .gpu_type(&environment.gpu_type)
            .with_context(|| format!("the catalog has no {}", environment.gpu_type))?;
        Ok(Place {
            environment,
            text,
            gpu: gpu.clone(),
        })
    };
    PLACES.iter().take(n).map(place).collect()
}

/// A fleet of `n_jobs` jobs over `n_places` places, by seed.
pub(super) fn fleet(
    catalog: &Catalog,
    params: &Params,
    (n_jobs, n_places): (usize, usize),
    seed: u64,
) -> anyhow::Result<Fleet> {
    let places = places(catalog, n_places)?;
    let models = models()?;
    let mut rng = Rng::stream(seed, "learning.jobs");
    let mut state = ServerState {
        slow: SlowState::initial(params),
        ..ServerState::default()
    };
    let mut liveness = BTreeMap::new();
    for (index, row) in PLACES.iter().take(n_places).enumerate() {
        let record = host_of(&format!("place-{index}"), *row)?;
        liveness.insert(record.facts.host.clone(), Liveness::Alive);
        state.hosts.insert(record.facts.host.clone(), record);
    }
    let mut jobs = Vec::new();
    for index in 0..n_jobs {
        let model = &models[index % models.len()];
        let mix = MIXES[(index / models.len()) % MIXES.len()];
        let job = job(catalog, &places, (index, model, mix), &mut rng)?;
        let record = record(index, &job, model)?;
        state.jobs.insert(record.id, record);
        jobs.push(job);
    }
    let snapshot = Snapshot {
        tick: TickId(0),
        now: START,
        seed,
        catalog_hash: catalog.hash().to_owned(),
        state,
        liveness,
        silence_s: BTreeMap::new(),
        experience: Experience::default(),
        edge_powers: None,
        measured: BTreeMap::new(),
        points_digest: String::new(),
    };
    Ok(Fleet {
        places,
        jobs,
        snapshot,
    })
}

/// A job at a load between a third and two thirds of what its first chain can do.
fn job(
    catalog: &Catalog,
    places: &[Place],
    (index, model, mix): (usize, &Model, (&str, f64, f64, f64, f64)),
    rng: &mut Rng,
) -> anyhow::Result<StudyJob> {
    let between = |rng: &mut Rng, low: f64, high: f64| low + (high - low) * rng.unit();
    let place = rng.below(places.len());
    let (_, prompt, answer, shared_prefix, concentration) = mix;
    let mut demand = Demand {
        rate_rps: 1.0,
        concurrency: None,
        prompt: prompt * between(rng, 0.75, 1.3),
        answer: answer * between(rng, 0.75, 1.3),
        log_spread: LOG_SPREAD,
        shared_prefix,
        concentration,
        arrival_cv2: 1.0,
    };
    let load = between(rng, 0.35, 0.65);
    for tp in [1, 2, 4, 8] {
        let configuration = catalog
            .configuration(super::knobs::base_draft(tp))
            .map_err(|problems| anyhow!("{problems:?}"))?;
        let Ok(chain) = chain(
            &model.facts,
            &places[place],
            &configuration,
            Levers::default(),
        ) else {
            continue;
        };
        let capacity = chain.steady(&demand).capacity_rps;
        if capacity < 4.0 && tp < 8 {
            continue;
        }
        demand.rate_rps = load * capacity;
        return Ok(StudyJob {
            id: JobId(uuid::Uuid::from_u128(index as u128 + 1)),
            demand,
            place,
            configuration,
        });
    }
    anyhow::bail!("{} fits nowhere in {}", model.name, places[place].text)
}

fn record(index: usize, job: &StudyJob, model: &Model) -> anyhow::Result<JobRecord> {
    let demand = &job.demand;
    let spec = JobSpec {
        name: format!("job-{index}").parse().map_err(|e| anyhow!("{e}"))?,
        tenant: "study".parse().map_err(|e| anyhow!("{e}"))?,
        class: JobClass::Online,
        engine: EngineName::Vllm,
        model: JobModel {
            id: format!("study/{}", model.name),
            facts: model.facts.clone(),
            config_json: model.config_json.to_owned(),
        },
        workload: Workload {
            arrival_rate_rps: demand.rate_rps,
            arrival_pattern: ArrivalPattern::Poisson,
            peak_to_mean: 1.0,
            isl: lengths(demand.prompt),
            osl: lengths(demand.answer),
            shared_prefix_tokens: demand.shared_prefix,
            prefix_concentration: demand.concentration,
            multi_turn_ratio: 0.0,
            session_affinity: false,
        },
        slo: Slo::Online {
            p99_ttft_ms: Some(2_500.0),
            p99_tpot_ms: Some(90.0),
        },
        preference: Preference {
            weights: ONLINE_WEIGHTS,
            hard: BTreeMap::new(),
            tau: 0.10,
            pinned: false,
        },
        constraints: unconstrained(),
        priority: 5,
        on_disconnect: OnDisconnect::KeepServing,
    };
    Ok(JobRecord {
        id: job.id,
        spec,
        state: JobState::Waiting,
        submitted_at: START,
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

/// The quantiles of a log-normal of this mean, as a user would state them.
fn lengths(mean: f64) -> LengthStats {
    let p50 = mean * (-LOG_SPREAD * LOG_SPREAD / 2.0).exp();
    LengthStats {
        mean,
        p50,
        p95: p50 * (1.645 * LOG_SPREAD).exp(),
        p99: p50 * (2.326 * LOG_SPREAD).exp(),
    }
}

/// The chain that the engine would start, with what is hidden in it.
pub(super) fn chain(
    model: &koi_core::model::ModelFacts,
    place: &Place,
    configuration: &Configuration,
    levers: Levers,
) -> Result<Chain, ChainError> {
    let flag = |id: &str, default: bool| match configuration.get(id) {
        Some(Value::Bool(set)) => *set,
        _ => default,
    };
    Chain::new(&ChainInput {
        model,
        gpu_type: &place.gpu.id,
        gpu_memory_bytes: place.gpu.memory_bytes,
        environment: place.text,
        shape: configuration.shape(),
        async_scheduling: flag("async_scheduling", true),
        custom_all_reduce: !flag("disable_custom_all_reduce", false),
        levers,
    })
}

/// True when the load leaves the chain room.
pub(super) fn has_room(steady: &Steady) -> bool {
    steady.rate_rps < 0.9 * steady.capacity_rps
}
