//! A model as the simulator sees it: `koi_core`'s facts, regrouped into what a step passes through.

use koi_core::model::{KvDtype, ModelFacts, WeightDtype};
use koi_core::violation::FieldViolation;

/// Number format of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 32-bit floats.
    Float32,
    /// bfloat16 or float16.
    Half,
    /// 8-bit floats or integers.
    Eight,
    /// 4-bit weights.
    Four,
}

impl Precision {
    /// Bytes of one weight; quantized ones carry their scales.
    #[must_use]
    pub const fn bytes_per_weight(self) -> f64 {
        match self {
            Self::Float32 => 4.0,
            Self::Half => 2.0,
            Self::Eight => 1.02,
            Self::Four => 0.56,
        }
    }
}

/// Experts of a mixture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experts {
    /// Routed experts per layer.
    pub count: u32,
    /// Routed experts that one token uses.
    pub per_token: u32,
    /// Parameters of one expert.
    pub params_each: f64,
    /// Layers that have experts.
    pub layers: u32,
}

/// Shape of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct SimModel {
    /// Width.
    pub hidden_size: u32,
    /// Layers.
    pub layers: u32,
    /// Query heads.
    pub heads: u32,
    /// Key-value heads.
    pub kv_heads: u32,
    /// Values stored per token and layer, K and V together.
    pub kv_values_per_layer: u32,
    /// Values of query and output per token and layer that attention works on.
    pub attention_width: u32,
    /// Parameters every token passes through, the output head included.
    pub dense_params: f64,
    /// Parameters of the input embedding where it is a matrix of its own.
    pub embedding_params: f64,
    /// Parameters of the output head, which stay unquantized.
    pub head_params: f64,
    /// Mixture of experts, when there is one.
    pub experts: Option<Experts>,
    /// Number format in the file.
    pub precision: Precision,
    /// Longest sequence.
    pub max_positions: u32,
}

/// The file does not describe a model that this simulator can run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("config.json: {}", problems.iter().map(|p| format!("{}: {}", p.field, p.message)).collect::<Vec<_>>().join("; "))]
pub struct ModelConfigError {
    /// Every problem found, with the field.
    pub problems: Vec<FieldViolation>,
}

impl SimModel {
    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// Every missing or implausible field, together.
    pub fn from_config_json(text: &str) -> Result<Self, ModelConfigError> {
        let facts = ModelFacts::from_config_json(text);
        Ok(Self::of_facts(
            &facts.map_err(|problems| ModelConfigError { problems })?,
        ))
    }

    /// Regroups a model's facts.
    #[must_use]
    pub fn of_facts(facts: &ModelFacts) -> Self {
        let experts = facts.moe.map(|moe| Experts {
            count: moe.experts,
            per_token: moe.experts_per_token.min(moe.experts),
            params_each: facts.totals.expert_params
                / (f64::from(moe.experts) * f64::from(moe.sparse_layers.max(1))),
            layers: moe.sparse_layers,
        });
        let routed = experts.map_or(0.0, |e| e.params(e.count));
        let head_params = facts.vocabulary_params() as f64;
        Self {
            hidden_size: facts.hidden,
            layers: facts.layers,
            heads: facts.heads,
            kv_heads: facts.kv_heads,
            kv_values_per_layer: (facts.kv_bytes_per_token(KvDtype::Bf16)
                / (2.0 * f64::from(facts.layers.max(1)))) as u32,
            attention_width: facts.heads * facts.head_dim,
            dense_params: facts.linear_params(false) as f64 - routed + head_params,
            embedding_params: if facts.tied_embeddings {
                0.0
            } else {
                head_params
            },
            head_params,
            experts,
            precision: precision_of(facts.native_weight_dtype),
            max_positions: facts.max_position,
        }
    }

    /// Parameters that one token uses, without the input embedding.
    #[must_use]
    pub fn active_params(&self) -> f64 {
        self.dense_params + self.experts.map_or(0.0, |e| e.params(e.per_token))
    }

    /// All parameters.
    #[must_use]
    pub fn total_params(&self) -> f64 {
        let routed = self.experts.map_or(0.0, |e| e.params(e.count));
        self.dense_params + self.embedding_params + routed
    }
}

impl Experts {
    /// Parameters of this many experts in every routed layer.
    fn params(self, n_experts: u32) -> f64 {
        f64::from(self.layers) * f64::from(n_experts) * self.params_each
    }
}

/// The simulator's group of a weight format.
pub(crate) const fn precision_of(dtype: WeightDtype) -> Precision {
    match dtype {
        WeightDtype::Fp32 => Precision::Float32,
        WeightDtype::Auto | WeightDtype::Bf16 | WeightDtype::Fp16 => Precision::Half,
        WeightDtype::Fp8 | WeightDtype::Int8 => Precision::Eight,
        WeightDtype::Int4 | WeightDtype::Mxfp4 | WeightDtype::Nvfp4 => Precision::Four,
    }
}

/// The number format behind an engine's quantization flag; `None` for an unknown method.
#[must_use]
pub fn precision_of_method(method: &str) -> Option<Precision> {
    match method {
        "awq" | "awq_marlin" | "gptq" | "gptq_marlin" | "bitsandbytes" | "mxfp4"
        | "modelopt_fp4" => Some(Precision::Four),
        "fp8" | "fbgemm_fp8" | "modelopt" | "compressed-tensors" | "experts_int8" => {
            Some(Precision::Eight)
        }
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Llama 3.1 8B's shape.
    pub(crate) fn llama_8b() -> SimModel {
        llama(4096, 32, 32, 14_336)
    }

    /// Llama 3.1 70B's shape.
    pub(crate) fn llama_70b() -> SimModel {
        llama(8192, 80, 64, 28_672)
    }

    fn llama(hidden: u32, layers: u32, heads: u32, intermediate: u32) -> SimModel {
        let text = format!(
            r#"{{"model_type":"llama","hidden_size":{hidden},"num_hidden_layers":{layers},
            "num_attention_heads":{heads},"num_key_value_heads":8,
            "intermediate_size":{intermediate},"vocab_size":128256,"torch_dtype":"bfloat16",
            "max_position_embeddings":131072,"tie_word_embeddings":false}}"#
        );
        SimModel::from_config_json(&text).unwrap()
    }

    fn check_billions(params: f64, want: f64) {
        assert!(
            (params / 1e9 - want).abs() < 0.02 * want,
            "{params} is not {want}e9"
        );
    }

    #[test]
    fn known_models_have_their_size() {
        check_billions(llama_8b().total_params(), 8.03);
        check_billions(llama_70b().total_params(), 70.55);
        assert_eq!(llama_8b().kv_values_per_layer, 2048);
    }

    #[test]
    fn a_mixture_counts_active_and_total() {
        let text = r#"{"model_type":"qwen3_moe","hidden_size":2048,"num_hidden_layers":48,
            "num_attention_heads":32,"num_key_value_heads":4,"head_dim":128,
            "intermediate_size":6144,"vocab_size":151936,"num_experts":128,
            "num_experts_per_tok":8,"moe_intermediate_size":768,"decoder_sparse_step":1,
            "mlp_only_layers":[],"torch_dtype":"bfloat16","max_position_embeddings":40960,
            "tie_word_embeddings":false,"norm_topk_prob":true}"#;
        let model = SimModel::from_config_json(text).unwrap();
        check_billions(model.total_params(), 30.5);
        assert!((2.5..3.5).contains(&(model.active_params() / 1e9)));
    }

    #[test]
    fn a_broken_file_says_what_is_wrong() {
        let error = SimModel::from_config_json(r#"{"model_type":"llama","hidden_size":-1}"#);
        assert!(error.unwrap_err().to_string().contains("hidden_size"));
        assert!(SimModel::from_config_json("[1]").is_err());
    }

    #[test]
    fn quantization_methods_have_a_format() {
        assert_eq!(precision_of_method("fp8"), Some(Precision::Eight));
        assert_eq!(precision_of_method("awq"), Some(Precision::Four));
        assert_eq!(precision_of_method("rot13"), None);
    }
}
