//! Exploit: the augmented Tchebycheff value J of a predicted outcome vector.
//!
//! White paper V1, Exploitation: Augmented Tchebycheff; spec §7.

use serde::{Deserialize, Serialize};

use crate::params::Params;
use crate::variables::{OUTCOME_COUNT, Outcome, OutcomeValues};

#[cfg(test)]
mod tests;

/// What J is computed from.
#[derive(Debug, Clone, Copy)]
pub struct TchebycheffInput<'a> {
    /// Predicted outcomes; absent ones drop out and the weights renormalise.
    pub predicted: &'a OutcomeValues,
    /// Outcomes predicted to be unbounded: their gap is the ceiling, whatever `predicted` says.
    pub unbounded: &'a [Outcome],
    /// Ideal point z*.
    pub ideal: &'a OutcomeValues,
    /// Normalising ranges, positive.
    pub range: &'a OutcomeValues,
    /// Weights in the order of [`Outcome::ALL`].
    pub weights: &'a [f64; OUTCOME_COUNT],
}

/// J and what it is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exploit {
    /// J; larger is better, 0 at the ideal point.
    pub j: f64,
    /// Gap of each objective in ranges, clipped.
    pub gaps: OutcomeValues,
    /// Objective with the largest weighted gap: the one that an improvement must improve.
    pub limiting: Outcome,
}

/// The augmented Tchebycheff value, larger is better; `None` when no weighted objective can be
/// compared with the ideal point.
///
/// # Formula
/// J = −(max_j w_j g_j + ρ Σ_j w_j g_j); g_j = (z*_j − ŷ_j) / range_j where more is better, (ŷ_j −
/// z*_j) / range_j else, clipped to \[−1, 5\]
///
/// # Shapes
/// Five objectives in the order of [`Outcome::ALL`].
///
/// # Units
/// Outcomes in their own unit; J has none.
///
/// # Source
/// White paper V1, Exploitation: Augmented Tchebycheff
#[must_use]
pub fn exploit(input: &TchebycheffInput<'_>, params: &Params) -> Option<Exploit> {
    let gaps = gaps(input, params);
    let weight = |y: Outcome| input.weights.get(y.index()).copied().unwrap_or(0.0);
    let total: f64 = gaps.present().map(|(y, _)| weight(y)).sum();
    if !(total > 0.0 && total.is_finite()) {
        return None;
    }
    let products = || gaps.present().map(|(y, g)| (y, weight(y) / total * g));
    let (limiting, worst) = products().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let sum: f64 = products().map(|(_, p)| p).sum();
    let j = -(worst + params.tchebycheff_augmentation * sum);
    Some(Exploit { j, gaps, limiting })
}

/// The gap of each objective in ranges, clipped; absent where it cannot be compared.
///
/// # Formula
/// g_j = (z*_j − ŷ_j) / range_j where more is better, (ŷ_j − z*_j) / range_j else
#[must_use]
pub fn gaps(input: &TchebycheffInput<'_>, params: &Params) -> OutcomeValues {
    let mut gaps = OutcomeValues::absent();
    for outcome in Outcome::ALL {
        gaps.set(outcome, gap(outcome, input, params));
    }
    gaps
}

fn gap(outcome: Outcome, input: &TchebycheffInput<'_>, params: &Params) -> Option<f64> {
    if input.unbounded.contains(&outcome) {
        return Some(params.gap_ceiling);
    }
    let (y, ideal) = (input.predicted.get(outcome)?, input.ideal.get(outcome)?);
    let range = input.range.get(outcome).filter(|r| *r > 0.0)?;
    let distance = if outcome.is_maximised() {
        ideal - y
    } else {
        y - ideal
    };
    Some((distance / range).clamp(params.gap_floor, params.gap_ceiling))
}
