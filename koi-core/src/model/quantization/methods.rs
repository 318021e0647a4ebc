//! The quantization methods that are understood, each from its own fields.

use serde_json::Value;

use super::Scope;
use super::compressed;
use super::format::{Format, Scales};
use super::patterns::Patterns;
use crate::model::WeightDtype;
use crate::model::json_text::shown;
use crate::model::reader::{Reader, whole_number};

/// One method as read.
pub(super) struct Method {
    pub(super) name: String,
    /// The field that said so.
    pub(super) field: &'static str,
    pub(super) format: Format,
    pub(super) scope: Scope,
    pub(super) only: Option<Patterns>,
    pub(super) head: bool,
}

impl Method {
    fn linear(name: &str, field: &'static str, format: Format) -> Self {
        Self {
            name: shown(name),
            field,
            format,
            scope: Scope::Linear,
            only: None,
            head: false,
        }
    }
}

/// Methods that are understood, for refusals.
const METHODS: &str = "fp8, fbgemm_fp8, awq, gptq, compressed-tensors, modelopt, mxfp4";

/// Reads the method by its name; one that is not understood is a violation.
pub(super) fn read_method(reader: &mut Reader<'_>, path: &str, config: &Value) -> Option<Method> {
    let text = |key: &str| config.get(key).and_then(Value::as_str);
    let algorithm = text("quant_algo");
    let name = text("quant_method").unwrap_or(if algorithm.is_some() { "modelopt" } else { "" });
    match name {
        "fp8" => {
            let scales = fp8_scales(reader, path, config)?;
            let format = Format::of(WeightDtype::Fp8, scales);
            Some(Method::linear(name, "quant_method", format))
        }
        "fbgemm_fp8" => {
            let format = Format::of(WeightDtype::Fp8, Scales::Channel { bits: 32 });
            Some(Method::linear(name, "quant_method", format))
        }
        "awq" | "gptq" => integer_method(reader, path, config, name),
        "compressed-tensors" => compressed::read(reader, path, config),
        "mxfp4" => Some(Method {
            scope: Scope::Experts,
            ..Method::linear(name, "quant_method", Format::mxfp4())
        }),
        _ if name.starts_with("modelopt") => modelopt(reader, path, config, name, algorithm),
        other => {
            let message = format!("{:?} is not supported; supported: {METHODS}", shown(other));
            reader
                .violations
                .add(format!("{path}.quant_method"), message);
            None
        }
    }
}

fn fp8_scales(reader: &mut Reader<'_>, path: &str, config: &Value) -> Option<Scales> {
    let Some(block) = config.get("weight_block_size").filter(|v| !v.is_null()) else {
        let is_static = config.get("activation_scheme").and_then(Value::as_str) == Some("static");
        return Some(Scales::Tensor {
            scalars: if is_static { 2 } else { 1 },
        });
    };
    let side = |i: usize| {
        let n = block.get(i).and_then(whole_number)?;
        (1..=65_536).contains(&n).then_some(n)
    };
    let sides = side(0).zip(side(1));
    if sides.is_none() {
        let field = format!("{path}.weight_block_size");
        reader
            .violations
            .add(field, "must be two whole numbers from 1 to 65536");
    }
    let (rows, cols) = sides?;
    Some(Scales::Block { rows, cols })
}

fn integer_method(
    reader: &mut Reader<'_>,
    path: &str,
    config: &Value,
    name: &str,
) -> Option<Method> {
    let field = |keys: [&str; 2]| keys.into_iter().find_map(|key| config.get(key));
    let dtype = match field(["bits", "w_bit"]).and_then(Value::as_u64) {
        Some(8) => WeightDtype::Int8,
        Some(4) => WeightDtype::Int4,
        _ => {
            reader
                .violations
                .add(format!("{path}.bits"), "must be 4 or 8");
            return None;
        }
    };
    if config
        .get("dynamic")
        .is_some_and(|v| v.as_object().is_some_and(|o| !o.is_empty()))
    {
        let message = "formats that differ by module are not modelled";
        reader.violations.add(format!("{path}.dynamic"), message);
        return None;
    }
    // -1 means one scale per output channel: no group to cut through.
    let size = match field(["group_size", "q_group_size"]).and_then(Value::as_i64) {
        Some(-1) => None,
        Some(n) if (1..=65_536).contains(&n) => u32::try_from(n).ok(),
        _ => {
            let message = "must be -1 or a whole number from 1 to 65536";
            reader.violations.add(format!("{path}.group_size"), message);
            return None;
        }
    };
    let zero_bits = if name == "gptq" || config.get("zero_point") != Some(&Value::Bool(false)) {
        dtype.bits().unwrap_or(0)
    } else {
        0
    };
    let scales = Scales::Group {
        size,
        scale_bits: 16,
        zero_bits,
        // GPTQ stores the group of every input element.
        input_bits: if name == "gptq" { 32 } else { 0 },
    };
    let head = config.get("lm_head").and_then(Value::as_bool) == Some(true);
    let format = Format::of(dtype, scales);
    Some(Method {
        head,
        ..Method::linear(name, "quant_method", format)
    })
}

fn modelopt(
    reader: &mut Reader<'_>,
    path: &str,
    config: &Value,
    name: &str,
    algorithm: Option<&str>,
) -> Option<Method> {
    let format = match algorithm.map(str::to_ascii_uppercase).as_deref() {
        Some("FP8") => Format::of(WeightDtype::Fp8, Scales::Tensor { scalars: 2 }),
        Some("FP8_PER_CHANNEL_PER_TOKEN") => {
            Format::of(WeightDtype::Fp8, Scales::Channel { bits: 32 })
        }
        Some("NVFP4" | "NVFP4_AWQ") => {
            let size = config
                .get("group_size")
                .and_then(whole_number)
                .unwrap_or(16);
            if size != 16 {
                let message = format!("NVFP4 has groups of 16, not {size}");
                reader.violations.add(format!("{path}.group_size"), message);
                return None;
            }
            Format::nvfp4()
        }
        other => {
            let message = format!(
                "{:?} is not supported; supported: FP8, FP8_PER_CHANNEL_PER_TOKEN, NVFP4",
                shown(other.unwrap_or("nothing"))
            );
            reader.violations.add(format!("{path}.quant_algo"), message);
            return None;
        }
    };
    Some(Method::linear(name, "quant_algo", format))
}
