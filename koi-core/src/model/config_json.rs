//! From the text of a `config.json` to [`ModelFacts`]; every problem is reported at once.
//!
//! The text is hostile input. Explicit numbers win over derived ones, `null` means absent, a
//! nested `text_config` is read, and the source of every number is kept. Spec §2.

use serde_json::{Map, Value};

use super::moe_json::read_moe;
use super::quantization::{Quantization, read_quantization};
use super::reader::Reader;
use super::{Architecture, ModelFacts};
use crate::violation::{FieldViolation, Violations};

/// Largest config.json that is read; real ones are below 40 KiB.
const MAX_CONFIG_BYTES: usize = 256 * 1024;
/// Bounds far above every published model; they keep later products inside u64.
pub(super) const MAX_LAYERS: u32 = 1_024;
const MAX_HEADS: u32 = 4_096;
const MAX_HEAD_DIM: u32 = 8_192;
pub(super) const MAX_WIDTH: u32 = 1 << 18;
const MAX_VOCAB: u32 = 1 << 22;
const MAX_POSITION: u32 = 1 << 27;

impl ModelFacts {
    /// Reads the facts from the text of a `config.json`.
    ///
    /// # Errors
    /// All problems of the text at once: not JSON, an unsupported architecture (with the list of
    /// the supported ones), missing or out-of-range numbers, a broken shape.
    pub fn from_config_json(text: &str) -> Result<Self, Vec<FieldViolation>> {
        let one = |message: String| {
            vec![FieldViolation {
                field: String::new(),
                message,
            }]
        };
        if text.len() > MAX_CONFIG_BYTES {
            return Err(one(format!(
                "config.json is {} bytes; at most {MAX_CONFIG_BYTES} are read",
                text.len()
            )));
        }
        let value: Value =
            serde_json::from_str(text).map_err(|e| one(format!("config.json is not JSON: {e}")))?;
        let Value::Object(root) = value else {
            return Err(one("config.json must be a JSON object".to_owned()));
        };
        refuse_towers(&root)?;
        let nested = match root.get("text_config") {
            Some(Value::Object(inner)) => Some(inner),
            _ => None,
        };
        let architecture = read_architecture(&root, nested)?;
        let mut reader = Reader::new(&root, nested);
        let facts = read_facts(&mut reader, architecture);
        reader.violations.finish(())?;
        facts.map_or_else(
            || Err(one("config.json lacks required numbers".to_owned())),
            |facts| Ok(facts.counted()),
        )
    }

    /// Fills in the parameter counts from the shape.
    fn counted(mut self) -> Self {
        let rest = self.embedding_params() + self.small_params();
        self.params_total = self.linear_params(false) + rest;
        self.params_active = self.linear_params(true) + rest;
        self
    }

    /// Norms, biases, routers and gates: everything that is neither linear nor an embedding.
    fn small_params(&self) -> u64 {
        let (hidden, head) = (u64::from(self.hidden), u64::from(self.head_dim));
        let qkv = head * u64::from(self.heads + 2 * self.kv_heads);
        let per_layer = 2 * hidden
            + match self.architecture {
                Architecture::Qwen2 | Architecture::Qwen2Moe => qkv,
                Architecture::Qwen3 | Architecture::Qwen3Moe => 2 * head,
                Architecture::Llama
                | Architecture::Mistral
                | Architecture::Phi3
                | Architecture::Mixtral => 0,
            };
        let routers = self.moe.map_or(0, |moe| {
            let gate = if moe.shared_intermediate.is_some() {
                hidden
            } else {
                0
            };
            u64::from(moe.sparse_layers) * (hidden * u64::from(moe.experts) + gate)
        });
        hidden + u64::from(self.layers) * per_layer + routers
    }
}

fn refuse_towers(root: &Map<String, Value>) -> Result<(), Vec<FieldViolation>> {
    let mut violations = Violations::default();
    for tower in ["vision_config", "audio_config", "encoder"] {
        if root.get(tower).is_some_and(|v| !v.is_null()) {
            violations.add(
                tower,
                "image, audio and encoder towers are not modelled; serve a text-only model",
            );
        }
    }
    violations.finish(())
}

fn read_architecture(
    root: &Map<String, Value>,
    nested: Option<&Map<String, Value>>,
) -> Result<Architecture, Vec<FieldViolation>> {
    let text = |map: &Map<String, Value>| map.get("model_type")?.as_str().map(str::to_owned);
    let name = nested.and_then(text).or_else(|| text(root));
    let supported = Architecture::ALL.map(Architecture::model_type).join(", ");
    let message = match &name {
        Some(name) => match Architecture::from_model_type(name) {
            Some(architecture) => return Ok(architecture),
            None => {
                let name: String = name.chars().take(80).collect();
                format!("architecture {name:?} is not supported; supported: {supported}")
            }
        },
        None => format!("missing; write one of {supported}"),
    };
    Err(vec![FieldViolation {
        field: "model_type".to_owned(),
        message,
    }])
}

fn read_facts(reader: &mut Reader<'_>, architecture: Architecture) -> Option<ModelFacts> {
    let layers = reader.required("layers", "num_hidden_layers", MAX_LAYERS);
    let hidden = reader.required("hidden", "hidden_size", MAX_WIDTH);
    let heads = reader.required("heads", "num_attention_heads", MAX_HEADS);
    let vocab = reader.required("vocab", "vocab_size", MAX_VOCAB);
    let max_position = reader.required("max_position", "max_position_embeddings", MAX_POSITION);
    let intermediate = reader.required("intermediate", "intermediate_size", MAX_WIDTH);
    let kv_heads = read_kv_heads(reader, architecture, heads);
    let head_dim = read_head_dim(reader, architecture, hidden, heads);
    let moe = read_moe(reader, architecture, layers, intermediate);
    let tied_embeddings = reader
        .flag("tied_embeddings", "tie_word_embeddings")
        .unwrap_or(false);
    let stored = reader.find("torch_dtype").or_else(|| reader.find("dtype"));
    let quantization = reader.find("quantization_config");
    let Quantization {
        weight_dtype,
        group,
        source,
    } = read_quantization(stored, quantization, &mut reader.violations);
    reader.source("native_weight_dtype", source);
    refuse_sliding_window(reader, max_position);
    if reader.flag("mlp_bias", "mlp_bias") == Some(true) {
        reader
            .violations
            .add("mlp_bias", "biases in the MLP are not modelled");
    }
    let facts = ModelFacts {
        architecture,
        layers: layers?,
        hidden: hidden?,
        heads: heads?,
        kv_heads: kv_heads?,
        head_dim: head_dim?,
        intermediate: intermediate?,
        vocab: vocab?,
        tied_embeddings,
        moe,
        max_position: max_position?,
        params_total: 0,
        params_active: 0,
        native_weight_dtype: weight_dtype,
        quantization_group: group,
        sources: std::mem::take(&mut reader.sources),
    };
    Some(facts)
}

fn read_kv_heads(
    reader: &mut Reader<'_>,
    architecture: Architecture,
    heads: Option<u32>,
) -> Option<u32> {
    let multi_head = matches!(architecture, Architecture::Llama | Architecture::Phi3);
    let kv = if multi_head && reader.find("num_key_value_heads").is_none() {
        reader.source("kv_heads", "num_attention_heads (no num_key_value_heads)");
        heads
    } else {
        reader.required("kv_heads", "num_key_value_heads", MAX_HEADS)
    };
    let (kv, heads) = (kv?, heads?);
    if !heads.is_multiple_of(kv) {
        reader.violations.add(
            "num_key_value_heads",
            format!("the checkpoint is broken: {heads} query heads are not a multiple of {kv}"),
        );
        return None;
    }
    Some(kv)
}

fn read_head_dim(
    reader: &mut Reader<'_>,
    architecture: Architecture,
    hidden: Option<u32>,
    heads: Option<u32>,
) -> Option<u32> {
    if reader.find("head_dim").is_some() {
        return reader.optional("head_dim", "head_dim", (1, MAX_HEAD_DIM));
    }
    if matches!(architecture, Architecture::Qwen3 | Architecture::Qwen3Moe) {
        reader.source("head_dim", "128, the architecture's default");
        return Some(128);
    }
    let (hidden, heads) = (hidden?, heads?);
    if !hidden.is_multiple_of(heads) {
        reader.violations.add(
            "head_dim",
            format!("the checkpoint is broken: hidden_size {hidden} is not a multiple of {heads} heads and head_dim is absent"),
        );
        return None;
    }
    reader.source("head_dim", "hidden_size / num_attention_heads");
    Some(hidden / heads)
}

fn refuse_sliding_window(reader: &mut Reader<'_>, max_position: Option<u32>) {
    if reader.flag("use_sliding_window", "use_sliding_window") == Some(false) {
        return;
    }
    let Some(window) = reader.optional("sliding_window", "sliding_window", (1, MAX_POSITION))
    else {
        return;
    };
    if max_position.is_some_and(|longest| window < longest) {
        reader.violations.add(
            "sliding_window",
            format!("a window of {window} tokens shorter than the context is not modelled"),
        );
    }
}
