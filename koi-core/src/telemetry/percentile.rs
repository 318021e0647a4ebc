//! Percentiles from histogram buckets, with the semantics of Prometheus' `histogram_quantile`.
//!
//! Not a percentile of raw samples: engines export buckets only, and predictions must go through the
//! same edges and the same rule to be comparable. Spec §3 (Y), traps 1 and 2.

use serde::{Deserialize, Serialize};

use crate::telemetry::histogram::BucketDelta;

/// Observations that a percentile needs; below, the mean replaces it.
pub const MIN_OBSERVATIONS: u64 = 100;

/// A percentile of a window, or the mean in its place.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// In the unit of the histogram.
    pub value: f64,
    /// Observations it rests on.
    pub observations: u64,
    /// True when there were too few observations and `value` is their mean.
    pub mean_based: bool,
}

/// The q-quantile of a cumulative histogram, interpolated inside its bucket.
///
/// # Formula   rank = q·n; the first bucket b with cumulative count ≥ rank; start + (end − start)·(rank − below)/(inside);
/// the +Inf bucket answers with the highest finite edge; the first bucket starts at 0 when its edge is positive, else answers with its edge
/// # Shapes    `edges` finite and ascending; `cumulative` has one more entry, for +Inf
/// # Units     the result has the unit of `edges`
/// # Errors    `None` without observations, outside 0 ≤ q ≤ 1, or when the shapes do not fit
/// # Source    Prometheus documentation of `histogram_quantile`; spec §3
#[must_use]
pub fn histogram_quantile(q: f64, edges: &[f64], cumulative: &[f64]) -> Option<f64> {
    let total = *cumulative.last()?;
    let fits = !edges.is_empty() && cumulative.len() == edges.len() + 1 && total.is_finite();
    if !fits || total <= 0.0 || !(0.0..=1.0).contains(&q) {
        return None;
    }
    let rank = q * total;
    let bucket = cumulative.iter().position(|count| *count >= rank)?;
    let Some(end) = edges.get(bucket).copied() else {
        return edges.last().copied();
    };
    let (start, below) = match bucket.checked_sub(1) {
        Some(previous) => (edges[previous], cumulative[previous]),
        None if end <= 0.0 => return Some(end),
        None => (0.0, 0.0),
    };
    let inside = cumulative[bucket] - below;
    let value = if inside > 0.0 {
        start + (end - start) * ((rank - below) / inside)
    } else {
        start
    };
    Some(value).filter(|v| v.is_finite())
}

/// The q-quantile of a window's observations, or their mean when there are fewer than
/// [`MIN_OBSERVATIONS`].
///
/// # Errors    `None` without observations or when the delta's indices do not fit `edges`
#[must_use]
pub fn percentile_or_mean(q: f64, delta: &BucketDelta, edges: &[f64]) -> Option<Percentile> {
    let mean_based = delta.count < MIN_OBSERVATIONS;
    let value = if mean_based {
        delta.mean()?
    } else {
        histogram_quantile(q, edges, &delta.cumulative(edges)?)?
    };
    Some(Percentile {
        value,
        observations: delta.count,
        mean_based,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::histogram::EdgesId;
    use crate::telemetry::test_data::vector_cases;

    #[test]
    fn vector_telemetry_quantiles() {
        let Some(cases) = vector_cases("telemetry") else {
            return;
        };
        let mut seen = 0;
        for case in cases.iter().filter(|c| c["in"]["buckets"].is_array()) {
            seen += 1;
            let q = case["in"]["q"].as_f64().unwrap();
            let buckets = case["in"]["buckets"].as_array().unwrap();
            let edge = |b: &serde_json::Value| b[0].as_str().unwrap().parse::<f64>().unwrap();
            let edges: Vec<f64> = buckets.iter().map(edge).filter(|e| e.is_finite()).collect();
            let counts: Vec<f64> = buckets.iter().map(|b| b[1].as_f64().unwrap()).collect();
            let got = histogram_quantile(q, &edges, &counts);
            match (case["out"]["value"].as_f64(), got) {
                (Some(want), Some(got)) => {
                    assert!((want - got).abs() <= 1e-9 * want.abs(), "{case} {got}")
                }
                (want, got) => assert_eq!(want, got, "{case}"),
            }
        }
        assert!(seen >= 24, "{seen}");
    }

    #[test]
    fn the_edges_of_the_rule() {
        let q = |q, edges: &[f64], counts: &[f64]| histogram_quantile(q, edges, counts);
        assert_eq!(
            q(0.99, &[1.0, 2.0], &[0.0, 0.0, 0.0]),
            None,
            "no observations"
        );
        assert_eq!(
            q(0.99, &[1.0, 2.0], &[0.0, 1.0, 100.0]),
            Some(2.0),
            "+Inf answers with the last edge"
        );
        assert_eq!(
            q(0.5, &[-1.0, 2.0], &[10.0, 10.0, 10.0]),
            Some(-1.0),
            "a first edge below zero"
        );
        assert_eq!(
            q(0.5, &[4.0], &[10.0, 10.0]),
            Some(2.0),
            "the first bucket starts at zero"
        );
        assert_eq!(q(1.5, &[4.0], &[10.0, 10.0]), None);
        assert_eq!(q(f64::NAN, &[4.0], &[10.0, 10.0]), None);
        assert_eq!(q(0.5, &[4.0], &[10.0]), None, "shapes do not fit");
        assert_eq!(q(0.5, &[], &[10.0]), None);
        assert_eq!(q(0.5, &[1.0], &[f64::NAN, f64::NAN]), None);
        assert_eq!(q(0.0, &[1.0, 2.0], &[0.0, 5.0, 5.0]), Some(0.0));
    }

    #[test]
    fn too_few_observations_fall_back_to_the_mean() {
        let delta = |count: u64| BucketDelta {
            edges: EdgesId(1),
            buckets: vec![(0, count)],
            sum: count as f64 * 0.25,
            count,
        };
        let few = percentile_or_mean(0.99, &delta(99), &[1.0]).unwrap();
        assert_eq!((few.value, few.mean_based), (0.25, true));
        let enough = percentile_or_mean(0.99, &delta(100), &[1.0]).unwrap();
        assert_eq!((enough.value, enough.mean_based), (0.99, false));
        assert_eq!(percentile_or_mean(0.99, &delta(0), &[1.0]), None);
    }
}
