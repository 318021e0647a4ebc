//! Tests of window building on pages of an engine of known state.

use proptest::prelude::*;

use super::*;
use crate::telemetry::test_engine::{TestEngine, builder, steady_windows};

#[test]
fn windows_are_disjoint_and_hold_exactly_what_happened() {
    let (mut build, mut engine) = (builder(0), TestEngine::new(2));
    engine.running = 4.0;
    let windows = steady_windows(&mut build, &mut engine, 30);
    assert_eq!(windows.len(), 3);
    for pair in windows.windows(2) {
        assert_eq!(pair[0].end, pair[1].start, "disjoint and without a hole");
    }
    let total: u64 = windows
        .iter()
        .map(|w| w.counters[&CounterSeries::GenerationTokens])
        .sum();
    assert_eq!(total, engine.generation_tokens);
    let first = &windows[0];
    assert_eq!(
        (first.elapsed_micros, first.scrapes, first.gpus),
        (WINDOW_MICROS, 3, 2)
    );
    assert_eq!(
        first.counters[&CounterSeries::EnergyMillijoules],
        2 * 3_000_000
    );
    assert_eq!(
        first.gauges[&GaugeSeries::RunningRequests].mean(),
        Some(4.0)
    );
    assert_eq!(
        first.histograms[&HistogramSeries::TimeToFirstToken].count,
        200
    );
    assert_eq!(first.cache.num_gpu_blocks, Some(1000));
    assert_eq!(first.flags, BTreeSet::new());
}

#[test]
fn gauges_are_time_means() {
    let (mut build, mut engine) = (builder(0), TestEngine::new(0));
    let mut window = None;
    for (second, running) in [(0.0, 0.0), (2.0, 10.0), (10.0, 10.0)] {
        engine.second = second;
        engine.running = running;
        window = build.push(&engine.scrape());
    }
    let mean = window.unwrap().gauges[&GaugeSeries::RunningRequests]
        .mean()
        .unwrap();
    assert!(
        (mean - 9.0).abs() < 1e-12,
        "2 s of mean 5 and 8 s of 10: {mean}"
    );
}

#[test]
fn hazard_c6_a_restart_cuts_the_window_and_nothing_is_negative() {
    let (mut build, mut engine) = (builder(0), TestEngine::new(1));
    let before = steady_windows(&mut build, &mut engine, 15);
    assert_eq!(before.len(), 1);
    let kept_until = engine.scrape().at;
    let mut restarted = TestEngine::new(1);
    (restarted.second, restarted.started) = (engine.second, engine.started + 18.0);
    restarted.gpus = engine.gpus.clone();
    restarted.work(5.0);
    let cut = build
        .push(&restarted.scrape())
        .expect("the part before the restart is kept");
    assert!(cut.flags.contains(&WindowFlag::CutByReset));
    assert_eq!(cut.end, kept_until);
    assert_eq!(cut.counters[&CounterSeries::GenerationTokens], 5 * 20 * 100);
    let after = steady_windows(&mut build, &mut restarted, 10);
    assert!(after[0].flags.contains(&WindowFlag::AfterReset));
    assert_eq!(
        after[0].counters[&CounterSeries::GenerationTokens],
        10 * 20 * 100
    );
}

#[test]
fn a_reset_without_a_start_time_is_seen_by_the_counters() {
    let (mut build, mut engine) = (builder(0), TestEngine::new(0));
    steady_windows(&mut build, &mut engine, 15);
    let mut again = TestEngine::new(0);
    (again.second, again.started) = (engine.second, engine.started);
    again.work(1.0);
    assert!(
        build
            .push(&again.scrape())
            .unwrap()
            .flags
            .contains(&WindowFlag::CutByReset)
    );
}

#[test]
fn hazard_f8_a_gpu_counter_that_goes_backwards_is_left_out_alone() {
    let (mut build, mut engine) = (builder(0), TestEngine::new(2));
    build.push(&engine.scrape());
    engine.work(5.0);
    engine.gpus[1].energy_millijoules = Some(7);
    build.push(&engine.scrape());
    engine.work(5.0);
    engine.gpus[1].energy_millijoules = Some(9_000_000_000);
    let window = build.push(&engine.scrape()).unwrap();
    assert!(
        !window
            .counters
            .contains_key(&CounterSeries::EnergyMillijoules),
        "back and forth is still a reset"
    );
    assert!(window.counters.contains_key(&CounterSeries::NvlinkTxBytes));
    assert!(window.flags.contains(&WindowFlag::GpuCounterReset));
    assert_eq!(window.counters[&CounterSeries::GenerationTokens], 20_000);
}

#[test]
fn gpus_that_cannot_be_read_are_absent_not_zero() {
    let (mut build, mut engine) = (builder(0), TestEngine::new(1));
    engine.gpus[0].energy_millijoules = None;
    engine.gpus[0].memory_used_bytes = None;
    let window = &steady_windows(&mut build, &mut engine, 10)[0];
    assert!(
        !window
            .counters
            .contains_key(&CounterSeries::EnergyMillijoules)
    );
    assert!(!window.gauges.contains_key(&GaugeSeries::GpuMemoryUsedBytes));
    assert!(window.gauges.contains_key(&GaugeSeries::TensorActive));
}

#[test]
fn hazard_e13_failed_scrapes_leave_values_unknown_but_lose_no_counts() {
    let (mut build, mut engine) = (builder(0), TestEngine::new(0));
    engine.running = 3.0;
    build.push(&engine.scrape());
    for _ in 0..6 {
        engine.work(5.0);
        build.push_failure();
    }
    engine.running = 500.0;
    let window = build.push(&engine.scrape()).unwrap();
    assert_eq!(
        window.counters[&CounterSeries::GenerationTokens],
        30 * 20 * 100
    );
    assert!(
        !window.gauges.contains_key(&GaugeSeries::RunningRequests),
        "thirty silent seconds are unknown"
    );
    assert!(window.flags.contains(&WindowFlag::SparseScrapes));
    assert_eq!(window.failed_scrapes, 6);
}

#[test]
fn hazard_c5_a_stepped_wall_clock_is_flagged() {
    let (mut build, mut engine) = (builder(0), TestEngine::new(0));
    build.push(&engine.scrape());
    engine.work(10.0);
    let mut reading = engine.scrape();
    reading.at = reading.at.plus_seconds(-3600);
    let window = build.push(&reading).unwrap();
    assert!(window.flags.contains(&WindowFlag::ClockStepped));
    assert_eq!(
        window.elapsed_micros, WINDOW_MICROS,
        "the monotonic clock counts"
    );
}

#[test]
fn a_page_of_another_model_is_a_failed_scrape() {
    let (mut build, mut engine) = (builder(0), TestEngine::new(0));
    build.push(&engine.scrape());
    engine.work(10.0);
    let mut reading = engine.scrape();
    reading.page = crate::telemetry::engine_metrics::EnginePage::default();
    assert_eq!(build.push(&reading), None);
    assert_eq!(build.flush(), None, "one good scrape makes no window");
}

#[test]
fn a_proxy_source_is_flagged() {
    let (mut build, mut engine) = (builder(0), TestEngine::new(0));
    engine.tpot_metric = "inter_token_latency_seconds";
    let window = &steady_windows(&mut build, &mut engine, 10)[0];
    assert!(window.flags.contains(&WindowFlag::TpotProxy));
    assert_eq!(window.tpot_source, Some(TpotSource::InterTokenLatency));
}

#[test]
fn windows_survive_storage() {
    let (mut build, mut engine) = (builder(0), TestEngine::new(2));
    let window = steady_windows(&mut build, &mut engine, 10).remove(0);
    let text = serde_json::to_string(&window).unwrap();
    assert_eq!(serde_json::from_str::<Window>(&text).unwrap(), window);
}

proptest! {
    #[test]
    fn hazard_c6_no_history_gives_a_negative_or_spiked_window(
        steps in proptest::collection::vec((1u32..12, 0u8..8), 1..40)
    ) {
        let (mut build, mut engine) = (builder(0), TestEngine::new(1));
        let mut worked = 0;
        let mut counted = 0;
        let mut last_end = None;
        for (seconds, event) in steps {
            match event {
                0 => {
                    let (second, started) = (engine.second, engine.started);
                    engine = TestEngine::new(1);
                    (engine.second, engine.started) = (second, started + 1.0);
                }
                1 => build.push_failure(),
                _ => {}
            }
            engine.work(f64::from(seconds));
            worked += u64::from(seconds) * 2000;
            if let Some(window) = build.push(&engine.scrape()) {
                prop_assert!(last_end.is_none_or(|end| window.start >= end), "windows overlap");
                last_end = Some(window.end);
                let tokens = window.counters[&CounterSeries::GenerationTokens];
                prop_assert!((tokens as f64 / window.seconds() - 2000.0).abs() < 1e-6);
                counted += tokens;
            }
        }
        prop_assert!(counted <= worked);
    }
}
