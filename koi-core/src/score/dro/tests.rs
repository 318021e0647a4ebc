//! Tests of bands, breach probabilities and their union against the vectors.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::score::vectors;

#[derive(Deserialize)]
struct In {
    y_hat: f64,
    threshold: f64,
    maximise: bool,
    residuals: Vec<f64>,
    epsilon: f64,
    absolute: bool,
    q: f64,
}

#[derive(Deserialize)]
struct Out {
    band: [f64; 2],
    p_additive: f64,
    p_wasserstein: f64,
}

#[test]
fn vector_dro() {
    for case in vectors::load::<In, Out>("dro", "dro_") {
        let i = &case.input;
        let outcome = match (i.absolute, i.maximise) {
            (true, _) => Outcome::SloMargin,
            (false, true) => Outcome::ThroughputTokensPerSec,
            (false, false) => Outcome::P99TtftMs,
        };
        let params = Params {
            dro_band_quantile: i.q,
            ..Params::default()
        };
        let input = DroInput::of(outcome, i.y_hat, &i.residuals, i.epsilon);
        let limit = ObjectiveLimit {
            outcome,
            limit: i.threshold,
        };
        let got = band(&input, &params);
        let close = |got: f64, expected: f64| vectors::assert_close(&case.name, got, expected);
        close(got.lower, case.output.band[0]);
        close(got.upper, case.output.band[1]);
        close(
            breach_additive(&input, limit, &params),
            case.output.p_additive,
        );
        close(
            breach_wasserstein(&input, limit, &params),
            case.output.p_wasserstein,
        );
    }
}

#[derive(Deserialize)]
struct UnionIn {
    p: Vec<f64>,
}

#[derive(Deserialize)]
struct UnionOut {
    p_any: f64,
}

#[test]
fn vector_dro_union() {
    for case in vectors::load::<UnionIn, UnionOut>("dro", "union") {
        vectors::assert_close(&case.name, union(case.input.p), case.output.p_any);
    }
}

fn ttft(limit: f64) -> ObjectiveLimit {
    ObjectiveLimit {
        outcome: Outcome::P99TtftMs,
        limit,
    }
}

/// 200 residuals at the quantiles of a normal distribution with this spread.
fn normal_residuals(sd: f64) -> Vec<f64> {
    use statrs::distribution::{ContinuousCDF, Normal};
    let normal = Normal::new(0.0, sd).unwrap();
    (0..200)
        .map(|i| normal.inverse_cdf((f64::from(i) + 0.5) / 200.0))
        .collect()
}

#[test]
fn a_well_known_job_with_a_quarter_of_headroom_passes_its_tau() {
    let residuals = normal_residuals(0.10);
    let at = |outcome, limit, predicted| LimitAtRisk {
        limit: ObjectiveLimit { outcome, limit },
        predicted: Some(predicted),
        residuals: &residuals,
    };
    let limits = [
        at(Outcome::P99TtftMs, 500.0, 400.0),
        at(Outcome::P99TpotMs, 50.0, 40.0),
    ];
    let risk = slo_risk(&limits, 0.02, &Params::default());
    assert!(risk.any < 0.10, "{risk:?}");
    assert!(risk.any > 0.0, "{risk:?}");
}

#[test]
fn an_unbounded_prediction_is_a_certain_breach() {
    let limits = [LimitAtRisk {
        limit: ttft(300.0),
        predicted: None,
        residuals: &[],
    }];
    let risk = slo_risk(&limits, 0.15, &Params::default());
    assert!((risk.any - 1.0).abs() < 1e-12);
}

proptest! {
    #[test]
    fn the_worst_case_is_a_probability_that_grows_with_the_radius(
        residuals in prop::collection::vec(-0.5..0.5_f64, 0..60),
        limit in 1.0..1000.0_f64, radius in 0.02..0.5_f64,
    ) {
        let params = Params::default();
        let p = |radius| {
            let input = DroInput::of(Outcome::P99TtftMs, 300.0, &residuals, radius);
            breach_wasserstein(&input, ttft(limit), &params)
        };
        prop_assert!((0.0..=1.0).contains(&p(radius)));
        // Topping up moves with the radius; only full sets are comparable.
        if residuals.len() >= 20 {
            prop_assert!(p(radius * 0.5) <= p(radius) + 1e-12);
        }
    }
}
