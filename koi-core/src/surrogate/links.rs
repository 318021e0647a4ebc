//! Traffic between and beside the devices of a replica that settings beyond the main ones cause.
//!
//! The traffic of tensor and pipeline parallelism itself is [`crate::model::comm_bytes_per_token`].
//! Spec §3, per_tok_comm_bytes.

use super::Deployment;
use super::rates::Rates;
use crate::configuration::Term;

/// Matrices of a layer that have an adapter: four of attention, three of the MLP.
const ADAPTED_MATRICES: f64 = 7.0;

/// Bytes per token and layer that one shard sends beyond the two all-reduces.
///
/// # Formula
/// Context shards: (d − 1)·(a/tp)·h·b for queries, unless replicated, and again for outputs. Fully
/// sharded adapters: 7·r·b·(t − 1)/t.
pub(super) fn more_bytes_per_token_and_layer(deployment: &Deployment<'_>) -> f64 {
    let (model, shape) = (deployment.model, &deployment.shape);
    let effects = &shape.effects;
    let bytes = model.served_dtype(shape.weight_dtype).activation_bytes();
    let tp = f64::from(shape.tp.max(1));
    let mut sent = 0.0;
    let shards = effects.get(Term::ContextShards);
    if shards > 1.0 {
        let outputs = f64::from(model.heads) / tp * f64::from(model.head_dim) * bytes;
        let ways = 2.0 - effects.get(Term::QueriesReplicated);
        sent += (shards - 1.0) * outputs * ways;
    }
    if effects.get(Term::LoraSlots) > 0.0 && effects.get(Term::LoraSharded) > 0.5 {
        sent += ADAPTED_MATRICES * effects.get(Term::LoraRank) * bytes * (tp - 1.0) / tp;
    }
    sent
}

/// Latency of a stage's exchanges of partial attention: about one all-reduce a layer among so many.
pub(super) fn context_latency_seconds(
    deployment: &Deployment<'_>,
    stage_layers: f64,
    rates: &Rates,
) -> f64 {
    let effects = &deployment.shape.effects;
    let shards = effects.get(Term::ContextShards);
    if shards <= 1.0 {
        return 0.0;
    }
    let one = rates.allreduce_seconds * (1.0 + shards.log2()) / 2.0;
    stage_layers * one * effects.get(Term::ContextLatencyFactor)
}

/// Bytes per token that the shards of a draft send, for each of its passes.
pub(super) fn draft_bytes_per_pass(deployment: &Deployment<'_>) -> f64 {
    let (model, shape) = (deployment.model, &deployment.shape);
    let effects = &shape.effects;
    let layers = effects.get(Term::DraftLayers)
        + effects.get(Term::DraftModelShare) * f64::from(model.layers);
    let set = effects.get(Term::DraftShards);
    let shards = if set >= 1.0 { set } else { f64::from(shape.tp) };
    let bytes = model.served_dtype(shape.weight_dtype).activation_bytes();
    4.0 * layers * f64::from(model.hidden) * bytes * (shards - 1.0) / shards
}
