//! Effects of edges whose source is itself measured: a mediator's error flattens the slope.
//!
//! Spec §8, Contrast: V→Y edges, b corrected for the mediator's error variance.

use super::sums::{ContrastSums, EdgeEffect};
use super::verdict::{
    EdgeVerdict, EffectClaim, EnvironmentEffect, effect_verdict, invariance_of_powered,
};
use crate::validation::icp::Icp;

#[cfg(test)]
mod tests;

/// Share of Σz²/n above which the mediator's error variance leaves no test.
pub const ERROR_SHARE_MAX: f64 = 0.2;

/// Slope of an outcome on a mediator that is known with an error; `None` where
/// [`super::edge_effect`] gives none, and when the error variance exceeds
/// [`ERROR_SHARE_MAX`] of Σz²/n.
///
/// # Formula
/// with u² the error variance of z: S = Σz² − n·u², b = ΣzΔ/S, s² = (ΣΔ² − 2b·ΣzΔ + b²Σz²)/(n − 1),
/// se = √(s²·Σz²/S² + 2n·(b·u²/S)² + s₀²); at u = 0 the uncorrected estimate
///
/// # Units
/// `mediator_error_variance` = u² in the square of z's unit: the variance of one z, that is of a
/// difference of two means over the lives of two deployments.
///
/// # Source
/// Fuller, Measurement Error Models (1987), §1.2: slope with a known error variance; spec §8
#[must_use]
pub fn mediated_effect(
    sums: &ContrastSums,
    surrogate_error: f64,
    mediator_error_variance: f64,
) -> Option<EdgeEffect> {
    let known = |x: f64| x.is_finite() && x >= 0.0;
    if sums.n < 2 || sums.zz <= 0.0 || !known(surrogate_error) || !known(mediator_error_variance) {
        return None;
    }
    let n = f64::from(sums.n);
    if mediator_error_variance > ERROR_SHARE_MAX * sums.zz / n {
        return None;
    }
    let true_squares = sums.zz - n * mediator_error_variance;
    let slope = sums.zd / true_squares;
    let squares = sums.dd - 2.0 * slope * sums.zd + slope * slope * sums.zz;
    let variance = (squares / (n - 1.0)).max(0.0);
    let shrink = slope * mediator_error_variance / true_squares;
    let standard_error = (variance * sums.zz / (true_squares * true_squares)
        + 2.0 * n * shrink * shrink
        + surrogate_error * surrogate_error)
        .sqrt();
    (slope.is_finite() && standard_error.is_finite()).then_some(EdgeEffect {
        slope,
        standard_error,
        n: sums.n,
    })
}

/// [`super::edge_verdict`] of an edge from a mediator; unexercised where the error leaves no test.
#[must_use]
pub fn mediated_verdict(
    sums: &ContrastSums,
    claim: &EffectClaim,
    mediator_error_variance: f64,
) -> EdgeVerdict {
    let effect = mediated_effect(sums, claim.surrogate_error, mediator_error_variance);
    effect_verdict(sums, effect, claim)
}

/// [`super::effect_invariance`] of an edge from a mediator: (sums, claim, error variance of z) per
/// environment.
#[must_use]
pub fn mediated_invariance(per_environment: &[(ContrastSums, EffectClaim, f64)]) -> Icp {
    let powered: Vec<EnvironmentEffect> = per_environment
        .iter()
        .filter_map(|(sums, claim, error)| {
            let effect = mediated_effect(sums, claim.surrogate_error, *error)?;
            EnvironmentEffect::powered(sums, effect, claim)
        })
        .collect();
    invariance_of_powered(&powered)
}
