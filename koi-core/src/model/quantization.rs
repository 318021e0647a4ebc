//! The stored weight format: `torch_dtype`, `quantization_config`, or ModelOpt's side file.
//!
//! Not how a format is computed with; unknown methods are refused by name, and so is what would
//! give different matrices different formats. Spec §4 (weights with unquantized parts).

mod compressed;
mod format;
mod methods;
mod patterns;

pub(super) use format::Format;
use format::Scales;
use methods::read_method;
use patterns::Patterns;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kinds::Part;
use super::modules::Module;
use super::reader::Reader;
use super::{KvDtype, WeightDtype};

/// What the checkpoint says about its quantized weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuantizationFacts {
    /// Method by its own name.
    pub method: String,
    /// Format of the quantized weights.
    pub weight_dtype: WeightDtype,
    /// Weights that share one scale along the input; splits may not cut through a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// Output elements of one shard must be a multiple of this, for the engine's kernels.
    pub tile_rows: u32,
    /// Input elements of one shard must be a multiple of this.
    pub tile_cols: u32,
    /// Format of the KV cache that the checkpoint brings scales for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_dtype: Option<KvDtype>,
}

/// Which matrices a method touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Linear,
    Experts,
}

/// The formats of a checkpoint's matrices.
pub(super) struct Quantization {
    pub(super) base: WeightDtype,
    pub(super) facts: Option<QuantizationFacts>,
    format: Format,
    scope: Scope,
    /// Matrices that are quantized, where the method lists them.
    only: Option<Patterns>,
    skip: Patterns,
    head: bool,
}

impl Quantization {
    /// Every matrix in the base format.
    pub(super) fn none(base: WeightDtype) -> Self {
        Self {
            base,
            facts: None,
            format: Format::of(base, Scales::None),
            scope: Scope::Linear,
            only: None,
            skip: Patterns::default(),
            head: false,
        }
    }

    /// What rows from before [`QuantizationFacts`] say: a format, and perhaps a group.
    pub(super) fn legacy(dtype: WeightDtype, group: Option<u32>) -> Self {
        let side = group.unwrap_or(128);
        let (method, scales) = match dtype {
            WeightDtype::Fp8 => {
                let block = Scales::Block {
                    rows: side,
                    cols: side,
                };
                let scales = group.map_or(Scales::Tensor { scalars: 1 }, |_| block);
                ("fp8", scales)
            }
            WeightDtype::Int8 | WeightDtype::Int4 => {
                let scales = Scales::Group {
                    size: group,
                    scale_bits: 16,
                    zero_bits: dtype.bits().unwrap_or(0),
                    input_bits: 0,
                };
                ("awq", scales)
            }
            WeightDtype::Auto
            | WeightDtype::Fp32
            | WeightDtype::Bf16
            | WeightDtype::Fp16
            | WeightDtype::Mxfp4
            | WeightDtype::Nvfp4 => return Self::none(dtype),
        };
        let format = Format::of(dtype, scales);
        let (tile_rows, tile_cols) = format.tile();
        Self {
            facts: Some(QuantizationFacts {
                method: method.to_owned(),
                weight_dtype: dtype,
                group,
                tile_rows,
                tile_cols,
                kv_dtype: None,
            }),
            format,
            ..Self::none(WeightDtype::Bf16)
        }
    }

    /// Whether a matrix of a layer is in the quantized format; without one, all are alike.
    pub(super) fn covers(&self, layer: u32, module: &Module) -> bool {
        if self.facts.is_none() {
            return true;
        }
        if self.scope == Scope::Experts && module.part != Part::RoutedExperts {
            return false;
        }
        let listed = |patterns: &Patterns| {
            let mut names = module.names.iter();
            names.any(|name| patterns.matches(layer, name))
        };
        self.only.as_ref().is_none_or(listed) && !listed(&self.skip)
    }

    /// Whether the output head is in the quantized format.
    pub(super) fn covers_head(&self) -> bool {
        self.head && !self.skip.matches_top("lm_head")
    }

    /// Bytes of so many matrices of rows × cols in the quantized format.
    pub(super) fn bytes(&self, rows: u64, cols: u64, count: u64) -> u64 {
        count * self.format.bytes(rows, cols)
    }

    /// Whether the lists depend on the layer.
    pub(super) fn layers_differ(&self) -> bool {
        self.skip.has_layers() || self.only.as_ref().is_some_and(Patterns::has_layers)
    }
}

/// Reads both fields and the side file; anything not understood becomes a violation.
pub(super) fn read_quantization(
    reader: &mut Reader<'_>,
    side_file: Option<&Value>,
) -> Quantization {
    let base = read_base(reader);
    let none = Quantization::none(base);
    let inside = reader.find_any(&["quantization_config", "compression_config"]);
    if let (Some((path, _)), true) = (&inside, side_file.is_some()) {
        reader.note(
            path.clone(),
            "not used: hf_quant_config.json says the formats of this checkpoint",
        );
    }
    let found = match side_file {
        Some(value) => Some(("hf_quant_config".to_owned(), value)),
        None => inside,
    };
    let Some((path, config)) = found else {
        return none;
    };
    // The side file wraps what config.json has at the top.
    let (path, config) = match config.get("quantization") {
        Some(inner) => (format!("{path}.quantization"), inner),
        None => (path, config),
    };
    let read = read_method(reader, &path, config);
    let Some(method) = read else {
        return none;
    };
    reader.source("native_weight_dtype", format!("{path}.{}", method.field));
    let skip = patterns_of(reader, &path, config, SKIPPED);
    let kv_dtype = read_kv_dtype(reader, &path, config);
    let (tile_rows, tile_cols) = method.format.tile();
    let facts = QuantizationFacts {
        method: method.name,
        weight_dtype: method.format.dtype,
        group: method.format.group(),
        tile_rows,
        tile_cols,
        kv_dtype,
    };
    if facts.group.is_some() {
        reader.source(
            "quantization_group",
            format!("{path} (group or block size)"),
        );
    }
    Quantization {
        base,
        facts: Some(facts),
        format: method.format,
        scope: method.scope,
        only: method.only,
        skip,
        head: method.head,
    }
}

/// Fields that list what is left out.
const SKIPPED: [&str; 5] = [
    "modules_to_not_convert",
    "ignore",
    "ignored_layers",
    "exclude_modules",
    "modules_not_to_convert",
];

/// The lists of left-out modules under any of their names.
fn patterns_of(reader: &mut Reader<'_>, path: &str, config: &Value, keys: [&str; 5]) -> Patterns {
    let mut patterns = Patterns::default();
    for key in keys {
        let Some(list) = config.get(key).filter(|v| !v.is_null()) else {
            continue;
        };
        if let Err(message) = patterns.add_list(list) {
            reader.violations.add(format!("{path}.{key}"), message);
        } else if list.as_array().is_some_and(|l| !l.is_empty()) {
            reader.source("unquantized_modules", format!("{path}.{key}"));
        }
    }
    patterns
}

fn read_kv_dtype(reader: &mut Reader<'_>, path: &str, config: &Value) -> Option<KvDtype> {
    let scheme = config.get("kv_cache_scheme").filter(|v| !v.is_null());
    let bits = scheme
        .and_then(|s| s.get("num_bits"))
        .and_then(Value::as_u64);
    let algorithm = config.get("kv_cache_quant_algo").and_then(Value::as_str);
    if bits != Some(8) && algorithm != Some("FP8") {
        return None;
    }
    let key = if algorithm.is_some() {
        "kv_cache_quant_algo"
    } else {
        "kv_cache_scheme"
    };
    reader.note(
        format!("{path}.{key}"),
        "the checkpoint brings scales for an fp8 KV cache; `auto` is counted in the base format, \
         so ask for fp8 where the engine takes the scales up by itself",
    );
    Some(KvDtype::Fp8)
}

/// The format of what is not quantized.
fn read_base(reader: &mut Reader<'_>) -> WeightDtype {
    let Some((path, value)) = reader.find_any(&["torch_dtype", "dtype"]) else {
        let rule = "bf16, since torch_dtype is absent";
        reader.source("native_weight_dtype", rule);
        reader.source("base_dtype", rule);
        reader.note(
            "torch_dtype",
            "absent; bf16 is taken, what engines serve such a checkpoint in; the files' headers say for sure",
        );
        return WeightDtype::Bf16;
    };
    let name = value.as_str().unwrap_or_default();
    let dtype = match name.strip_prefix("torch.").unwrap_or(name) {
        "bfloat16" => WeightDtype::Bf16,
        "float16" | "half" => WeightDtype::Fp16,
        "float32" | "float" => WeightDtype::Fp32,
        _ => {
            let message = "must be bfloat16, float16 or float32";
            reader.violations.add(path.clone(), message);
            WeightDtype::Bf16
        }
    };
    reader.source("native_weight_dtype", path.clone());
    reader.source("base_dtype", path);
    dtype
}
