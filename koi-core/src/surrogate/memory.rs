//! Device memory of the fullest GPU of a replica: weights, activations, runtime, KV pool.
//!
//! Not host memory and not what other processes hold. Spec §3 (vram_headroom_gb) and §4.

use serde::{Deserialize, Serialize};

use crate::catalog::GpuType;
use crate::configuration::EngineShape;
use crate::model::ModelFacts;

/// Bytes that captured graphs hold; engines of this generation report 0.5 to 1 GiB.
const GRAPH_BYTES: f64 = 0.7e9;
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
    /// KV bytes of one token on this GPU.
    pub kv_bytes_per_token: f64,
    /// Whole tokens that the pool holds.
    pub kv_pool_tokens: f64,
    /// Tokens that it must hold: one request of the longest legal length.
    pub needed_tokens: f64,
}

impl MemoryBreakdown {
    /// The breakdown of a shape on a device.
    ///
    /// # Formula
    /// pool = memory · utilization − weights − activations − reserved
    #[must_use]
    pub fn of(model: &ModelFacts, gpu: &GpuType, shape: &EngineShape) -> Self {
        let allowed_bytes = gpu.memory_bytes * shape.gpu_memory_utilization;
        let weights_bytes = model.weight_bytes_per_gpu(shape.weight_dtype, shape.tp, shape.pp);
        let activation_bytes = activation_bytes(model, shape);
        let graphs = if shape.enforce_eager {
            0.0
        } else {
            GRAPH_BYTES
        };
        let reserved_bytes = gpu.fit.reserved_bytes + graphs;
        let kv_pool_bytes = allowed_bytes - weights_bytes - activation_bytes - reserved_bytes;
        let kv_bytes_per_token =
            model.kv_bytes_per_token_per_gpu(shape.kv_dtype, shape.tp, shape.pp);
        let block = f64::from(shape.block_size.max(1));
        let blocks = (kv_pool_bytes.max(0.0) / (kv_bytes_per_token * block)).floor();
        Self {
            device_bytes: gpu.memory_bytes,
            allowed_bytes,
            weights_bytes,
            activation_bytes,
            reserved_bytes,
            kv_pool_bytes,
            kv_bytes_per_token,
            kv_pool_tokens: blocks * block,
            needed_tokens: f64::from(shape.max_model_len.unwrap_or(model.max_position)),
        }
    }

    /// Whether the engine would start: one longest request must fit the pool.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.kv_pool_tokens > 0.0 && self.kv_pool_tokens >= self.needed_tokens
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

/// Peak activations: the residual stream and its copies are whole on every shard, the projections
/// and the MLP are split.
fn activation_bytes(model: &ModelFacts, shape: &EngineShape) -> f64 {
    let dtype = model.served_dtype(shape.weight_dtype);
    let mlp_width = model.moe.map_or(f64::from(model.intermediate), |moe| {
        f64::from(moe.expert_intermediate) * f64::from(moe.experts_per_token)
            + f64::from(moe.shared_intermediate.unwrap_or(0))
    });
    let qkv_width = f64::from(model.heads + 2 * model.kv_heads) * f64::from(model.head_dim);
    let split = (3.0 * mlp_width + qkv_width) / f64::from(shape.tp);
    let per_token = (4.0 * f64::from(model.hidden) + split) * dtype.activation_bytes();
    let logits = f64::from(shape.max_num_seqs) * f64::from(model.vocab) * SAMPLER_BYTES_PER_LOGIT;
    f64::from(shape.max_num_batched_tokens) * per_token + logits
}
