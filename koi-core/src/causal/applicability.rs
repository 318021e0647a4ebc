//! Which mechanisms speak about a rank.
//!
//! White paper V1, Mechanisms; spec §5: every active mechanism whose scope matches, plus the one
//! the plan committed.

use super::graph::CausalModel;
use super::mechanism::MechanismStatus;
use super::scope::{FeatureValues, ScopeMatch};

/// One mechanism that speaks about a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applicable {
    /// The mechanism.
    pub id: String,
    /// How well the rank fits its scope.
    pub scope_match: ScopeMatch,
    /// True when the plan committed to it.
    pub committed: bool,
}

/// The applicable mechanisms of a rank, in the order of their ids.
///
/// A partial match is not applicable: evidence from a rank that may lie outside the scope would
/// be charged to the mechanism. The committed one is, whatever its match, as long as it exists.
#[must_use]
pub fn applicable(
    model: &CausalModel,
    features: &FeatureValues,
    committed: Option<&str>,
) -> Vec<Applicable> {
    model
        .mechanisms()
        .filter_map(|m| {
            let scope_match = m.scope.matches(features);
            let committed = committed == Some(m.id.as_str());
            let active = m.status == MechanismStatus::Active && scope_match == ScopeMatch::Exact;
            (active || committed).then(|| Applicable {
                id: m.id.clone(),
                scope_match,
                committed,
            })
        })
        .collect()
}
