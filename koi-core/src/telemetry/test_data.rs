//! Where tests find the shared vectors and captures. Compiled for tests only; reads files.

use std::path::{Path, PathBuf};

/// The shared folder: `KOI_SHARED`, else the first `shared/vectors` above this crate.
pub(crate) fn shared_dir() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("KOI_SHARED") {
        return Some(PathBuf::from(dir));
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .map(|a| a.join("shared"))
        .find(|s| s.join("vectors").is_dir())
}

/// The text of a file below the shared folder; `None`, loudly, when there is none.
pub(crate) fn shared_text(path: &str) -> Option<String> {
    let text = shared_dir().and_then(|dir| read(&dir.join(path)));
    if text.is_none() {
        println!("SKIPPED: no shared/{path}; set KOI_SHARED to the folder that holds it");
    }
    text
}

/// The cases of `vectors/<name>.json`.
pub(crate) fn vector_cases(name: &str) -> Option<Vec<serde_json::Value>> {
    let text = shared_text(&format!("vectors/{name}.json"))?;
    let file: serde_json::Value = serde_json::from_str(&text).expect("vectors are JSON");
    let cases = file["cases"]
        .as_array()
        .expect("vectors have cases")
        .clone();
    assert!(!cases.is_empty(), "{name} has no cases");
    Some(cases)
}

/// Every captured metrics page in the shared data, by name; empty, loudly, when there is none.
pub(crate) fn metrics_pages() -> Vec<(String, String)> {
    let mut pages = Vec::new();
    for folder in ["data/vllm-cpu-capture", "data/metrics_captures"] {
        let Some(dir) = shared_dir().map(|d| d.join(folder)).filter(|d| d.is_dir()) else {
            continue;
        };
        for entry in std::fs::read_dir(dir)
            .expect("a folder can be listed")
            .flatten()
        {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".metrics.txt") || name.ends_with(".prom") {
                pages.push((name, read(&path).expect("captures are UTF-8")));
            }
        }
    }
    if pages.is_empty() {
        println!("SKIPPED: no metrics captures under shared/data; set KOI_SHARED");
    }
    pages.sort();
    pages
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests read shared data; the library does not"
)]
fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}
