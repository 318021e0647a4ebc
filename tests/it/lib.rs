//! Support shared by the integration tests: where things are. Not tests, and no mocks of our code.

use std::path::{Path, PathBuf};

/// The root of the workspace.
#[must_use]
pub fn workspace_root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

/// The folder of shared vectors and data: `KOI_SHARED`, else the first `shared/vectors` above the
/// workspace. `None` when there is none.
#[must_use]
pub fn shared_dir() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("KOI_SHARED") {
        return Some(PathBuf::from(dir));
    }
    workspace_root()
        .ancestors()
        .map(|a| a.join("shared"))
        .find(|s| s.join("vectors").is_dir())
}
