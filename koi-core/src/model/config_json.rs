//! From the text of a `config.json` to [`ModelFacts`]; every problem is reported at once.
//!
//! The text is hostile input. A nested language model is found, towers beside it are noted and not
//! counted, and the source of every number is kept. Spec §2.

use serde_json::{Map, Value};

use super::assemble::{Provenance, assemble};
use super::class_names::check_classes;
use super::json_text::{parse_object, shown};
use super::plan::Mixer;
use super::quantization::read_quantization;
use super::reader::{Nested, Reader};
use super::shape::{Shape, read_shape};
use super::{Architecture, ModelFacts, WeightDtype};
use crate::violation::{FieldViolation, nearest};

/// Where wrappers keep the config of their language model.
const INNER: [(&str, &[&str]); 5] = [
    ("text_config", &["text_config"]),
    ("llm_config", &["llm_config"]),
    ("language_config", &["language_config"]),
    (
        "thinker_config.text_config",
        &["thinker_config", "text_config"],
    ),
    ("text_model_config", &["text_model_config"]),
];

/// Parts beside the language model.
const TOWERS: [&str; 6] = [
    "vision_config",
    "audio_config",
    "vision_tower",
    "visual",
    "mm_vision_tower",
    "talker_config",
];

impl ModelFacts {
    /// Reads the facts from the text of a `config.json`.
    ///
    /// # Errors
    /// All problems of the text at once: not JSON, an unsupported architecture (with the list of
    /// the supported ones), missing or out-of-range numbers, a broken shape.
    pub fn from_config_json(text: &str) -> Result<Self, Vec<FieldViolation>> {
        Self::from_texts(text, None)
    }

    /// Reads the facts from a `config.json` and, where the checkpoint has one, ModelOpt's
    /// `hf_quant_config.json`.
    ///
    /// # Errors
    /// As [`Self::from_config_json`], with the problems of both texts.
    pub fn from_texts(config: &str, side_file: Option<&str>) -> Result<Self, Vec<FieldViolation>> {
        let root = parse_object("config.json", config).map_err(|v| vec![v])?;
        let side = side_file.map(|text| parse_object("hf_quant_config.json", text));
        let side = side.transpose().map_err(|v| vec![v])?.map(Value::Object);
        let nested = find_nested(&root);
        let architecture = read_architecture(&root, nested)?;
        let mut reader = Reader::new(&root, nested, architecture.spec().class);
        let classes = check_classes(&root, nested.is_some(), architecture);
        reader.violations.extend("", classes.into_vec());
        note_beside(&mut reader, &root);
        let shape = read_shape(&mut reader, architecture);
        let quantization = read_quantization(&mut reader, side.as_ref());
        let state_dtype = shape
            .as_ref()
            .and_then(|s| read_state_dtype(&mut reader, s));
        if let Some(shape) = &shape {
            check_windows(&mut reader, shape);
        }
        let Reader {
            sources,
            notes,
            violations,
            ..
        } = reader;
        violations.finish(())?;
        let Some(shape) = shape else {
            return Err(vec![FieldViolation {
                field: String::new(),
                message: "config.json lacks required numbers".to_owned(),
            }]);
        };
        let provenance = Provenance { sources, notes };
        let facts = assemble(&shape, &quantization, state_dtype, provenance);
        if facts.quantization.is_some() && facts.parts.iter().all(|p| p.quantized_params == 0) {
            return Err(vec![FieldViolation {
                field: "quantization_config".to_owned(),
                message: "applies to no matrix of this model: what it targets is not there, or all is left out"
                    .to_owned(),
            }]);
        }
        Ok(facts)
    }
}

impl ModelFacts {
    /// Whether the checkpoint holds parts for other media, which are noted and not counted.
    #[must_use]
    pub fn has_other_parts(&self) -> bool {
        self.notes
            .iter()
            .any(|n| TOWERS.contains(&n.field.as_str()))
    }
}

fn find_nested(root: &Map<String, Value>) -> Option<Nested<'_>> {
    INNER.into_iter().find_map(|(path, keys)| {
        let mut map = root;
        for key in keys {
            map = map.get(*key)?.as_object()?;
        }
        Some(Nested { path, map })
    })
}

/// The architecture of the language model: the inner `model_type` where there is one.
fn read_architecture(
    root: &Map<String, Value>,
    nested: Option<Nested<'_>>,
) -> Result<Architecture, Vec<FieldViolation>> {
    let text = |map: &Map<String, Value>| map.get("model_type")?.as_str().map(str::to_owned);
    let inner = nested.and_then(|n| Some((format!("{}.model_type", n.path), text(n.map)?)));
    let named = inner.or_else(|| Some(("model_type".to_owned(), text(root)?)));
    let types = || Architecture::ALL.iter().map(|a| a.model_type());
    let supported = || types().collect::<Vec<_>>().join(", ");
    let (field, message) = match named {
        Some((field, name)) => match Architecture::from_model_type(&name) {
            Some(architecture) => return Ok(architecture),
            None => {
                let hint = nearest(&name, types())
                    .map(|near| format!(" (did you mean {near}?)"))
                    .unwrap_or_default();
                let message = format!(
                    "architecture {:?} is not modelled{hint}; supported: {}",
                    shown(&name),
                    supported()
                );
                (field, message)
            }
        },
        None => (
            "model_type".to_owned(),
            format!("missing; write one of {}", supported()),
        ),
    };
    Err(vec![FieldViolation { field, message }])
}

/// Notes what the checkpoint holds beside the layers that are counted.
impl ModelFacts {
    /// True when the config describes parts for media beside the language model.
    pub(super) fn is_multimodal(&self) -> bool {
        self.notes
            .iter()
            .any(|note| TOWERS.contains(&note.field.as_str()))
    }
}

fn note_beside(reader: &mut Reader<'_>, root: &Map<String, Value>) {
    for tower in TOWERS {
        if root.get(tower).is_some_and(|v| !v.is_null()) {
            reader.note(
                tower,
                "this part's parameters, bytes and time are unknown here; only the language model is counted",
            );
        }
    }
    for key in [
        "num_nextn_predict_layers",
        "num_mtp_modules",
        "mtp_num_hidden_layers",
    ] {
        let found = reader
            .find(key)
            .and_then(|(path, v)| Some((path, v.as_u64()?)));
        if let Some((path, n)) = found.filter(|(_, n)| *n > 0) {
            let message = format!(
                "{n} multi-token prediction layers are not counted; engines load them for speculative decoding only"
            );
            reader.note(path, message);
        }
    }
}

/// Format of recurrent state, where the config says one.
fn read_state_dtype(reader: &mut Reader<'_>, shape: &Shape) -> Option<WeightDtype> {
    let is_recurrent =
        |m: &Mixer| matches!(m, Mixer::Mamba1(_) | Mixer::Mamba2(_) | Mixer::Delta(_));
    if !shape.layers.iter().any(|l| is_recurrent(&l.mixer)) {
        return None;
    }
    let Some((path, value)) = reader.find_any(&["mamba_ssm_dtype", "mamba_ssm_cache_dtype"]) else {
        reader.source("state_dtype", "as torch_dtype (no mamba_ssm_dtype)");
        return None;
    };
    let dtype = match value.as_str() {
        Some("float32") => Some(WeightDtype::Fp32),
        Some("bfloat16" | "auto") => Some(WeightDtype::Bf16),
        Some("float16") => Some(WeightDtype::Fp16),
        _ => None,
    };
    if dtype.is_none() {
        let message = "must be auto, float32, bfloat16 or float16";
        reader.violations.add(path.clone(), message);
    }
    reader.source("state_dtype", path);
    dtype
}

fn check_windows(reader: &mut Reader<'_>, shape: &Shape) {
    let mut windows: Vec<u32> = shape
        .layers
        .iter()
        .filter_map(|layer| match layer.mixer {
            Mixer::Heads(plan) => plan.window.map(|(_, tokens)| tokens),
            _ => None,
        })
        .collect();
    windows.sort_unstable();
    windows.dedup();
    if windows.len() > 1 {
        let shown: Vec<String> = windows.iter().take(8).map(u32::to_string).collect();
        let message = format!(
            "windows of different lengths are not modelled: {} tokens",
            shown.join(", ")
        );
        reader.violations.add("sliding_window", message);
    }
}
