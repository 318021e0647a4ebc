//! The slow loop: one pure step per controller, every tick, driven by regret.
//!
//! Order: q, s, β, B, λ, ε, w, z*. White paper V1, The Slow Loop and Appendix A; spec §9.

pub mod backlog;
pub mod churn_price;
pub mod convergence;
pub mod coverage_gradient;
pub mod dro_radius;
pub mod explore;
pub mod ideal_point;
pub mod meta;
pub mod probe;
pub mod record;
pub mod regret;
pub mod state;
pub mod swap_budget;
pub mod update;
pub mod weights;

#[cfg(test)]
mod tests;

pub use convergence::{Convergence, Criterion, CriterionName};
pub use ideal_point::{IdealPoint, cold_start, ideal_point};
pub use probe::{PlannedProbe, ProbeLedger};
pub use record::{SlowTick, TickSignals};
pub use state::{GroupIdeal, SlowState};
