//! The live summary file of a job: counts so far, and quantiles of the open and the newest closed
//! minute.

use std::path::Path;

use serde::Serialize;

use super::buckets::{Latency, TPOT_EDGES_S, TTFT_EDGES_S};
use super::minutes::Minute;
use crate::secrets::write_whole;

/// Quantiles of one latency: through the engine's buckets, and of the observations themselves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Quantiles {
    /// Observations.
    pub(super) n: u64,
    /// Median through the buckets, in milliseconds.
    pub(super) p50_ms: Option<f64>,
    /// 99th percentile through the buckets, in milliseconds.
    pub(super) p99_ms: Option<f64>,
    /// Raw median, in milliseconds.
    pub(super) raw_p50_ms: Option<f64>,
    /// Raw 99th percentile, in milliseconds.
    pub(super) raw_p99_ms: Option<f64>,
}

impl Quantiles {
    /// Of a time to first token.
    pub(super) fn ttft(latency: &Latency) -> Self {
        Self::of(latency, &TTFT_EDGES_S)
    }

    /// Of a time per output token.
    pub(super) fn tpot(latency: &Latency) -> Self {
        Self::of(latency, &TPOT_EDGES_S)
    }

    fn of(latency: &Latency, edges_s: &[f64]) -> Self {
        Self {
            n: latency.count(),
            p50_ms: latency.bucket_quantile_ms(0.5, edges_s),
            p99_ms: latency.bucket_quantile_ms(0.99, edges_s),
            raw_p50_ms: latency.raw_quantile_ms(0.5),
            raw_p99_ms: latency.raw_quantile_ms(0.99),
        }
    }
}

/// Counts and quantiles of a span.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Span {
    /// Counts.
    #[serde(flatten)]
    pub(super) counts: Counts,
    /// Time to first token.
    pub(super) ttft: Quantiles,
    /// Time per output token.
    pub(super) tpot: Quantiles,
}

/// The counts of a minute, or of several.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Counts {
    start_us: i64,
    sent: u64,
    finished: u64,
    failed: std::collections::BTreeMap<String, u64>,
    retried: u64,
    shortened: u64,
    prompt_tokens: u64,
    generated_tokens: u64,
}

impl From<&Minute> for Counts {
    fn from(m: &Minute) -> Self {
        Self {
            start_us: m.start_us,
            sent: m.sent,
            finished: m.finished,
            failed: m.failed.clone(),
            retried: m.retried,
            shortened: m.shortened,
            prompt_tokens: m.prompt_tokens,
            generated_tokens: m.generated_tokens,
        }
    }
}

impl From<&Minute> for Span {
    fn from(m: &Minute) -> Self {
        Self {
            counts: m.into(),
            ttft: Quantiles::ttft(&m.ttft),
            tpot: Quantiles::tpot(&m.tpot),
        }
    }
}

/// `<job>.json`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Summary {
    /// Job.
    pub(super) job: String,
    /// Start of this run.
    pub(super) started_at_us: i64,
    /// Time of this summary.
    pub(super) updated_at_us: i64,
    /// Version of the endpoint file; absent without a file.
    pub(super) endpoints_version: Option<i64>,
    /// Ready endpoints.
    pub(super) n_endpoints: usize,
    /// Requests in flight.
    pub(super) in_flight: u32,
    /// Everything since the start.
    pub(super) totals: Counts,
    /// The minute that is running.
    pub(super) open_minute: Span,
    /// The newest whole minute of this run.
    pub(super) last_minute: Option<Span>,
}

impl Summary {
    /// Writes the file whole.
    pub(super) fn store(&self, folder: &Path) -> anyhow::Result<()> {
        write_whole(
            &folder.join(format!("{}.json", self.job)),
            &serde_json::to_vec(self)?,
            0o644,
        )
    }
}
