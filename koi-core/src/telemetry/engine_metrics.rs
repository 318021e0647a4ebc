//! From a parsed vLLM metrics page to typed samples per engine; V1 names, with V0 names as aliases.
//!
//! Not a general mapping: the closed set of series is in `series.rs`. A series that is missing,
//! malformed or out of range is absent and listed, never zero. Spec §14; reliability.md C7, E13–E16.

mod collect;

use std::collections::{BTreeMap, BTreeSet};

use crate::telemetry::metrics_text::Page;
use crate::telemetry::sample::{EngineKey, EngineSample};
use crate::telemetry::series::{CounterSeries, GaugeSeries, HistogramSeries, TpotSource};

/// Engines (model name × index) read of one page.
pub const MAX_ENGINES: usize = 64;

/// A counter's metric names, the preferred one first.
#[must_use]
pub const fn counter_metrics(series: CounterSeries) -> &'static [&'static str] {
    match series {
        CounterSeries::PromptTokens => &["vllm:prompt_tokens_total"],
        CounterSeries::GenerationTokens => &["vllm:generation_tokens_total"],
        CounterSeries::PrefixCacheQueries => &[
            "vllm:prefix_cache_queries_total",
            "vllm:gpu_prefix_cache_queries_total",
        ],
        CounterSeries::PrefixCacheHits => &[
            "vllm:prefix_cache_hits_total",
            "vllm:gpu_prefix_cache_hits_total",
        ],
        CounterSeries::Preemptions => &["vllm:num_preemptions_total"],
        CounterSeries::Iterations => &["vllm:iteration_tokens_total_count"],
        CounterSeries::FinishedStop
        | CounterSeries::FinishedLength
        | CounterSeries::FinishedAbort
        | CounterSeries::FinishedError
        | CounterSeries::FinishedOther => &["vllm:request_success_total"],
        CounterSeries::EnergyMillijoules
        | CounterSeries::NvlinkTxBytes
        | CounterSeries::PcieTxBytes => &[],
    }
}

/// A gauge's metric names, the preferred one first.
#[must_use]
pub const fn gauge_metrics(series: GaugeSeries) -> &'static [&'static str] {
    match series {
        GaugeSeries::RunningRequests => &["vllm:num_requests_running"],
        GaugeSeries::WaitingRequests => &["vllm:num_requests_waiting"],
        GaugeSeries::KvCacheUsage => &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
        GaugeSeries::GpuMemoryUsedBytes
        | GaugeSeries::GpuUtilization
        | GaugeSeries::GpuPowerW
        | GaugeSeries::SmActive
        | GaugeSeries::MemoryBandwidth => &[],
    }
}

/// A histogram's family names, the preferred one first.
#[must_use]
pub const fn histogram_metrics(series: HistogramSeries) -> &'static [&'static str] {
    match series {
        HistogramSeries::TimeToFirstToken => &["vllm:time_to_first_token_seconds"],
        HistogramSeries::TimePerOutputToken => &[
            "vllm:request_time_per_output_token_seconds",
            "vllm:time_per_output_token_seconds",
            "vllm:inter_token_latency_seconds",
        ],
        HistogramSeries::PrefillTime => &["vllm:request_prefill_time_seconds"],
        HistogramSeries::DecodeTime => &["vllm:request_decode_time_seconds"],
        HistogramSeries::EndToEnd => &["vllm:e2e_request_latency_seconds"],
        HistogramSeries::QueueTime => &[
            "vllm:request_queue_time_seconds",
            "vllm:time_in_queue_requests",
        ],
        HistogramSeries::PromptTokensPerRequest => &["vllm:request_prompt_tokens"],
        HistogramSeries::GenerationTokensPerRequest => &["vllm:request_generation_tokens"],
    }
}

/// Sources of the time per output token, in the order of [`histogram_metrics`].
const TPOT_SOURCES: [TpotSource; 3] = [
    TpotSource::PerRequest,
    TpotSource::PerToken,
    TpotSource::InterTokenLatency,
];

const CACHE_INFO: &str = "vllm:cache_config_info";
const PROCESS_START: &str = "process_start_time_seconds";

/// True for the metric names this module reads: the allow-list for
/// [`parse_selected`](crate::telemetry::metrics_text::parse_selected).
#[must_use]
pub fn is_wanted(name: &str) -> bool {
    let family = ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|s| name.strip_suffix(s));
    name == CACHE_INFO
        || name == PROCESS_START
        || CounterSeries::ALL
            .iter()
            .any(|s| counter_metrics(*s).contains(&name))
        || GaugeSeries::ALL
            .iter()
            .any(|s| gauge_metrics(*s).contains(&name))
        || family.is_some_and(|f| {
            HistogramSeries::ALL
                .iter()
                .any(|s| histogram_metrics(*s).contains(&f))
        })
}

/// What a page says, per engine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EnginePage {
    /// Samples by model name and engine index.
    pub engines: BTreeMap<EngineKey, EngineSample>,
    /// Start of the serving process, Unix seconds.
    pub process_start_seconds: Option<f64>,
    /// Values that were NaN, infinite, negative or too large for their series.
    pub out_of_range: usize,
    /// Repeated series; the first one counts.
    pub duplicates: usize,
    /// Histograms whose parts do not fit together.
    pub bad_histograms: usize,
    /// Samples of engines past [`MAX_ENGINES`].
    pub over_limit: usize,
}

impl EnginePage {
    /// Reads the typed samples of a page. A last line without a line end is left out: its value may
    /// be cut short.
    #[must_use]
    pub fn from_page(page: &Page<'_>) -> Self {
        collect::collect(page)
    }

    /// Engines that serve this model.
    pub fn of_model<'a>(
        &'a self,
        model_name: &'a str,
    ) -> impl Iterator<Item = (&'a EngineKey, &'a EngineSample)> + 'a {
        self.engines
            .iter()
            .filter(move |(key, _)| key.model_name == model_name)
    }

    /// Expected series that at least one engine of the model does not export, by preferred metric
    /// name; all of them when no engine serves the model.
    #[must_use]
    pub fn missing(&self, model_name: &str) -> BTreeSet<&'static str> {
        let samples: Vec<&EngineSample> = self.of_model(model_name).map(|(_, s)| s).collect();
        let missing = |has: &dyn Fn(&EngineSample) -> bool| {
            samples.is_empty() || !samples.iter().all(|s| has(s))
        };
        let mut names = BTreeSet::new();
        for series in CounterSeries::ALL
            .into_iter()
            .filter(|s| is_always_exported(*s))
        {
            if missing(&|s| s.counters.contains_key(&series)) {
                names.extend(counter_metrics(series).first().copied());
            }
        }
        for series in GaugeSeries::ALL {
            if missing(&|s| s.gauges.contains_key(&series)) {
                names.extend(gauge_metrics(series).first().copied());
            }
        }
        for series in HistogramSeries::ALL {
            if missing(&|s| s.histograms.contains_key(&series)) {
                names.extend(histogram_metrics(series).first().copied());
            }
        }
        if missing(&|s| s.cache.num_gpu_blocks.is_some()) {
            names.insert(CACHE_INFO);
        }
        names
    }
}

/// Finish reasons appear only once they happened, so their absence means nothing.
const fn is_always_exported(series: CounterSeries) -> bool {
    !matches!(
        series,
        CounterSeries::FinishedStop
            | CounterSeries::FinishedLength
            | CounterSeries::FinishedAbort
            | CounterSeries::FinishedError
            | CounterSeries::FinishedOther
    )
}

#[cfg(test)]
mod tests;
