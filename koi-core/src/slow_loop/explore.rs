//! Exploration incentive β: rises with regret, never zero. White paper V1, Appendix A.

use crate::params::Params;

/// One step.
///
/// # Formula
/// β ← clip(β · exp(η (s − s*)), β_min, β_max)
#[must_use]
pub fn step(explore_weight: f64, regret: f64, params: &Params) -> f64 {
    let exponent = params.explore_step_size * (regret - params.regret_target);
    (explore_weight * exponent.exp()).clamp(params.explore_weight_min, params.explore_weight_max)
}
