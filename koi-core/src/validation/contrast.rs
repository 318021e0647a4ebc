//! The contrast rule: what a change of one source did to its destination once the surrogate has
//! explained every other change. It tests the mechanism where a residual tests the surrogate.
//!
//! [`book`] remembers deployments and sums, [`reference`] says what a deployment is compared with,
//! [`compare`] makes the contrasts of a tick (S2), [`exercise`] says
//! what they mean for a mechanism, [`update`] counts them (S3). Spec §8, Contrast.

pub mod book;
pub mod compare;
pub mod counterfactual;
pub mod deployment;
pub mod errors;
pub mod exercise;
pub mod judgement;
pub mod levels;
pub mod life;
pub mod mediated;
pub mod powers;
pub mod reference;
pub mod scale;
pub mod sums;
pub mod update;
pub mod verdict;

#[cfg(test)]
mod tests;

pub use book::{ContrastBook, ContrastRow, DeploymentRecord, EdgeSums, SumKey};
pub use compare::{CompareContext, compare};
pub use deployment::{Conditions, DeploymentId, DeploymentRow, Subject};
pub use levels::LevelPairSums;
pub use powers::edge_powers;
pub use sums::{ContrastSums, EdgeEffect, edge_effect};
pub use update::{ContrastUpdate, DeploymentChange, SumChange, fold_tick, fold_ticks};
pub use verdict::{EdgeVerdict, EffectClaim, edge_verdict, effect_invariance};
