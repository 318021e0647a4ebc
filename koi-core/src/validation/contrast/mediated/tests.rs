//! Tests of slopes on a source that is measured with an error.

use super::*;
use crate::causal::Sign;
use crate::rng::Rng;
use crate::validation::contrast::edge_effect;

fn claim() -> EffectClaim {
    EffectClaim {
        sign: Sign::Positive,
        smallest_effect: 0.05,
        surrogate_error: 0.0,
        noise: 0.0,
    }
}

/// Sum of twelve uniforms: mean 0, variance 1, near enough to normal.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0
}

fn noisy(rng: &mut Rng, n: u32, slope: f64, error: f64) -> ContrastSums {
    let mut sums = ContrastSums::default();
    for _ in 0..n {
        let z = normal(rng);
        sums.add(z + error * normal(rng), slope * z + 0.05 * normal(rng));
    }
    sums
}

#[test]
fn without_an_error_it_is_the_plain_slope() {
    let sums = noisy(&mut Rng::from_seed(1), 20, 0.7, 0.0);
    let plain = edge_effect(&sums, 0.02).unwrap();
    let corrected = mediated_effect(&sums, 0.02, 0.0).unwrap();
    assert!((plain.slope - corrected.slope).abs() < 1e-12);
    assert!((plain.standard_error - corrected.standard_error).abs() < 1e-9);
}

#[test]
fn the_corrected_slope_is_unbiased_and_its_error_covers_the_truth() {
    let mut rng = Rng::from_seed(2);
    let (runs, slope, error) = (400, 0.7, 0.3_f64);
    let (mut plain, mut corrected, mut covered) = (0.0, 0.0, 0);
    for _ in 0..runs {
        let sums = noisy(&mut rng, 60, slope, error);
        plain += edge_effect(&sums, 0.0).unwrap().slope / f64::from(runs);
        let Some(got) = mediated_effect(&sums, 0.0, error * error) else {
            panic!("an error of 8 % of the squares is within the limit");
        };
        corrected += got.slope / f64::from(runs);
        covered += i32::from((got.slope - slope).abs() <= 2.0 * got.standard_error);
    }
    // The plain slope is flattened by 1 / (1 + 0.09).
    assert!((plain - slope / 1.09).abs() < 0.01, "{plain}");
    assert!((corrected - slope).abs() < 0.015, "{corrected}");
    let share = f64::from(covered) / f64::from(runs);
    assert!((0.92..=0.99).contains(&share), "{share}");
}

#[test]
fn an_error_above_a_fifth_of_the_squares_leaves_no_test() {
    let mut sums = ContrastSums::default();
    for _ in 0..5 {
        sums.add(1.0, 0.0);
    }
    assert_eq!(
        mediated_verdict(&sums, &claim(), 0.2),
        EdgeVerdict::Contradicted
    );
    assert_eq!(
        mediated_verdict(&sums, &claim(), 0.201),
        EdgeVerdict::Unexercised
    );
    assert_eq!(
        mediated_verdict(&sums, &claim(), f64::NAN),
        EdgeVerdict::Unexercised
    );
    assert_eq!(mediated_invariance(&[(sums, claim(), 0.1); 3]), Icp::Reject);
    assert_eq!(
        mediated_invariance(&[(sums, claim(), 0.3); 3]),
        Icp::Undecided
    );
}
