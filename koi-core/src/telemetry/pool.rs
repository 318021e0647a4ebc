//! Pooling windows over a rank's replicas and over time: counters and buckets add, gauges average.
//!
//! Never a mean or a maximum of per-replica percentiles (trap 1). Pooling is associative and does not
//! depend on the order of the windows. Spec §3.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::ReplicaId;
use crate::telemetry::histogram::BucketDelta;
use crate::telemetry::series::{CounterSeries, GaugeSeries, HistogramSeries, TpotSource};
use crate::telemetry::window::{Integral, Window, WindowFlag};
use crate::time::UtcMicros;

/// Growth of a counter, with the replica-seconds during which it was known.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CounterGrowth {
    /// Growth, summed over replicas and time.
    pub total: u64,
    /// Replica-seconds.
    pub seconds: f64,
}

impl CounterGrowth {
    /// Growth per second of one replica; `None` when never known.
    #[must_use]
    pub fn per_second(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.total as f64 / self.seconds)
    }
}

/// Windows of one or more replicas as one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PooledWindow {
    /// Earliest start.
    pub start: UtcMicros,
    /// Latest end.
    pub end: UtcMicros,
    /// Replica-seconds by the monotonic clocks.
    pub replica_seconds: f64,
    /// Replicas that took part.
    pub replicas: BTreeSet<ReplicaId>,
    /// Windows that took part.
    pub windows: u32,
    /// Counters.
    pub counters: BTreeMap<CounterSeries, CounterGrowth>,
    /// Gauges of one replica over time.
    pub gauges: BTreeMap<GaugeSeries, Integral>,
    /// Observations per bucket.
    pub histograms: BTreeMap<HistogramSeries, BucketDelta>,
    /// Histograms left out for good because their parts do not fit together.
    pub unpoolable: BTreeSet<HistogramSeries>,
    /// Where the time per output token came from.
    pub tpot_source: Option<TpotSource>,
    /// KV blocks of one replica.
    pub kv_blocks: Integral,
    /// Tokens per block, when all replicas agree.
    pub block_size_tokens: Option<u32>,
    /// Reservations of any of the windows.
    pub flags: BTreeSet<WindowFlag>,
}

/// All windows as one; `None` for no windows.
#[must_use]
pub fn merge(windows: &[Window]) -> Option<PooledWindow> {
    let (first, rest) = windows.split_first()?;
    let mut pooled = PooledWindow::from(first);
    for window in rest {
        pooled.add(&PooledWindow::from(window));
    }
    Some(pooled)
}

impl From<&Window> for PooledWindow {
    fn from(window: &Window) -> Self {
        let seconds = window.seconds();
        let mut kv_blocks = Integral::default();
        if let Some(blocks) = window.cache.num_gpu_blocks {
            kv_blocks.add(blocks as f64, seconds);
        }
        Self {
            start: window.start,
            end: window.end,
            replica_seconds: seconds,
            replicas: BTreeSet::from([window.replica.clone()]),
            windows: 1,
            counters: window
                .counters
                .iter()
                .map(|(s, total)| {
                    (
                        *s,
                        CounterGrowth {
                            total: *total,
                            seconds,
                        },
                    )
                })
                .collect(),
            gauges: window.gauges.clone(),
            histograms: window.histograms.clone(),
            unpoolable: BTreeSet::new(),
            tpot_source: window.tpot_source,
            kv_blocks,
            block_size_tokens: window.cache.block_size_tokens,
            flags: window.flags.clone(),
        }
    }
}

impl PooledWindow {
    /// Takes another window in.
    pub fn add(&mut self, other: &Self) {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.replica_seconds += other.replica_seconds;
        self.replicas.extend(other.replicas.iter().cloned());
        self.windows = self.windows.saturating_add(other.windows);
        self.flags.extend(&other.flags);
        for (series, growth) in &other.counters {
            let mine = self.counters.entry(*series).or_default();
            mine.total = mine.total.saturating_add(growth.total);
            mine.seconds += growth.seconds;
        }
        for (series, part) in &other.gauges {
            add_integral(self.gauges.entry(*series).or_default(), *part);
        }
        add_integral(&mut self.kv_blocks, other.kv_blocks);
        self.block_size_tokens = self
            .block_size_tokens
            .filter(|s| Some(*s) == other.block_size_tokens);
        self.add_histograms(other);
    }

    fn add_histograms(&mut self, other: &Self) {
        if let (Some(mine), Some(theirs)) = (self.tpot_source, other.tpot_source)
            && mine != theirs
        {
            self.leave_out(
                HistogramSeries::TimePerOutputToken,
                WindowFlag::MixedTpotSource,
            );
        }
        self.tpot_source = self.tpot_source.or(other.tpot_source);
        for series in &other.unpoolable {
            self.unpoolable.insert(*series);
            self.histograms.remove(series);
        }
        for (series, delta) in &other.histograms {
            if self.unpoolable.contains(series) {
                continue;
            }
            let mine = self
                .histograms
                .entry(*series)
                .or_insert_with(|| BucketDelta {
                    edges: delta.edges,
                    buckets: Vec::new(),
                    sum: 0.0,
                    count: 0,
                });
            if !mine.add(delta) {
                self.leave_out(*series, WindowFlag::MixedEdges);
            }
        }
        if self
            .unpoolable
            .contains(&HistogramSeries::TimePerOutputToken)
        {
            self.tpot_source = None;
        }
    }

    fn leave_out(&mut self, series: HistogramSeries, flag: WindowFlag) {
        self.unpoolable.insert(series);
        self.histograms.remove(&series);
        self.flags.insert(flag);
    }

    /// Growth per second of one replica.
    #[must_use]
    pub fn per_replica_second(&self, series: CounterSeries) -> Option<f64> {
        self.counters.get(&series).and_then(|g| g.per_second())
    }

    /// Total growth; `None` when never known.
    #[must_use]
    pub fn total(&self, series: CounterSeries) -> Option<u64> {
        self.counters.get(&series).map(|g| g.total)
    }

    /// Time mean of one replica.
    #[must_use]
    pub fn mean(&self, series: GaugeSeries) -> Option<f64> {
        self.gauges.get(&series).and_then(|i| i.mean())
    }

    /// Observations of one histogram.
    #[must_use]
    pub fn observations(&self, series: HistogramSeries) -> u64 {
        self.histograms.get(&series).map_or(0, |h| h.count)
    }
}

fn add_integral(to: &mut Integral, part: Integral) {
    to.integral += part.integral;
    to.seconds += part.seconds;
}

#[cfg(test)]
mod tests;
