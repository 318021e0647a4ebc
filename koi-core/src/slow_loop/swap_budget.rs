//! Swap budget B: open while the loop learns, shut once it has converged. White paper V1,
//! Appendix A.

use crate::params::Params;

/// Voluntary swaps and preemptions allowed this tick.
///
/// # Formula
/// B = B_max while s > s*, else B_min; B_max = max(10, 1 % of the active jobs)
///
/// # Source
/// Spec §9
#[must_use]
pub fn step(regret: f64, active_jobs: u32, params: &Params) -> u32 {
    if regret > params.regret_target {
        let share = (params.swap_budget_max_fraction * f64::from(active_jobs)).ceil() as u32;
        params.swap_budget_max.max(share)
    } else {
        params.swap_budget_min
    }
}
