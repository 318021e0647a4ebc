//! One reading of one engine: typed values of the closed set of series, absent where not exported.
//!
//! Not the parsing (`engine_metrics.rs`) and not the deltas (`window.rs`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::telemetry::histogram::CumulativeHistogram;
use crate::telemetry::series::{CounterSeries, GaugeSeries, HistogramSeries, TpotSource};

/// Which engine core of a replica: vLLM exports one set of series per data-parallel engine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineKey {
    /// Served model name; empty when the engine exports none.
    pub model_name: String,
    /// Engine index; 0 when the engine exports none (V0).
    pub engine: u32,
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
    /// The KV pool.
    pub cache: CachePool,
}
