//! Which series an engine of a version exports, and which of them a page lacks.
//!
//! Finish reasons appear only once they happened, so their absence means nothing.

use std::fmt;

use super::names::{METRIC_NAMES, Meaning};
use crate::catalog::EngineVersion;
use crate::telemetry::sample::{EngineSample, MetricsEngine};
use crate::telemetry::series::{CounterSeries, GaugeSeries, HistogramSeries};

/// vLLM without a V1 engine by default: the prefix cache had a rate, not counters.
const VLLM_V1: EngineVersion = version(0, 8, 0);
/// vLLM that times the phases of a request.
const VLLM_PHASES: EngineVersion = version(0, 6, 5);
/// Taken for a V0 page whose version is not told: the last release whose default was V0.
const VLLM_LAST_V0: EngineVersion = version(0, 7, 3);
const NEWEST: EngineVersion = version(u32::MAX, 0, 0);

const fn version(major: u32, minor: u32, patch: u32) -> EngineVersion {
    EngineVersion {
        major,
        minor,
        patch,
    }
}

/// An engine and its version, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expectation {
    /// Engine.
    pub engine: MetricsEngine,
    /// Version.
    pub version: EngineVersion,
}

/// An expected series that is not there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingSeries {
    /// Name in the closed set of series.
    pub series: &'static str,
    /// Name that the engine's newest version gives it.
    pub metric: String,
}

impl fmt::Display for MissingSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.series, self.metric)
    }
}

impl Expectation {
    /// Of the newest version of an engine.
    #[must_use]
    pub const fn newest(engine: MetricsEngine) -> Self {
        Self {
            engine,
            version: NEWEST,
        }
    }

    /// Of an engine whose version is not told: what its page looks like decides between vLLM's
    /// generations.
    #[must_use]
    pub const fn guessed(engine: MetricsEngine, sample: &EngineSample) -> Self {
        let is_v0 = matches!(engine, MetricsEngine::Vllm) && !sample.has_engine_label;
        Self {
            engine,
            version: if is_v0 { VLLM_LAST_V0 } else { NEWEST },
        }
    }

    /// Expected series that the sample does not have, by name.
    #[must_use]
    pub fn missing(&self, sample: &EngineSample) -> Vec<MissingSeries> {
        let mut missing: Vec<MissingSeries> = Vec::new();
        for name in METRIC_NAMES.iter().filter(|n| n.engine == self.engine) {
            let series = match self.absent(name.meaning, sample) {
                Some(series) if !missing.iter().any(|m| m.series == series) => series,
                Some(_) | None => continue,
            };
            missing.push(MissingSeries {
                series,
                metric: name.full_name(),
            });
        }
        missing.sort();
        missing
    }

    /// The series of this meaning when it is expected and absent.
    fn absent(&self, meaning: Meaning, sample: &EngineSample) -> Option<&'static str> {
        let (series, is_there) = match meaning {
            Meaning::Counter(series) | Meaning::SplitCounter(series) => {
                (series.name(), sample.counters.contains_key(&series))
            }
            Meaning::Gauge(series) => (series.name(), sample.gauges.contains_key(&series)),
            Meaning::Histogram(series) => (series.name(), sample.histograms.contains_key(&series)),
            Meaning::TimePerOutputToken(_) => {
                let series = HistogramSeries::TimePerOutputToken;
                (series.name(), sample.histograms.contains_key(&series))
            }
            Meaning::CacheInfo => ("cache_config", sample.cache.num_gpu_blocks.is_some()),
            Meaning::Finished | Meaning::PrefixCacheHitRate => return None,
        };
        (self.expects(meaning) && !is_there).then_some(series)
    }

    fn expects(&self, meaning: Meaning) -> bool {
        match self.engine {
            MetricsEngine::Vllm => self.vllm_expects(meaning),
            MetricsEngine::Sglang => is_core(meaning),
            // TGI has no counter before the first request, but always both gauges.
            MetricsEngine::Tgi => matches!(meaning, Meaning::Gauge(_)),
        }
    }

    fn vllm_expects(&self, meaning: Meaning) -> bool {
        match meaning {
            Meaning::Counter(
                CounterSeries::PrefixCacheQueries | CounterSeries::PrefixCacheHits,
            ) => self.version >= VLLM_V1,
            Meaning::Counter(CounterSeries::Iterations)
            | Meaning::Histogram(
                HistogramSeries::PrefillTime
                | HistogramSeries::DecodeTime
                | HistogramSeries::QueueTime,
            ) => self.version >= VLLM_PHASES,
            _ => true,
        }
    }
}

/// What every SGLang exports since its metrics exist.
const fn is_core(meaning: Meaning) -> bool {
    matches!(
        meaning,
        Meaning::Counter(CounterSeries::PromptTokens | CounterSeries::GenerationTokens)
            | Meaning::Gauge(
                GaugeSeries::RunningRequests
                    | GaugeSeries::WaitingRequests
                    | GaugeSeries::KvCacheUsage
            )
            | Meaning::Histogram(HistogramSeries::TimeToFirstToken | HistogramSeries::EndToEnd)
            | Meaning::TimePerOutputToken(_)
    )
}
