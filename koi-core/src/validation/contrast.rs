//! The contrast rule: what a change of one source did to its destination once the surrogate has
//! explained every other change. It tests the mechanism where a residual tests the surrogate.
//!
//! Spec §8, Contrast.

pub mod levels;
pub mod mediated;
pub mod sums;
pub mod verdict;

pub use levels::LevelPairSums;
pub use sums::{ContrastSums, EdgeEffect, edge_effect};
pub use verdict::{EdgeVerdict, EffectClaim, edge_verdict, effect_invariance};
