//! Tests of the two-sided sums against the vectors.

use serde::Deserialize;

use super::*;
use crate::score::vectors;

#[derive(Deserialize)]
struct In {
    residuals: Vec<f64>,
    delta: f64,
    h: f64,
}

#[derive(Deserialize)]
struct Out {
    verdict: Verdict,
    fired_at: Option<usize>,
    #[serde(rename = "final")]
    last: (f64, f64),
}

#[test]
fn vector_cusum() {
    for case in vectors::load::<In, Out>("cusum", "cusum_") {
        let got = cusum(&case.input.residuals, case.input.delta, case.input.h);
        assert_eq!(got.verdict, case.output.verdict, "{}", case.name);
        assert_eq!(got.fired_at, case.output.fired_at, "{}", case.name);
        vectors::assert_close(&case.name, got.high, case.output.last.0);
        vectors::assert_close(&case.name, got.low, case.output.last.1);
    }
}

#[test]
fn a_constant_drift_fires_when_its_sum_passes_the_threshold() {
    // Each step adds 1 - 0.5; the sum passes 2 at the fifth residual.
    let got = cusum(&[1.0; 6], 0.5, 2.0);
    assert_eq!(got.fired_at, Some(4));
    let down = cusum(&[-1.0; 6], 0.5, 2.0);
    assert_eq!(down.fired_at, Some(4));
}

#[test]
fn a_verdict_stays_when_the_stream_returns() {
    let got = cusum(&[5.0, -9.0, 0.0], 0.5, 4.0);
    assert_eq!((got.verdict, got.high), (Verdict::Diverged, 0.0));
}
