//! Reads the numeric cases that an independent program computed.

use std::path::PathBuf;

use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Deserialize)]
pub(crate) struct Case<I, O> {
    pub(crate) name: String,
    #[serde(rename = "in")]
    pub(crate) input: I,
    #[serde(rename = "out")]
    pub(crate) output: O,
}

#[derive(Deserialize)]
struct File {
    cases: Vec<serde_json::Value>,
}

fn folder() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "tests find the shared vectors")]
    let stated = std::env::var("KOI_SHARED").ok().map(PathBuf::from);
    let above = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut candidates = above.ancestors().map(|dir| dir.join("shared"));
    stated
        .or_else(|| candidates.find(|c| c.join("vectors").is_dir()))
        .map(|s| s.join("vectors"))
}

/// The cases of a file whose name starts so; none, loudly, when the vectors are not there.
pub(crate) fn load<I: DeserializeOwned, O: DeserializeOwned>(
    topic: &str,
    name_prefix: &str,
) -> Vec<Case<I, O>> {
    let Some(folder) = folder() else {
        println!("SKIPPED: vector_{topic}: no shared/vectors above this crate; set KOI_SHARED");
        return Vec::new();
    };
    let path = folder.join(format!("{topic}.json"));
    #[expect(clippy::disallowed_methods, reason = "tests read the shared vectors")]
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file: File = serde_json::from_str(&text).unwrap();
    let cases: Vec<Case<I, O>> = file
        .cases
        .into_iter()
        .filter(|c| {
            c["name"]
                .as_str()
                .is_some_and(|name| name.starts_with(name_prefix))
        })
        .map(|c| serde_json::from_value(c).unwrap())
        .collect();
    assert!(
        !cases.is_empty(),
        "{topic}: no case is named {name_prefix}…"
    );
    cases
}

/// Equal within 1e-9 of the larger magnitude.
pub(crate) fn assert_close(name: &str, got: f64, expected: f64) {
    let scale = got.abs().max(expected.abs()).max(f64::MIN_POSITIVE);
    assert!(
        (got - expected).abs() <= 1e-9 * scale,
        "{name}: got {got}, expected {expected}"
    );
}
