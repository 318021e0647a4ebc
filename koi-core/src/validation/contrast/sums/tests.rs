//! Tests of the running sums: vectors, order, removal, hostile numbers.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::causal::Sign;
use crate::score::vectors;
use crate::validation::contrast::{EdgeVerdict, EffectClaim, edge_verdict};

#[derive(Deserialize)]
struct In {
    pairs: Vec<(f64, f64)>,
    sign: i32,
    s0: f64,
    smallest: f64,
    monotone: bool,
    noise: f64,
}

#[derive(Deserialize)]
struct Out {
    slope: Option<f64>,
    se: Option<f64>,
    exercised: bool,
    contradicted: bool,
}

fn sums_of(pairs: &[(f64, f64)]) -> ContrastSums {
    let mut sums = ContrastSums::default();
    for (z, delta) in pairs {
        sums.add(*z, *delta);
    }
    sums
}

#[test]
fn vector_contrast() {
    for case in vectors::load::<In, Out>("contrast", "contrast_") {
        let sums = sums_of(&case.input.pairs);
        let claim = EffectClaim {
            sign: match (case.input.monotone, case.input.sign) {
                (false, _) => Sign::NonMonotone,
                (true, 1) => Sign::Positive,
                (true, _) => Sign::Negative,
            },
            smallest_effect: case.input.smallest,
            surrogate_error: case.input.s0,
            noise: case.input.noise,
        };
        let effect = edge_effect(&sums, case.input.s0);
        assert_eq!(
            effect.is_some(),
            case.output.slope.is_some(),
            "{}",
            case.name
        );
        if let (Some(got), Some(slope), Some(se)) = (effect, case.output.slope, case.output.se) {
            vectors::assert_close(&case.name, got.slope, slope);
            vectors::assert_close(&case.name, got.standard_error, se);
        }
        let expected = match (case.output.exercised, case.output.contradicted) {
            (false, _) => EdgeVerdict::Unexercised,
            (true, false) => EdgeVerdict::Exercised,
            (true, true) => EdgeVerdict::Contradicted,
        };
        assert_eq!(edge_verdict(&sums, &claim), expected, "{}", case.name);
    }
}

#[test]
fn sums_without_change_or_with_an_unknown_error_have_no_slope() {
    let still = sums_of(&[(0.0, 1.0), (0.0, 2.0), (0.0, 3.0)]);
    assert_eq!(edge_effect(&still, 0.1), None);
    let moved = sums_of(&[(1.0, 1.0), (1.0, 1.1)]);
    for error in [f64::NAN, f64::INFINITY, -0.1] {
        assert_eq!(edge_effect(&moved, error), None);
    }
    assert_eq!(edge_effect(&moved, 0.0).unwrap().n, 2);
}

#[test]
fn removing_from_nothing_leaves_nothing() {
    let mut sums = ContrastSums::default();
    sums.remove(1.0, 1.0);
    assert_eq!(sums, ContrastSums::default());
}

fn pair() -> impl Strategy<Value = (f64, f64)> {
    (-3.0..3.0_f64, -2.0..2.0_f64)
}

fn close(a: &ContrastSums, b: &ContrastSums) -> bool {
    let near = |x: f64, y: f64| (x - y).abs() <= 1e-9 * x.abs().max(y.abs()).max(1.0);
    a.n == b.n && near(a.zz, b.zz) && near(a.zd, b.zd) && near(a.dd, b.dd)
}

proptest! {
    #[test]
    fn the_order_of_adds_does_not_matter(
        pairs in prop::collection::vec(pair(), 0..40),
        turn in 0_usize..40,
    ) {
        let mut turned = pairs.clone();
        turned.reverse();
        if !turned.is_empty() {
            let by = turn % turned.len();
            turned.rotate_left(by);
        }
        prop_assert!(close(&sums_of(&pairs), &sums_of(&turned)));
        let (head, tail) = pairs.split_at(turn.min(pairs.len()));
        prop_assert!(close(&sums_of(&pairs), &sums_of(head).plus(&sums_of(tail))));
    }

    #[test]
    fn add_then_remove_restores(
        kept in prop::collection::vec(pair(), 0..20),
        gone in prop::collection::vec(pair(), 0..20),
    ) {
        let mut sums = sums_of(&kept);
        for (z, delta) in &gone {
            sums.add(*z, *delta);
        }
        for (z, delta) in &gone {
            sums.remove(*z, *delta);
        }
        prop_assert!(close(&sums, &sums_of(&kept)));
        prop_assert!(sums.zz >= 0.0 && sums.dd >= 0.0);
        for (z, delta) in &kept {
            sums.remove(*z, *delta);
        }
        prop_assert_eq!(sums, ContrastSums::default());
    }

    #[test]
    fn numbers_that_are_none_never_enter(
        kept in prop::collection::vec(pair(), 0..10),
        bad in prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e7, f64::MAX]),
        first in any::<bool>(),
    ) {
        let (z, delta) = if first { (bad, 0.1) } else { (0.1, bad) };
        let mut sums = sums_of(&kept);
        sums.add(z, delta);
        prop_assert_eq!(sums, sums_of(&kept));
        sums.remove(z, delta);
        prop_assert_eq!(sums, sums_of(&kept));
    }
}
