//! One definition per variable: an engine that is exactly in the predicted state is observed through
//! its pages and devices, and both sides must say the same. Spec §3.
//!
//! The engine knows only what a real one knows: requests, tokens, steps, seconds, bytes. Variables
//! that follow from those in a second way (the time in prefill against the time to first token, the
//! traffic of one link against tokens) are cross-checked, not copied.

use crate::catalog::Catalog;
use crate::environment::Environment;
use crate::job::{JobClass, JobSpec};
use crate::model::ModelFacts;
use crate::planner::test_world::{LLAMA_70B, World, chat};
use crate::surrogate::constants::Constants;
use crate::surrogate::{
    Answer, Demand, Deployment, EngineGeneration, EngineProfile, Prediction, Spread,
    TPOT_EDGES_SECONDS, TTFT_EDGES_SECONDS, predict, predict_given,
};
use crate::telemetry::histogram::EdgesTable;
use crate::telemetry::observe::{Observation, ObserveFacts, observe};
use crate::telemetry::pool::merge;
use crate::telemetry::test_engine::{Flow, TestEngine, builder, steady_windows};
use crate::tick::observatory::{RankKey, find_rank, observe_facts};
use crate::variables::{Mediator, MediatorValues, Outcome};

mod held;

const RATE_RPS: f64 = 20.0;
const PROMPT: u64 = 200;
const OUTPUT: u64 = 100;
/// Latencies the engine deals out in turn: enough for the shape of the last per cent.
const LATENCIES: usize = 1000;

/// One rank of one replica, predicted, and the same rank observed in the predicted state.
struct BothSides {
    predicted: Prediction,
    observed: Observation,
    facts: ObserveFacts,
}

fn fixed_lengths(mut spec: JobSpec, rate_rps: f64) -> JobSpec {
    for (stats, mean) in [
        (&mut spec.workload.isl, PROMPT as f64),
        (&mut spec.workload.osl, OUTPUT as f64),
    ] {
        (stats.mean, stats.p50, stats.p95, stats.p99) = (mean, mean, mean, mean);
    }
    // The peak is the mean: the planner sizes for the rate that the engine then sees.
    spec.workload.arrival_rate_rps = rate_rps;
    spec.workload.peak_to_mean = 1.0;
    spec.constraints.max_replicas = 1;
    spec
}

fn small() -> JobSpec {
    fixed_lengths(chat("chat"), RATE_RPS)
}

/// A model that needs several shards, with a prefix that half of the requests share.
fn large() -> JobSpec {
    let mut spec = chat("chat");
    spec.model.id = "meta-llama/Llama-3.1-70B".to_owned();
    spec.model.facts = ModelFacts::from_config_json(LLAMA_70B).unwrap();
    spec.model.config_json = LLAMA_70B.to_owned();
    spec.workload.shared_prefix_tokens = 100.0;
    spec.workload.prefix_concentration = 0.5;
    fixed_lengths(spec, RATE_RPS)
}

fn both_sides(spec: JobSpec, gpus: u32) -> BothSides {
    sides_with(spec, gpus, |_| MediatorValues::absent())
}

/// Both sides with some mediators held at what is said of the plain prediction.
fn sides_with(spec: JobSpec, gpus: u32, held: impl Fn(&Prediction) -> MediatorValues) -> BothSides {
    let mut world = World::new();
    world.host("h", "H100", gpus, "reserved", 2.0 * f64::from(gpus));
    let id = world.job(1, spec);
    world.tick();
    let state = &world.snapshot.state;
    let replica = state.replicas.values().next().expect("the job is placed");
    let key = RankKey {
        job: id,
        generation: replica.id.generation,
        rank: 0,
    };
    let (job, rank) = find_rank(state, key).unwrap();
    let facts = observe_facts(state, Catalog::embedded(), job, rank, key);
    let shape = rank.configuration.shape();
    assert_eq!(shape.block_size, 16, "as the test engine says");
    let environment: &Environment = &rank.environment;
    let deployment = Deployment {
        model: &job.spec.model.facts,
        gpu: Catalog::embedded().gpu_type(&environment.gpu_type).unwrap(),
        shape,
        n_replicas: 1,
        price_usd_per_hour_per_replica: facts.price_usd_per_replica_hour,
    };
    let demand = Demand {
        workload: &job.spec.workload,
        class: JobClass::Online,
        slo: &job.spec.slo,
        rate_rps_per_replica: job.spec.workload.arrival_rate_rps,
        batch_concurrency: None,
    };
    let Answer::Prediction(plain) = predict(&deployment, &demand) else {
        panic!("the planner chose what fits");
    };
    let profile = EngineProfile::embedded(EngineGeneration::default());
    let given = predict_given(&deployment, &demand, profile, &held(&plain));
    let Answer::Prediction(predicted) = given else {
        panic!("what runs is held");
    };
    let rate = job.spec.workload.arrival_rate_rps;
    let mut engine = engine_in(&predicted, shape.gpus(), rate);
    let mut build = builder(0);
    let windows = steady_windows(&mut build, &mut engine, 60);
    let mut edges = EdgesTable::default();
    edges.extend(build.edges()).unwrap();
    BothSides {
        observed: observe(&merge(&windows).unwrap(), &edges, &facts),
        predicted,
        facts,
    }
}

/// The engine whose state is the predicted one.
fn engine_in(predicted: &Prediction, gpus: u32, rate_rps: f64) -> TestEngine {
    let (v, memory) = (&predicted.mediators, predicted.memory);
    let of = |m: Mediator| v.get(m).unwrap_or(0.0);
    let mut engine = TestEngine::new(gpus as usize);
    engine.running = of(Mediator::RunningRequests);
    engine.waiting = of(Mediator::QueueDepth);
    engine.kv_usage = of(Mediator::KvCacheUtil);
    engine.kv_blocks = (memory.kv_pool_tokens / 16.0) as u64;
    // What a device reports holds the whole pool, used or not, and the runtime.
    let held = memory.weights_bytes
        + memory.activation_bytes
        + memory.reserved_bytes
        + memory.kv_pool_tokens * memory.kv_bytes_per_token;
    for gpu in &mut engine.gpus {
        gpu.memory_used_bytes = Some(held as u64);
        gpu.tensor_active_fraction = v.get(Mediator::SmUtilization);
        gpu.memory_bandwidth_fraction = v.get(Mediator::MemBandwidthUtilization);
    }
    engine.ttft_edges = TTFT_EDGES_SECONDS.to_vec();
    engine.tpot_edges = TPOT_EDGES_SECONDS.to_vec();
    engine.flow = flow_of(predicted, gpus, rate_rps);
    engine
}

fn flow_of(predicted: &Prediction, gpus: u32, rate_rps: f64) -> Flow {
    let of = |m: Mediator| predicted.mediators.get(m).unwrap_or(0.0);
    let seconds_per_token = predicted.tpot_mean_ms.unwrap() / 1e3;
    let queued_seconds = of(Mediator::QueueDepth) / rate_rps;
    let front_end_seconds = Constants::embedded()
        .engine(EngineGeneration::default())
        .first_token_overhead_ms
        / 1e3;
    Flow {
        requests_per_second: rate_rps,
        prompt_tokens: PROMPT,
        output_tokens: OUTPUT,
        cached_tokens: of(Mediator::KvcacheHitRate) * PROMPT as f64,
        steps_per_second: of(Mediator::DecodeStepsPerSec),
        // From the moment a request is scheduled to its first token, without what the front end
        // takes before and after, and from there to its last.
        prefill_seconds: predicted.ttft_mean_ms.unwrap() / 1e3 - queued_seconds - front_end_seconds,
        decode_seconds: (OUTPUT - 1) as f64 * seconds_per_token,
        ttft: dealt(predicted.latency.ttft.unwrap()),
        tpot: dealt(predicted.latency.tpot.unwrap()),
        nvlink_bytes_per_second: of(Mediator::NvlinkBytesPerSec) / f64::from(gpus),
    }
}

/// Values in seconds with the given distribution, in an order that mixes small and large.
fn dealt(spread: Spread) -> Vec<f64> {
    let at = |share: f64| {
        let (mut low, mut high) = (0.0, 1e9);
        while high - low > 1e-9 * high {
            let middle = 0.5 * (low + high);
            if spread.cdf(middle) < share {
                low = middle;
            } else {
                high = middle;
            }
        }
        high / 1e3
    };
    let share = |i: usize| (((i * 617) % LATENCIES) as f64 + 0.5) / LATENCIES as f64;
    (0..LATENCIES).map(|i| at(share(i))).collect()
}

impl BothSides {
    fn assert_mediator(&self, mediator: Mediator, tolerance: f64) {
        let (o, p) = (
            self.observed.mediators.get(mediator),
            self.predicted.mediators.get(mediator),
        );
        let (o, p) = o
            .zip(p)
            .unwrap_or_else(|| panic!("{mediator}: observed {o:?}, predicted {p:?}"));
        assert!(
            (o - p).abs() <= tolerance * p.abs().max(1e-3),
            "{mediator}: {o} is not {p}"
        );
    }

    fn assert_outcome(&self, outcome: Outcome, tolerance: f64) {
        let (o, p) = (
            self.observed.outcomes.get(outcome),
            self.predicted.outcomes.get(outcome),
        );
        let (o, p) = o
            .zip(p)
            .unwrap_or_else(|| panic!("{outcome}: observed {o:?}, predicted {p:?}"));
        assert!(
            (o - p).abs() <= tolerance * p.abs(),
            "{outcome}: {o} is not {p}"
        );
    }
}

/// Variables with one way to the same number, on any width.
const EXACT: [Mediator; 10] = [
    Mediator::GpuMemUsedFraction,
    Mediator::VramHeadroomGb,
    Mediator::KvCacheUtil,
    Mediator::KvPressureScore,
    Mediator::RunningRequests,
    Mediator::QueueDepth,
    Mediator::InputLengthObserved,
    Mediator::OutputLengthObserved,
    Mediator::PrefillTokensPerSec,
    Mediator::PipelineBubbleFraction,
];

#[test]
fn an_engine_in_the_predicted_state_is_observed_in_it() {
    let sides = both_sides(small(), 1);
    for mediator in EXACT {
        sides.assert_mediator(mediator, 1e-6);
    }
    assert!(sides.facts.roofline_step_ms.unwrap() > 0.0);
    // One device has no links between shards: absent on both sides.
    for mediator in [
        Mediator::PerTokCommBytes,
        Mediator::CommOverheadPct,
        Mediator::NvlinkBytesPerSec,
        Mediator::PcieBytesPerSec,
    ] {
        assert_eq!(sides.observed.mediators.get(mediator), None, "{mediator}");
        assert_eq!(sides.predicted.mediators.get(mediator), None, "{mediator}");
    }
}

#[test]
fn shards_are_observed_as_they_are_predicted() {
    let sides = both_sides(large(), 8);
    assert!(sides.facts.tp > 1, "several shards");
    for mediator in EXACT {
        sides.assert_mediator(mediator, 1e-6);
    }
    // Devices report shares, links whole bytes, engines whole tokens and steps.
    for mediator in [
        Mediator::KvcacheHitRate,
        Mediator::SmUtilization,
        Mediator::MemBandwidthUtilization,
        Mediator::DecodeStepsPerSec,
        Mediator::NvlinkBytesPerSec,
        // One counter, three variables: a factor of tp or of the number of devices shows here.
        Mediator::PerTokCommBytes,
        Mediator::CommOverheadPct,
    ] {
        sides.assert_mediator(mediator, 2e-3);
    }
    assert!(sides.predicted.mediators.get(Mediator::KvcacheHitRate) > Some(0.05));
}

/// The time in prefill is the time to first token without the queue, the time in decode that of the
/// tokens after the first; the front end's share of the first token is not the engine's prefill.
#[test]
fn prefill_against_decode_is_what_the_latencies_say() {
    for sides in [both_sides(small(), 1), both_sides(large(), 8)] {
        let (o, p) = (
            sides.observed.mediators.get(Mediator::PdImbalance).unwrap(),
            sides
                .predicted
                .mediators
                .get(Mediator::PdImbalance)
                .unwrap(),
        );
        assert!((o - p).abs() < 0.02, "{o} is not {p}");
    }
}

#[test]
fn outcomes_are_observed_through_the_buckets_they_are_predicted_through() {
    for sides in [both_sides(small(), 1), both_sides(large(), 8)] {
        sides.assert_outcome(Outcome::ThroughputTokensPerSec, 1e-6);
        sides.assert_outcome(Outcome::CostPerToken, 1e-6);
        // A thousand latencies know their 99th percentile to a few thousandths.
        sides.assert_outcome(Outcome::P99TtftMs, 0.01);
        sides.assert_outcome(Outcome::P99TpotMs, 0.01);
        sides.assert_outcome(Outcome::SloMargin, 0.01);
    }
}

/// Each variable is compared above or is absent on one side for a reason that is written here.
#[test]
fn no_variable_is_left_uncompared() {
    let elsewhere = [
        // Compared in `prefill_against_decode_is_what_the_latencies_say`.
        Mediator::PdImbalance,
        // Only where shards talk over PCIe; the formula is NVLink's.
        Mediator::PcieBytesPerSec,
        // No profile line reaches the server yet: never observed.
        Mediator::ActivationMemPressure,
        // No engine exports the load of its experts: never observed.
        Mediator::ExpertImbalance,
        // Observed at small batches only: `the_step_overhead_is_what_roofline_leaves`.
        Mediator::DispatchOverheadMs,
    ];
    let sides = both_sides(large(), 8);
    for mediator in Mediator::ALL {
        let observed = sides.observed.mediators.get(mediator).is_some();
        assert!(
            observed || elsewhere.contains(&mediator),
            "{mediator} is neither observed nor excused"
        );
    }
}

/// At a small batch what a step takes beyond its roofline is what the model calls overhead, but for
/// prompts that share the steps.
#[test]
fn the_step_overhead_is_what_roofline_leaves() {
    let sides = both_sides(fixed_lengths(chat("chat"), 5.0), 1);
    let mediators = (sides.observed.mediators, sides.predicted.mediators);
    let Some(observed) = mediators.0.get(Mediator::DispatchOverheadMs) else {
        panic!(
            "a batch of {:?} is small",
            mediators.0.get(Mediator::RunningRequests)
        );
    };
    let predicted = mediators.1.get(Mediator::DispatchOverheadMs).unwrap();
    assert!(
        (observed / predicted).ln().abs() < 0.1,
        "observed {observed} ms, predicted {predicted} ms"
    );
}
