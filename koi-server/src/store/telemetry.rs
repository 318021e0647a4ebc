//! Windows of measurements as they are stored: plain data, names in a dictionary of their own.
//!
//! Not what a window means: `koi_core::telemetry` knows that, the server converts. Written by COPY
//! together with the cursor of the agent's spool, so that each is stored exactly once. Spec §18.8.

mod append;
mod copy_text;
mod partition;
mod query;
mod series;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use koi_core::ids::{HostId, JobId, ReplicaId};
use koi_core::time::UtcMicros;

use series::SeriesKey;

pub use query::WindowsOf;

/// Most windows of one batch.
pub const MAX_WINDOWS_PER_BATCH: usize = 2_000;
/// Most scalars, and most histograms, of one window.
pub const MAX_SERIES_PER_WINDOW: usize = 256;
/// Most buckets of one histogram.
pub const MAX_BUCKETS: usize = 256;
/// Most names in the dictionary: the catalog has about a hundred, an agent that makes names up is
/// stopped here.
pub const MAX_SERIES: usize = 4_096;

/// A window with its owner.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredWindow {
    /// Host that measured.
    pub host: HostId,
    /// Replica measured; absent for windows of the host itself.
    pub replica_id: Option<ReplicaId>,
    /// The replica's job.
    pub job: Option<JobId>,
    /// First sample, by the agent's wall clock.
    pub start: UtcMicros,
    /// Last sample, by the agent's wall clock.
    pub end: UtcMicros,
    /// Time between them by the agent's monotonic clock, in microseconds.
    pub length_us: i64,
    /// When the server got it; decides the partition.
    pub received_at: UtcMicros,
    /// Successful scrapes.
    pub n_scrapes: u32,
    /// Values that are present; what is not finite is left out.
    pub scalars: Vec<(String, f64)>,
    /// Histograms.
    pub histograms: Vec<StoredHistogram>,
    /// What to know about the window before believing it.
    pub flags: Vec<String>,
}

/// Observations per bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredHistogram {
    /// Name of the series.
    pub name: String,
    /// Upper bucket edges, finite and ascending; the last bucket above them has no edge.
    pub edges: Vec<f64>,
    /// Sum of the observed values.
    pub sum: f64,
    /// Observations.
    pub count: u64,
    /// Non-empty buckets and their observations.
    pub buckets: Vec<(u32, u64)>,
}

/// Positions of a spool that were lost before they could be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TelemetryGap {
    /// First lost position.
    pub from_seq: u64,
    /// Last lost position; the batch that tells of the gap comes at or after it.
    pub to_seq: u64,
    /// Windows lost.
    pub n_lost: u64,
}

/// One position of an agent's spool. Positions start at 1.
#[derive(Debug, Clone, PartialEq)]
pub struct TelemetryBatch {
    /// Position.
    pub seq: u64,
    /// What it holds.
    pub windows: Vec<StoredWindow>,
    /// What is missing before it.
    pub gap: Option<TelemetryGap>,
}

/// What is known of the database's dictionary and partitions.
#[derive(Debug, Default)]
pub(super) struct Caches {
    by_key: Mutex<BTreeMap<SeriesKey, i32>>,
    by_id: Mutex<BTreeMap<i32, SeriesKey>>,
    days: Mutex<BTreeSet<i64>>,
}

/// A cache whose last user panicked holds whole entries only.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
