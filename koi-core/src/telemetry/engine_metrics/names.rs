//! Metric names of the engines, and what each means in the closed set of series.
//!
//! Engines rename metrics between versions and between generations (vLLM V0 and V1); all names of one
//! meaning stand together, the preferred one first. Spec §14; reliability.md E16. Sources: captured
//! pages of vLLM 0.5 to 0.32, SGLang and TGI, and the engines' own metric documentation (2026-11).

use std::sync::LazyLock;

use crate::telemetry::sample::MetricsEngine;
use crate::telemetry::series::{CounterSeries, GaugeSeries, HistogramSeries, TpotSource};

/// What a metric means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A counter.
    Counter(CounterSeries),
    /// A counter that is split by labels which do not matter here; the parts are added up.
    SplitCounter(CounterSeries),
    /// Finished requests by the label `finished_reason`.
    Finished,
    /// A gauge.
    Gauge(GaugeSeries),
    /// Share of prefix-cache look-ups that hit, as a momentary value.
    PrefixCacheHitRate,
    /// A histogram.
    Histogram(HistogramSeries),
    /// A histogram of the time per output token.
    TimePerOutputToken(TpotSource),
    /// The KV pool in labels.
    CacheInfo,
}

/// One name of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricName {
    /// Which engine uses it.
    pub engine: MetricsEngine,
    /// Name without the engine's prefix.
    pub name: &'static str,
    /// What it means.
    pub meaning: Meaning,
}

/// The part of a family that a sample name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The whole metric.
    Whole,
    /// A bucket of a histogram.
    Bucket,
    /// The sum of a histogram.
    Sum,
    /// The count of a histogram.
    Count,
}

/// A name that was found: its row in [`METRIC_NAMES`] and the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) row: usize,
    pub(super) part: Part,
}

macro_rules! rows {
    ($($engine:ident { $($($name:literal),+ => $meaning:expr;)+ })+) => {
        &[$($($(MetricName {
            engine: MetricsEngine::$engine,
            name: $name,
            meaning: $meaning,
        },)+)+)+]
    };
}

/// Every known name; of the names of one meaning the first one on a page counts.
///
/// Counters stand with and without `_total`: Ray exports both forms of each.
pub const METRIC_NAMES: &[MetricName] = rows! {
    Vllm {
        "prompt_tokens_total", "prompt_tokens" => Meaning::Counter(CounterSeries::PromptTokens);
        "generation_tokens_total", "generation_tokens" => Meaning::Counter(CounterSeries::GenerationTokens);
        "prefix_cache_queries_total", "prefix_cache_queries",
        "gpu_prefix_cache_queries_total", "gpu_prefix_cache_queries" => Meaning::Counter(CounterSeries::PrefixCacheQueries);
        "prefix_cache_hits_total", "prefix_cache_hits",
        "gpu_prefix_cache_hits_total", "gpu_prefix_cache_hits" => Meaning::Counter(CounterSeries::PrefixCacheHits);
        "num_preemptions_total", "num_preemptions" => Meaning::Counter(CounterSeries::Preemptions);
        "iteration_tokens_total_count" => Meaning::Counter(CounterSeries::Iterations);
        "request_success_total", "request_success" => Meaning::Finished;
        "num_requests_running" => Meaning::Gauge(GaugeSeries::RunningRequests);
        "num_requests_waiting" => Meaning::Gauge(GaugeSeries::WaitingRequests);
        "kv_cache_usage_perc", "gpu_cache_usage_perc" => Meaning::Gauge(GaugeSeries::KvCacheUsage);
        "gpu_prefix_cache_hit_rate" => Meaning::PrefixCacheHitRate;
        "time_to_first_token_seconds" => Meaning::Histogram(HistogramSeries::TimeToFirstToken);
        "request_time_per_output_token_seconds" => Meaning::TimePerOutputToken(TpotSource::PerRequest);
        "time_per_output_token_seconds" => Meaning::TimePerOutputToken(TpotSource::PerToken);
        "inter_token_latency_seconds" => Meaning::TimePerOutputToken(TpotSource::InterTokenLatency);
        "request_prefill_time_seconds" => Meaning::Histogram(HistogramSeries::PrefillTime);
        "request_decode_time_seconds" => Meaning::Histogram(HistogramSeries::DecodeTime);
        "e2e_request_latency_seconds" => Meaning::Histogram(HistogramSeries::EndToEnd);
        "request_queue_time_seconds", "time_in_queue_requests" => Meaning::Histogram(HistogramSeries::QueueTime);
        "request_prompt_tokens" => Meaning::Histogram(HistogramSeries::PromptTokensPerRequest);
        "request_generation_tokens" => Meaning::Histogram(HistogramSeries::GenerationTokensPerRequest);
        "cache_config_info" => Meaning::CacheInfo;
    }
    Sglang {
        "prompt_tokens_total", "prompt_tokens" => Meaning::Counter(CounterSeries::PromptTokens);
        "generation_tokens_total", "generation_tokens" => Meaning::Counter(CounterSeries::GenerationTokens);
        "cached_tokens_total", "cached_tokens" => Meaning::SplitCounter(CounterSeries::PrefixCacheHits);
        "num_aborted_requests_total" => Meaning::SplitCounter(CounterSeries::FinishedAbort);
        "num_requests_total" => Meaning::SplitCounter(CounterSeries::FinishedOther);
        "num_running_reqs" => Meaning::Gauge(GaugeSeries::RunningRequests);
        "num_queue_reqs" => Meaning::Gauge(GaugeSeries::WaitingRequests);
        "token_usage" => Meaning::Gauge(GaugeSeries::KvCacheUsage);
        "cache_hit_rate" => Meaning::PrefixCacheHitRate;
        "time_to_first_token_seconds" => Meaning::Histogram(HistogramSeries::TimeToFirstToken);
        "request_time_per_output_token_seconds" => Meaning::TimePerOutputToken(TpotSource::PerRequest);
        "time_per_output_token_seconds" => Meaning::TimePerOutputToken(TpotSource::PerToken);
        "inter_token_latency_seconds" => Meaning::TimePerOutputToken(TpotSource::InterTokenLatency);
        "e2e_request_latency_seconds" => Meaning::Histogram(HistogramSeries::EndToEnd);
        "queue_time_seconds" => Meaning::Histogram(HistogramSeries::QueueTime);
        "prompt_tokens_histogram" => Meaning::Histogram(HistogramSeries::PromptTokensPerRequest);
        "generation_tokens_histogram" => Meaning::Histogram(HistogramSeries::GenerationTokensPerRequest);
    }
    Tgi {
        "request_input_length_sum" => Meaning::Counter(CounterSeries::PromptTokens);
        "request_generated_tokens_sum" => Meaning::Counter(CounterSeries::GenerationTokens);
        "batch_inference_count" => Meaning::SplitCounter(CounterSeries::Iterations);
        "request_failure", "request_failure_total" => Meaning::SplitCounter(CounterSeries::FinishedError);
        "request_success", "request_success_total" => Meaning::SplitCounter(CounterSeries::FinishedOther);
        "batch_current_size" => Meaning::Gauge(GaugeSeries::RunningRequests);
        "queue_size" => Meaning::Gauge(GaugeSeries::WaitingRequests);
        "request_mean_time_per_token_duration" => Meaning::TimePerOutputToken(TpotSource::PerRequest);
        "request_duration" => Meaning::Histogram(HistogramSeries::EndToEnd);
        "request_queue_duration" => Meaning::Histogram(HistogramSeries::QueueTime);
        "request_input_length" => Meaning::Histogram(HistogramSeries::PromptTokensPerRequest);
        "request_generated_tokens" => Meaning::Histogram(HistogramSeries::GenerationTokensPerRequest);
    }
};

impl MetricName {
    /// True for names that stand for several samples: buckets, sum and count.
    pub(super) const fn is_histogram(&self) -> bool {
        matches!(
            self.meaning,
            Meaning::Histogram(_) | Meaning::TimePerOutputToken(_)
        )
    }

    /// The name as the engine itself exports it.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}{}", self.engine.prefix(), self.name)
    }
}

/// Rows by engine and length of the name: hardly two names of an engine are equally long, so a name
/// is compared with one or two others.
struct Index([Vec<Vec<usize>>; MetricsEngine::ALL.len()]);

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index::default();
    for (row, name) in METRIC_NAMES.iter().enumerate() {
        let lengths = &mut index.0[name.engine as usize];
        let length = name.name.len();
        lengths.resize(lengths.len().max(length + 1), Vec::new());
        lengths[length].push(row);
    }
    index
});

impl Default for Index {
    fn default() -> Self {
        Self(MetricsEngine::ALL.map(|_| Vec::new()))
    }
}

impl Index {
    fn row(&self, engine: MetricsEngine, name: &str, is_histogram: bool) -> Option<usize> {
        let rows = self.0[engine as usize].get(name.len())?;
        let fits = |row: &&usize| {
            let known = &METRIC_NAMES[**row];
            known.name == name && known.is_histogram() == is_histogram
        };
        rows.iter().find(fits).copied()
    }
}

/// What a sample name stands for; `None` for names that are not in the closed set.
pub(super) fn find(name: &str) -> Option<Found> {
    let (engine, name) = split_prefix(name)?;
    if let Some(row) = INDEX.row(engine, name, false) {
        let part = Part::Whole;
        return Some(Found { row, part });
    }
    let parts = [
        ("_bucket", Part::Bucket),
        ("_sum", Part::Sum),
        ("_count", Part::Count),
    ];
    let (stem, part) = parts
        .into_iter()
        .find_map(|(suffix, part)| Some((name.strip_suffix(suffix)?, part)))?;
    let row = INDEX.row(engine, stem, true)?;
    Some(Found { row, part })
}

/// The histogram of a sum that is also a counter of its own.
pub(super) fn find_histogram_part(name: &str) -> Option<Found> {
    let stem = name.strip_suffix("_sum")?;
    let (engine, stem) = split_prefix(stem)?;
    let row = INDEX.row(engine, stem, true)?;
    let part = Part::Sum;
    Some(Found { row, part })
}

/// The engine of a name, and the name without its prefix. Ray puts its own prefix before the
/// engine's and, in most versions, writes the colon as an underscore; so do some exporters.
fn split_prefix(name: &str) -> Option<(MetricsEngine, &str)> {
    let name = name.strip_prefix("ray_").unwrap_or(name);
    let after = |word: &str| {
        let rest = name.strip_prefix(word)?;
        rest.strip_prefix([':', '_'])
    };
    if let Some(rest) = after("vllm") {
        Some((MetricsEngine::Vllm, rest))
    } else if let Some(rest) = after("sglang") {
        Some((MetricsEngine::Sglang, rest))
    } else {
        Some((MetricsEngine::Tgi, name.strip_prefix("tgi_")?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(name: &str) -> Option<(Meaning, Part)> {
        find(name).map(|f| (METRIC_NAMES[f.row].meaning, f.part))
    }

    #[test]
    fn every_name_stands_once_and_is_found() {
        for (index, row) in METRIC_NAMES.iter().enumerate() {
            let full = row.full_name();
            let (full, part) = if row.is_histogram() {
                (full + "_bucket", Part::Bucket)
            } else {
                (full, Part::Whole)
            };
            assert_eq!(find(&full), Some(Found { row: index, part }), "{full}");
        }
    }

    #[test]
    fn hazard_e16_prefixes_of_ray_and_of_rewriting_exporters_are_read() {
        let running = Some((Meaning::Gauge(GaugeSeries::RunningRequests), Part::Whole));
        for name in [
            "vllm:num_requests_running",
            "vllm_num_requests_running",
            "ray_vllm:num_requests_running",
            "ray_vllm_num_requests_running",
            "sglang:num_running_reqs",
            "tgi_batch_current_size",
        ] {
            assert_eq!(meaning(name), running, "{name}");
        }
        let tokens = Some((Meaning::Counter(CounterSeries::PromptTokens), Part::Whole));
        assert_eq!(meaning("ray_vllm_prompt_tokens"), tokens);
        assert_eq!(meaning("ray_vllm_prompt_tokens_total"), tokens);
        for other in [
            "num_requests_running",
            "vllm",
            "vllmx:num_requests_running",
            "tgi:queue_size",
            "ray_",
        ] {
            assert_eq!(meaning(other), None, "{other}");
        }
    }

    #[test]
    fn a_histogram_is_found_by_its_parts_only() {
        let ttft = Meaning::Histogram(HistogramSeries::TimeToFirstToken);
        let name = "vllm:time_to_first_token_seconds";
        assert_eq!(meaning(&format!("{name}_sum")), Some((ttft, Part::Sum)));
        assert_eq!(meaning(&format!("{name}_count")), Some((ttft, Part::Count)));
        assert_eq!(meaning(name), None);
        assert_eq!(meaning("vllm:num_requests_running_sum"), None);
        let sum = "tgi_request_input_length_sum";
        assert_eq!(meaning(sum).map(|m| m.1), Some(Part::Whole));
        assert_eq!(find_histogram_part(sum).map(|f| f.part), Some(Part::Sum));
        assert_eq!(
            find_histogram_part(&format!("{name}_sum")),
            find(&format!("{name}_sum"))
        );
    }
}
