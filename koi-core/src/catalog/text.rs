//! The text of the catalog's files, by path below `configs/catalog`.
//!
//! Not parsed here and not read here: a shell reads a folder, or [`CatalogText::embedded`] gives
//! what is compiled in. layout-and-style 4.3, rule 0.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

macro_rules! catalog_files {
    ($($path:literal),+ $(,)?) => {
        [$(($path, include_str!(concat!("../../../configs/catalog/", $path)))),+]
    };
}

/// Every file of the catalog that is compiled in.
const EMBEDDED: [(&str, &str); 42] = catalog_files![
    "beta_updates.toml",
    "edges.toml",
    "engines/sglang.toml",
    "engines/tensorrt_llm.toml",
    "engines/vllm.toml",
    "features/adapters.toml",
    "features/batching.toml",
    "features/deferred.toml",
    "features/engine.toml",
    "features/environment.toml",
    "features/kernels.toml",
    "features/memory.toml",
    "features/model.toml",
    "features/moe.toml",
    "features/multimodal.toml",
    "features/parallelism.toml",
    "features/quantization.toml",
    "features/speculation.toml",
    "features/workload.toml",
    "hardware/amd.toml",
    "hardware/architectures.toml",
    "hardware/nvidia.toml",
    "hardware/nvidia_mig.toml",
    "hardware/other.toml",
    "instances/aws.toml",
    "instances/azure.toml",
    "instances/gcp.toml",
    "instances/lambda.toml",
    "instances/local.toml",
    "instances/nebius.toml",
    "instances/runpod.toml",
    "mechanisms/batching.toml",
    "mechanisms/experts.toml",
    "mechanisms/extras.toml",
    "mechanisms/kernels.toml",
    "mechanisms/memory.toml",
    "mechanisms/parallelism.toml",
    "mechanisms/phases.toml",
    "mechanisms/prefix_cache.toml",
    "mechanisms/speculation.toml",
    "mediators.toml",
    "outcomes.toml",
];

/// Metric names, apart because they are many and few readers need them.
const EMBEDDED_METRICS: [(&str, &str); 2] =
    catalog_files!["metrics/sglang.toml", "metrics/vllm.toml"];

/// Texts by path, e.g. `features/batching.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogText<'a> {
    files: BTreeMap<&'a str, &'a str>,
}

impl<'a> CatalogText<'a> {
    /// The texts compiled into the binary.
    #[must_use]
    pub fn embedded() -> CatalogText<'static> {
        CatalogText {
            files: EMBEDDED.into_iter().chain(EMBEDDED_METRICS).collect(),
        }
    }

    /// Texts from elsewhere, such as a folder that a shell has read.
    #[must_use]
    pub fn new(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self {
            files: files.into_iter().collect(),
        }
    }

    /// The same texts with one file replaced or added.
    #[must_use]
    pub fn with(mut self, path: &'a str, text: &'a str) -> Self {
        self.files.insert(path, text);
        self
    }

    /// The same texts without one file.
    #[must_use]
    pub fn without(mut self, path: &str) -> Self {
        self.files.remove(path);
        self
    }

    /// The text of one file.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&'a str> {
        self.files.get(path).copied()
    }

    /// All files in order of path.
    pub fn files(&self) -> impl Iterator<Item = (&'a str, &'a str)> + '_ {
        self.files.iter().map(|(path, text)| (*path, *text))
    }

    /// 16 hexadecimal digits of SHA-256 over length-prefixed paths and texts, so that moving a line
    /// between files changes the hash.
    #[must_use]
    pub fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        for part in self.files.iter().flat_map(|(path, text)| [path, text]) {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let digest = hasher.finalize();
        digest
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}
