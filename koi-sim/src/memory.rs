//! What an engine takes of a device's memory: the simulator's truth, not the planner's estimate.

use crate::model::{Precision, SimModel};

/// How a model is cut over devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharding {
    /// Tensor-parallel width.
    pub tensor: u32,
    /// Pipeline stages.
    pub pipeline: u32,
}

impl Sharding {
    /// Devices of one replica.
    #[must_use]
    pub const fn n_devices(self) -> u32 {
        self.tensor * self.pipeline
    }
}

/// Memory that the driver's context, the collectives and the runtime take on every device.
const RUNTIME_BYTES: f64 = 0.62e9;
/// Captured graphs on a device, per layer.
const GRAPH_BYTES_PER_LAYER: f64 = 11.0e6;

/// Bytes of weights on the fullest device. Embeddings are never quantized; pipeline stages take
/// whole layers.
#[must_use]
pub fn weight_bytes_per_device(model: &SimModel, precision: Precision, cut: Sharding) -> u64 {
    let tensor = f64::from(cut.tensor);
    let stage_layers = model.layers.div_ceil(cut.pipeline);
    let stage_share = f64::from(stage_layers) / f64::from(model.layers);
    let unquantized_params = model.embedding_params + model.head_params;
    let body = (model.total_params() - unquantized_params) * precision.bytes_per_weight();
    let unquantized = if precision == Precision::Float32 {
        4.0
    } else {
        2.0
    };
    // The head and the embedding sit on different stages; one of them is on the fullest.
    let tables = if cut.pipeline > 1 {
        model.head_params
    } else {
        unquantized_params
    };
    ((body * stage_share + tables * unquantized) / tensor * 1.004) as u64
}

/// Bytes of KV cache per token on one device. KV heads are replicated when there are fewer than
/// shards.
#[must_use]
pub fn kv_bytes_per_token(model: &SimModel, kv_value_bytes: f64, cut: Sharding) -> f64 {
    let shards = cut.tensor.min(model.kv_heads);
    let layers = model.layers.div_ceil(cut.pipeline);
    f64::from(layers) * f64::from(model.kv_values_per_layer) * kv_value_bytes / f64::from(shards)
}

/// Peak bytes besides weights and cache: activations of a full batch, logits, runtime, graphs.
#[must_use]
pub fn overhead_bytes(
    model: &SimModel,
    max_batched_tokens: u32,
    cut: Sharding,
    eager: bool,
) -> u64 {
    let tokens = f64::from(max_batched_tokens);
    let hidden = f64::from(model.hidden_size);
    let activations = tokens * hidden * 2.0 * (6.0 + 9.0 / f64::from(cut.tensor));
    let graphs = if eager {
        0.0
    } else {
        GRAPH_BYTES_PER_LAYER * f64::from(model.layers)
    };
    (activations + RUNTIME_BYTES + graphs) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::{llama_8b, llama_70b};

    #[test]
    fn weights_and_cache_of_known_models() {
        let one = Sharding {
            tensor: 1,
            pipeline: 1,
        };
        let four = Sharding {
            tensor: 4,
            pipeline: 1,
        };
        let gib = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
        assert!(
            (gib(weight_bytes_per_device(&llama_8b(), Precision::Half, one)) - 15.0).abs() < 0.2
        );
        assert!(
            (gib(weight_bytes_per_device(&llama_70b(), Precision::Half, four)) - 33.0).abs() < 0.6
        );
        assert!((kv_bytes_per_token(&llama_8b(), 2.0, one) - 131_072.0).abs() < 1e-6);
        let sixteen = Sharding {
            tensor: 16,
            pipeline: 1,
        };
        assert!((kv_bytes_per_token(&llama_70b(), 2.0, sixteen) - 40_960.0).abs() < 1e-6);
    }

    #[test]
    fn overhead_grows_with_the_batch_and_shrinks_without_graphs() {
        let cut = Sharding {
            tensor: 1,
            pipeline: 1,
        };
        let small = overhead_bytes(&llama_8b(), 2048, cut, true);
        assert!(overhead_bytes(&llama_8b(), 8192, cut, true) > small);
        assert!(overhead_bytes(&llama_8b(), 2048, cut, false) > small);
    }
}
