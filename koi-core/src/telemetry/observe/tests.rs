//! Tests of the observed column: an engine of known state, through its pages, to variables.

use super::*;
use crate::telemetry::pool::merge;
use crate::telemetry::test_engine::{TestEngine, builder, steady_windows};
use crate::telemetry::window::Window;
use crate::variables::Outcome;

const GIB: f64 = 1_073_741_824.0;

fn facts() -> ObserveFacts {
    ObserveFacts {
        tp: 2,
        pp: 1,
        gpu_memory_bytes: Some(80e9),
        gpu_memory_utilization: Some(0.9),
        kv_block_bytes_per_gpu: Some(20e6),
        activation_peak_bytes: Some(2e9),
        shard_link: Some(ShardLink {
            kind: ShardLinkKind::Nvlink,
            peak_bytes_per_second: 24e6,
        }),
        roofline_step_ms: Some(12.0),
        price_usd_per_replica_hour: Some(7.2),
        slo: SloFacts {
            p99_ttft_ms: Some(800.0),
            p99_tpot_ms: Some(40.0),
            batch: None,
        },
        ..ObserveFacts::default()
    }
}

fn run(change: impl Fn(&mut TestEngine), facts: &ObserveFacts) -> Observation {
    let (mut windows, mut edges) = (Vec::<Window>::new(), EdgesTable::default());
    for index in 0..2 {
        let (mut build, mut engine) = (builder(index), TestEngine::new(2));
        (engine.running, engine.waiting, engine.kv_usage) = (6.0, 2.0, 0.25);
        change(&mut engine);
        windows.extend(steady_windows(&mut build, &mut engine, 20));
        edges.extend(build.edges()).unwrap();
    }
    observe(&merge(&windows).unwrap(), &edges, facts)
}

fn near(got: Option<f64>, want: f64) {
    let got = got.expect("present");
    assert!(
        (got - want).abs() <= 1e-9 * want.abs().max(1.0),
        "{got} is not {want}"
    );
}

#[test]
fn every_mediator_has_its_hand_computed_value() {
    let o = run(|_| {}, &facts());
    let v = |m| o.mediators.get(m);
    near(v(Mediator::KvcacheHitRate), 0.25);
    near(v(Mediator::InputLengthObserved), 200.0);
    near(v(Mediator::OutputLengthObserved), 100.0);
    near(v(Mediator::KvCacheUtil), 0.25);
    near(v(Mediator::RunningRequests), 6.0);
    near(v(Mediator::QueueDepth), 2.0);
    near(v(Mediator::PrefillTokensPerSec), 4000.0);
    near(v(Mediator::DecodeStepsPerSec), 50.0);
    near(v(Mediator::PdImbalance), (0.1_f64 / 0.4).ln());
    near(v(Mediator::PipelineBubbleFraction), 0.0);
    near(v(Mediator::SmUtilization), 0.5);
    near(v(Mediator::MemBandwidthUtilization), 0.25);
    // 70 GB used, of which 75 % of the 20 GB pool is idle.
    near(v(Mediator::GpuMemUsedFraction), 55e9 / 80e9);
    near(v(Mediator::VramHeadroomGb), (72e9 - 55e9) / GIB);
    near(v(Mediator::ActivationMemPressure), 2.0 / 80.0);
    // ⌈300 / 16⌉ = 19 blocks each for 8 requests, of 1000.
    near(v(Mediator::KvPressureScore), 8.0 * 19.0 / 1000.0);
    // Two GPUs send 6 MB/s each.
    near(v(Mediator::NvlinkBytesPerSec), 12e6);
    near(v(Mediator::CommOverheadPct), 0.25);
    near(v(Mediator::PerTokCommBytes), 12e6 / 2.0 / 6000.0);
    near(v(Mediator::DispatchOverheadMs), 3.0);
    assert_eq!(
        v(Mediator::PcieBytesPerSec),
        None,
        "the shards do not use PCIe"
    );
    assert_eq!(
        v(Mediator::ExpertImbalance),
        None,
        "vLLM does not export expert load"
    );
}

#[test]
fn outcomes_are_those_of_the_whole_rank() {
    let o = run(|_| {}, &facts());
    let y = |k| o.outcomes.get(k);
    assert_eq!(
        (o.replicas, o.mean_based, o.ttft_observations),
        (2, false, 800)
    );
    near(o.throughput_per_replica_tokens_per_sec, 2000.0);
    near(y(Outcome::ThroughputTokensPerSec), 4000.0);
    near(y(Outcome::CostPerToken), 2.0 * 7.2 / (3600.0 * 4000.0));
    // 99 of 100 requests took 0.15 s: the rank of the 99th percentile is the end of (0.1, 0.2].
    near(y(Outcome::P99TtftMs), 200.0);
    near(y(Outcome::P99TpotMs), 10.0 + 10.0 * 0.99);
    near(
        y(Outcome::SloMargin),
        ((40.0 - 19.9) / 40.0_f64).min((800.0 - 200.0) / 800.0),
    );
}

#[test]
fn pooled_percentiles_are_not_means_of_percentiles() {
    let mut edges = EdgesTable::default();
    let mut windows = Vec::new();
    for (index, slow) in [(0, 0), (1, 100)] {
        let (mut build, mut engine) = (builder(index), TestEngine::new(0));
        build.push(&engine.scrape());
        engine.work(10.0);
        engine.ttft.clear();
        engine.ttft.extend(vec![0.05; 900 - 8 * slow]);
        engine.ttft.extend(vec![0.7; slow / 10]);
        windows.extend(build.push(&engine.scrape()));
        edges.extend(build.edges()).unwrap();
    }
    let o = observe(&merge(&windows).unwrap(), &edges, &facts());
    // 1000 fast and 10 slow requests: rank 999.9 lies in the first bucket.
    near(
        o.outcomes.get(Outcome::P99TtftMs),
        1000.0 * 0.1 * 999.9 / 1000.0,
    );
}

#[test]
fn what_cannot_be_observed_is_absent() {
    let o = run(
        |e| e.gpus.clear(),
        &ObserveFacts {
            tp: 2,
            pp: 2,
            ..ObserveFacts::default()
        },
    );
    let absent = [
        Mediator::GpuMemUsedFraction,
        Mediator::VramHeadroomGb,
        Mediator::SmUtilization,
        Mediator::MemBandwidthUtilization,
        Mediator::NvlinkBytesPerSec,
        Mediator::PerTokCommBytes,
        Mediator::CommOverheadPct,
        Mediator::PipelineBubbleFraction,
        Mediator::DispatchOverheadMs,
        Mediator::ActivationMemPressure,
    ];
    for mediator in absent {
        assert_eq!(o.mediators.get(mediator), None, "{mediator}");
    }
    assert_eq!(o.outcomes.get(Outcome::CostPerToken), None, "no price");
    assert_eq!(o.outcomes.get(Outcome::SloMargin), None, "no target");
}

#[test]
fn a_single_gpu_has_no_communication() {
    let o = run(|_| {}, &ObserveFacts { tp: 1, ..facts() });
    for mediator in [
        Mediator::NvlinkBytesPerSec,
        Mediator::PerTokCommBytes,
        Mediator::CommOverheadPct,
    ] {
        assert_eq!(o.mediators.get(mediator), None, "{mediator}");
    }
}

#[test]
fn an_idle_engine_has_no_rates_of_requests() {
    let (mut build, mut engine) = (builder(0), TestEngine::new(2));
    build.push(&engine.scrape());
    engine.second += 10.0;
    let window = build.push(&engine.scrape()).unwrap();
    let o = observe(&merge(&[window]).unwrap(), build.edges(), &facts());
    for mediator in [
        Mediator::KvcacheHitRate,
        Mediator::InputLengthObserved,
        Mediator::PdImbalance,
        Mediator::KvPressureScore,
    ] {
        assert_eq!(o.mediators.get(mediator), None, "{mediator}");
    }
    assert_eq!(o.outcomes.get(Outcome::P99TtftMs), None);
    assert_eq!(o.outcomes.get(Outcome::CostPerToken), None);
    assert_eq!(
        o.outcomes.get(Outcome::SloMargin),
        None,
        "a margin needs every target's latency"
    );
    near(o.outcomes.get(Outcome::ThroughputTokensPerSec), 0.0);
}

#[test]
fn pipeline_bubbles_need_a_queue_and_a_reference() {
    let staged = ObserveFacts {
        pp: 2,
        tensor_active_at_saturation: Some(0.8),
        ..facts()
    };
    near(
        run(|_| {}, &staged)
            .mediators
            .get(Mediator::PipelineBubbleFraction),
        1.0 - 0.5 / 0.8,
    );
    assert_eq!(
        run(|e| e.waiting = 0.0, &staged)
            .mediators
            .get(Mediator::PipelineBubbleFraction),
        None
    );
}

#[test]
fn the_margin_of_a_batch_job_is_that_of_its_projected_finish() {
    let end = UtcMicros(1_800_000_000_000_000).plus_seconds(20);
    let batch = |seconds, tokens_left| SloFacts {
        batch: Some(BatchProgress {
            tokens_left,
            deadline: end.plus_seconds(seconds),
        }),
        ..SloFacts::default()
    };
    let margin = |slo| {
        run(|_| {}, &ObserveFacts { slo, ..facts() })
            .outcomes
            .get(Outcome::SloMargin)
    };
    near(margin(batch(100, 4000.0 * 75.0)), 0.25);
    near(margin(batch(100, 4000.0 * 150.0)), -0.5);
    assert_eq!(
        margin(batch(-1, 1.0)),
        None,
        "past the deadline there is no time left to share"
    );
}
