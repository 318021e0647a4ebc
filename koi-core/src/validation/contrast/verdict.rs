//! From sums of contrasts to verdicts: is an edge exercised, is its claim contradicted, and does
//! its effect hold across environments?
//!
//! Spec §8, Contrast and ICP leg (b).

use serde::{Deserialize, Serialize};

use super::sums::{ContrastSums, EdgeEffect, edge_effect};
use crate::causal::Sign;
use crate::validation::icp::Icp;

#[cfg(test)]
mod tests;

/// Contrasts that an edge needs in an environment before it is exercised there.
pub const CONTRASTS_MIN: u32 = 3;
/// Standard errors between an estimate and the bound that must miss the smallest effect.
pub const ERRORS_TO_BOUND: f64 = 2.0;
/// Powered environments of the claimed sign that an edge needs to be accepted.
const ENVIRONMENTS_MIN: usize = 3;

/// What an edge claims, and what blurs the claim.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EffectClaim {
    /// Claimed direction.
    pub sign: Sign,
    /// Smallest effect that matters, per unit of the source on the destination's natural scale.
    pub smallest_effect: f64,
    /// s₀: the surrogate's own error for the destination per unit of the source.
    pub surrogate_error: f64,
    /// Standard deviation of Δ without any effect, on the destination's natural scale.
    pub noise: f64,
}

/// What the contrasts of one environment say of an edge's claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeVerdict {
    /// Too few contrasts to say anything.
    Unexercised,
    /// Put to the test and not contradicted.
    Exercised,
    /// Even the upper bound lies below the smallest effect that matters.
    Contradicted,
}

/// Verdict on one edge in one environment.
///
/// # Formula
/// exercised with 3 contrasts or more; then contradicted when sign·b + 2·se < smallest effect, for
/// non-monotone claims when √(max(0, ΣΔ²/n − noise²)) + 2·se < smallest effect. A wrong sign or a
/// proven zero contradicts, a wide interval does not.
///
/// # Source
/// Spec §8, Contrast
#[must_use]
pub fn edge_verdict(sums: &ContrastSums, claim: &EffectClaim) -> EdgeVerdict {
    effect_verdict(sums, edge_effect(sums, claim.surrogate_error), claim)
}

/// The same for an effect that was estimated in another way from these sums.
pub(super) fn effect_verdict(
    sums: &ContrastSums,
    effect: Option<EdgeEffect>,
    claim: &EffectClaim,
) -> EdgeVerdict {
    let Some(effect) = effect.filter(|e| e.n >= CONTRASTS_MIN) else {
        return EdgeVerdict::Unexercised;
    };
    if upper_bound(sums, &effect, claim) < claim.smallest_effect {
        EdgeVerdict::Contradicted
    } else {
        EdgeVerdict::Exercised
    }
}

/// Whether the contrasts show an effect in the claimed direction: even the lower bound is above zero.
pub(super) fn is_proven(
    sums: &ContrastSums,
    effect: Option<EdgeEffect>,
    claim: &EffectClaim,
) -> bool {
    effect
        .filter(|e| e.n >= CONTRASTS_MIN)
        .is_some_and(|e| estimate(sums, &e, claim) > ERRORS_TO_BOUND * e.standard_error)
}

/// The largest effect in the claimed direction that the contrasts still allow.
fn upper_bound(sums: &ContrastSums, effect: &EdgeEffect, claim: &EffectClaim) -> f64 {
    estimate(sums, effect, claim) + ERRORS_TO_BOUND * effect.standard_error
}

/// The effect in the claimed direction.
fn estimate(sums: &ContrastSums, effect: &EdgeEffect, claim: &EffectClaim) -> f64 {
    match claim.sign {
        Sign::Positive => effect.slope,
        Sign::Negative => -effect.slope,
        Sign::NonMonotone => {
            let square = sums.dd / f64::from(sums.n.max(1));
            (square - claim.noise * claim.noise).max(0.0).sqrt()
        }
    }
}

/// Leg (b) of the invariance verdict: does the effect hold, in direction, wherever it was tested?
/// Sizes may differ legitimately between environments.
///
/// # Shapes
/// One (sums, claim) per environment, all of one edge.
///
/// # Formula
/// powered: 3 contrasts or more and 2·se ≤ smallest effect. Reject when half or more of the
/// powered environments contradict, or when two of them have proven slopes (|b| > 2·se) of
/// different signs; accept with 3 or more that are powered and of the claimed sign; else
/// undecided.
///
/// # Source
/// Spec §8, ICP leg (b)
#[must_use]
pub fn effect_invariance(per_environment: &[(ContrastSums, EffectClaim)]) -> Icp {
    let estimated: Vec<EnvironmentEffect> = per_environment
        .iter()
        .filter_map(|(sums, claim)| {
            let effect = edge_effect(sums, claim.surrogate_error)?;
            EnvironmentEffect::powered(sums, effect, claim)
        })
        .collect();
    invariance_of_powered(&estimated)
}

/// What a powered environment says of an edge.
#[derive(Debug, Clone, Copy)]
pub(super) struct EnvironmentEffect {
    contradicted: bool,
    of_claimed_sign: bool,
    proven_positive: bool,
    proven_negative: bool,
    monotone: bool,
}

impl EnvironmentEffect {
    /// `None` when the environment has no power.
    pub(super) fn powered(
        sums: &ContrastSums,
        effect: EdgeEffect,
        claim: &EffectClaim,
    ) -> Option<Self> {
        let bound = ERRORS_TO_BOUND * effect.standard_error;
        let verdict = effect_verdict(sums, Some(effect), claim);
        let powered = verdict != EdgeVerdict::Unexercised && bound <= claim.smallest_effect;
        let contradicted = verdict == EdgeVerdict::Contradicted;
        powered.then_some(Self {
            contradicted,
            of_claimed_sign: !contradicted
                && match claim.sign {
                    Sign::Positive => effect.slope > 0.0,
                    Sign::Negative => effect.slope < 0.0,
                    Sign::NonMonotone => true,
                },
            proven_positive: effect.slope > bound,
            proven_negative: effect.slope < -bound,
            monotone: claim.sign != Sign::NonMonotone,
        })
    }

    /// The same where the directions of different tests say nothing of each other.
    pub(super) const fn of_unordered(self) -> Self {
        Self {
            monotone: false,
            ..self
        }
    }

    /// The one that contradicts least, of several tests in one environment.
    pub(super) fn strongest(tests: impl Iterator<Item = Self>) -> Option<Self> {
        tests.min_by_key(|e| e.contradicted)
    }
}

pub(super) fn invariance_of_powered(powered: &[EnvironmentEffect]) -> Icp {
    let count = |of: fn(&EnvironmentEffect) -> bool| powered.iter().filter(|e| of(e)).count();
    let contradicted = count(|e| e.contradicted);
    let signs_differ = count(|e| e.monotone && e.proven_positive) > 0
        && count(|e| e.monotone && e.proven_negative) > 0;
    if signs_differ || (contradicted > 0 && 2 * contradicted >= powered.len()) {
        Icp::Reject
    } else if count(|e| e.of_claimed_sign) >= ENVIRONMENTS_MIN {
        Icp::Accept
    } else {
        Icp::Undecided
    }
}
