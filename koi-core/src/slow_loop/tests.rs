//! Tests of the controllers against the vectors, and of their clips.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::params::Params;
use crate::score::vectors;
use crate::variables::{Outcome, OutcomeValues};

#[derive(Deserialize)]
struct Knobs {
    beta: f64,
    lambda: f64,
    eps: f64,
    w: [f64; 5],
}

#[derive(Deserialize)]
struct Signals {
    regret: f64,
    regret_target: f64,
    eta_beta: f64,
    beta_min: f64,
    beta_max: f64,
    b_min: u32,
    b_max: u32,
    eta_lambda: f64,
    swap_rate: f64,
    swap_target: f64,
    lambda_min: f64,
    lambda_max: f64,
    coverage: f64,
    coverage_target: f64,
    deadband: f64,
    eta_eps: f64,
    eps_min: f64,
    eps_max: f64,
    eta_w: f64,
    r2_grad: [f64; 5],
}

#[derive(Deserialize)]
struct TickIn {
    state: Knobs,
    signals: Signals,
}

#[derive(Deserialize)]
struct TickOut {
    #[serde(flatten)]
    knobs: Knobs,
    swap_budget: u32,
}

fn params_of(s: &Signals) -> Params {
    Params {
        regret_target: s.regret_target,
        explore_step_size: s.eta_beta,
        explore_weight_min: s.beta_min,
        explore_weight_max: s.beta_max,
        swap_budget_min: s.b_min,
        swap_budget_max: s.b_max,
        churn_step_size: s.eta_lambda,
        churn_price_min: s.lambda_min,
        churn_price_max: s.lambda_max,
        dro_coverage_target: s.coverage_target,
        dro_coverage_dead_band: s.deadband,
        dro_step_size: s.eta_eps,
        dro_radius_min: s.eps_min,
        dro_radius_max: s.eps_max,
        weight_step_size: s.eta_w,
        ..Params::default()
    }
}

#[test]
fn vector_slow_loop() {
    for case in vectors::load::<TickIn, TickOut>("slow_loop", "tick_") {
        let (state, s, out) = (&case.input.state, &case.input.signals, &case.output);
        let params = params_of(s);
        let close = |got: f64, expected: f64| vectors::assert_close(&case.name, got, expected);
        close(explore::step(state.beta, s.regret, &params), out.knobs.beta);
        assert_eq!(
            swap_budget::step(s.regret, 10, &params),
            out.swap_budget,
            "{}",
            case.name
        );
        let price = churn_price::step(state.lambda, s.swap_rate, s.swap_target, &params);
        close(price, out.knobs.lambda);
        close(
            dro_radius::step(state.eps, s.coverage, &params),
            out.knobs.eps,
        );
        let w = weights::step(&state.w, &s.r2_grad, &params);
        for (got, expected) in w.into_iter().zip(out.knobs.w) {
            close(got, expected);
        }
    }
}

#[derive(Deserialize)]
struct RegretIn {
    q1_rates: Vec<f64>,
}

#[derive(Deserialize)]
struct RegretOut {
    regret: f64,
}

#[test]
fn vector_slow_loop_regret() {
    for case in vectors::load::<RegretIn, RegretOut>("slow_loop", "regret") {
        let got = regret::regret(&case.input.q1_rates).unwrap();
        vectors::assert_close(&case.name, got, case.output.regret);
    }
}

#[derive(Deserialize)]
struct IdealIn {
    history: Vec<[f64; 5]>,
    range: [f64; 5],
    slack: f64,
}

#[derive(Deserialize)]
struct IdealOut {
    z_star: [f64; 5],
}

fn values(of: [f64; 5]) -> OutcomeValues {
    Outcome::ALL
        .into_iter()
        .zip(of)
        .fold(OutcomeValues::absent(), |v, (y, x)| v.with(y, x))
}

#[test]
fn vector_slow_loop_ideal_point() {
    for case in vectors::load::<IdealIn, IdealOut>("slow_loop", "z_star") {
        let history: Vec<OutcomeValues> = case.input.history.iter().copied().map(values).collect();
        for outcome in Outcome::ALL {
            let slack = case.input.slack * case.input.range[outcome.index()];
            let got = ideal_point::best_with_slack(outcome, &history, slack).unwrap();
            vectors::assert_close(&case.name, got, case.output.z_star[outcome.index()]);
        }
    }
}

#[test]
fn the_ideal_point_stays_cold_until_enough_was_seen() {
    let params = Params::default();
    let row = OutcomeValues::absent().with(Outcome::P99TtftMs, 100.0);
    assert_eq!(ideal_point(&[row; 4], &params), cold_start());
    let warm = ideal_point(&[row; 5], &params);
    // All rows equal: the range is a tenth of the cold 500, the slack 5 % of it.
    assert_eq!(warm.range.get(Outcome::P99TtftMs), Some(50.0));
    assert_eq!(warm.ideal.get(Outcome::P99TtftMs), Some(97.5));
    assert_eq!(
        warm.ideal.get(Outcome::P99TpotMs),
        cold_start().ideal.get(Outcome::P99TpotMs)
    );
}

#[test]
fn a_tick_that_decided_nothing_holds_what_regret_drives() {
    let params = Params::default();
    let start = SlowState::initial(&params);
    let held = start.step(&TickSignals::default(), &params);
    assert_eq!(
        held,
        SlowState {
            tick_count: 1,
            ..start
        }
    );
}

/// What a tick of 24 jobs tells: a Q1 rate, swaps, pairs of a hundred inside their band.
fn told(q1_rate: f64, swapped_jobs: u32, inside_band: u32) -> TickSignals {
    TickSignals {
        q1_rate: Some(q1_rate),
        active_jobs: 24,
        swapped_jobs,
        swap_target: 0.1,
        banded: 100,
        inside_band,
        ..TickSignals::default()
    }
}

#[test]
fn a_fleet_that_always_succeeds_stops_exploring_and_swapping() {
    let params = Params::default();
    let calm = told(1.0, 0, 90);
    let state = (0..400).fold(SlowState::initial(&params), |s, _| s.step(&calm, &params));
    assert_eq!(state.swap_budget, 1);
    assert!(
        (state.explore_weight - params.explore_weight_min).abs() < 1e-9,
        "{state:?}"
    );
    assert_eq!(state.q1_rates.len(), 20);
    let shaken = told(0.0, 0, 90);
    let after = (0..3).fold(state, |s, _| s.step(&shaken, &params));
    assert_eq!(after.swap_budget, 10);
}

#[test]
fn a_large_fleet_has_a_larger_budget() {
    assert_eq!(swap_budget::step(0.5, 2_001, &Params::default()), 21);
}

#[test]
fn the_churn_price_falls_only_while_the_loop_learns() {
    let params = Params::default();
    let gated = |s: f64, rate: f64| churn_price::gated_step(0.5, rate, 0.1, s, &params);
    assert!(gated(0.5, 0.0) < 0.5);
    assert!((gated(0.05, 0.0) - 0.5).abs() < f64::EPSILON);
    assert!(gated(0.05, 0.4) > 0.5);
    let target = |n| churn_price::swap_target(n, &params);
    assert!((target(0) - 0.20).abs() < 1e-12 && (target(250) - 0.125).abs() < 1e-12);
    assert!((target(500) - 0.05).abs() < 1e-12 && (target(9_000) - 0.05).abs() < 1e-12);
}

/// The state was stored before z*, probes and counted plans were kept in it.
#[test]
fn an_older_state_can_still_be_read() {
    let old = r#"{"tick_count":3,"explore_weight":0.5,"swap_budget":10,"churn_price":0.05,
        "dro_radius":0.15,"objective_weights":{"online":[0.1,0.35,0.35,0.1,0.1]},"q1_rates":[],"regret":null}"#;
    let read: SlowState = serde_json::from_str(old).unwrap();
    assert_eq!(read.tick_count, 3);
    assert!(read.ideal_points.is_empty());
    assert_eq!(
        read.weights_of(crate::job::JobClass::Batch)
            .map(f64::to_bits),
        weights::BATCH_WEIGHTS.map(f64::to_bits)
    );
}

proptest! {
    #[test]
    fn every_controller_stays_in_its_clip_and_weights_on_the_simplex(
        ticks in prop::collection::vec((0.0..=1.0_f64, 0..=24_u32, 0..=100_u32), 1..200),
        gradient in prop::array::uniform5(-1.0..1.0_f64),
        active in 0..5_000_u32,
    ) {
        let params = Params::default();
        let mut state = SlowState::initial(&params);
        for (q, swapped, inside) in ticks {
            let mut signals = told(q, swapped, inside);
            signals.active_jobs = active;
            signals.gradients = [crate::job::JobClass::Online, crate::job::JobClass::Batch]
                .into_iter().map(|class| (class, gradient)).collect();
            state = state.step(&signals, &params);
            prop_assert!((params.explore_weight_min..=params.explore_weight_max).contains(&state.explore_weight));
            prop_assert!((params.churn_price_min..=params.churn_price_max).contains(&state.churn_price));
            prop_assert!((params.dro_radius_min..=params.dro_radius_max).contains(&state.dro_radius));
            let most = params.swap_budget_max.max(active.div_ceil(100));
            prop_assert!((params.swap_budget_min..=most).contains(&state.swap_budget));
            prop_assert!(state.regret.is_none_or(|s| (0.0..=1.0).contains(&s)));
            for w in state.objective_weights.values() {
                prop_assert!((w.iter().sum::<f64>() - 1.0).abs() < 1e-9);
                prop_assert!(w.iter().all(|x| *x >= params.weight_floor - 1e-12));
            }
        }
    }
}
