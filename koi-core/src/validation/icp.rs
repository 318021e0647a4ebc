//! Invariant causal prediction: does a residual distribution hold across environments?
//!
//! Holds the paper's tail rule over block means; contrasts and equivalence come with the learning
//! study. White paper V1, ICP Invariance Testing; spec §8.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use super::residual::median;
use crate::params::{InvarianceRule, Params};

#[cfg(test)]
mod tests;

/// Verdict on one edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Icp {
    /// Invariant across environments.
    Accept,
    /// Specific to some environment.
    Reject,
    /// Too few environments or samples, or no decision either way.
    Undecided,
}

/// Verdict on one edge under the configured rule, from residuals of its destination.
///
/// # Shapes
/// Environment → block means, one per evidence row; raw sub-tick points are autocorrelated and
/// must not be passed.
#[must_use]
pub fn invariance(groups: &BTreeMap<String, Vec<f64>>, params: &Params) -> Icp {
    match params.invariance_rule {
        InvarianceRule::Undecided => Icp::Undecided,
        InvarianceRule::Tail => tail_verdict(groups, params).0,
    }
}

/// The paper's rule, with its p-value when there was power for one.
///
/// # Formula
/// p of one-way ANOVA over environments with ≥ n_b samples, ≥ n_env_min of them; accept p > 1 −
/// α, reject p < α
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
    let alpha = params.icp_significance;
    let verdict = match p {
        Some(p) if p > 1.0 - alpha => Icp::Accept,
        Some(p) if p < alpha => Icp::Reject,
        _ => Icp::Undecided,
    };
    (verdict, p)
}

/// Probability of an F at least this large when all groups share one mean; `None` when fewer than
/// two groups, no spread, or values that are not finite leave it undefined.
///
/// # Formula
/// F = (Σ n_k (m_k − m)² / (K − 1)) / (Σ Σ (x − m_k)² / (N − K))
#[must_use]
pub fn anova_p_value(groups: &[&[f64]]) -> Option<f64> {
    let k = groups.len();
    let n: usize = groups.iter().map(|g| g.len()).sum();
    if k < 2 || n <= k || groups.iter().any(|g| g.is_empty()) {
        return None;
    }
    let sum: f64 = groups.iter().copied().flatten().sum();
    let grand = sum / n as f64;
    let (mut between, mut within) = (0.0, 0.0);
    for group in groups {
        let mean = group.iter().sum::<f64>() / group.len() as f64;
        between += group.len() as f64 * (mean - grand) * (mean - grand);
        within += group.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
    }
    let (df_between, df_within) = ((k - 1) as f64, (n - k) as f64);
    let f = (between / df_between) / (within / df_within);
    let distribution = FisherSnedecor::new(df_between, df_within).ok()?;
    f.is_finite().then(|| distribution.sf(f))
}

/// The Brown–Forsythe test for equal spread: ANOVA over distances from each group's median.
#[must_use]
pub fn brown_forsythe_p_value(groups: &[&[f64]]) -> Option<f64> {
    let distances: Option<Vec<Vec<f64>>> = groups
        .iter()
        .map(|g| median(g).map(|m| g.iter().map(|x| (x - m).abs()).collect()))
        .collect();
    let distances = distances?;
    let views: Vec<&[f64]> = distances.iter().map(Vec::as_slice).collect();
    anova_p_value(&views)
}
