//! One measured row, and what makes it credible.

use serde::{Deserialize, Serialize};

use crate::catalog::price::Date;
use crate::printable::is_hidden;
use crate::violation::{FieldViolation, Violations};

/// Longest identifier or name.
const MAX_NAME_CHARS: usize = 200;
/// Longest note.
const MAX_NOTE_CHARS: usize = 2_000;
/// Most devices of one deployment.
const MAX_GPUS: u32 = 10_000;
/// Longest prompt or answer in tokens.
const MAX_TOKENS: f64 = 1e7;
/// Longest time; above it a number is in another unit.
const MAX_MS: f64 = 1e8;
/// Highest rate of generated tokens.
const MAX_TOKENS_PER_SEC: f64 = 1e8;
/// Most generated tokens per second of one device: a tenth of a billion parameters in FP4 at the peak
/// of the fastest device are below it.
const MAX_TOKENS_PER_SEC_PER_GPU: f64 = 1e6;
/// Below this, a time in milliseconds or a rate is no measurement.
const MIN_MEASURED: f64 = 1e-6;
/// Highest load of any kind.
const MAX_LOAD: f64 = 1e6;

/// How requests were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadKind {
    /// A fixed number in flight; each answer is followed by the next request.
    Concurrency,
    /// One batch of equal requests, started and finished together.
    Batch,
    /// Everything at once against an engine that batches at most so many.
    MaxNumSeqs,
    /// Arrivals per second.
    RateRps,
    /// So many requests, all sent at the start.
    AllAtOnce,
    /// An offline run over so many requests.
    OfflineBatch,
    /// An offline run at the best throughput the source found.
    OfflineMax,
    /// MLPerf's offline scenario.
    Offline,
    /// MLPerf's server scenario.
    Server,
    /// MLPerf's interactive scenario.
    Interactive,
}

impl LoadKind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Concurrency,
        Self::Batch,
        Self::MaxNumSeqs,
        Self::RateRps,
        Self::AllAtOnce,
        Self::OfflineBatch,
        Self::OfflineMax,
        Self::Offline,
        Self::Server,
        Self::Interactive,
    ];

    /// The name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Concurrency => "concurrency",
            Self::Batch => "batch",
            Self::MaxNumSeqs => "max_num_seqs",
            Self::RateRps => "rate_rps",
            Self::AllAtOnce => "all_at_once",
            Self::OfflineBatch => "offline_batch",
            Self::OfflineMax => "offline_max",
            Self::Offline => "offline",
            Self::Server => "server",
            Self::Interactive => "interactive",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.name() == name)
    }
}

/// How much was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Meaning of the value.
    pub kind: LoadKind,
    /// Requests or requests per second; absent where the source does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

/// What a published time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// Mean over requests.
    Mean,
    /// Median over requests.
    P50,
    /// One request.
    Single,
    /// Computed from the whole answer's time and its length.
    Derived,
}

impl Statistic {
    /// The statistic that a source's words begin with.
    #[must_use]
    pub fn from_words(words: &str) -> Option<Self> {
        let first = words.split([' ', '(']).next().unwrap_or_default();
        match first {
            "mean" => Some(Self::Mean),
            "p50" | "median" => Some(Self::P50),
            "single" => Some(Self::Single),
            "derived" => Some(Self::Derived),
            _ => None,
        }
    }
}

/// A time and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Milliseconds.
    pub ms: f64,
    /// Over which requests.
    pub statistic: Statistic,
}

/// What was measured; absent where the source does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Generated tokens per second of the whole deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens_per_sec: Option<f64>,
    /// Time to first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft: Option<Timing>,
    /// Time per output token after the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot: Option<Timing>,
    /// 99th percentile of the time to first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_p99_ms: Option<f64>,
    /// 99th percentile of the time per output token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_p99_ms: Option<f64>,
}

impl Measured {
    /// True when nothing at all was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One measured point with its provenance. Names are as the source writes them; the catalog and the
/// model list resolve them by alias when the row is used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PerformanceRow {
    /// Who measured, e.g. a benchmark's name.
    pub source: String,
    /// Unique within the source.
    pub row_id: String,
    /// When, as published.
    pub date: String,
    /// Model.
    pub model: String,
    /// GPU type.
    pub gpu_type: String,
    /// Devices of one deployment.
    pub n_gpus: Option<u32>,
    /// Tensor-parallel width.
    pub tp: Option<u32>,
    /// Pipeline stages.
    pub pp: Option<u32>,
    /// Expert-parallel width; 0 where experts are spread and the source does not say over how many
    /// devices.
    pub ep: Option<u32>,
    /// Data-parallel attention or replicas.
    pub dp: Option<u32>,
    /// Engine, e.g. `vllm`.
    pub engine: Option<String>,
    /// Its version.
    pub engine_version: Option<String>,
    /// Number format of the weights.
    pub weight_dtype: Option<String>,
    /// Number format of the KV cache.
    pub kv_dtype: Option<String>,
    /// Mean prompt length in tokens.
    pub isl: Option<f64>,
    /// Mean answer length in tokens.
    pub osl: Option<f64>,
    /// How requests were sent.
    pub load: Option<Load>,
    /// Prefill and decode ran on devices of their own.
    pub disaggregated: bool,
    /// What was measured.
    pub measured: Measured,
    /// Caveats of the source.
    pub notes: String,
}

impl PerformanceRow {
    /// Everything that makes the row unusable: missing names, numbers that are not numbers or lie
    /// outside what any deployment reaches, widths that contradict the devices.
    ///
    /// # Errors
    /// All problems, by field.
    pub fn check(self) -> Result<Self, Vec<FieldViolation>> {
        let mut problems = Violations::default();
        self.check_names(&mut problems);
        self.check_widths(&mut problems);
        self.check_numbers(&mut problems);
        if self.measured.is_empty() {
            problems.add(
                "measured",
                "nothing was measured: give a throughput, a TTFT or a TPOT",
            );
        }
        problems.finish(self)
    }

    /// Whether it says that it was measured later than tomorrow.
    #[must_use]
    pub fn is_from_the_future(&self, today: Date) -> bool {
        let day = self.date.get(..10).and_then(|day| day.parse::<Date>().ok());
        let year = self.date.get(..4).and_then(|y| y.parse::<i32>().ok());
        let this_year = today.to_string().get(..4).and_then(|y| y.parse().ok());
        day.map_or_else(
            || {
                year.zip(this_year)
                    .is_some_and(|(year, now): (i32, i32)| year > now && year <= 2100)
            },
            |day| day.days() > today.days() + 1,
        )
    }

    fn check_names(&self, problems: &mut Violations) {
        let required = [
            ("source", &self.source),
            ("row_id", &self.row_id),
            ("model", &self.model),
            ("gpu_type", &self.gpu_type),
        ];
        for (field, text) in required {
            if text.trim().is_empty() {
                problems.add(field, "is missing");
            }
        }
        let optional = [
            ("engine", &self.engine),
            ("engine_version", &self.engine_version),
            ("weight_dtype", &self.weight_dtype),
            ("kv_dtype", &self.kv_dtype),
        ];
        let named = optional
            .into_iter()
            .filter_map(|(field, text)| text.as_ref().map(|t| (field, t)));
        for (field, text) in required.into_iter().chain(named) {
            if text.chars().count() > MAX_NAME_CHARS || text.contains(is_hidden) {
                problems.add(
                    field,
                    format!("must be at most {MAX_NAME_CHARS} printable characters"),
                );
            }
        }
        if self.date.chars().count() > MAX_NAME_CHARS {
            problems.add("date", format!("longer than {MAX_NAME_CHARS} characters"));
        } else if !self.date.is_empty() && !is_date(&self.date) {
            problems.add(
                "date",
                "must begin with a year, such as 2026-11-30; leave it out if unknown",
            );
        }
        if self.notes.chars().count() > MAX_NOTE_CHARS {
            problems.add("notes", format!("longer than {MAX_NOTE_CHARS} characters"));
        }
    }

    fn check_widths(&self, problems: &mut Violations) {
        let widths = [
            ("n_gpus", self.n_gpus),
            ("tp", self.tp),
            ("pp", self.pp),
            ("ep", self.ep.filter(|ep| *ep > 0)),
            ("dp", self.dp),
        ];
        for (field, width) in widths {
            if width.is_some_and(|w| w == 0 || w > MAX_GPUS) {
                problems.add(
                    field,
                    format!("must be 1 to {MAX_GPUS}; leave it out if unknown"),
                );
            }
        }
        let needed = [self.tp, self.pp]
            .map(|width| u64::from(width.unwrap_or(1).max(1)))
            .iter()
            .product::<u64>();
        if self.n_gpus.is_some_and(|n| u64::from(n) < needed) {
            problems.add("n_gpus", format!("fewer than tp · pp = {needed}"));
        }
    }

    fn check_numbers(&self, problems: &mut Violations) {
        let m = &self.measured;
        let numbers = [
            ("isl", self.isl, MAX_TOKENS),
            ("osl", self.osl, MAX_TOKENS),
            ("load.value", self.load.and_then(|l| l.value), MAX_LOAD),
            (
                "measured.output_tokens_per_sec",
                m.output_tokens_per_sec,
                MAX_TOKENS_PER_SEC,
            ),
            ("measured.ttft_ms", m.ttft.map(|t| t.ms), MAX_MS),
            ("measured.tpot_ms", m.tpot.map(|t| t.ms), MAX_MS),
            ("measured.ttft_p99_ms", m.ttft_p99_ms, MAX_MS),
            ("measured.tpot_p99_ms", m.tpot_p99_ms, MAX_MS),
        ];
        for (field, number, max) in numbers {
            let min = if field.starts_with("measured") {
                MIN_MEASURED
            } else {
                0.0
            };
            if number.is_some_and(|n| !(n > min && n <= max)) {
                problems.add(
                    field,
                    format!(
                        "must be a number above {min} and at most {max}; leave it out if unknown"
                    ),
                );
            }
        }
        let n_gpus = f64::from(self.n_gpus.unwrap_or(1));
        if m.output_tokens_per_sec
            .is_some_and(|t| t > n_gpus * MAX_TOKENS_PER_SEC_PER_GPU)
        {
            problems.add(
                "measured.output_tokens_per_sec",
                format!("no device generates more than {MAX_TOKENS_PER_SEC_PER_GPU} tokens/s"),
            );
        }
    }
}

/// A text that begins with a year, or a moment in seconds since 1970.
fn is_date(text: &str) -> bool {
    let year = text.get(..4).and_then(|y| y.parse::<u32>().ok());
    let seconds = text.parse::<f64>().ok();
    year.is_some_and(|y| (2000..=2100).contains(&y))
        || seconds.is_some_and(|s| (1e9..4e9).contains(&s))
}

#[cfg(test)]
mod tests;
