//! The few numbers of a model's `config.json` that its speed and memory depend on.

use serde_json::Value;

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
    /// Values stored per token and layer (K and V, or the compressed latent).
    pub kv_values_per_layer: u32,
    /// Whether every tensor-parallel shard keeps the whole cache (a compressed latent cannot be split).
    pub kv_replicated: bool,
    /// Values of query and output per token and layer that attention works on.
    pub attention_width: u32,
    /// Parameters every token passes through, without embeddings.
    pub dense_params: f64,
    /// Parameters of the input and output embeddings.
    pub embedding_params: f64,
    /// Mixture of experts, when there is one.
    pub experts: Option<Experts>,
    /// Number format in the file.
    pub precision: Precision,
    /// Longest sequence.
    pub max_positions: u32,
}

/// The file does not describe a model that this simulator can run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("config.json: {}", problems.join("; "))]
pub struct ModelConfigError {
    /// Every problem found, with the field.
    pub problems: Vec<String>,
}

/// Reads numbers out of one JSON object and remembers what was wrong.
struct Reader<'a> {
    object: &'a Value,
    problems: Vec<String>,
}

impl Reader<'_> {
    fn optional(&mut self, names: &[&str], limit: u64) -> Option<u32> {
        let (name, value) = names.iter().find_map(|n| {
            self.object
                .get(n)
                .filter(|v| !v.is_null())
                .map(|value| (*n, value))
        })?;
        match value.as_u64() {
            Some(n) if n <= limit => Some(n as u32),
            _ => {
                self.problems
                    .push(format!("{name} must be a whole number of at most {limit}"));
                None
            }
        }
    }

    fn required(&mut self, name: &str, limit: u64) -> u32 {
        let known = self.problems.len();
        match self.optional(&[name], limit) {
            Some(n) if n > 0 => n,
            _ => {
                if self.problems.len() == known {
                    self.problems
                        .push(format!("{name} must be given and above 0"));
                }
                1
            }
        }
    }
}

impl SimModel {
    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// Every missing or implausible field, together.
    pub fn from_config_json(text: &str) -> Result<Self, ModelConfigError> {
        let fail = |problem: String| ModelConfigError {
            problems: vec![problem],
        };
        let root: Value = serde_json::from_str(text).map_err(|e| fail(e.to_string()))?;
        let object = root
            .get("text_config")
            .filter(|v| v.is_object())
            .unwrap_or(&root);
        if !object.is_object() {
            return Err(fail("the file must be one JSON object".to_owned()));
        }
        let mut reader = Reader {
            object,
            problems: vec![],
        };
        let model = read_shape(&mut reader, &root);
        if reader.problems.is_empty() {
            Ok(model)
        } else {
            Err(ModelConfigError {
                problems: reader.problems,
            })
        }
    }

    /// Parameters that one token uses, without the input embedding.
    #[must_use]
    pub fn active_params(&self) -> f64 {
        let experts = self.experts.map_or(0.0, |e| {
            f64::from(e.layers) * f64::from(e.per_token) * e.params_each
        });
        self.dense_params + experts
    }

    /// All parameters.
    #[must_use]
    pub fn total_params(&self) -> f64 {
        let experts = self.experts.map_or(0.0, |e| {
            f64::from(e.layers) * f64::from(e.count) * e.params_each
        });
        self.dense_params + self.embedding_params + experts
    }
}

fn read_shape(reader: &mut Reader<'_>, root: &Value) -> SimModel {
    let hidden = reader.required("hidden_size", 1 << 17);
    let layers = reader.required("num_hidden_layers", 1 << 10);
    let heads = reader.required("num_attention_heads", 1 << 10);
    let vocab = reader.required("vocab_size", 1 << 22);
    let kv_heads = reader
        .optional(&["num_key_value_heads"], 1 << 10)
        .unwrap_or(heads)
        .max(1);
    let head_dim = reader
        .optional(&["head_dim"], 1 << 12)
        .unwrap_or(hidden / heads)
        .max(1);
    let latent = reader
        .optional(&["kv_lora_rank"], 1 << 16)
        .filter(|rank| *rank > 0);
    let rope = reader.optional(&["qk_rope_head_dim"], 1 << 12).unwrap_or(0);
    let intermediate = reader
        .optional(&["intermediate_size"], 1 << 20)
        .unwrap_or(hidden.saturating_mul(4));
    let tied = reader
        .object
        .get("tie_word_embeddings")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    let experts = read_experts(reader, hidden, layers, intermediate);
    let (h, l) = (f64::from(hidden), f64::from(layers));
    let query_width = f64::from(heads) * f64::from(head_dim);
    let kv_values = latent.map_or(2 * kv_heads * head_dim, |rank| rank + rope);
    let attention = h * (2.0 * query_width + f64::from(kv_values));
    let dense_layers = l - experts.map_or(0.0, |(e, _)| f64::from(e.layers));
    let shared = experts.map_or(0.0, |(e, shared)| f64::from(e.layers) * shared);
    let table = h * f64::from(vocab);
    SimModel {
        hidden_size: hidden,
        layers,
        heads,
        kv_heads,
        kv_values_per_layer: kv_values,
        kv_replicated: latent.is_some(),
        attention_width: heads.saturating_mul(head_dim),
        dense_params: l * attention
            + dense_layers * 3.0 * h * f64::from(intermediate)
            + shared
            + table,
        embedding_params: if tied { 0.0 } else { table },
        experts: experts.map(|(e, _)| e),
        precision: read_precision(root, reader.object),
        max_positions: reader
            .optional(&["max_position_embeddings"], 1 << 30)
            .unwrap_or(2048)
            .max(1),
    }
}

/// The routed experts and the parameters of the shared ones per layer.
fn read_experts(
    reader: &mut Reader<'_>,
    hidden: u32,
    layers: u32,
    intermediate: u32,
) -> Option<(Experts, f64)> {
    let names = ["n_routed_experts", "num_local_experts", "num_experts"];
    let count = reader.optional(&names, 1 << 12).filter(|n| *n > 1)?;
    let per_token = reader
        .optional(&["num_experts_per_tok", "top_k_experts"], 1 << 12)
        .unwrap_or(2);
    let width = reader
        .optional(&["moe_intermediate_size"], 1 << 20)
        .unwrap_or(intermediate);
    let dense = reader
        .optional(&["first_k_dense_replace"], 1 << 10)
        .unwrap_or(0);
    let shared = reader.optional(&["n_shared_experts"], 1 << 6).unwrap_or(0);
    let params_each = 3.0 * f64::from(hidden) * f64::from(width);
    let layers = layers.saturating_sub(dense);
    let experts = Experts {
        count,
        per_token: per_token.clamp(1, count),
        params_each,
        layers,
    };
    Some((experts, f64::from(shared) * params_each))
}

fn read_precision(root: &Value, object: &Value) -> Precision {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("").to_lowercase();
    let quantization = root
        .get("quantization_config")
        .or_else(|| object.get("quantization_config"));
    let method = text(quantization.and_then(|q| q.get("quant_method")));
    let bits = quantization
        .and_then(|q| q.get("bits"))
        .and_then(Value::as_u64);
    if let Some(precision) = precision_of_method(&method, bits) {
        return precision;
    }
    let dtype = object.get("torch_dtype").or_else(|| object.get("dtype"));
    if text(dtype) == "float32" {
        Precision::Float32
    } else {
        Precision::Half
    }
}

/// The number format behind a quantization method's name; `None` for no or an unknown method.
#[must_use]
pub fn precision_of_method(method: &str, bits: Option<u64>) -> Option<Precision> {
    match (method, bits) {
        ("awq" | "awq_marlin" | "mxfp4" | "nvfp4" | "modelopt_fp4" | "bitsandbytes", _)
        | ("gptq" | "gptq_marlin", None | Some(0..=4)) => Some(Precision::Four),
        ("fp8" | "fbgemm_fp8" | "modelopt" | "compressed-tensors", _)
        | ("gptq" | "gptq_marlin", Some(_)) => Some(Precision::Eight),
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
            r#"{{"hidden_size":{hidden},"num_hidden_layers":{layers},"num_attention_heads":{heads},
            "num_key_value_heads":8,"intermediate_size":{intermediate},"vocab_size":128256,
            "torch_dtype":"bfloat16","max_position_embeddings":131072}}"#
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
        let text = r#"{"hidden_size":2048,"num_hidden_layers":48,"num_attention_heads":32,
            "num_key_value_heads":4,"head_dim":128,"intermediate_size":6144,"vocab_size":151936,
            "num_experts":128,"num_experts_per_tok":8,"moe_intermediate_size":768}"#;
        let model = SimModel::from_config_json(text).unwrap();
        check_billions(model.total_params(), 30.5);
        assert!((2.5..3.5).contains(&(model.active_params() / 1e9)));
    }

    #[test]
    fn every_problem_is_reported() {
        let text = r#"{"hidden_size":-1,"num_hidden_layers":0,"vocab_size":"many"}"#;
        let problems = SimModel::from_config_json(text).unwrap_err().problems;
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(SimModel::from_config_json("[1]").is_err());
        assert!(SimModel::from_config_json("{").is_err());
    }

    #[test]
    fn quantized_files_are_seen() {
        assert_eq!(precision_of_method("gptq", Some(8)), Some(Precision::Eight));
        assert_eq!(precision_of_method("awq", None), Some(Precision::Four));
        assert_eq!(precision_of_method("", None), None);
    }
}
