//! Placeholder types of this series: beliefs.
use serde::{Deserialize, Serialize};
/// Belief.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Belief {}
/// Event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BeliefEvent {
    /// Edge or mechanism id.
    pub subject: String,
    /// Seed.
    pub seed: Belief,
}
impl Belief {
    /// Adds.
    pub fn add(&mut self, _event: &BeliefEvent) {}
}
