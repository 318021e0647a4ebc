//! The stored weight format from `torch_dtype` and `quantization_config`.
//!
//! Not how a format is computed with; unknown methods are refused by name.

use serde_json::Value;

use super::WeightDtype;
use crate::violation::Violations;

/// What the checkpoint says about its weights.
pub(super) struct Quantization {
    pub(super) weight_dtype: WeightDtype,
    pub(super) group: Option<u32>,
    pub(super) source: String,
}

type Found<'a> = Option<(String, &'a Value)>;

/// Reads both fields; anything not understood becomes a violation.
pub(super) fn read_quantization(
    stored: Found<'_>,
    quantization: Found<'_>,
    violations: &mut Violations,
) -> Quantization {
    let (base, base_source) = read_stored(stored, violations);
    let Some((path, config)) = quantization else {
        return Quantization {
            weight_dtype: base,
            group: None,
            source: base_source,
        };
    };
    let method = config
        .get("quant_method")
        .and_then(Value::as_str)
        .unwrap_or("");
    let (weight_dtype, group) = match method {
        "fp8" => (WeightDtype::Fp8, block_width(config)),
        "awq" | "gptq" => (integer_dtype(config, &path, violations), group_size(config)),
        other => {
            let other: String = other.chars().take(80).collect();
            violations.add(
                format!("{path}.quant_method"),
                format!("{other:?} is not supported; supported: fp8, awq, gptq"),
            );
            (base, None)
        }
    };
    Quantization {
        weight_dtype,
        group,
        source: format!("{path}.quant_method"),
    }
}

fn read_stored(stored: Found<'_>, violations: &mut Violations) -> (WeightDtype, String) {
    let Some((path, value)) = stored else {
        return (
            WeightDtype::Bf16,
            "bf16, since torch_dtype is absent".to_owned(),
        );
    };
    let dtype = match value.as_str() {
        Some("bfloat16") => WeightDtype::Bf16,
        Some("float16" | "half") => WeightDtype::Fp16,
        Some("float32" | "float") => WeightDtype::Fp32,
        _ => {
            violations.add(path.clone(), "must be bfloat16, float16 or float32");
            WeightDtype::Bf16
        }
    };
    (dtype, path)
}

fn integer_dtype(config: &Value, path: &str, violations: &mut Violations) -> WeightDtype {
    let bits = config
        .get("bits")
        .or_else(|| config.get("w_bit"))
        .and_then(Value::as_u64);
    match bits {
        Some(8) => WeightDtype::Int8,
        Some(4) => WeightDtype::Int4,
        _ => {
            violations.add(format!("{path}.bits"), "must be 4 or 8");
            WeightDtype::Int4
        }
    }
}

fn group_size(config: &Value) -> Option<u32> {
    let size = config
        .get("group_size")
        .or_else(|| config.get("q_group_size"))?;
    // -1 means one scale per output channel: no group to cut through.
    size.as_u64()
        .and_then(|n| u32::try_from(n).ok())
        .filter(|n| (1..=65_536).contains(n))
}

fn block_width(config: &Value) -> Option<u32> {
    let first = config.get("weight_block_size")?.as_array()?.first()?;
    first
        .as_u64()
        .and_then(|n| u32::try_from(n).ok())
        .filter(|n| (1..=65_536).contains(n))
}
