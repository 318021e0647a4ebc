//! Gives every binary the id of the sources they share: koi-core, the wire and the catalog.
//! Binaries with different ids speak or think differently and must not form one cluster.

#![expect(
    clippy::disallowed_methods,
    reason = "a build script, not the core: it reads the sources"
)]

use std::path::{Path, PathBuf};

fn main() {
    let roots = [
        "src",
        "../proto/koi",
        "../configs/catalog",
        "../configs/calibration",
        "Cargo.toml",
    ];
    let mut files = Vec::new();
    for root in roots {
        println!("cargo::rerun-if-changed={root}");
        collect(Path::new(root), &mut files);
    }
    files.sort();
    let mut hash = Fnv::default();
    for file in files {
        hash.add(file.to_string_lossy().as_bytes());
        // A file that vanished meanwhile counts as empty; the next build sees it.
        hash.add(&std::fs::read(&file).unwrap_or_default());
    }
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo::rustc-env=KOI_BUILD_ID={version}+{:016x}", hash.0);
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    match std::fs::read_dir(path) {
        Ok(entries) => entries
            .flatten()
            .for_each(|entry| collect(&entry.path(), files)),
        Err(_) => files.push(path.to_owned()),
    }
}

/// FNV-1a: an id, not a safeguard against forgery.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
