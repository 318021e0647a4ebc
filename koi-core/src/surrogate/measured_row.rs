//! One row of a table of measured serving points, as a question to the surrogate.
//!
//! Only the columns that describe what ran are read; measured columns are not part of the type, so
//! none can leak into a prediction. What the table leaves open is either settled by a rule stated
//! here or refused, never guessed silently. Reading CSV is the caller's business. Spec §4; the
//! columns are those of `perf_tidy.csv`.

mod ask;
mod first_wave;
mod question;

#[cfg(test)]
mod tests;

pub use ask::{RowAnswer, RowPrediction};
pub use question::Question;

/// What the load of a row means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadKind {
    /// Requests kept in flight.
    Concurrency,
    /// One batch, submitted at once, as many requests as the load says.
    StaticBatch,
    /// The engine's limit of sequences under a backlog.
    MaxNumSeqs,
    /// Requests per second.
    RateRps,
    /// So many requests, all sent at once.
    AllAtOnce,
    /// A backlog; the engine's own limits decide.
    Offline,
    /// Throughput under a benchmark's latency rule.
    Scenario,
}

impl LoadKind {
    /// Every name that a row may use.
    pub const NAMES: [&'static str; 10] = [
        "concurrency",
        "batch",
        "max_num_seqs",
        "rate_rps",
        "all_at_once",
        "offline",
        "offline_batch",
        "offline_max",
        "server",
        "interactive",
    ];

    /// The kind of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "concurrency" => Self::Concurrency,
            "batch" => Self::StaticBatch,
            "max_num_seqs" => Self::MaxNumSeqs,
            "rate_rps" => Self::RateRps,
            "all_at_once" => Self::AllAtOnce,
            "offline" | "offline_batch" | "offline_max" => Self::Offline,
            "server" | "interactive" => Self::Scenario,
            _ => return None,
        })
    }

    /// Whether a row of this kind is meaningless without a load.
    #[must_use]
    pub const fn needs_load(self) -> bool {
        match self {
            Self::Concurrency
            | Self::StaticBatch
            | Self::MaxNumSeqs
            | Self::RateRps
            | Self::AllAtOnce => true,
            Self::Offline | Self::Scenario => false,
        }
    }
}

/// What one row says about what ran; absent where the table is silent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MeasuredRow {
    /// Canonical model name.
    pub model: String,
    /// Canonical GPU name with memory.
    pub gpu_type: String,
    /// Devices of the whole deployment.
    pub num_gpus: Option<u32>,
    /// Tensor-parallel shards.
    pub tp: Option<u32>,
    /// Pipeline stages.
    pub pp: Option<u32>,
    /// Expert-parallel shards; `Some(0)` for "on" without a number.
    pub ep: Option<u32>,
    /// Attention data parallelism, or replicas.
    pub dp: Option<u32>,
    /// Engine.
    pub engine: String,
    /// Version of the engine.
    pub engine_version: Option<String>,
    /// Year in which it ran.
    pub year: Option<u32>,
    /// Weight format.
    pub weight_dtype: Option<String>,
    /// KV cache format.
    pub kv_dtype: Option<String>,
    /// Mean prompt tokens.
    pub isl: Option<f64>,
    /// Mean generated tokens.
    pub osl: Option<f64>,
    /// Concurrency or rate, by kind.
    pub load: Option<f64>,
    /// What the load means.
    pub load_kind: Option<LoadKind>,
    /// Prompts and generation ran on different devices.
    pub is_disaggregated: bool,
    /// Requests of the whole run, where stated.
    pub n_requests: Option<u32>,
}
