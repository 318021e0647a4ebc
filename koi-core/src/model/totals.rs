//! Sums over all layers, computed once so that predictions do not walk the kinds.

use serde::{Deserialize, Serialize};

use super::kinds::LayerKind;

/// Sums over all layers of one model, as floats.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Matrix weights outside embeddings and routed experts.
    pub dense_params: f64,
    /// Of those, in the quantized format (all of them where the checkpoint has none).
    pub dense_linear_params: f64,
    /// Routed experts, all of them.
    pub expert_params: f64,
    /// Of those, in the quantized format.
    pub expert_linear_params: f64,
    /// Key and value projections.
    pub kv_params: f64,
    /// Matrix weights that are whole on every shard.
    pub replicated_params: f64,
    /// Stored bytes of matrix weights outside embeddings and routed experts.
    pub dense_bytes: f64,
    /// Stored bytes of the routed experts.
    pub expert_bytes: f64,
    /// Norms, biases, routers.
    pub small_params: f64,
    /// Layers that cache keys and values for the whole context.
    pub full_layers: f64,
    /// Layers of any kind that have attention or a state: those with an all-reduce after the mixer.
    pub mixer_layers: f64,
    /// Layers that have an MLP: those with an all-reduce after it.
    pub mlp_layers: f64,
    /// Layers with routed experts.
    pub routed_layers: f64,
    /// Operations on states per token.
    pub state_flops: f64,
    /// Bytes of state per sequence.
    pub state_bytes: f64,
}

impl Totals {
    /// The sums of these kinds.
    pub(super) fn of(kinds: &[LayerKind]) -> Self {
        let mut t = Self::default();
        for kind in kinds {
            let n = f64::from(kind.layers);
            let w = &kind.weights;
            let dense = [w.split, w.kv, w.replicated];
            t.dense_params += n * dense.iter().map(|s| s.params()).sum::<u64>() as f64;
            t.dense_linear_params += n * dense.iter().map(|s| s.linear_params).sum::<u64>() as f64;
            t.dense_bytes += n * dense.iter().map(|s| s.stored_bytes).sum::<u64>() as f64;
            t.expert_params += n * w.experts.params() as f64;
            t.expert_linear_params += n * w.experts.linear_params as f64;
            t.expert_bytes += n * w.experts.stored_bytes as f64;
            t.kv_params += n * w.kv.params() as f64;
            t.replicated_params += n * w.replicated.params() as f64;
            t.small_params += n * w.small_params as f64;
            let is_full = kind.kv_heads > 0 && kind.window.is_none();
            t.full_layers += if is_full { n } else { 0.0 };
            t.mixer_layers += if kind.heads > 0 { n } else { 0.0 };
            let has_mlp = kind.mlp != super::MlpKind::None;
            t.mlp_layers += if has_mlp { n } else { 0.0 };
            t.routed_layers += if kind.mlp.is_routed() { n } else { 0.0 };
            t.state_flops += n * kind.state_flops;
            t.state_bytes += n * kind.state_bytes as f64;
        }
        t
    }
}
