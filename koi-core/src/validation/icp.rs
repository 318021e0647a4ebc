//! Invariant causal prediction: does what an edge says hold across environments?
//!
//! Leg (a) asks whether the residuals of the edge's destination are alike everywhere, leg (b)
//! whether its effect points the same way ([`crate::validation::contrast`]). White paper V1, ICP
//! Invariance Testing; spec §8.

pub mod anova;
pub mod residuals;
pub mod window;

use serde::{Deserialize, Serialize};

pub use anova::{Moments, anova_p_value, brown_forsythe_p_value};
pub use residuals::{ResidualInvariance, equivalence, residual_invariance, tail_verdict};
pub use window::{BlockMean, InvarianceWindow, Seen};

use crate::params::InvarianceRule;

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

/// Verdict on one edge from its two legs.
///
/// # Formula
/// `equivalence`: accept needs both legs, either one rejects. `tail`: leg (a) alone, as in the
/// paper.
///
/// # Shapes
/// `effect` is `None` where contrasts are switched off; leg (a) then decides alone.
///
/// # Source
/// Spec §8, ICP
#[must_use]
pub fn combined(rule: InvarianceRule, residuals: Icp, effect: Option<Icp>) -> Icp {
    match (rule, effect) {
        (InvarianceRule::Undecided, _) => Icp::Undecided,
        (InvarianceRule::Tail, _) | (InvarianceRule::Equivalence, None) => residuals,
        (InvarianceRule::Equivalence, Some(effect)) => match (residuals, effect) {
            (Icp::Reject, _) | (_, Icp::Reject) => Icp::Reject,
            (Icp::Accept, Icp::Accept) => Icp::Accept,
            _ => Icp::Undecided,
        },
    }
}
