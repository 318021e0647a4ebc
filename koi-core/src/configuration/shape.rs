//! The few variables that physics reads, as a flat copyable view.

use serde::{Deserialize, Serialize};

use super::{Configuration, ShapeEffects};
use crate::catalog::{Catalog, Value};
use crate::job::EngineName;
use crate::model::{KvDtype, WeightDtype};
use crate::violation::FieldViolation;

/// What the surrogate and the memory check need to know of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EngineShape {
    /// Tensor-parallel shards.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Expert-parallel shards; 1 or equal to `tp`.
    pub ep: u32,
    /// Most sequences in one step.
    pub max_num_seqs: u32,
    /// Most tokens in one step.
    pub max_num_batched_tokens: u32,
    /// Share of device memory that the engine may use.
    pub gpu_memory_utilization: f64,
    /// Tokens per block of the KV cache.
    pub block_size: u32,
    /// Format of the linear weights.
    pub weight_dtype: WeightDtype,
    /// Format of the KV cache.
    pub kv_dtype: KvDtype,
    /// Whether equal prefixes share blocks.
    pub prefix_caching: bool,
    /// Whether long prompts share steps with decoding.
    pub chunked_prefill: bool,
    /// Whether captured graphs are off.
    pub enforce_eager: bool,
    /// Longest prompt and answer together; absent leaves it to the model.
    pub max_model_len: Option<u32>,
    /// What all other settings do to the physics.
    #[serde(default, skip_serializing_if = "ShapeEffects::is_neutral")]
    pub effects: ShapeEffects,
}

impl EngineShape {
    /// Settings that this view carries as they are; all others are among its effects, or not in it.
    pub const MAIN_SETTINGS: [&'static str; 14] = [
        "tp",
        "pp",
        "ep",
        "max_num_seqs",
        "max_num_batched_tokens",
        "gpu_memory_utilization",
        "block_size",
        "weight_dtype",
        "kvcache_dtype",
        "prefix_cache_enabled",
        "chunked_prefill_enable",
        "enforce_eager",
        "max_model_len",
        "engine_name",
    ];

    /// This view with the effects of a configuration, and with those of its main settings that
    /// `is_set` names; the split and the formats stay.
    #[must_use]
    pub fn under(&self, configuration: &Self, is_set: impl Fn(&str) -> bool) -> Self {
        let mut shape = Self {
            effects: configuration.effects,
            ..*self
        };
        if is_set("max_num_seqs") {
            shape.max_num_seqs = configuration.max_num_seqs;
        }
        if is_set("max_num_batched_tokens") {
            shape.max_num_batched_tokens = configuration.max_num_batched_tokens;
        }
        if is_set("gpu_memory_utilization") {
            shape.gpu_memory_utilization = configuration.gpu_memory_utilization;
        }
        if is_set("block_size") {
            shape.block_size = configuration.block_size;
        }
        if is_set("prefix_cache_enabled") {
            shape.prefix_caching = configuration.prefix_caching;
        }
        if is_set("chunked_prefill_enable") {
            shape.chunked_prefill = configuration.chunked_prefill;
        }
        if is_set("enforce_eager") {
            shape.enforce_eager = configuration.enforce_eager;
        }
        if is_set("max_model_len") {
            shape.max_model_len = configuration.max_model_len;
        }
        shape
    }

    /// GPUs of one replica.
    #[must_use]
    pub const fn gpus(&self) -> u32 {
        self.tp * self.pp
    }
}

impl Default for EngineShape {
    /// The defaults of the embedded catalog's rows; a test holds both together.
    fn default() -> Self {
        Self {
            tp: 1,
            pp: 1,
            ep: 1,
            max_num_seqs: 256,
            max_num_batched_tokens: 8192,
            gpu_memory_utilization: 0.9,
            block_size: 16,
            weight_dtype: WeightDtype::Auto,
            kv_dtype: KvDtype::Auto,
            prefix_caching: true,
            chunked_prefill: true,
            enforce_eager: false,
            max_model_len: None,
            effects: ShapeEffects::NEUTRAL,
        }
    }
}

impl Configuration {
    /// The view for physics under the embedded catalog. A variable that this configuration lacks (it
    /// did not apply, or the row is from before the variable existed) has its default.
    #[must_use]
    pub fn shape(&self) -> EngineShape {
        self.shape_in(Catalog::embedded())
    }

    /// As [`Self::shape`], under a given catalog.
    #[must_use]
    pub fn shape_in(&self, catalog: &Catalog) -> EngineShape {
        let fallback = EngineShape::default();
        EngineShape {
            tp: self.count("tp").unwrap_or(fallback.tp),
            pp: self.count("pp").unwrap_or(fallback.pp),
            ep: self.count("ep").unwrap_or(fallback.ep),
            max_num_seqs: self.count("max_num_seqs").unwrap_or(fallback.max_num_seqs),
            max_num_batched_tokens: self
                .count("max_num_batched_tokens")
                .unwrap_or(fallback.max_num_batched_tokens),
            gpu_memory_utilization: self
                .number("gpu_memory_utilization")
                .unwrap_or(fallback.gpu_memory_utilization),
            block_size: self.count("block_size").unwrap_or(fallback.block_size),
            weight_dtype: self
                .text("weight_dtype")
                .and_then(WeightDtype::from_name)
                .unwrap_or(fallback.weight_dtype),
            kv_dtype: self
                .text("kvcache_dtype")
                .and_then(KvDtype::from_name)
                .unwrap_or(fallback.kv_dtype),
            prefix_caching: self
                .flag("prefix_cache_enabled")
                .unwrap_or(fallback.prefix_caching),
            chunked_prefill: self
                .flag("chunked_prefill_enable")
                .unwrap_or(fallback.chunked_prefill),
            enforce_eager: self.flag("enforce_eager").unwrap_or(fallback.enforce_eager),
            max_model_len: self.count("max_model_len"),
            effects: catalog.shape_effects(self),
        }
    }

    /// The configuration of a shape under the embedded catalog; all other variables have defaults,
    /// for effects do not say which knobs they came from.
    ///
    /// # Errors
    /// The variables of the shape that lie outside their domains.
    pub fn from_shape(
        shape: &EngineShape,
        engine: EngineName,
    ) -> Result<Self, Vec<FieldViolation>> {
        Self::from_shape_in(Catalog::embedded(), shape, engine)
    }

    /// As [`Self::from_shape`], under a given catalog.
    ///
    /// # Errors
    /// As [`Self::from_shape`].
    pub fn from_shape_in(
        catalog: &Catalog,
        shape: &EngineShape,
        engine: EngineName,
    ) -> Result<Self, Vec<FieldViolation>> {
        let mut draft = super::ConfigurationDraft::default();
        let mut set = |id: &str, value: Value| draft.0.insert(id.to_owned(), value);
        set("engine_name", engine.name().into());
        set("tp", shape.tp.into());
        set("pp", shape.pp.into());
        set("ep", shape.ep.into());
        set("max_num_seqs", shape.max_num_seqs.into());
        set(
            "max_num_batched_tokens",
            shape.max_num_batched_tokens.into(),
        );
        set(
            "gpu_memory_utilization",
            shape.gpu_memory_utilization.into(),
        );
        set("block_size", shape.block_size.into());
        set("weight_dtype", shape.weight_dtype.name().into());
        set("kvcache_dtype", shape.kv_dtype.name().into());
        set("prefix_cache_enabled", shape.prefix_caching.into());
        set("chunked_prefill_enable", shape.chunked_prefill.into());
        set("enforce_eager", shape.enforce_eager.into());
        if let Some(tokens) = shape.max_model_len {
            set("max_model_len", tokens.into());
        }
        catalog.configuration(draft)
    }

    fn count(&self, id: &str) -> Option<u32> {
        match self.get(id)? {
            Value::Int(n) => u32::try_from(*n).ok(),
            Value::Bool(_) | Value::Float(_) | Value::Text(_) => None,
        }
    }

    fn number(&self, id: &str) -> Option<f64> {
        match self.get(id)? {
            Value::Float(x) => Some(*x),
            Value::Int(n) => Some(*n as f64),
            Value::Bool(_) | Value::Text(_) => None,
        }
    }

    fn flag(&self, id: &str) -> Option<bool> {
        match self.get(id)? {
            Value::Bool(flag) => Some(*flag),
            Value::Int(_) | Value::Float(_) | Value::Text(_) => None,
        }
    }

    fn text(&self, id: &str) -> Option<&str> {
        match self.get(id)? {
            Value::Text(text) => Some(text),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => None,
        }
    }
}
