//! Tests of the exploit score against the vectors.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::score::vectors;

#[derive(Deserialize)]
struct In {
    y: [f64; 5],
    z_star: [f64; 5],
    range: [f64; 5],
    w: [f64; 5],
    rho: f64,
}

#[derive(Deserialize)]
struct Out {
    gaps: [f64; 5],
    #[serde(rename = "J")]
    j: f64,
}

fn values(of: [f64; 5]) -> OutcomeValues {
    Outcome::ALL
        .into_iter()
        .zip(of)
        .fold(OutcomeValues::absent(), |v, (y, x)| v.with(y, x))
}

const ONLINE: [f64; 5] = [0.10, 0.35, 0.35, 0.10, 0.10];
const IDEAL: [f64; 5] = [1e-8, 300.0, 50.0, 3000.0, 1.0];
const RANGE: [f64; 5] = [1e-5, 500.0, 50.0, 1000.0, 1.0];

fn j_of(predicted: &OutcomeValues, unbounded: &[Outcome]) -> Option<Exploit> {
    let (ideal, range) = (values(IDEAL), values(RANGE));
    let input = TchebycheffInput {
        predicted,
        unbounded,
        ideal: &ideal,
        range: &range,
        weights: &ONLINE,
    };
    exploit(&input, &Params::default())
}

#[test]
fn vector_tchebycheff() {
    for case in vectors::load::<In, Out>("tchebycheff", "") {
        let (predicted, ideal, range) = (
            values(case.input.y),
            values(case.input.z_star),
            values(case.input.range),
        );
        let input = TchebycheffInput {
            predicted: &predicted,
            unbounded: &[],
            ideal: &ideal,
            range: &range,
            weights: &case.input.w,
        };
        let params = Params {
            tchebycheff_augmentation: case.input.rho,
            ..Params::default()
        };
        let got = exploit(&input, &params).unwrap();
        vectors::assert_close(&case.name, got.j, case.output.j);
        for (y, expected) in Outcome::ALL.into_iter().zip(case.output.gaps) {
            vectors::assert_close(&case.name, got.gaps.get(y).unwrap(), expected);
        }
    }
}

#[test]
fn j_is_zero_at_the_ideal_point_and_positive_beyond_it() {
    assert!(j_of(&values(IDEAL), &[]).unwrap().j.abs() < 1e-12);
    assert!(
        j_of(&values([0.0, 200.0, 40.0, 3500.0, 1.5]), &[])
            .unwrap()
            .j
            > 0.0
    );
}

#[test]
fn an_unbounded_latency_limits_and_absent_objectives_drop_out() {
    let only_cost = OutcomeValues::absent().with(Outcome::CostPerToken, 1.001e-5);
    // One objective left: weight 1, gap 1, J = -(1 + 0.001).
    assert!((j_of(&only_cost, &[]).unwrap().j + 1.001).abs() < 1e-12);
    let saturated = j_of(&only_cost, &[Outcome::P99TtftMs]).unwrap();
    assert_eq!(saturated.limiting, Outcome::P99TtftMs);
    assert_eq!(saturated.gaps.get(Outcome::P99TtftMs), Some(5.0));
    assert_eq!(j_of(&OutcomeValues::absent(), &[]), None);
}

proptest! {
    #[test]
    fn j_never_falls_when_an_objective_improves(
        ttft in 1.0..5000.0_f64, tpot in 1.0..500.0_f64, tps in 1.0..9000.0_f64,
        better in 0.0..1.0_f64,
    ) {
        let y = |ttft: f64, tpot: f64, tps: f64| {
            j_of(&values([2e-6, ttft, tpot, tps, 0.2]), &[]).unwrap().j
        };
        let j = y(ttft, tpot, tps);
        prop_assert!(y(ttft * better, tpot, tps) >= j);
        prop_assert!(y(ttft, tpot * better, tps) >= j);
        prop_assert!(y(ttft, tpot, tps * (1.0 + better)) >= j);
    }
}
