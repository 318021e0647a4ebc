//! The longest context of a checkpoint whose rotary positions are stretched.
//!
//! Engines multiply the trained length by the factor of `linear` and `dynamic` scaling, and the
//! original length by that of `yarn`; the lengths that `llama3` and `longrope` configs state are
//! stretched already, and so are Gemma 3's.

use super::super::reader::Reader;

/// Largest factor that is believed.
const MAX_FACTOR: f64 = 1_024.0;

/// The positions that engines serve, given those that the config states.
pub(super) fn stretched(reader: &mut Reader<'_>, stated: u32, most: u32) -> u32 {
    let found = ["rope_scaling", "rope_parameters"]
        .iter()
        .find_map(|key| reader.find(key));
    let Some((path, scaling)) = found else {
        return stated;
    };
    let is_stretched_already = reader
        .find("model_type")
        .and_then(|(_, name)| name.as_str())
        .is_some_and(|name| name.starts_with("gemma3"));
    let word = |key: &str| scaling.get(key).and_then(serde_json::Value::as_str);
    let number = |key: &str| scaling.get(key).and_then(serde_json::Value::as_f64);
    let from = match word("rope_type").or_else(|| word("type")) {
        Some("linear" | "dynamic") => f64::from(stated),
        Some("yarn") => number("original_max_position_embeddings").unwrap_or(f64::from(stated)),
        _ => return stated,
    };
    let factor = number("factor").filter(|f| (1.0..=MAX_FACTOR).contains(f));
    let longest = (from * factor.unwrap_or(1.0)).min(f64::from(most)) as u32;
    if is_stretched_already || longest <= stated {
        return stated;
    }
    let by = format!("max_position_embeddings stretched by {path}.factor");
    reader.source("max_position", by);
    longest
}
