//! `compressed-tensors`: groups of a weight scheme and the modules it is for.

use serde_json::Value;

use super::Scope;
use super::format::{Format, Scales};
use super::methods::Method;
use super::patterns::Patterns;
use crate::model::WeightDtype;
use crate::model::json_text::shown;
use crate::model::reader::{Reader, whole_number};

/// Reads the groups; more than one weight scheme is refused.
pub(super) fn read(reader: &mut Reader<'_>, path: &str, config: &Value) -> Option<Method> {
    let field = format!("{path}.config_groups");
    let Some(groups) = config.get("config_groups").and_then(Value::as_object) else {
        reader
            .violations
            .add(field, "missing; write the groups of the checkpoint");
        return None;
    };
    let mut found: Option<Format> = None;
    let mut only = Patterns::default();
    let mut everything = false;
    for (name, group) in groups {
        let name = shown(name);
        let Some(weights) = group.get("weights").filter(|w| !w.is_null()) else {
            continue;
        };
        let format = match weight_format(weights) {
            Ok(format) => format,
            Err(message) => {
                reader
                    .violations
                    .add(format!("{field}.{name}.weights"), message);
                return None;
            }
        };
        if found.is_some_and(|f| f != format) {
            let message = "formats that differ by module are not modelled";
            reader
                .violations
                .add(format!("{field}.{name}.weights"), message);
            return None;
        }
        found = Some(format);
        let targets = group.get("targets").unwrap_or(&Value::Null);
        let is_linear = targets
            .as_array()
            .is_none_or(|t| t.iter().any(|word| word.as_str() == Some("Linear")));
        everything |= is_linear;
        if !is_linear && let Err(message) = only.add_list(targets) {
            reader
                .violations
                .add(format!("{field}.{name}.targets"), message);
            return None;
        }
    }
    let Some(format) = found else {
        reader
            .violations
            .add(field, "has no group with a weight scheme");
        return None;
    };
    Some(Method {
        name: "compressed-tensors".to_owned(),
        field: "config_groups",
        format,
        scope: Scope::Linear,
        only: (!everything).then_some(only),
        head: everything,
    })
}

/// Elements that share a scale; -1 or none means a whole row.
fn group_size(weights: &Value) -> Result<Option<u32>, String> {
    let Some(value) = weights.get("group_size").filter(|v| !v.is_null()) else {
        return Ok(None);
    };
    if value.as_i64() == Some(-1) {
        return Ok(None);
    }
    let size = whole_number(value).filter(|n| (1..=65_536).contains(n));
    let refusal = "group_size must be -1 or a whole number from 1 to 65536";
    size.map(Some).ok_or_else(|| refusal.to_owned())
}

fn weight_format(weights: &Value) -> Result<Format, String> {
    let text = |key: &str| weights.get(key).and_then(Value::as_str).unwrap_or_default();
    let bits = weights.get("num_bits").and_then(whole_number);
    let group = weights.get("group_size").and_then(whole_number);
    let zero = weights.get("symmetric").and_then(Value::as_bool) == Some(false);
    let dtype = match (text("type"), bits) {
        ("float", Some(8)) => WeightDtype::Fp8,
        ("float", Some(4)) if group == Some(16) => return Ok(Format::nvfp4()),
        ("float", Some(4)) if group == Some(32) => return Ok(Format::mxfp4()),
        ("int", Some(8)) => WeightDtype::Int8,
        ("int", Some(4)) => WeightDtype::Int4,
        (kind, bits) => {
            let bits = bits.map_or_else(|| "no number of".to_owned(), |n| n.to_string());
            return Err(format!(
                "{bits} bits of type {:?} are not supported; float 8 and 4, int 8 and 4 are",
                shown(kind)
            ));
        }
    };
    let zero_bits = if zero { dtype.bits().unwrap_or(0) } else { 0 };
    let scales = match text("strategy") {
        "tensor" => Scales::Tensor { scalars: 1 },
        // Scales are stored in the checkpoint's 16-bit format.
        "channel" => Scales::Channel {
            bits: 16 + zero_bits,
        },
        "group" => Scales::Group {
            size: group_size(weights)?,
            scale_bits: 16,
            zero_bits,
            input_bits: 0,
        },
        "block" => {
            let side = |i: usize| {
                let block = weights.get("block_structure")?;
                let n = block.get(i).and_then(whole_number);
                n.filter(|n| (1..=65_536).contains(n))
            };
            let sides = side(0).zip(side(1));
            let (rows, cols) = sides.ok_or("block_structure must be two numbers up to 65536")?;
            Scales::Block { rows, cols }
        }
        other => {
            return Err(format!(
                "strategy {:?} is not supported; tensor, channel, group and block are",
                shown(other)
            ));
        }
    };
    Ok(Format::of(dtype, scales))
}
