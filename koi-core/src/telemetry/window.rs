//! Disjoint windows of one replica: counter and bucket deltas and gauge means between scrapes.
//!
//! Not pooling over replicas (`pool.rs`) and not the derived variables (`observe.rs`). A counter that
//! goes backwards cuts the window at the last good scrape; nothing is ever negative. Spec §3, §14;
//! reliability.md C5, C6, C7, F8. Trap 3: windows never overlap.

mod builder;
mod gpu_readings;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use builder::{Reading, WindowBuilder};

use crate::ids::ReplicaId;
use crate::telemetry::histogram::BucketDelta;
use crate::telemetry::sample::CachePool;
use crate::telemetry::series::{CounterSeries, GaugeSeries, HistogramSeries, TpotSource};
use crate::time::{MICROS_PER_SECOND, UtcMicros};

/// Length of a window.
pub const WINDOW_MICROS: u64 = 10_000_000;
/// A longer silence between two scrapes leaves the gauges of that stretch unknown: three scrapes.
pub const MAX_SCRAPE_GAP_MICROS: u64 = 15_000_000;
/// A longer silence drops the window: it no longer says when something happened.
pub const MAX_WINDOW_MICROS: u64 = 900_000_000;
/// Disagreement of wall clock and monotonic clock inside a window after which nothing is learned.
pub const MAX_CLOCK_SKEW_SECONDS: f64 = 5.0;

/// What to know about a window before believing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowFlag {
    /// The engine restarted; the window ends at the last scrape before.
    CutByReset,
    /// The first window after a restart.
    AfterReset,
    /// Wall clock and monotonic clock disagree by more than [`MAX_CLOCK_SKEW_SECONDS`].
    ClockStepped,
    /// A scrape failed or came late.
    SparseScrapes,
    /// An expected engine series was not exported.
    SeriesMissing,
    /// The time per output token is a proxy.
    TpotProxy,
    /// A GPU counter went backwards and is left out.
    GpuCounterReset,
    /// The replica's set of GPUs changed; their counters are left out.
    GpusChanged,
    /// Pooled windows had different bucket edges; that histogram is left out.
    MixedEdges,
    /// Pooled windows had different sources of the time per output token; it is left out.
    MixedTpotSource,
}

/// A gauge over time: mean = integral / seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Integral {
    /// Value × seconds.
    pub integral: f64,
    /// Seconds during which the value was known.
    pub seconds: f64,
}

impl Integral {
    /// The time mean; `None` when the value was never known.
    #[must_use]
    pub fn mean(self) -> Option<f64> {
        (self.seconds > 0.0)
            .then(|| self.integral / self.seconds)
            .filter(|m| m.is_finite())
    }

    /// Adds a stretch with this mean.
    pub fn add(&mut self, mean: f64, seconds: f64) {
        self.integral += mean * seconds;
        self.seconds += seconds;
    }
}

/// One replica over one stretch of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Which replica.
    pub replica: ReplicaId,
    /// Wall time of the first scrape.
    pub start: UtcMicros,
    /// Wall time of the last scrape.
    pub end: UtcMicros,
    /// Time between them by the agent's monotonic clock.
    pub elapsed_micros: u64,
    /// Successful scrapes, both ends included.
    pub scrapes: u32,
    /// Scrapes that failed in between.
    pub failed_scrapes: u32,
    /// GPUs of the replica; 0 when not read.
    pub gpus: u32,
    /// Growth of counters; absent when not known at both ends.
    pub counters: BTreeMap<CounterSeries, u64>,
    /// Gauges over time.
    pub gauges: BTreeMap<GaugeSeries, Integral>,
    /// Observations per bucket.
    pub histograms: BTreeMap<HistogramSeries, BucketDelta>,
    /// Where the time per output token came from.
    pub tpot_source: Option<TpotSource>,
    /// KV pool; blocks are summed over the replica's engines.
    pub cache: CachePool,
    /// Reservations.
    pub flags: BTreeSet<WindowFlag>,
}

impl Window {
    /// Length in seconds by the monotonic clock.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.elapsed_micros as f64 / MICROS_PER_SECOND as f64
    }
}

#[cfg(test)]
mod tests;
