//! The slow loop: one pure step per controller, every tick, driven by regret.
//!
//! White paper V1, The Slow Loop and Appendix A; spec §9. The R2 gradient of the weights and the
//! meta recalibration are not built: weights rest at their class defaults, thresholds at the
//! literal multiples.

pub mod churn_price;
pub mod dro_radius;
pub mod explore;
pub mod ideal_point;
pub mod regret;
pub mod state;
pub mod swap_budget;
pub mod update;
pub mod weights;

#[cfg(test)]
mod tests;

pub use ideal_point::{IdealPoint, cold_start, ideal_point};
pub use state::{SlowSignals, SlowState};
