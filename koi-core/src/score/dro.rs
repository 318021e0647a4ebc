//! Risk: bands around predictions and the worst-case probability of breaking a limit.
//!
//! Works on residual sets of one objective that the caller pooled; it does not pool. White paper
//! V1, Risk: Distributionally Robust Prediction; spec §7.

use serde::{Deserialize, Serialize};

use crate::params::Params;
use crate::validation::residual::{outcome_floor, sample_std};
use crate::variables::Outcome;

mod prepared;
#[cfg(test)]
mod tests;

pub use prepared::{PreparedLimit, PreparedLimits, ResidualSet};

/// One objective's prediction with the residuals of similar predictions.
#[derive(Debug, Clone, Copy)]
pub struct DroInput<'a> {
    /// Predicted value ŷ, finite.
    pub predicted: f64,
    /// Residuals; relative to |ŷ| unless `unit` says otherwise. Sorted ones are cheapest.
    pub residuals: &'a [f64],
    /// What a residual of 1 is worth in the outcome's unit, > 0: max(|ŷ|, unit floor) for
    /// relative residuals, 1 for absolute ones.
    pub unit: f64,
    /// Radius factor ε.
    pub radius: f64,
}

impl<'a> DroInput<'a> {
    /// The input of an outcome, with the unit its residuals are kept in.
    #[must_use]
    pub fn of(outcome: Outcome, predicted: f64, residuals: &'a [f64], radius: f64) -> Self {
        let unit = match outcome {
            Outcome::SloMargin => 1.0,
            other => predicted.abs().max(outcome_floor(other)),
        };
        Self {
            predicted,
            residuals,
            unit,
            radius,
        }
    }
}

/// Interval in which the outcome is expected.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// Lower edge.
    pub lower: f64,
    /// Upper edge.
    pub upper: f64,
}

impl Band {
    /// True when the observed value fell inside.
    #[must_use]
    pub fn contains(&self, observed: f64) -> bool {
        self.lower <= observed && observed <= self.upper
    }
}

/// A limit on one outcome, on the wrong side of which the promise is broken.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveLimit {
    /// Which outcome.
    pub outcome: Outcome,
    /// Limit in the outcome's unit; a floor where more is better, a ceiling else.
    pub limit: f64,
}

/// The residual set topped up to its smallest size with midpoints of the cold band \[−ε, ε\].
///
/// # Source
/// Spec §7: below 20 residuals the set is topped up with evenly spaced points
#[must_use]
pub fn topped_up(residuals: &[f64], radius: f64, minimum: u32) -> Vec<f64> {
    let mut set: Vec<f64> = residuals
        .iter()
        .copied()
        .filter(|r| r.is_finite())
        .collect();
    let missing = (minimum as usize).saturating_sub(set.len());
    let step = 2.0 * radius / missing.max(1) as f64;
    set.extend((0..missing).map(|i| -radius + step * (i as f64 + 0.5)));
    set
}

/// The band around a prediction.
///
/// # Formula
/// ŷ + unit · (Q_q + 2 ε σ̂) and ŷ + unit · (Q_{1−q} − 2 ε σ̂), Q the order statistics ⌈q (n + 1)⌉
/// and ⌊(1 − q)(n + 1)⌋; ŷ ± ε · unit before any residual exists
///
/// # Units
/// The band is in the outcome's unit.
///
/// # Source
/// White paper V1, Risk: Distributionally Robust Prediction
#[must_use]
pub fn band(input: &DroInput<'_>, params: &Params) -> Band {
    let at = |r: f64| input.predicted + input.unit * r;
    if !input.residuals.iter().any(|r| r.is_finite()) {
        return Band {
            lower: at(-input.radius),
            upper: at(input.radius),
        };
    }
    let mut set = topped_up(input.residuals, input.radius, params.dro_residuals_min);
    set.sort_by(f64::total_cmp);
    let n = set.len();
    let q = params.dro_band_quantile;
    let high = ((q * (n + 1) as f64).ceil() as usize).clamp(1, n);
    let low = (((1.0 - q) * (n + 1) as f64).floor() as usize).clamp(1, n);
    let inflation = 2.0 * input.radius * sample_std(&set).unwrap_or(0.0);
    Band {
        lower: at(set[low - 1] - inflation),
        upper: at(set[high - 1] + inflation),
    }
}

/// The paper's bound on the probability of breaking a limit.
///
/// # Formula
/// min(1, P_emp + ε), P_emp the share of residuals that carry ŷ across the limit
///
/// # Source
/// White paper V1, Risk: Distributionally Robust Prediction
#[must_use]
pub fn breach_additive(input: &DroInput<'_>, limit: ObjectiveLimit, params: &Params) -> f64 {
    let set = ResidualSet::of(input.residuals, input.radius, params.dro_residuals_min);
    set.additive(line(input, limit), limit.outcome.is_maximised())
}

/// The exact worst case over the Wasserstein-1 ball of radius ε σ̂ around the residuals.
///
/// # Formula
/// Carry the residuals nearest to the limit across it, each for its distance / n, until ε σ̂ is
/// spent; the last one in part
///
/// # Source
/// Spec §7, DRO
#[must_use]
pub fn breach_wasserstein(input: &DroInput<'_>, limit: ObjectiveLimit, params: &Params) -> f64 {
    let set = ResidualSet::of(input.residuals, input.radius, params.dro_residuals_min);
    set.wasserstein(line(input, limit), limit.outcome.is_maximised())
}

/// The residual that carries ŷ onto the limit.
fn line(input: &DroInput<'_>, limit: ObjectiveLimit) -> f64 {
    (limit.limit - input.predicted) / input.unit
}

/// The radius of the chance test, which falls as residuals accumulate; the band keeps ε.
///
/// # Formula
/// ε · √(20 / max(20, n))
///
/// # Source
/// Spec §7, DRO
#[must_use]
pub fn chance_radius(radius: f64, n_residuals: usize, params: &Params) -> f64 {
    let minimum = f64::from(params.dro_residuals_min);
    radius * (minimum / minimum.max(n_residuals as f64)).sqrt()
}

/// Probability that at least one limit breaks, had each its own coin.
///
/// # Formula
/// 1 − Π (1 − p_j)
///
/// # Source
/// White paper V1, Risk: Distributionally Robust Prediction
#[must_use]
pub fn union(probabilities: impl IntoIterator<Item = f64>) -> f64 {
    1.0 - probabilities
        .into_iter()
        .map(|p| 1.0 - p.clamp(0.0, 1.0))
        .product::<f64>()
}

/// One limit with everything its probability depends on.
#[derive(Debug, Clone, Copy)]
pub struct LimitAtRisk<'a> {
    /// The limit.
    pub limit: ObjectiveLimit,
    /// Predicted value; `None` when the outcome was predicted to be unbounded or not at all,
    /// which counts as certain breach: a promise nobody can predict is not kept.
    pub predicted: Option<f64>,
    /// Residuals of similar predictions, of this outcome.
    pub residuals: &'a [f64],
}

/// The risk of a ladder and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SloRisk {
    /// Probability that any limit breaks.
    pub any: f64,
    /// Probability per limit, in the order given.
    pub by_limit: Vec<(ObjectiveLimit, f64)>,
}

/// The probability that a ladder breaks any of its limits, with radius ε.
#[must_use]
pub fn slo_risk(limits: &[LimitAtRisk<'_>], radius: f64, params: &Params) -> SloRisk {
    let prepared = |l: &LimitAtRisk<'_>| PreparedLimit::of(l.limit, l.residuals, radius, params);
    let by_limit: Vec<(ObjectiveLimit, f64)> = limits
        .iter()
        .map(|l| (l.limit, prepared(l).breach(l.predicted, params)))
        .collect();
    SloRisk {
        any: union(by_limit.iter().map(|l| l.1)),
        by_limit,
    }
}
