//! What is known of a model from its `config.json`: shape, parameter counts and legal splits.
//!
//! Not the model's speed: that is [`crate::surrogate`]. An architecture whose memory law is not
//! written down here is refused by name, never approximated. White paper V1, Problem Formulation
//! (model M) and Appendix C, Workload Context; spec §2 and §4.

mod arithmetic;
mod config_json;
mod dtype;
mod moe_json;
mod quantization;
mod reader;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use arithmetic::{comm_bytes_per_token, kv_bytes_per_token_of, pipeline_bubble_fraction};
pub use dtype::{KvDtype, WeightDtype};

/// A decoder architecture whose parameter and KV arithmetic is exact here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// Llama 2, 3, 3.1, 3.3 and everything of the same shape.
    Llama,
    /// Mistral without a sliding window.
    Mistral,
    /// Qwen2 and Qwen2.5.
    Qwen2,
    /// Qwen3 dense.
    Qwen3,
    /// Phi-3, Phi-3.5-mini and Phi-4.
    Phi3,
    /// Mixtral: every layer routed.
    Mixtral,
    /// Qwen1.5-MoE and Qwen2-MoE: routed layers with a shared expert.
    Qwen2Moe,
    /// Qwen3-MoE.
    Qwen3Moe,
}

impl Architecture {
    /// Every supported architecture.
    pub const ALL: [Self; 8] = [
        Self::Llama,
        Self::Mistral,
        Self::Qwen2,
        Self::Qwen3,
        Self::Phi3,
        Self::Mixtral,
        Self::Qwen2Moe,
        Self::Qwen3Moe,
    ];

    /// The `model_type` in config.json.
    #[must_use]
    pub const fn model_type(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Phi3 => "phi3",
            Self::Mixtral => "mixtral",
            Self::Qwen2Moe => "qwen2_moe",
            Self::Qwen3Moe => "qwen3_moe",
        }
    }

    /// The architecture of this `model_type`.
    #[must_use]
    pub fn from_model_type(model_type: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.model_type() == model_type)
    }
}

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
pub struct ModelFacts {
    /// Architecture family.
    pub architecture: Architecture,
    /// Decoder layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Query heads.
    pub heads: u32,
    /// Key/value heads.
    pub kv_heads: u32,
    /// Width of one head; not always hidden / heads.
    pub head_dim: u32,
    /// Hidden width of the dense MLP.
    pub intermediate: u32,
    /// Vocabulary size.
    pub vocab: u32,
    /// True when input embedding and output head are one matrix.
    pub tied_embeddings: bool,
    /// The routed part, for mixtures of experts.
    pub moe: Option<MoeFacts>,
    /// Longest context that the model was made for.
    pub max_position: u32,
    /// All parameters.
    pub params_total: u64,
    /// Parameters that one token touches.
    pub params_active: u64,
    /// How the linear weights are stored in the checkpoint.
    pub native_weight_dtype: WeightDtype,
    /// Weights that share one scale; splits may not cut through a group.
    pub quantization_group: Option<u32>,
    /// For every number above, the field of config.json (or rule) that it came from.
    pub sources: BTreeMap<String, String>,
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
            | WeightDtype::Int4 => choice,
        }
    }

    /// Whether the model can be split over `tp` shards.
    ///
    /// # Errors
    /// The reason, naming the numbers, when it cannot.
    pub fn legal_tp(&self, tp: u32) -> Result<(), String> {
        if tp == 0 {
            return Err("tp must be at least 1".to_owned());
        }
        let divides = |what: &str, n: u32| {
            n.is_multiple_of(tp)
                .then_some(())
                .ok_or_else(|| format!("tp={tp} does not divide {what} ({n})"))
        };
        divides("the query heads", self.heads)?;
        if !self.kv_heads.is_multiple_of(tp) && !tp.is_multiple_of(self.kv_heads) {
            return Err(format!(
                "tp={tp} neither divides the {} key/value heads nor is a multiple of them",
                self.kv_heads
            ));
        }
        // The engine pads the vocabulary to a multiple of 64 before it splits it.
        divides("the padded vocabulary", self.vocab.next_multiple_of(64))?;
        let group = self.quantization_group.unwrap_or(1);
        for width in self.mlp_widths().into_iter().flatten() {
            divides("an MLP width", width)?;
            if !(width / tp).is_multiple_of(group) {
                return Err(format!(
                    "tp={tp} cuts through a quantization group: width {width} / {tp} is not a multiple of {group}"
                ));
            }
        }
        Ok(())
    }

    /// Whether the model can be cut into `pp` stages.
    ///
    /// # Errors
    /// The reason, naming the numbers, when it cannot.
    pub fn legal_pp(&self, pp: u32) -> Result<(), String> {
        if pp == 0 || pp > self.layers {
            return Err(format!(
                "pp={pp} must be between 1 and the {} layers",
                self.layers
            ));
        }
        Ok(())
    }

    /// Whether experts can be spread over `ep` shards of a tensor-parallel group of `tp`.
    ///
    /// # Errors
    /// The reason, naming the numbers, when they cannot.
    pub fn legal_ep(&self, ep: u32, tp: u32) -> Result<(), String> {
        let Some(moe) = self.moe else {
            let dense = || format!("ep={ep} needs a mixture of experts; this model is dense");
            return (ep == 1).then_some(()).ok_or_else(dense);
        };
        if ep != 1 && ep != tp {
            return Err(format!(
                "ep={ep} must be 1 or equal to tp={tp}: the engine spreads experts over the whole group"
            ));
        }
        if ep > moe.experts {
            return Err(format!("ep={ep} exceeds the {} experts", moe.experts));
        }
        Ok(())
    }

    /// Widths that tensor parallelism splits: dense MLP where a dense layer exists, experts.
    fn mlp_widths(&self) -> [Option<u32>; 3] {
        match self.moe {
            None => [Some(self.intermediate), None, None],
            Some(moe) => {
                let dense = (moe.sparse_layers < self.layers).then_some(self.intermediate);
                [
                    Some(moe.expert_intermediate),
                    moe.shared_intermediate,
                    dense,
                ]
            }
        }
    }
}
