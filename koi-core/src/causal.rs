//! The causal substrate: edges X→V and V→Y, mechanisms over them, and what is believed of each.
//!
//! Nothing here observes or scores. White paper V1, The Causal Substrate; spec §5 and §6.

pub mod applicability;
pub mod belief;
pub mod edge;
pub mod fan_out;
pub mod graph;
pub mod mechanism;
pub mod scope;

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests;

pub use applicability::{Applicable, applicable};
pub use belief::{Belief, BeliefChange, BeliefEvent, BeliefKey, BeliefSource, PriorBin};
pub use edge::{Edge, EdgeEnds, Sign};
pub use fan_out::{add_events, fan_out, forget, replay};
pub use graph::CausalModel;
pub use mechanism::{Mechanism, MechanismStatus};
pub use scope::{Condition, FeatureValue, FeatureValues, Scope, ScopeMatch};
