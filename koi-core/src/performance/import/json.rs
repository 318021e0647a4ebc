//! Looking into benchmark results in JSON: numbers by path, and names for rows that have none.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::Given;
use crate::violation::{FieldViolation, Violations};

/// How far into a text its kind is looked for.
const LOOK_BYTES: usize = 1 << 20;

fn look(text: &str) -> &str {
    let mut end = text.len().min(LOOK_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

pub(super) fn looks_like_guidellm(text: &str) -> bool {
    look(text).contains("\"benchmarks\"")
}

pub(super) fn looks_like_vllm_bench(text: &str) -> bool {
    let start = look(text);
    let keys = [
        "\"request_throughput\"",
        "\"output_throughput\"",
        "\"mean_ttft_ms\"",
    ];
    keys.iter().any(|k| start.contains(k) || text.contains(k))
}

/// The value at a path of keys.
pub(super) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

/// The finite number at a path.
pub(super) fn number(value: &Value, path: &[&str]) -> Option<f64> {
    at(value, path)?.as_f64().filter(|n| n.is_finite())
}

/// The number at a path, when it is above zero: these reports write 0 for what was not measured.
pub(super) fn positive(value: &Value, path: &[&str]) -> Option<f64> {
    number(value, path).filter(|n| *n > 0.0)
}

/// The text at a path.
pub(super) fn text(value: &Value, path: &[&str]) -> Option<String> {
    at(value, path)?
        .as_str()
        .filter(|t| !t.is_empty())
        .map(str::to_owned)
}

/// A stable id of a result that has none: the digest of what identifies it.
pub(super) fn digest_id(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let bytes = hash.finalize();
    bytes.iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// What a report does not say and nobody gave.
pub(super) fn require_given(given: &Given) -> Result<(), Vec<FieldViolation>> {
    let mut problems = Violations::default();
    if given.gpu_type.is_none() {
        problems.add("gpu_type", "the file does not say it; give it with --gpu");
    }
    if given.tp.is_none() {
        problems.add("tp", "the file does not say it; give it with --tp");
    }
    problems.finish(())
}
