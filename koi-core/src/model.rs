//! What is known of a model from its `config.json`: shape, parameter counts and legal splits.
//!
//! Not the model's speed: that is [`crate::surrogate`]. An architecture whose memory law is not
//! written down here is refused by name, never approximated. White paper V1, Problem Formulation
//! (model M) and Appendix C, Workload Context; spec §2 and §4.

mod architecture;
mod arithmetic;
mod assemble;
mod cache;
mod class_names;
mod config_json;
mod dtype;
mod features;
mod json_text;
mod kinds;
mod known;
mod layers_json;
mod modules;
mod moe_json;
mod plan;
mod quantization;
mod reader;
mod recurrent_json;
mod report;
mod shape;
mod spec;
mod splits;
mod stored;
mod totals;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod tests_support;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use architecture::Architecture;
pub use arithmetic::{
    comm_bytes_per_token, kv_bytes_per_token_of, pipeline_bubble_fraction, stage_layers,
};
pub use cache::{CacheShape, WindowBytes};
pub use dtype::{KvDtype, WeightDtype};
pub use json_text::MAX_CONFIG_BYTES;
pub use kinds::{LayerKind, LayerWeights, MixerKind, MlpKind, Part, PartSum, WeightSum};
pub use known::KnownModel;
pub use quantization::QuantizationFacts;
pub use report::{CacheRow, ModelReport, NamedBytes, Refused, Remark, ReportChoices, Splits};
pub use totals::Totals;

use crate::violation::FieldViolation;

/// The routed part of a mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoeFacts {
    /// Routed experts per layer.
    pub experts: u32,
    /// Routed experts that each token uses.
    pub experts_per_token: u32,
    /// Hidden width of one routed expert.
    pub expert_intermediate: u32,
    /// Hidden width of the always-active shared expert, where the architecture has one.
    pub shared_intermediate: Option<u32>,
    /// Layers that are routed; the others are dense.
    pub sparse_layers: u32,
}

/// Coarse size class, the scope in which mechanisms are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelClass {
    /// Mixture of experts.
    Moe,
    /// Dense with fewer than 15 billion parameters.
    DenseSmall,
    /// Dense with 15 billion parameters or more.
    DenseLarge,
}

impl ModelClass {
    /// The name in catalog scopes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Moe => "moe",
            Self::DenseSmall => "dense_small",
            Self::DenseLarge => "dense_large",
        }
    }
}

/// Dense models below this many parameters are "small".
const DENSE_SMALL_PARAMS: u64 = 15_000_000_000;

/// Facts of one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "stored::StoredFacts")]
pub struct ModelFacts {
    /// Architecture family.
    pub architecture: Architecture,
    /// Decoder layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Query heads.
    pub heads: u32,
    /// Key/value heads of the first layer that has any; 1 for a latent.
    pub kv_heads: u32,
    /// Width of one head of that layer; not always hidden / heads.
    pub head_dim: u32,
    /// Hidden width of the first dense MLP; 0 where there is none.
    pub intermediate: u32,
    /// Vocabulary size.
    pub vocab: u32,
    /// True when input embedding and output head are one matrix.
    pub tied_embeddings: bool,
    /// The routed part, for mixtures of experts.
    pub moe: Option<MoeFacts>,
    /// Longest context that the model was made for.
    pub max_position: u32,
    /// All parameters of the language model.
    pub params_total: u64,
    /// Parameters that one token touches.
    pub params_active: u64,
    /// How the linear weights are stored in the checkpoint.
    pub native_weight_dtype: WeightDtype,
    /// Weights that share one scale; splits may not cut through a group.
    pub quantization_group: Option<u32>,
    /// Format of everything that is not quantized.
    pub base_dtype: WeightDtype,
    /// How the quantized part is stored, for quantized checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<QuantizationFacts>,
    /// Kinds of layers, each with its count.
    pub kinds: Vec<LayerKind>,
    /// Kind of each layer in order, as an index into `kinds`; empty when there is one kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<u16>,
    /// Parameters and stored bytes by part.
    pub parts: Vec<PartSum>,
    /// Sums over the kinds, for predictions.
    #[serde(skip_serializing)]
    pub totals: Totals,
    /// For every number above, the field of config.json (or rule) that it came from.
    pub sources: BTreeMap<String, String>,
    /// What a reader should know that is no error: defaults used, parts not counted.
    pub notes: Vec<FieldViolation>,
}

impl ModelFacts {
    /// Size class of the model.
    #[must_use]
    pub fn class(&self) -> ModelClass {
        match self.moe {
            Some(_) => ModelClass::Moe,
            None if self.params_total < DENSE_SMALL_PARAMS => ModelClass::DenseSmall,
            None => ModelClass::DenseLarge,
        }
    }

    /// The dtype the linear weights have when served under a choice: `auto` is the checkpoint's.
    #[must_use]
    pub const fn served_dtype(&self, choice: WeightDtype) -> WeightDtype {
        match choice {
            WeightDtype::Auto => self.native_weight_dtype,
            WeightDtype::Fp32
            | WeightDtype::Bf16
            | WeightDtype::Fp16
            | WeightDtype::Fp8
            | WeightDtype::Int8
            | WeightDtype::Int4
            | WeightDtype::Mxfp4
            | WeightDtype::Nvfp4 => choice,
        }
    }

    /// Adds the rule behind every number that is computed from others.
    fn with_rules(mut self) -> Self {
        let caches = match self.kinds.iter().find(|k| k.kv_heads > 0).map(|k| k.mixer) {
            Some(MixerKind::Latent | MixerKind::SparseLatent) => {
                "layers × (kv_lora_rank + qk_rope_head_dim) × bytes"
            }
            Some(_) => "layers that cache × 2 × kv_heads × head_dim × bytes",
            None => "no layer caches",
        };
        let active = if self.moe.is_some() {
            "params_total with experts_per_token of the experts, embedding and head included"
        } else {
            "params_total: a dense model uses all of it"
        };
        let rules = [
            (
                "params_total",
                "sum of the parts, each the sizes of its matrices",
            ),
            ("params_active", active),
            ("weight_bytes", "each matrix in its format, scales included"),
            ("kv_bytes_per_token", caches),
            (
                "padded_vocabulary",
                "vocab to the next multiple of 64, as engines pad it",
            ),
        ];
        for (fact, rule) in rules {
            self.sources.insert(fact.to_owned(), rule.to_owned());
        }
        self
    }
}
