//! A mechanism M = (edges, scope, narrative, belief, status): a scoped causal story.
//!
//! Its belief lives in the store, keyed by its id; the prior is here. White paper V1, Mechanisms.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::belief::PriorBin;
use super::edge::Edge;
use super::scope::Scope;
use crate::variables::{Mediator, Outcome};

/// Where a mechanism is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MechanismStatus {
    /// Applicable wherever its scope matches.
    #[default]
    Active,
    /// Falsified often enough; kept, not applicable.
    Archived,
}

/// A mechanism as a seed file or a proposal writes it, unchecked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MechanismDraft {
    /// Name of a seed; proposals have none and get one from their content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Edge ids.
    #[serde(alias = "edge_ids")]
    pub edges: Vec<String>,
    /// Where it claims to hold.
    #[serde(default)]
    pub scope: Scope,
    /// The story in words.
    pub narrative: String,
    /// Belief before any evidence; ignored for proposals, which start at Beta(1, 1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior: Option<PriorBin>,
}

/// An admitted mechanism; made only by [`crate::lifecycle::admit`].
#[derive(Debug, Clone, PartialEq)]
pub struct Mechanism {
    /// Stable identity.
    pub id: String,
    /// Edge ids, sorted.
    pub edges: BTreeSet<String>,
    /// Mediators of the bundle.
    pub mediators: BTreeSet<Mediator>,
    /// Outcomes of the bundle.
    pub outcomes: BTreeSet<Outcome>,
    /// Where it claims to hold.
    pub scope: Scope,
    /// The story in words.
    pub narrative: String,
    /// Belief before any evidence.
    pub prior: PriorBin,
    /// Where it is in its life.
    pub status: MechanismStatus,
}

/// The mediators and outcomes that a set of edges names.
#[must_use]
pub fn bundle<'a>(
    edges: impl IntoIterator<Item = &'a Edge>,
) -> (BTreeSet<Mediator>, BTreeSet<Outcome>) {
    let (mut mediators, mut outcomes) = (BTreeSet::new(), BTreeSet::new());
    for edge in edges {
        mediators.extend(edge.ends.source_mediator());
        mediators.extend(edge.ends.destination_mediator());
        outcomes.extend(edge.ends.outcome());
    }
    (mediators, outcomes)
}
