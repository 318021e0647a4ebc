//! Device memory of the fullest GPU of a replica: weights, activations, runtime, KV pool.
//!
//! Not host memory and not what other processes hold. Spec §3 (vram_headroom_gb) and §4.

mod settings;

use serde::{Deserialize, Serialize};

use crate::catalog::GpuType;
use crate::configuration::EngineShape;
use crate::model::{CacheShape, LayerKind, MixerKind, ModelFacts};
pub(super) use settings::{draft_ratio, offloaded_bytes, offloaded_layer_share, state_ratio};

/// Bytes per logit while sampling: 16-bit logits, their 32-bit copy and a sorted half of it.
const SAMPLER_BYTES_PER_LOGIT: f64 = 8.0;

/// Where the bytes of the fullest GPU go. All byte counts are per GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MemoryBreakdown {
    /// Memory of the device.
    pub device_bytes: f64,
    /// Share that the engine may use, in bytes.
    pub allowed_bytes: f64,
    /// Weights.
    pub weights_bytes: f64,
    /// Peak activations of one step, sampling included.
    pub activation_bytes: f64,
    /// Runtime context and captured graphs.
    pub reserved_bytes: f64,
    /// What is left for the KV cache; negative when not even the rest fits.
    pub kv_pool_bytes: f64,
    /// KV bytes of one token on this GPU, while no layer has forgotten anything.
    pub kv_bytes_per_token: f64,
    /// Whole tokens that the pool holds at that rate; models with windows hold more of a long
    /// sequence, see [`MemoryBreakdown::pool_tokens_at`].
    pub kv_pool_tokens: f64,
    /// Tokens that it must hold: one request of the longest legal length.
    pub needed_tokens: f64,
    /// What the cache of a sequence takes on this GPU, by its length.
    #[serde(default)]
    pub cache: CacheShape,
    /// Tokens of one block of the pool.
    #[serde(default = "one")]
    pub block_tokens: f64,
}

const fn one() -> f64 {
    1.0
}

impl MemoryBreakdown {
    /// The breakdown of a shape on a device.
    ///
    /// # Formula
    /// pool = memory · utilization − weights − activations − reserved, unless a setting gives its size;
    /// what is allowed follows the pool then
    #[must_use]
    pub fn of(model: &ModelFacts, gpu: &GpuType, shape: &EngineShape) -> Self {
        let allowed_bytes = gpu.memory_bytes * shape.gpu_memory_utilization;
        let weights_bytes = settings::weight_bytes(model, shape);
        let activation_bytes = activation_bytes(model, shape);
        let reserved_bytes = gpu.fit.reserved_bytes + settings::graph_bytes(shape);
        let free_bytes = allowed_bytes - weights_bytes - activation_bytes - reserved_bytes;
        let cache = settings::cache_shape(model, shape);
        let kv_bytes_per_token = settings::token_bytes(model, shape);
        let kv_pool_bytes = settings::pool_bytes(free_bytes, kv_bytes_per_token, shape);
        let allowed_bytes = allowed_bytes + (kv_pool_bytes - free_bytes);
        let block_tokens = f64::from(shape.block_size.max(1));
        let blocks = if kv_bytes_per_token > 0.0 {
            (kv_pool_bytes.max(0.0) / (kv_bytes_per_token * block_tokens)).floor()
        } else {
            0.0
        };
        Self {
            device_bytes: gpu.memory_bytes,
            allowed_bytes,
            weights_bytes,
            activation_bytes,
            reserved_bytes,
            kv_pool_bytes,
            kv_bytes_per_token,
            kv_pool_tokens: blocks * block_tokens,
            needed_tokens: f64::from(shape.max_model_len.unwrap_or(model.max_position)),
            cache,
            block_tokens,
        }
    }

    /// Bytes that one request of the longest legal length takes, in whole blocks.
    #[must_use]
    pub fn request_bytes(&self) -> f64 {
        let blocks = (self.needed_tokens / self.block_tokens).ceil();
        self.cache.bytes(blocks * self.block_tokens)
    }

    /// Whether the engine would start: one longest request must fit the pool, and a pool of a given
    /// size the device.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.kv_pool_bytes > 0.0
            && self.request_bytes() <= self.kv_pool_bytes
            && self.allowed_bytes <= self.device_bytes
    }

    /// Sequences of `context` tokens that the pool holds.
    #[must_use]
    pub fn sequences_at(&self, context: f64) -> f64 {
        let bytes = self.cache.bytes(context);
        if bytes > 0.0 {
            self.kv_pool_bytes.max(0.0) / bytes
        } else {
            0.0
        }
    }

    /// Tokens that the pool holds in sequences of `context` tokens.
    #[must_use]
    pub fn pool_tokens_at(&self, context: f64) -> f64 {
        self.sequences_at(context) * context
    }

    /// Bytes in use with so many live KV tokens. The observing side subtracts the idle part of the
    /// pool from everything that the device reports, and that contains the runtime's share.
    #[must_use]
    pub fn used_bytes(&self, live_tokens: f64) -> f64 {
        self.weights_bytes
            + self.activation_bytes
            + self.reserved_bytes
            + live_tokens * self.kv_bytes_per_token
    }
}

/// Peak activations: the residual stream and its copies, whole on every shard, and the larger of
/// what the widest layer and the sampler need: they do not run at the same time.
///
/// # Formula
/// tokens · 4·H · b / residual shards + max(tokens · widest layer · b, sequences · vocabulary · 8)
fn activation_bytes(model: &ModelFacts, shape: &EngineShape) -> f64 {
    let bytes = model.served_dtype(shape.weight_dtype).activation_bytes();
    let tp = f64::from(shape.tp.max(1));
    let tokens = settings::step_tokens(shape);
    let layers = model.kinds.iter().map(|kind| layer_width(model, kind, tp));
    let layer = tokens * layers.fold(0.0, f64::max) * bytes;
    let logits = f64::from(shape.max_num_seqs) * f64::from(model.vocab) * SAMPLER_BYTES_PER_LOGIT;
    let residual = tokens * 4.0 * f64::from(model.hidden) * bytes;
    residual / settings::residual_shards(shape) + layer.max(logits)
}

/// Elements per token that one layer holds on one shard beside the residual stream.
///
/// # Formula
/// (mixer + 3·width)/tp for dense MLPs; experts hold k·(max(2·w/tp, H) + w/tp), since their outputs
/// are whole before they are summed
fn layer_width(model: &ModelFacts, kind: &LayerKind, tp: f64) -> f64 {
    let head = f64::from(kind.head_dim);
    let mixer = match kind.mixer {
        MixerKind::None => 0.0,
        MixerKind::Full | MixerKind::Sliding | MixerKind::Chunked => {
            f64::from(kind.heads + 2 * kind.kv_heads) * head
        }
        // Queries, keys and values unfolded, or gate, input and output of a state.
        MixerKind::Latent | MixerKind::SparseLatent | MixerKind::Linear | MixerKind::Mamba => {
            4.0 * f64::from(kind.heads) * head
        }
    };
    let dense = 3.0 * kind.dense_width.map_or(0.0, f64::from);
    let experts = match model.moe.filter(|_| kind.mlp.is_routed()) {
        Some(moe) => {
            let width = f64::from(moe.expert_intermediate) / tp;
            let widest = (2.0 * width).max(f64::from(model.hidden));
            f64::from(moe.experts_per_token) * (widest + width)
        }
        None => 0.0,
    };
    (mixer + dense) / tp + experts
}

#[cfg(test)]
mod tests;
