//! Windows on the wire: names go once per stream into a dictionary, values go as numbers.
//!
//! An encoder and a decoder belong to one stream each. The decoder takes nothing on trust: ids
//! must have been announced, sizes are bounded, values are finite and not negative.

use std::collections::BTreeMap;

use koi_core::ids::ReplicaId;
use koi_core::telemetry::histogram::{BucketDelta, EdgesId, EdgesTable};
use koi_core::telemetry::sample::CachePool;
use koi_core::telemetry::series::{CounterSeries, GaugeSeries, HistogramSeries, TpotSource};
use koi_core::telemetry::window::{Window, WindowFlag};
use koi_core::time::UtcMicros;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::v1;

/// Most series one stream may announce.
const MAX_SERIES: usize = 4096;
/// Most entries of one window.
const MAX_ENTRIES: usize = 1024;
/// Longest window that is believed.
const MAX_WINDOW_MICROS: i64 = 3_600_000_000;

const COUNTER: &str = "counter_delta";
const INTEGRAL: &str = "gauge_integral";
const SECONDS: &str = "gauge_seconds";
const FACT: &str = "fact";
const KV_BLOCKS: &str = "num_gpu_blocks";
const BLOCK_SIZE: &str = "block_size_tokens";

/// The snake-case name of a unit variant.
fn name_of<T: Serialize>(value: T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(_) | Err(_) => String::new(),
    }
}

fn named<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::String(name.to_owned())).ok()
}

/// Encodes the windows of one stream.
#[derive(Debug, Default)]
pub struct WindowEncoder {
    scalars: BTreeMap<(&'static str, String), u32>,
    histograms: BTreeMap<(String, EdgesId), u32>,
    next: u32,
}

impl WindowEncoder {
    /// A window, and the dictionary entries that must be sent before it (`None`: all are known).
    pub fn encode(
        &mut self,
        window: &Window,
        edges: &EdgesTable,
    ) -> (Option<v1::Dictionary>, v1::Window) {
        let mut fresh = v1::Dictionary::default();
        let mut wire = v1::Window {
            replica_id: window.replica.to_string(),
            start_us: window.start.0,
            end_us: window.end.0,
            length_us: i64::try_from(window.elapsed_micros).unwrap_or(i64::MAX),
            n_scrapes: window.scrapes,
            n_failed_scrapes: window.failed_scrapes,
            n_gpus: window.gpus,
            flags: window.flags.iter().map(name_of).collect(),
            tpot_source: window.tpot_source.map(name_of).unwrap_or_default(),
            ..v1::Window::default()
        };
        for (series, delta) in &window.counters {
            self.scalar(&mut fresh, &mut wire, COUNTER, series.name(), *delta as f64);
        }
        for (series, integral) in &window.gauges {
            self.scalar(
                &mut fresh,
                &mut wire,
                INTEGRAL,
                series.name(),
                integral.integral,
            );
            self.scalar(
                &mut fresh,
                &mut wire,
                SECONDS,
                series.name(),
                integral.seconds,
            );
        }
        if let Some(blocks) = window.cache.num_gpu_blocks {
            self.scalar(&mut fresh, &mut wire, FACT, KV_BLOCKS, blocks as f64);
        }
        if let Some(tokens) = window.cache.block_size_tokens {
            self.scalar(&mut fresh, &mut wire, FACT, BLOCK_SIZE, f64::from(tokens));
        }
        for (series, delta) in &window.histograms {
            if let Some(edges) = edges.get(delta.edges) {
                let id = self.histogram(&mut fresh, series.name(), delta.edges, edges);
                wire.histograms.push(histogram_to_wire(id, delta));
            }
        }
        let known = fresh.scalars.is_empty() && fresh.histograms.is_empty();
        ((!known).then_some(fresh), wire)
    }

    fn scalar(
        &mut self,
        fresh: &mut v1::Dictionary,
        wire: &mut v1::Window,
        kind: &'static str,
        name: &str,
        value: f64,
    ) {
        if !value.is_finite() {
            return;
        }
        let next = &mut self.next;
        let id = *self
            .scalars
            .entry((kind, name.to_owned()))
            .or_insert_with(|| {
                *next += 1;
                fresh.scalars.push(v1::ScalarSeries {
                    id: *next,
                    name: name.to_owned(),
                    kind: kind.to_owned(),
                });
                *next
            });
        wire.scalar_series.push(id);
        wire.scalar_value.push(value);
    }

    fn histogram(
        &mut self,
        fresh: &mut v1::Dictionary,
        name: &str,
        id: EdgesId,
        edges: &[f64],
    ) -> u32 {
        let next = &mut self.next;
        *self
            .histograms
            .entry((name.to_owned(), id))
            .or_insert_with(|| {
                *next += 1;
                fresh.histograms.push(v1::HistogramSeries {
                    id: *next,
                    name: name.to_owned(),
                    upper_edges: edges.to_vec(),
                });
                *next
            })
    }
}

fn histogram_to_wire(id: u32, delta: &BucketDelta) -> v1::HistogramDelta {
    v1::HistogramDelta {
        series: id,
        sum: delta.sum,
        count: delta.count,
        bucket_index: delta
            .buckets
            .iter()
            .map(|(index, _)| u32::from(*index))
            .collect(),
        bucket_count: delta.buckets.iter().map(|(_, count)| *count).collect(),
    }
}

enum ScalarMeaning {
    Counter(CounterSeries),
    Integral(GaugeSeries),
    Seconds(GaugeSeries),
    KvBlocks,
    BlockSize,
    /// Of a newer agent: carried by nobody here.
    Unknown,
}

/// Why a window cannot be taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadWindow {
    /// The replica's id is malformed.
    #[error("the replica id is malformed")]
    Replica,
    /// A series was used before it was announced.
    #[error("series {0} was not announced on this stream")]
    Series(u32),
    /// Arrays of different lengths, or too long.
    #[error("arrays do not fit together")]
    Shape,
    /// Times that make no sense.
    #[error("start, end and length make no sense")]
    Time,
    /// NaN, infinite, negative where it cannot be, or absurdly large.
    #[error("a value of series {0} is out of range")]
    Value(u32),
}

/// Decodes the windows of one stream.
#[derive(Default)]
pub struct WindowDecoder {
    scalars: BTreeMap<u32, ScalarMeaning>,
    histograms: BTreeMap<u32, (Option<HistogramSeries>, EdgesId)>,
    edges: EdgesTable,
}

impl WindowDecoder {
    /// Takes dictionary entries in; ones beyond the bound are ignored, so that their use is an
    /// error of the window.
    pub fn learn(&mut self, dictionary: v1::Dictionary) {
        for series in dictionary.scalars {
            if self.scalars.len() < MAX_SERIES {
                self.scalars
                    .insert(series.id, meaning(&series.kind, &series.name));
            }
        }
        for series in dictionary.histograms {
            if self.histograms.len() < MAX_SERIES
                && let Ok(edges) = self.edges.insert(&series.upper_edges)
            {
                let name = HistogramSeries::from_name(&series.name);
                self.histograms.insert(series.id, (name, edges));
            }
        }
    }

    /// Bucket edges that were announced.
    #[must_use]
    pub fn edges(&self) -> &EdgesTable {
        &self.edges
    }

    /// A window in the domain's terms.
    ///
    /// # Errors
    /// [`BadWindow`]; nothing of it is used then.
    pub fn decode(&self, wire: &v1::Window) -> Result<Window, BadWindow> {
        let mut window = head(wire)?;
        if wire.scalar_series.len() != wire.scalar_value.len()
            || wire.scalar_series.len() > MAX_ENTRIES
            || wire.histograms.len() > MAX_ENTRIES
        {
            return Err(BadWindow::Shape);
        }
        for (id, value) in wire.scalar_series.iter().zip(&wire.scalar_value) {
            self.scalar(&mut window, *id, *value)?;
        }
        for histogram in &wire.histograms {
            self.histogram(&mut window, histogram)?;
        }
        Ok(window)
    }

    fn scalar(&self, window: &mut Window, id: u32, value: f64) -> Result<(), BadWindow> {
        let meaning = self.scalars.get(&id).ok_or(BadWindow::Series(id))?;
        if !(value.is_finite() && (0.0..=1e18).contains(&value)) {
            return Err(BadWindow::Value(id));
        }
        match meaning {
            ScalarMeaning::Counter(series) => {
                window.counters.insert(*series, value as u64);
            }
            ScalarMeaning::Integral(series) => {
                window.gauges.entry(*series).or_default().integral = value;
            }
            ScalarMeaning::Seconds(series) => {
                window.gauges.entry(*series).or_default().seconds = value;
            }
            ScalarMeaning::KvBlocks => window.cache.num_gpu_blocks = Some(value as u64),
            ScalarMeaning::BlockSize => window.cache.block_size_tokens = Some(value as u32),
            ScalarMeaning::Unknown => {}
        }
        Ok(())
    }

    fn histogram(&self, window: &mut Window, wire: &v1::HistogramDelta) -> Result<(), BadWindow> {
        let id = wire.series;
        let (series, edges) = self.histograms.get(&id).ok_or(BadWindow::Series(id))?;
        let n_buckets = self.edges.get(*edges).map_or(0, <[f64]>::len) as u32 + 1;
        let total: u64 = wire
            .bucket_count
            .iter()
            .fold(0u64, |a, b| a.saturating_add(*b));
        if wire.bucket_index.len() != wire.bucket_count.len()
            || wire.bucket_index.iter().any(|i| *i >= n_buckets)
            || wire.bucket_index.windows(2).any(|w| w[0] >= w[1])
            || total != wire.count
        {
            return Err(BadWindow::Shape);
        }
        if !wire.sum.is_finite() || wire.sum < 0.0 {
            return Err(BadWindow::Value(id));
        }
        if let Some(series) = series {
            let buckets = wire
                .bucket_index
                .iter()
                .zip(&wire.bucket_count)
                .filter_map(|(index, count)| Some((u16::try_from(*index).ok()?, *count)))
                .collect();
            let delta = BucketDelta {
                edges: *edges,
                buckets,
                sum: wire.sum,
                count: wire.count,
            };
            window.histograms.insert(*series, delta);
        }
        Ok(())
    }
}

fn meaning(kind: &str, name: &str) -> ScalarMeaning {
    let known = match (kind, name) {
        (COUNTER, name) => CounterSeries::from_name(name).map(ScalarMeaning::Counter),
        (INTEGRAL, name) => GaugeSeries::from_name(name).map(ScalarMeaning::Integral),
        (SECONDS, name) => GaugeSeries::from_name(name).map(ScalarMeaning::Seconds),
        (FACT, KV_BLOCKS) => Some(ScalarMeaning::KvBlocks),
        (FACT, BLOCK_SIZE) => Some(ScalarMeaning::BlockSize),
        _ => None,
    };
    known.unwrap_or(ScalarMeaning::Unknown)
}

fn head(wire: &v1::Window) -> Result<Window, BadWindow> {
    let replica: ReplicaId = wire.replica_id.parse().map_err(|_| BadWindow::Replica)?;
    if wire.end_us <= wire.start_us || !(1..=MAX_WINDOW_MICROS).contains(&wire.length_us) {
        return Err(BadWindow::Time);
    }
    Ok(Window {
        replica,
        start: UtcMicros(wire.start_us),
        end: UtcMicros(wire.end_us),
        elapsed_micros: wire.length_us.unsigned_abs(),
        scrapes: wire.n_scrapes,
        failed_scrapes: wire.n_failed_scrapes,
        gpus: wire.n_gpus.min(64),
        counters: BTreeMap::new(),
        gauges: BTreeMap::new(),
        histograms: BTreeMap::new(),
        tpot_source: named::<TpotSource>(&wire.tpot_source),
        cache: CachePool::default(),
        flags: wire
            .flags
            .iter()
            .take(32)
            .filter_map(|f| named::<WindowFlag>(f))
            .collect(),
    })
}
