//! Ratchets of the project itself: who imports whom, how files look, and that the documents tell the
//! truth. No list of exceptions: what fails here is fixed at its source.

mod dependencies;
mod documents;
mod hazards;
mod sources;

use std::path::{Path, PathBuf};

use koi_tests::workspace_root;

/// Crates of the workspace, by folder.
const CRATE_FOLDERS: [&str; 10] = [
    "koi-agent",
    "koi-bench",
    "koi-cli",
    "koi-core",
    "koi-engine-sim",
    "koi-server",
    "koi-shim",
    "koi-sim",
    "proto",
    "tests",
];

/// A Rust source with its path relative to the workspace.
struct Source {
    path: String,
    text: String,
}

/// Every `.rs` file of the workspace.
fn rust_sources() -> Vec<Source> {
    let root = workspace_root();
    let mut sources = Vec::new();
    for folder in CRATE_FOLDERS {
        collect(&root, &root.join(folder), &mut sources);
    }
    assert!(
        sources.len() > 50,
        "found only {} sources below {}",
        sources.len(),
        root.display()
    );
    sources
}

fn collect(root: &Path, folder: &Path, sources: &mut Vec<Source>) {
    let listing = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = listing.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(root, &path, sources);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            let relative = path
                .strip_prefix(root)
                .expect("invariant: listed below the root");
            sources.push(Source {
                path: relative.display().to_string(),
                text: read(&path),
            });
        }
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Fails with all problems at once.
fn refuse(what: &str, problems: &[String]) {
    assert!(problems.is_empty(), "{what}:\n  {}", problems.join("\n  "));
}
