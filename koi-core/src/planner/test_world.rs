//! A small fleet as a snapshot, for the tests of planner and plan check: hosts and jobs are added
//! one by one, plans are executed on it as if every roll-out succeeded at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::{PlanningContext, plan};
use crate::catalog::Catalog;
use crate::causal::CausalModel;
use crate::environment::Environment;
use crate::gpu::GpuFacts;
use crate::host::{EngineInstall, HostFacts, HostPrice, HostRecord, Liveness};
use crate::ids::{Generation, HostGeneration, HostId, JobId, TickId};
use crate::job::{
    ArrivalPattern, Constraints, EngineName, JobClass, JobModel, JobSpec, LengthStats,
    OnDisconnect, Preference, Slo, Workload,
};
use crate::ladder::CommittedLadder;
use crate::model::ModelFacts;
use crate::params::Params;
use crate::plan::{PlanDraft, replica_id};
use crate::plan_check::{CheckedPlan, check};
use crate::score::eig::EdgePowers;
use crate::slow_loop::SlowState;
use crate::snapshot::Snapshot;
use crate::store::{JobRecord, JobState, ReplicaPhase, ReplicaRecord, ReplicaRole, ServerState};
use crate::surrogate::points::MeasuredPoints;
use crate::time::UtcMicros;

pub(crate) const LLAMA_8B: &str = include_str!("../../../configs/models/Llama-3.1-8B.json");
pub(crate) const LLAMA_70B: &str = include_str!("../../../configs/models/Llama-3.1-70B.json");

/// A vector file, or `None` (said aloud) where the shared folder is missing.
pub(crate) fn vector(name: &str) -> Option<serde_json::Value> {
    let shared = std::env::var_os("KOI_SHARED")
        .map(std::path::PathBuf::from)
        .or_else(|| {
            std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .ancestors()
                .map(|folder| folder.join("shared"))
                .find(|folder| folder.join("vectors").is_dir())
        });
    let path = shared?.join("vectors").join(format!("{name}.json"));
    let Ok(file) = std::fs::File::open(&path) else {
        println!("SKIPPED: {} is not there", path.display());
        return None;
    };
    Some(serde_json::from_reader(file).unwrap())
}

static PARAMS: LazyLock<Params> = LazyLock::new(Params::default);
static CAUSAL: LazyLock<CausalModel> =
    LazyLock::new(|| CausalModel::embedded(Catalog::embedded()).unwrap());

/// Embedded catalog and causal model, default parameters.
pub(crate) fn context() -> PlanningContext<'static> {
    PlanningContext {
        catalog: Catalog::embedded(),
        causal: &CAUSAL,
        params: &PARAMS,
        points: MeasuredPoints::none(),
    }
}

pub(crate) fn job_id(n: u128) -> JobId {
    JobId(uuid::Uuid::from_u128(n))
}

fn lengths(mean: f64) -> LengthStats {
    LengthStats {
        mean,
        p50: mean * 0.8,
        p95: mean * 2.0,
        p99: mean * 3.0,
    }
}

/// Two jobs of one model that run beside each other, with contrasts kept and nothing known of any
/// edge.
pub(crate) fn two_of_a_model() -> World {
    let mut world = World::fleet();
    let mut spec = chat("first");
    spec.workload.arrival_rate_rps = 6.0;
    world.job(1, spec.clone());
    spec.name = "second".parse().unwrap();
    world.job(2, spec);
    world.tick();
    world.snapshot.edge_powers = Some(EdgePowers::default());
    world
}

/// An online chat over an 8 B model; tests change what they are about.
pub(crate) fn chat(name: &str) -> JobSpec {
    JobSpec {
        name: name.parse().unwrap(),
        tenant: "default".parse().unwrap(),
        class: JobClass::Online,
        engine: EngineName::Sim,
        model: JobModel {
            id: "meta-llama/Llama-3.1-8B".to_owned(),
            facts: ModelFacts::from_config_json(LLAMA_8B).unwrap(),
            config_json: LLAMA_8B.to_owned(),
        },
        workload: Workload {
            arrival_rate_rps: 2.0,
            arrival_pattern: ArrivalPattern::Poisson,
            peak_to_mean: 1.5,
            isl: lengths(500.0),
            osl: lengths(150.0),
            shared_prefix_tokens: 0.0,
            prefix_concentration: 0.0,
            multi_turn_ratio: 0.0,
            session_affinity: false,
        },
        slo: Slo::Online {
            p99_ttft_ms: Some(2_000.0),
            p99_tpot_ms: Some(80.0),
        },
        preference: Preference {
            weights: crate::slow_loop::weights::ONLINE_WEIGHTS,
            pinned: false,
            hard: BTreeMap::new(),
            tau: 0.10,
        },
        constraints: Constraints {
            allowed_gpu_types: BTreeSet::new(),
            denied_gpu_types: BTreeSet::new(),
            allowed_environments: BTreeSet::new(),
            denied_environments: BTreeSet::new(),
            spot_allowed: true,
            max_usd_per_hour: None,
            min_replicas: 1,
            max_replicas: 32,
            min_available: 0,
            allow_gap: false,
        },
        priority: 5,
        on_disconnect: OnDisconnect::KeepServing,
    }
}

/// A batch with a budget and a deadline so many seconds from [`NOW`].
pub(crate) fn batch(name: &str, tokens: u64, seconds: i64) -> JobSpec {
    let mut spec = chat(name);
    spec.class = JobClass::Batch;
    spec.workload.arrival_rate_rps = 0.0;
    spec.slo = Slo::Batch {
        total_token_budget: tokens,
        deadline: NOW.plus_seconds(seconds),
    };
    spec.preference.weights = crate::slow_loop::weights::BATCH_WEIGHTS;
    spec
}

/// The moment of every test snapshot.
pub(crate) const NOW: UtcMicros = UtcMicros(1_700_000_000_000_000);

/// A snapshot under construction.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) snapshot: Snapshot,
}

impl World {
    pub(crate) fn new() -> Self {
        let state = ServerState {
            slow: SlowState::initial(&PARAMS),
            ..ServerState::default()
        };
        Self {
            snapshot: Snapshot {
                tick: TickId(1),
                now: NOW,
                seed: 1,
                catalog_hash: Catalog::embedded().hash().to_owned(),
                state,
                liveness: BTreeMap::new(),
                silence_s: BTreeMap::new(),
                edge_powers: None,
                experience: crate::experience::Experience::default(),
                measured: BTreeMap::new(),
                points_digest: String::new(),
            },
        }
    }

    /// Six hosts, 32 GPUs, three types, two markets.
    pub(crate) fn fleet() -> Self {
        let mut world = Self::new();
        for (name, gpu, n, market, usd) in [
            ("h100-a", "H100", 8, "reserved", 24.0),
            ("h100-b", "H100", 4, "reserved", 12.0),
            ("a100-a", "A100", 8, "on_demand", 16.0),
            ("a100-b", "A100", 4, "on_demand", 8.0),
            ("l40s-a", "L40S", 4, "on_demand", 4.0),
            ("l40s-b", "L40S", 4, "on_demand", 4.0),
        ] {
            world.host(name, gpu, n, market, usd);
        }
        world
    }

    pub(crate) fn host(&mut self, name: &str, gpu: &str, n: u32, market: &str, usd: f64) {
        let environment: Environment = format!("{market}/dc/region/zone/{gpu}").parse().unwrap();
        let memory = Catalog::embedded().gpu_type(gpu).unwrap().memory_bytes;
        let gpus = (0..n).map(|index| GpuFacts {
            uuid: format!("GPU-{name}-{index}"),
            index,
            name: gpu.to_owned(),
            memory_bytes: memory as u64,
            power_limit_w: None,
        });
        let host: HostId = name.parse().unwrap();
        let facts = HostFacts {
            host: host.clone(),
            environment,
            instance_type: format!("{}x{n}", gpu.to_lowercase()),
            gpus: gpus.collect(),
            nvlink: gpu != "L40S",
            price: Some(HostPrice {
                usd_per_hour: usd,
                source: "test".to_owned(),
                date: "2025-01-01".to_owned(),
            }),
            address: "127.0.0.1".to_owned(),
            boot_id: "boot".to_owned(),
            build_id: "build".to_owned(),
            engines: vec![EngineInstall {
                engine: EngineName::Sim,
                version: "0.32.0".to_owned(),
            }],
            simulated: true,
        };
        let record = HostRecord {
            facts: facts.check().unwrap(),
            cordoned: false,
            draining_since: None,
            generation: HostGeneration(0),
            first_seen: NOW,
        };
        self.snapshot.state.hosts.insert(host.clone(), record);
        self.snapshot.liveness.insert(host, Liveness::Alive);
    }

    pub(crate) fn host_mut(&mut self, name: &str) -> &mut HostRecord {
        self.snapshot
            .state
            .hosts
            .get_mut(&name.parse().unwrap())
            .unwrap()
    }

    pub(crate) fn job(&mut self, n: u128, spec: JobSpec) -> JobId {
        let id = job_id(n);
        let record = JobRecord {
            id,
            spec,
            state: JobState::Waiting,
            submitted_at: NOW,
            last_generation: Generation(0),
            active: None,
            rollout: None,
            note: None,
            ticks_waited: 0,
            recent_failures: 0,
            tokens_done: 0,
            version: 1,
        };
        self.snapshot.state.jobs.insert(id, record);
        id
    }

    pub(crate) fn job_mut(&mut self, id: JobId) -> &mut JobRecord {
        self.snapshot.state.jobs.get_mut(&id).unwrap()
    }

    pub(crate) fn plan(&self) -> PlanDraft {
        plan(&self.snapshot, &context())
    }

    /// Plans and checks; a planner whose plans fail the check is broken.
    pub(crate) fn checked(&self) -> CheckedPlan {
        check(self.plan(), &self.snapshot, &context())
            .unwrap_or_else(|v| panic!("the planner's own plan fails: {v:#?}"))
    }

    /// Plans, checks and lets every roll-out succeed at once.
    pub(crate) fn tick(&mut self) -> CheckedPlan {
        let checked = self.checked();
        self.execute(&checked);
        self.snapshot.tick = self.snapshot.tick.next();
        checked
    }

    fn execute(&mut self, checked: &CheckedPlan) {
        for action in checked.actions() {
            let (Some(ladder), Some(promise)) = (&action.ladder, &action.promise) else {
                continue;
            };
            let job = self.snapshot.state.jobs.get_mut(&action.job).unwrap();
            let generation = job.last_generation.next();
            job.last_generation = generation;
            job.state = JobState::Running;
            job.active = Some(CommittedLadder {
                generation,
                ladder: ladder.clone(),
                promise: promise.clone(),
                committed_at: NOW,
            });
            let name = job.spec.name.clone();
            self.snapshot
                .state
                .replicas
                .retain(|_, r| r.job != action.job);
            for slot in &action.slots {
                let id = replica_id(&name, generation, slot);
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
                self.snapshot.state.replicas.insert(id, replica);
            }
        }
    }
}
