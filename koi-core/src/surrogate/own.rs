//! What this fleet's own deployments teach: how far observed percentiles lay from what first
//! principles and forests say, by where the deployment stood.
//!
//! A percentile is read through an engine's buckets, so its ratio to the predicted one says little of
//! the distance between the distributions: inside one bucket everything looks alike. What is learned
//! is the smallest shift of the predicted distribution that explains the observed percentile. One
//! environment's rows teach that environment alone, until invariance verdicts say otherwise.
//! Spec §4, member 3.

use serde::{Deserialize, Serialize};

use super::buckets::{TPOT_EDGES_SECONDS, TTFT_EDGES_SECONDS, through_buckets};
use super::latency::Spread;
use super::members::Members;
use super::neighbours::{HeardPoint, Spot};
use super::points::{MAX_PLANNED_POINTS, Matrices};
use super::residual::Quantity;
use super::{Prediction, ground::Ground};
use crate::model::WeightDtype;

/// Largest shift that one row teaches: a factor of about twenty.
const LARGEST_SHIFT: f64 = 3.0;
/// Halvings of that range; a ten-thousandth is left.
const HALVINGS: u32 = 16;
/// Percentiles within this share of each other count as equal.
const EQUAL: f64 = 0.005;
/// How far beyond the edge of what explains a percentile the shift is taken, as a share of it, so
/// that a shrunk one does not fall short of the edge.
const BEYOND: f64 = 0.1;
/// Ticks after which a row counts half.
const HALF_LIFE_TICKS: f64 = 288.0;

/// Where a judged rank stood, and what first principles and forests missed there.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stood {
    /// The model.
    pub matrices: Matrices,
    /// Its weights as served.
    pub weights: WeightDtype,
    /// Where in its scope, at the load that was seen.
    pub spot: Spot,
    /// By [`Quantity::index`]; absent where nothing was seen or predicted.
    pub log_errors: [Option<f64>; 3],
}

/// Observed and predicted value of an outcome.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Mean of the points.
    pub observed: f64,
    /// Mean of the predictions for them.
    pub predicted: f64,
}

/// What was missed before the frozen corrections of neighbours and own deployments, by quantity.
#[must_use]
pub fn log_errors(
    promised: &Prediction,
    frozen: &Members,
    [tpot, ttft, throughput]: [Option<Seen>; 3],
) -> [Option<f64>; 3] {
    let latency = promised.latency;
    let shifts = [
        shift_between(tpot, latency.tpot, &TPOT_EDGES_SECONDS),
        shift_between(ttft, latency.ttft, &TTFT_EDGES_SECONDS),
        throughput
            .filter(|_| !frozen.spot.is_open())
            .map(|s| (s.observed / s.predicted).ln())
            .filter(|e| e.is_finite())
            .map(|e| e.clamp(-LARGEST_SHIFT, LARGEST_SHIFT)),
    ];
    let mut out = [None; 3];
    for (quantity, slot) in Quantity::ALL.into_iter().zip(&mut out) {
        let voices = frozen.of(quantity);
        let corrected = voices.neighbours.correction + voices.own.correction;
        let shift = shifts.get(quantity.index()).copied().flatten();
        *slot = shift.map(|s| s + corrected);
    }
    out
}

/// The smallest shift of ln(ms) that leads from what was predicted to what was observed.
fn shift_between(seen: Option<Seen>, spread: Option<Spread>, edges: &[f64]) -> Option<f64> {
    let (seen, spread) = (seen?, spread?);
    let from = explaining(seen.predicted, spread, edges)?;
    let to = explaining(seen.observed, spread, edges)?;
    let width = 0.5 * (to.1 - to.0);
    // The load was nearly the planned one: of what explains the prediction, the planned shape.
    let start = 0.0_f64.clamp(from.0, from.1);
    let shift = if to.0 > start {
        let gap = to.0 - start;
        gap + (BEYOND * gap).min(width)
    } else if to.1 < start {
        let gap = start - to.1;
        -gap - (BEYOND * gap).min(width)
    } else {
        0.0
    };
    Some(shift.clamp(-LARGEST_SHIFT, LARGEST_SHIFT))
}

/// Between which shifts of a distribution its percentile, through the buckets, is this one.
fn explaining(p99_ms: f64, spread: Spread, edges: &[f64]) -> Option<(f64, f64)> {
    if !(p99_ms.is_finite() && p99_ms > 0.0) {
        return None;
    }
    let shown = |shift: f64| {
        let moved = Spread {
            mu: spread.mu + shift,
            ..spread
        };
        let seconds = through_buckets(0.99, edges, |s| moved.cdf(s * 1e3));
        seconds.map_or(f64::NAN, |s| s * 1e3)
    };
    let first = |reached: &dyn Fn(f64) -> bool| {
        let (mut low, mut high) = (-2.0 * LARGEST_SHIFT, 2.0 * LARGEST_SHIFT);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if reached(shown(middle)) {
                high = middle;
            } else {
                low = middle;
            }
        }
        f64::midpoint(low, high)
    };
    let least = first(&|p| p >= p99_ms * (1.0 - EQUAL));
    let most = first(&|p| p > p99_ms * (1.0 + EQUAL));
    Some((least.min(most), most))
}

/// One row as it is kept between ticks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnRow {
    /// Where, and what was missed.
    pub spot: Spot,
    /// By [`Quantity::index`].
    pub log_errors: [Option<f64>; 3],
    /// What the plan committed.
    pub mechanism: Option<String>,
    /// When it was judged.
    pub tick: i64,
}

/// The rows of a scope as points: rows of one cell are one point that weighs as much as they; the
/// newest [`MAX_PLANNED_POINTS`] cells.
///
/// # Formula
/// weight = Σ c_M · 2^(−age / half-life); error = weighted mean of the rows' errors less what
/// neighbours say at their spot
#[must_use]
pub fn heard(
    rows: &[OwnRow],
    now: i64,
    ground: &Ground<'_>,
    confidence: &dyn Fn(Option<&str>) -> f64,
) -> Vec<HeardPoint> {
    let mut cells: Vec<(_, HeardPoint, [f64; 3])> = Vec::new();
    for row in rows.iter().rev() {
        let age = (now - row.tick).max(0) as f64;
        let weight = confidence(row.mechanism.as_deref()) * (-age / HALF_LIFE_TICKS).exp2();
        if !(weight.is_finite() && weight > 0.0) {
            continue;
        }
        let near = ground.near_at(&row.spot);
        let cell = row.spot.cell();
        let known = cells.iter().position(|(c, ..)| *c == cell);
        let at = known.unwrap_or(cells.len());
        if known.is_none() {
            if cells.len() >= MAX_PLANNED_POINTS {
                continue;
            }
            let point = HeardPoint {
                spot: row.spot,
                log_errors: [None; 3],
                weight: 0.0,
            };
            cells.push((cell, point, [0.0; 3]));
        }
        let Some((_, point, weights)) = cells.get_mut(at) else {
            continue;
        };
        point.weight += weight;
        let quantities = point.log_errors.iter_mut().zip(weights);
        for (((mean, sum), error), near) in quantities.zip(row.log_errors).zip(near) {
            let Some(error) = error.map(|e| e - near.correction) else {
                continue;
            };
            *sum += weight;
            let before = mean.unwrap_or(0.0);
            *mean = Some(before + (error - before) * weight / *sum);
        }
    }
    cells.into_iter().map(|(_, point, _)| point).collect()
}

#[cfg(test)]
mod tests;
