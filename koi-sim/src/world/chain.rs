//! One chain: a model on devices under settings, with its step times and its room for cache.

use koi_core::configuration::EngineShape;
use koi_core::model::{KvDtype, ModelFacts, WeightDtype};

use super::levers::Levers;
use crate::memory::{Sharding, kv_bytes_per_token, overhead_bytes, weight_bytes_per_device};
use crate::model::{Precision, SimModel, precision_of};
use crate::truth::{Switches, Truth, TruthError, TruthInput};

/// What a chain is made of.
#[derive(Debug, Clone, Copy)]
pub struct ChainInput<'a> {
    /// Model.
    pub model: &'a ModelFacts,
    /// Catalog id of the GPU type.
    pub gpu_type: &'a str,
    /// Memory of one device.
    pub gpu_memory_bytes: f64,
    /// Environment as `market/cloud/region/zone/gpu_type`.
    pub environment: &'a str,
    /// Settings that physics reads.
    pub shape: EngineShape,
    /// Whether the next step is scheduled while the device computes this one.
    pub async_scheduling: bool,
    /// Whether the engine's own all-reduce is used for small messages.
    pub custom_all_reduce: bool,
    /// What is hidden in this place under these settings.
    pub levers: Levers,
}

/// The engine would not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// No truth for the device.
    #[error(transparent)]
    Truth(#[from] TruthError),
    /// Query heads do not divide into shards.
    #[error("{heads} heads do not divide into {shards} shards")]
    Heads {
        /// Query heads.
        heads: u32,
        /// Tensor-parallel width.
        shards: u32,
    },
    /// What is left of the memory holds no sequence of the longest legal length.
    #[error("the cache would hold {tokens} tokens, and one sequence may need {needed}")]
    NoRoom {
        /// Tokens that the pool would hold.
        tokens: u64,
        /// Tokens of the longest legal sequence.
        needed: u64,
    },
}

/// A chain that starts.
#[derive(Debug, Clone)]
pub struct Chain {
    pub(super) truth: Truth,
    pub(super) shape: EngineShape,
    pub(super) levers: Levers,
    /// Devices.
    pub(super) devices: u32,
    /// KV blocks of the pool.
    pub(super) blocks: u64,
    /// Bytes of one block on one device, as the engine allocates it.
    pub(super) block_bytes: f64,
    /// Bytes of weights, activations and runtime on the fullest device.
    pub(super) used_bytes: f64,
}

impl Chain {
    /// The chain as the engine would start it.
    ///
    /// # Errors
    /// A device without truth, heads that do not divide, no room for one sequence.
    pub fn new(input: &ChainInput<'_>) -> Result<Self, ChainError> {
        let model = SimModel::of_facts(input.model);
        let shape = input.shape;
        let cut = Sharding {
            tensor: shape.tp,
            pipeline: shape.pp,
        };
        if !model.heads.is_multiple_of(cut.tensor.max(1)) {
            return Err(ChainError::Heads {
                heads: model.heads,
                shards: cut.tensor,
            });
        }
        let precision = precision(&model, shape.weight_dtype);
        let value_bytes = value_bytes(shape.kv_dtype);
        let truth = Truth::new(&TruthInput {
            gpu_type: input.gpu_type,
            environment: input.environment,
            model: &model,
            precision,
            kv_value_bytes: value_bytes,
            cut,
            switches: Switches {
                eager: shape.enforce_eager,
                expert_parallel: shape.ep > 1,
                async_scheduling: input.async_scheduling,
                custom_all_reduce: input.custom_all_reduce,
            },
        })?;
        let used = weight_bytes_per_device(&model, precision, cut)
            + overhead_bytes(
                &model,
                shape.max_num_batched_tokens,
                cut,
                shape.enforce_eager,
            );
        let block_bytes =
            kv_bytes_per_token(&model, value_bytes, cut) * f64::from(shape.block_size);
        let free = input.gpu_memory_bytes * shape.gpu_memory_utilization - used as f64;
        let blocks = (free.max(0.0) / block_bytes * input.levers.pool) as u64;
        let needed = u64::from(shape.max_model_len.unwrap_or(model.max_positions));
        let tokens = blocks * u64::from(shape.block_size);
        if tokens < needed {
            return Err(ChainError::NoRoom { tokens, needed });
        }
        Ok(Self {
            truth,
            shape,
            levers: input.levers,
            devices: cut.n_devices(),
            blocks,
            block_bytes,
            used_bytes: used as f64,
        })
    }

    /// The same chain with every step, and the part of it that generates tokens, taking so many times
    /// as long.
    #[must_use]
    pub fn slowed(&self, step: f64, decode: f64) -> Self {
        let mut slowed = self.clone();
        slowed.levers.step *= step;
        slowed.levers.decode *= decode;
        slowed
    }

    /// Tokens that the pool holds.
    #[must_use]
    pub fn pool_tokens(&self) -> f64 {
        self.blocks as f64 * f64::from(self.shape.block_size)
    }
}

/// The format in which the weights are served.
fn precision(model: &SimModel, dtype: WeightDtype) -> Precision {
    match dtype {
        WeightDtype::Auto => model.precision,
        other => precision_of(other),
    }
}

const fn value_bytes(dtype: KvDtype) -> f64 {
    match dtype {
        KvDtype::Auto | KvDtype::Bf16 => 2.0,
        KvDtype::Fp8 => 1.0,
    }
}
