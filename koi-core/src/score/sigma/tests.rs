//! Tests of the terms of sigma and of gains.

use super::*;
use crate::score::dro::union;
use crate::variables::{Outcome, OutcomeValues};

fn terms(eig: Eig, cost: Option<SwitchCost>) -> SigmaTerms {
    let exploit = Exploit {
        j: -0.5,
        gaps: OutcomeValues::absent(),
        limiting: Outcome::P99TtftMs,
    };
    let risk = SloRisk {
        any: union([0.1, 0.2]),
        by_limit: Vec::new(),
    };
    let weights = SigmaWeights {
        explore_weight: 0.5,
        slo_risk_weight: 1.0,
        churn_price: 0.05,
    };
    sigma(exploit, eig, risk, cost, weights)
}

#[test]
fn sigma_adds_what_is_gained_and_subtracts_risk_and_churn() {
    let cost = SwitchCost {
        hours_of_cost: 2.0,
        ..SwitchCost::default()
    };
    // -0.5 + 0.5·0.4 - 0.28 - 0.05·2
    assert!((terms(Eig::Computed(0.4), Some(cost)).sigma + 0.68).abs() < 1e-12);
    assert!((terms(Eig::NotComputed, None).sigma + 0.78).abs() < 1e-12);
}

#[test]
fn every_term_survives_a_round_trip() {
    let before = terms(Eig::NotComputed, Some(SwitchCost::default()));
    let text = serde_json::to_string(&before).unwrap();
    assert_eq!(serde_json::from_str::<SigmaTerms>(&text).unwrap(), before);
}

#[test]
fn serving_a_waiting_job_beats_deferring_it_even_when_sigma_is_negative() {
    let params = Params::default();
    assert!((waiting_penalty(0, &params) - 20.0).abs() < 1e-12);
    assert!((waiting_penalty(5, &params) - 50.0).abs() < 1e-12);
    assert!((waiting_penalty(10, &params) - 80.0).abs() < 1e-12);
    // The worst σ a fitting ladder can have: gap 5, certain breach.
    let baseline = Baseline::NotServed {
        penalty: waiting_penalty(0, &params),
    };
    assert!((ladder_gain(-6.0, baseline) - 14.0).abs() < 1e-12);
}

#[test]
fn a_swap_must_gain_and_preempting_a_good_ladder_loses() {
    let params = Params::default();
    let now = Baseline::Active { sigma: -0.30 };
    assert!(!justifies_swap(ladder_gain(-0.29, now), &params));
    assert!(justifies_swap(ladder_gain(-0.20, now), &params));
    assert!(!justifies_swap(f64::NAN, &params));
    assert!((preempt_gain(-0.3, 20.0) + 19.7).abs() < 1e-12);
}
