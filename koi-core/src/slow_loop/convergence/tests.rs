//! Tests of the bullets of Assumption 2.

use super::*;
use crate::ids::TickId;
use crate::job::JobClass;
use crate::model::ModelClass;
use crate::slow_loop::{GroupIdeal, cold_start};

fn calm_state() -> SlowState {
    let params = Params::default();
    SlowState {
        explore_weight: params.explore_weight_min,
        swap_budget: 1,
        q1_rates: vec![0.95; 20],
        regret: Some(0.05),
        ideal_points: vec![GroupIdeal {
            class: JobClass::Online,
            model_class: ModelClass::DenseSmall,
            point: cold_start(),
        }],
        ..SlowState::initial(&params)
    }
}

fn calm_signals() -> TickSignals {
    TickSignals {
        q1_rate: Some(0.95),
        active_jobs: 24,
        banded: 100,
        inside_band: 90,
        ..TickSignals::default()
    }
}

fn beliefs() -> BTreeMap<BeliefKey, Belief> {
    let key = |id: &str| BeliefKey::Mechanism(id.to_owned());
    BTreeMap::from([
        (key("M_known"), Belief::of_counts(60, 3)),
        (key("M_open"), Belief::of_counts(1, 1)),
    ])
}

fn judged(after: &SlowState, signals: &TickSignals, history: &[SlowTick]) -> Convergence {
    let exercised = BTreeMap::from([("M_known".to_owned(), 30.0)]);
    let input = ConvergenceInput {
        before: &calm_state(),
        after,
        signals,
        history,
        beliefs: &beliefs(),
        exercised: &exercised,
    };
    judge(&input, &Params::default())
}

fn history(n: usize) -> Vec<SlowTick> {
    let mut ticks: Vec<SlowTick> = Vec::new();
    for i in 0..n {
        let convergence = judged(&calm_state(), &calm_signals(), &ticks);
        ticks.push(SlowTick {
            tick: TickId(i as i64),
            signals: calm_signals(),
            state: calm_state(),
            convergence,
        });
    }
    ticks
}

fn failing(c: &Convergence) -> Vec<CriterionName> {
    c.criteria
        .iter()
        .filter(|c| !c.holds)
        .map(|c| c.name)
        .collect()
}

#[test]
fn a_calm_fleet_holds_every_bullet_and_counts_its_ticks() {
    let before = history(20);
    let got = judged(&calm_state(), &calm_signals(), &before);
    assert_eq!(failing(&got), []);
    assert_eq!(got.criteria.len(), 9);
    assert!(got.holds() && got.ticks_converged > 15);
    // Before two ticks were kept the ideal point has no movement, which does not hold.
    assert_eq!(
        failing(&judged(&calm_state(), &calm_signals(), &[])),
        [CriterionName::IdealDrift]
    );
}

/// Breaks one bullet each.
#[test]
fn each_bullet_fails_alone() {
    let before = history(20);
    let state = |change: &dyn Fn(&mut SlowState)| {
        let mut s = calm_state();
        change(&mut s);
        failing(&judged(&s, &calm_signals(), &before))
    };
    let signals = |change: &dyn Fn(&mut TickSignals)| {
        let mut s = calm_signals();
        change(&mut s);
        failing(&judged(&calm_state(), &s, &before))
    };
    assert_eq!(state(&|s| s.q1_rates.push(0.89)), [CriterionName::Q1Rate]);
    assert_eq!(state(&|s| s.regret = Some(0.11)), [CriterionName::Regret]);
    assert_eq!(
        state(&|s| s.explore_weight = 0.5),
        [CriterionName::ExploreWeight]
    );
    assert_eq!(state(&|s| s.swap_budget = 10), [CriterionName::SwapBudget]);
    assert_eq!(
        state(&|s| s.dro_radius += 0.02),
        [CriterionName::RadiusStep]
    );
    assert_eq!(signals(&|s| s.probed_jobs = 480), [CriterionName::SwapRate]);
    assert_eq!(
        signals(&|s| s.inside_band = 20),
        [CriterionName::CoverageError]
    );
    let moved = |s: &mut SlowState| {
        let y = Outcome::P99TtftMs;
        let point = &mut s.ideal_points[0].point;
        // Half a range in 19 ticks is more than 2 % a tick.
        point.ideal.set(y, Some(300.0 + 250.0));
    };
    assert_eq!(state(&moved), [CriterionName::IdealDrift]);
}

#[test]
fn the_most_exercised_mechanisms_alone_count() {
    let (state, signals) = (calm_state(), calm_signals());
    let before = history(3);
    let of = |exercised: &[(&str, f64)], most: u32| {
        let exercised = exercised
            .iter()
            .map(|(id, n)| ((*id).to_owned(), *n))
            .collect();
        let beliefs = beliefs();
        let input = ConvergenceInput {
            before: &state,
            after: &state,
            signals: &signals,
            history: &before,
            beliefs: &beliefs,
            exercised: &exercised,
        };
        let params = Params {
            converged_mechanisms: most,
            ..Params::default()
        };
        judge(&input, &params)
            .criterion(CriterionName::Uncertainty)
            .unwrap()
            .value
    };
    assert_eq!(of(&[], 20), None);
    assert_eq!(of(&[("M_open", 1.0), ("M_known", 2.0)], 20), Some(1.0));
    assert!(of(&[("M_open", 1.0), ("M_known", 2.0)], 1).unwrap() < 0.05);
}
