//! One definition per variable: an engine that is exactly in the predicted state is observed through
//! its pages, and both sides must say the same. Spec §3.

use crate::catalog::Catalog;
use crate::job::JobClass;
use crate::planner::test_world::{World, chat};
use crate::surrogate::{Answer, Demand, Deployment, predict};
use crate::telemetry::histogram::EdgesTable;
use crate::telemetry::observe::observe;
use crate::telemetry::pool::merge;
use crate::telemetry::test_engine::{TestEngine, builder, steady_windows};
use crate::tick::observatory::{RankKey, find_rank, observe_facts};
use crate::variables::{Mediator, MediatorValues};

/// Observed and predicted mediators of one replica under the test engine's steady load.
fn both_sides() -> (MediatorValues, MediatorValues) {
    let mut world = World::new();
    world.host("h", "H100", 1, "reserved", 2.0);
    let mut spec = chat("chat");
    for (stats, mean) in [
        (&mut spec.workload.isl, 200.0),
        (&mut spec.workload.osl, 100.0),
    ] {
        (stats.mean, stats.p50, stats.p95, stats.p99) = (mean, mean, mean, mean);
    }
    let id = world.job(1, spec);
    world.tick();
    let state = &world.snapshot.state;
    let replica = state.replicas.values().next().unwrap();
    let key = RankKey {
        job: id,
        generation: replica.id.generation,
        rank: 0,
    };
    let (job, rank) = find_rank(state, key).unwrap();
    let facts = observe_facts(state, Catalog::embedded(), job, rank, key);
    let shape = rank.configuration.shape();
    let deployment = Deployment {
        model: &job.spec.model.facts,
        gpu: Catalog::embedded().gpu_type("H100").unwrap(),
        shape,
        n_replicas: 1,
        price_usd_per_hour_per_replica: None,
    };
    let demand = Demand {
        workload: &job.spec.workload,
        class: JobClass::Online,
        slo: &job.spec.slo,
        rate_rps_per_replica: 20.0,
        batch_concurrency: None,
    };
    let Answer::Prediction(predicted) = predict(&deployment, &demand) else {
        panic!("an 8 B model fits an H100");
    };
    assert_eq!(shape.block_size, 16, "as the test engine says");
    let (v, memory) = (predicted.mediators, predicted.memory);
    let mut engine = TestEngine::new(1);
    engine.running = v.get(Mediator::RunningRequests).unwrap();
    engine.waiting = v.get(Mediator::QueueDepth).unwrap();
    engine.kv_usage = v.get(Mediator::KvCacheUtil).unwrap();
    engine.kv_blocks = (memory.kv_pool_tokens / 16.0) as u64;
    // What the device reports holds the whole pool, used or not, and the runtime.
    let held = memory.weights_bytes
        + memory.activation_bytes
        + memory.reserved_bytes
        + memory.kv_pool_tokens * memory.kv_bytes_per_token;
    engine.gpus[0].memory_used_bytes = Some(held as u64);
    let mut build = builder(0);
    let windows = steady_windows(&mut build, &mut engine, 60);
    let mut edges = EdgesTable::default();
    edges.extend(build.edges()).unwrap();
    let observed = observe(&merge(&windows).unwrap(), &edges, &facts);
    assert!(facts.roofline_step_ms.unwrap() > 0.0);
    (observed.mediators, v)
}

#[test]
fn an_engine_in_the_predicted_state_is_observed_in_it() {
    let (observed, predicted) = both_sides();
    for mediator in [
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
    ] {
        let (o, p) = (observed.get(mediator), predicted.get(mediator));
        let (o, p) = o
            .zip(p)
            .unwrap_or_else(|| panic!("{mediator}: {o:?} {p:?}"));
        assert!(
            (o - p).abs() <= 1e-6 * p.abs().max(1e-3),
            "{mediator}: {o} is not {p}"
        );
    }
    // One device has no links between shards: absent on both sides.
    for mediator in [Mediator::PerTokCommBytes, Mediator::CommOverheadPct] {
        assert_eq!(
            (observed.get(mediator), predicted.get(mediator)),
            (None, None)
        );
    }
}
