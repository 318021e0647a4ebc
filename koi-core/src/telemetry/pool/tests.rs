//! Tests of pooling: order does not matter, and pooled is not averaged.

use super::*;
use crate::telemetry::histogram::EdgesId;
use crate::telemetry::test_engine::{TestEngine, builder, steady_windows};

fn windows(index: u32, seconds: u32) -> Vec<Window> {
    let (mut build, mut engine) = (builder(index), TestEngine::new(1));
    engine.running = f64::from(index + 1);
    steady_windows(&mut build, &mut engine, seconds)
}

#[test]
fn counters_add_and_gauges_average_over_replicas_and_time() {
    let all: Vec<Window> = [windows(0, 20), windows(1, 10)].concat();
    let pooled = merge(&all).unwrap();
    assert_eq!((pooled.windows, pooled.replicas.len()), (3, 2));
    assert_eq!(
        pooled.total(CounterSeries::GenerationTokens),
        Some(30 * 2000)
    );
    assert_eq!(
        pooled.per_replica_second(CounterSeries::GenerationTokens),
        Some(2000.0)
    );
    let mean = pooled.mean(GaugeSeries::RunningRequests).unwrap();
    assert!(
        (mean - (20.0 + 20.0) / 30.0).abs() < 1e-12,
        "weighted by time: {mean}"
    );
    assert_eq!(pooled.observations(HistogramSeries::TimeToFirstToken), 600);
    assert_eq!(merge(&[]), None);
}

#[test]
fn order_does_not_matter() {
    let mut all = [windows(0, 30), windows(1, 30)].concat();
    all[2].tpot_source = Some(TpotSource::PerToken);
    if let Some(h) = all[3].histograms.get_mut(&HistogramSeries::PrefillTime) {
        h.edges = EdgesId(7);
    }
    let forward = merge(&all).unwrap();
    all.reverse();
    let backward = merge(&all).unwrap();
    assert_eq!(
        forward.counters.keys().collect::<Vec<_>>(),
        backward.counters.keys().collect::<Vec<_>>()
    );
    assert_eq!(forward.unpoolable, backward.unpoolable);
    assert_eq!(forward.flags, backward.flags);
    assert_eq!(forward.tpot_source, backward.tpot_source);
    assert_eq!(
        forward.total(CounterSeries::PromptTokens),
        backward.total(CounterSeries::PromptTokens)
    );
}

#[test]
fn different_sources_of_tpot_are_never_mixed() {
    let mut all = windows(0, 20);
    all[1].tpot_source = Some(TpotSource::InterTokenLatency);
    let pooled = merge(&all).unwrap();
    assert_eq!(pooled.observations(HistogramSeries::TimePerOutputToken), 0);
    assert_eq!(pooled.tpot_source, None);
    assert!(pooled.flags.contains(&WindowFlag::MixedTpotSource));
    assert_eq!(pooled.observations(HistogramSeries::TimeToFirstToken), 400);
}

#[test]
fn different_edges_leave_the_histogram_out_for_good() {
    let mut all = windows(0, 30);
    all[1]
        .histograms
        .get_mut(&HistogramSeries::TimeToFirstToken)
        .unwrap()
        .edges = EdgesId(7);
    let pooled = merge(&all).unwrap();
    assert!(
        !pooled
            .histograms
            .contains_key(&HistogramSeries::TimeToFirstToken)
    );
    assert!(pooled.flags.contains(&WindowFlag::MixedEdges));
}

#[test]
fn a_counter_missing_in_one_window_does_not_dilute_the_rate() {
    let mut all = windows(0, 20);
    all[1].counters.remove(&CounterSeries::Iterations);
    assert_eq!(
        merge(&all)
            .unwrap()
            .per_replica_second(CounterSeries::Iterations),
        Some(50.0)
    );
}
