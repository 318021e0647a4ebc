//! Percentiles as they are observed: through the engine's histogram buckets.
//!
//! A predicted p99 and an observed one must be the same function of the distribution, or every
//! verdict carries the difference. Spec §3.

/// Bucket edges of the engine's time-to-first-token histogram, in seconds (vLLM 0.32).
pub const TTFT_EDGES_SECONDS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];

/// Bucket edges of the engine's time-per-output-token histogram, in seconds (vLLM 0.32).
pub const TPOT_EDGES_SECONDS: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];

/// The quantile that a scraped histogram would show for a distribution.
///
/// # Formula
/// Prometheus' rule: linear inside the first bucket whose cumulative share reaches q, from 0 in
/// the lowest; the last finite edge when q lies beyond it.
///
/// # Units
/// Edges (ascending), the argument of `cdf` and the result are in seconds. `None` when `cdf`, which
/// never falls, is not finite where it is asked.
#[must_use]
pub fn through_buckets(q: f64, edges: &[f64], cdf: impl Fn(f64) -> f64) -> Option<f64> {
    // The cumulative share never falls, so the bucket is found by halving.
    let (mut first, mut end) = (0, edges.len());
    let (mut lower, mut below) = (0.0, 0.0);
    let mut found = None;
    while first < end {
        let middle = first.midpoint(end);
        let &edge = edges.get(middle)?;
        let share = cdf(edge);
        if !share.is_finite() {
            return None;
        }
        if share >= q {
            (found, end) = (Some((edge, share)), middle);
        } else {
            (lower, below, first) = (edge, share, middle + 1);
        }
    }
    let Some((edge, share)) = found else {
        return edges.last().copied();
    };
    let inside = share - below;
    let position = if inside > 0.0 {
        (q - below) / inside
    } else {
        1.0
    };
    Some(lower + (edge - lower) * position)
}
