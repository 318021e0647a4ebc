//! One reading of one engine: typed values of the closed set of series, absent where not exported.
//!
//! Not the parsing (`engine_metrics.rs`) and not the deltas (`window.rs`).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::telemetry::histogram::CumulativeHistogram;
use crate::telemetry::series::{CounterSeries, GaugeSeries, HistogramSeries, TpotSource};

/// An engine whose metric names are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricsEngine {
    /// vLLM, V0 and V1, and everything that speaks its names.
    Vllm,
    /// SGLang.
    Sglang,
    /// Text Generation Inference.
    Tgi,
}

impl MetricsEngine {
    /// Every member, in a fixed order.
    pub const ALL: [Self; 3] = [Self::Vllm, Self::Sglang, Self::Tgi];

    /// The name on command lines and in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Tgi => "tgi",
        }
    }

    /// What the engine itself puts before its metric names.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Vllm => "vllm:",
            Self::Sglang => "sglang:",
            Self::Tgi => "tgi_",
        }
    }
}

impl fmt::Display for MetricsEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which engine core of a replica: vLLM exports one set of series per data-parallel engine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineKey {
    /// Served model name; empty when the engine exports none.
    pub model_name: String,
    /// Engine index; 0 when the engine exports none (V0).
    pub engine: u32,
    /// Which of several processes behind one page (Ray's replica or worker, an engine label that is
    /// not a number); empty for a page of one process.
    pub replica: String,
    /// Whose names it uses.
    pub kind: MetricsEngine,
}

/// The engine's KV pool, from its `cache_config_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CachePool {
    /// KV blocks on the GPU.
    pub num_gpu_blocks: Option<u64>,
    /// Tokens in a block.
    pub block_size_tokens: Option<u32>,
}

/// What one engine exported.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EngineSample {
    /// Counters since the process started.
    pub counters: BTreeMap<CounterSeries, u64>,
    /// Momentary values.
    pub gauges: BTreeMap<GaugeSeries, f64>,
    /// Histograms since the process started.
    pub histograms: BTreeMap<HistogramSeries, CumulativeHistogram>,
    /// Where the time per output token came from.
    pub tpot_source: Option<TpotSource>,
    /// Share of prefix-cache look-ups that hit, for engines that export no counters of them.
    pub prefix_cache_hit_rate: Option<f64>,
    /// The KV pool.
    pub cache: CachePool,
    /// True when the series carry an engine index: vLLM V1, or a data-parallel SGLang.
    pub has_engine_label: bool,
}
