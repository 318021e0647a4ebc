//! The closed world of the shipped edges, for tests of this crate's causal parts.

use std::collections::BTreeSet;

use super::CausalModel;
use crate::variables::{Mediator, Outcome, VariableKind};

/// Features that the shipped edges and scopes may name.
const FEATURES: [&str; 14] = [
    "gpu_memory_utilization",
    "isl_token_avg",
    "is_moe",
    "kvcache_dtype",
    "max_num_batched_tokens",
    "max_num_seqs",
    "model_params_b",
    "osl_token_avg",
    "pp",
    "prefix_cache_enabled",
    "request_arrival_rate",
    "shared_prefix_length_avg",
    "tp",
    "workload_prefix_concentration",
];

/// Layer of a name.
pub(crate) fn kind_of(name: &str) -> Option<VariableKind> {
    if Mediator::from_name(name).is_some() {
        Some(VariableKind::Mediator)
    } else if Outcome::from_name(name).is_some() {
        Some(VariableKind::Outcome)
    } else {
        BTreeSet::from(FEATURES)
            .contains(name)
            .then_some(VariableKind::Feature)
    }
}

/// The shipped model.
pub(crate) fn model() -> CausalModel {
    CausalModel::embedded(&kind_of).unwrap()
}
