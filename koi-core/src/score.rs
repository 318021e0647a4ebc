//! σ of a ladder and its terms: exploit, explore, risk, churn.
//!
//! Pure arithmetic on predictions; what is predicted and which ladders exist is decided
//! elsewhere. White paper V1, Exploration and Exploitation to The Cluster Objective; spec §7.

pub mod dro;
pub mod eig;
pub mod sigma;
pub mod switch_cost;
pub mod tchebycheff;

#[cfg(test)]
pub(crate) mod vectors;

pub use dro::{Band, DroInput, LimitAtRisk, ObjectiveLimit, PreparedLimits, SloRisk, slo_risk};
pub use eig::Eig;
pub use sigma::{Baseline, SigmaTerms, SigmaWeights};
pub use switch_cost::{NotPriced, StoppedPart, SwitchCost, SwitchCostInput, switch_cost};
pub use tchebycheff::{Exploit, TchebycheffInput, exploit};
