//! Churn price λ: rises while jobs are swapped more often than the target. White paper V1,
//! Appendix A.

use crate::params::Params;

/// One step.
///
/// # Formula
/// λ ← clip(λ · exp(η (ρ − ρ*)), λ_min, λ_max)
#[must_use]
pub fn step(churn_price: f64, swap_rate: f64, swap_target: f64, params: &Params) -> f64 {
    let exponent = params.churn_step_size * (swap_rate - swap_target);
    (churn_price * exponent.exp()).clamp(params.churn_price_min, params.churn_price_max)
}

/// The step of a tick: λ falls only while regret is above its target, so that a quiet, converged
/// fleet does not drift toward cheap churn.
///
/// # Source
/// Spec §9
#[must_use]
pub fn gated_step(
    churn_price: f64,
    swap_rate: f64,
    swap_target: f64,
    regret: f64,
    params: &Params,
) -> f64 {
    let next = step(churn_price, swap_rate, swap_target, params);
    if next < churn_price && regret <= params.regret_target {
        churn_price
    } else {
        next
    }
}

/// The annealed target share of jobs swapped a tick.
///
/// # Formula
/// linear from .20 to .05 over 500 ticks
#[must_use]
pub fn swap_target(tick_count: u64, params: &Params) -> f64 {
    let progress = (tick_count as f64 / f64::from(params.swap_rate_anneal_ticks)).min(1.0);
    let (from, to) = (
        params.swap_rate_target_initial,
        params.swap_rate_target_final,
    );
    from + progress * (to - from)
}
