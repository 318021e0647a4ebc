//! Leg (a): are the residuals of an edge's destination alike in every environment?
//!
//! Samples are block means, one per evidence row: raw sub-tick points are autocorrelated. White
//! paper V1, ICP Invariance Testing; spec §8.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Icp;
use super::anova::{Layout, Moments, anova_p_value};
use crate::params::{InvarianceRule, Params};

#[cfg(test)]
mod tests;

/// Standard normal quantile of 95 %: both ends of a 90 % interval.
const NORMAL_95: f64 = 1.644_853_626_951_472_7;

/// What leg (a) found, with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ResidualInvariance {
    /// The verdict.
    pub verdict: Icp,
    /// Environments with enough samples.
    pub environments: u32,
    /// p of equal means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p_mean: Option<f64>,
    /// p of equal spread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p_spread: Option<f64>,
    /// Largest |environment mean − grand mean| in σ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_shift_sigmas: Option<f64>,
    /// Farthest end of the environments' 90 % intervals around the grand mean in σ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_end_sigmas: Option<f64>,
    /// Largest ratio of an environment's spread to the pooled one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_spread_ratio: Option<f64>,
}

impl ResidualInvariance {
    /// Too few environments to say anything.
    #[must_use]
    pub const fn undecided(environments: u32) -> Self {
        Self {
            verdict: Icp::Undecided,
            environments,
            p_mean: None,
            p_spread: None,
            largest_shift_sigmas: None,
            interval_end_sigmas: None,
            largest_spread_ratio: None,
        }
    }
}

/// One environment's samples of one variable: their levels, and their distances from its median.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EnvironmentSamples {
    /// Block means.
    pub levels: Moments,
    /// |block mean − median|.
    pub distances: Moments,
}

/// What leg (a) is decided with besides the samples.
#[derive(Debug, Clone, Copy)]
pub struct LegSettings<'a> {
    /// σ of the variable from the meta step; the scatter within the environments where absent.
    pub sigma: Option<f64>,
    /// Variables tested together: the significance level is divided by it (Bonferroni).
    pub tests: u32,
    /// Hyper-parameters.
    pub params: &'a Params,
}

/// Verdict of leg (a) under the configured rule.
#[must_use]
pub fn residual_invariance(
    samples: &[EnvironmentSamples],
    settings: &LegSettings<'_>,
) -> ResidualInvariance {
    match settings.params.invariance_rule {
        InvarianceRule::Undecided => ResidualInvariance::undecided(0),
        InvarianceRule::Tail => tail(samples, settings.params),
        InvarianceRule::Equivalence => equivalence(samples, settings),
    }
}

/// Environments with enough samples; `None` when there are too few of them.
fn powered(
    samples: &[EnvironmentSamples],
    params: &Params,
) -> (u32, Option<Vec<EnvironmentSamples>>) {
    let least = u64::from(params.icp_samples_min);
    let enough: Vec<_> = samples
        .iter()
        .filter(|s| s.levels.n >= least)
        .copied()
        .collect();
    let count = u32::try_from(enough.len()).unwrap_or(u32::MAX);
    (
        count,
        (count >= params.icp_environments_min).then_some(enough),
    )
}

/// True when leg (a) has enough environments to be tested.
#[must_use]
pub fn is_powered(samples: &[EnvironmentSamples], params: &Params) -> bool {
    let least = u64::from(params.icp_samples_min);
    let enough = samples.iter().filter(|s| s.levels.n >= least).count();
    enough >= params.icp_environments_min as usize
}

fn tail(samples: &[EnvironmentSamples], params: &Params) -> ResidualInvariance {
    let (environments, Some(enough)) = powered(samples, params) else {
        return ResidualInvariance::undecided(powered(samples, params).0);
    };
    let levels: Vec<Moments> = enough.iter().map(|s| s.levels).collect();
    let p_mean = Layout::of(&levels).and_then(|l| l.p_value());
    ResidualInvariance {
        verdict: tail_of(p_mean, params),
        p_mean,
        ..ResidualInvariance::undecided(environments)
    }
}

fn tail_of(p: Option<f64>, params: &Params) -> Icp {
    let alpha = params.icp_significance;
    match p {
        Some(p) if p > 1.0 - alpha => Icp::Accept,
        Some(p) if p < alpha => Icp::Reject,
        _ => Icp::Undecided,
    }
}

/// The paper's rule over raw groups, with its p-value when there was power for one.
///
/// # Formula
/// p of one-way ANOVA over environments with ≥ `n_b` samples, ≥ `n_env_min` of them; accept
/// p > 1 − α, reject p < α
///
/// # Source
/// White paper V1, ICP Invariance Testing
#[must_use]
pub fn tail_verdict(groups: &BTreeMap<String, Vec<f64>>, params: &Params) -> (Icp, Option<f64>) {
    let powered: Vec<&[f64]> = groups
        .values()
        .map(Vec::as_slice)
        .filter(|g| g.len() >= params.icp_samples_min as usize)
        .collect();
    if powered.len() < params.icp_environments_min as usize {
        return (Icp::Undecided, None);
    }
    let p = anova_p_value(&powered);
    (tail_of(p, params), p)
}

/// Equivalence: a difference must matter before it rejects, and be shown not to matter before it
/// accepts. Under `tail` a true edge is accepted in one case of twenty, by luck.
///
/// # Formula
/// σ = max(stored σ, scatter within the environments), Δₖ = mₖ − m, margin = .5σ, α′ = α / tests.
/// Reject when p < α′ and max |Δₖ| > margin. Accept when |Δₖ| + t₉₅·s·√(1/nₖ − 1/N) < margin in
/// every environment, unless the spreads differ: Brown–Forsythe p < α′ and one environment scatters
/// more than twice as far as all together. Else undecided.
///
/// # Units
/// Residuals on the variable's natural scale.
///
/// # Source
/// Spec §8, ICP leg (a); Brown and Forsythe (1974)
#[must_use]
pub fn equivalence(
    samples: &[EnvironmentSamples],
    settings: &LegSettings<'_>,
) -> ResidualInvariance {
    let params = settings.params;
    let (environments, Some(enough)) = powered(samples, params) else {
        return ResidualInvariance::undecided(powered(samples, params).0);
    };
    let undecided = ResidualInvariance::undecided(environments);
    let levels: Vec<Moments> = enough.iter().map(|s| s.levels).collect();
    let Some(layout) = Layout::of(&levels) else {
        return undecided;
    };
    let within = layout.within_std();
    let sigma = settings.sigma.filter(|s| s.is_finite()).unwrap_or(within);
    let sigma = sigma.max(within);
    if sigma <= 0.0 || !sigma.is_finite() {
        return undecided;
    }
    let (shift, end) = farthest(&levels, &layout);
    let spread = spread(&enough);
    let alpha = params.icp_significance / f64::from(settings.tests.max(1));
    let margin = params.icp_margin_sigmas;
    let p_mean = layout.p_value();
    let spreads_differ = spread.is_some_and(|(p, ratio)| {
        p.is_some_and(|p| p < alpha) && ratio > params.icp_spread_ratio_max
    });
    let verdict = if p_mean.is_some_and(|p| p < alpha) && shift > margin * sigma {
        Icp::Reject
    } else if end < margin * sigma && !spreads_differ {
        Icp::Accept
    } else {
        Icp::Undecided
    };
    ResidualInvariance {
        verdict,
        p_mean,
        p_spread: spread.and_then(|s| s.0),
        largest_shift_sigmas: Some(shift / sigma),
        interval_end_sigmas: Some(end / sigma),
        largest_spread_ratio: spread.map(|s| s.1),
        ..undecided
    }
}

/// Largest |mₖ − m|, and the farthest end of a 90 % interval around one.
fn farthest(levels: &[Moments], layout: &Layout) -> (f64, f64) {
    let within = layout.within_std();
    let t = student_95(layout.within_degrees());
    let all = 1.0 / layout.n as f64;
    levels
        .iter()
        .fold((0.0_f64, 0.0_f64), |(shift, end), group| {
            let distance = (group.mean - layout.grand_mean).abs();
            let error = within * (1.0 / group.n as f64 - all).max(0.0).sqrt();
            (shift.max(distance), end.max(distance + t * error))
        })
}

/// p of equal spread, and the largest ratio of a mean distance to the pooled one.
fn spread(enough: &[EnvironmentSamples]) -> Option<(Option<f64>, f64)> {
    let distances: Vec<Moments> = enough.iter().map(|s| s.distances).collect();
    let layout = Layout::of(&distances)?;
    let largest = distances.iter().map(|d| d.mean).fold(0.0, f64::max);
    let ratio = largest / layout.grand_mean;
    ratio.is_finite().then(|| (layout.p_value(), ratio))
}

/// Student's t quantile of 95 %, by the expansion of Cornish and Fisher around the normal; from
/// ten degrees of freedom on it is right to four digits.
fn student_95(degrees: f64) -> f64 {
    let z = NORMAL_95;
    let (z2, v) = (z * z, degrees.max(1.0));
    let first = z * (z2 + 1.0) / 4.0;
    let second = z * (5.0 * z2 * z2 + 16.0 * z2 + 3.0) / 96.0;
    let third = z * (3.0 * z2 * z2 * z2 + 19.0 * z2 * z2 + 17.0 * z2 - 15.0) / 384.0;
    z + first / v + second / (v * v) + third / (v * v * v)
}
