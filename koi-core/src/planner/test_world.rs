//! What the planner's tests share.

/// A vector file, or `None` (said aloud) where the shared folder is missing.
pub(crate) fn vector(name: &str) -> Option<serde_json::Value> {
    let shared = std::env::var_os("KOI_SHARED").map(std::path::PathBuf::from).or_else(|| {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .map(|folder| folder.join("shared"))
            .find(|folder| folder.join("vectors").is_dir())
    });
    let path = shared?.join("vectors").join(format!("{name}.json"));
    let Ok(file) = std::fs::File::open(&path) else {
        println!("SKIPPED: {} is not there", path.display());
        return None;
    };
    Some(serde_json::from_reader(file).unwrap())
}
