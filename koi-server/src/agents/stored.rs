//! Windows as the database keeps them, and back.

use koi_core::ids::{HostId, JobId};
use koi_core::telemetry::histogram::{BucketDelta, EdgesTable};
use koi_core::telemetry::sample::CachePool;
use koi_core::telemetry::series::{CounterSeries, GaugeSeries, HistogramSeries, TpotSource};
use koi_core::telemetry::window::{Window, WindowFlag};
use koi_core::time::UtcMicros;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::telemetry::{StoredHistogram, StoredWindow};

const COUNTER: &str = "counter/";
const INTEGRAL: &str = "gauge_integral/";
const SECONDS: &str = "gauge_seconds/";
const FACT: &str = "fact/";
const TPOT_SOURCE: &str = "tpot_source:";

/// A window as a row. Edge sets that are not in the table leave their histogram out.
#[must_use]
pub fn to_stored(
    host: &HostId,
    job: Option<JobId>,
    window: &Window,
    edges: &EdgesTable,
    received_at: UtcMicros,
) -> StoredWindow {
    let counters = window
        .counters
        .iter()
        .map(|(s, x)| (format!("{COUNTER}{}", s.name()), *x as f64));
    let gauges = window.gauges.iter().flat_map(|(s, i)| {
        let name = s.name();
        [
            (format!("{INTEGRAL}{name}"), i.integral),
            (format!("{SECONDS}{name}"), i.seconds),
        ]
    });
    let facts = [
        (
            "num_gpu_blocks",
            window.cache.num_gpu_blocks.map(|n| n as f64),
        ),
        (
            "block_size_tokens",
            window.cache.block_size_tokens.map(f64::from),
        ),
        ("gpus", Some(f64::from(window.gpus))),
        ("failed_scrapes", Some(f64::from(window.failed_scrapes))),
    ];
    let facts = facts
        .into_iter()
        .filter_map(|(n, x)| Some((format!("{FACT}{n}"), x?)));
    let flags = window.flags.iter().filter_map(name_of);
    let source = window.tpot_source.as_ref().and_then(name_of);
    StoredWindow {
        host: host.clone(),
        replica_id: Some(window.replica.clone()),
        job,
        start: window.start,
        end: window.end,
        length_us: i64::try_from(window.elapsed_micros).unwrap_or(i64::MAX),
        received_at,
        n_scrapes: window.scrapes,
        scalars: counters.chain(gauges).chain(facts).collect(),
        histograms: window
            .histograms
            .iter()
            .filter_map(|(series, delta)| stored_histogram(*series, delta, edges))
            .collect(),
        flags: flags
            .chain(source.map(|s| format!("{TPOT_SOURCE}{s}")))
            .collect(),
    }
}

fn stored_histogram(
    series: HistogramSeries,
    delta: &BucketDelta,
    edges: &EdgesTable,
) -> Option<StoredHistogram> {
    Some(StoredHistogram {
        name: series.name().to_owned(),
        edges: edges
            .get(delta.edges)?
            .iter()
            .copied()
            .filter(|e| e.is_finite())
            .collect(),
        sum: delta.sum,
        count: delta.count,
        buckets: delta
            .buckets
            .iter()
            .map(|(i, n)| (u32::from(*i), *n))
            .collect(),
    })
}

/// Rows as windows, with the edges they need. Rows of hosts and of unknown series are left out.
#[must_use]
pub fn restored(rows: &[StoredWindow]) -> (Vec<Window>, EdgesTable) {
    let mut edges = EdgesTable::default();
    let windows = rows
        .iter()
        .filter_map(|row| from_stored(row, &mut edges))
        .collect();
    (windows, edges)
}

fn from_stored(row: &StoredWindow, edges: &mut EdgesTable) -> Option<Window> {
    let mut window = Window {
        replica: row.replica_id.clone()?,
        start: row.start,
        end: row.end,
        elapsed_micros: row.length_us.unsigned_abs(),
        scrapes: row.n_scrapes,
        failed_scrapes: 0,
        gpus: 0,
        counters: std::collections::BTreeMap::new(),
        gauges: std::collections::BTreeMap::new(),
        histograms: std::collections::BTreeMap::new(),
        tpot_source: None,
        cache: CachePool::default(),
        flags: row
            .flags
            .iter()
            .filter_map(|f| named::<WindowFlag>(f))
            .collect(),
    };
    let source = row.flags.iter().find_map(|f| f.strip_prefix(TPOT_SOURCE));
    window.tpot_source = source.and_then(named::<TpotSource>);
    for (name, value) in &row.scalars {
        set_scalar(&mut window, name, *value);
    }
    for histogram in &row.histograms {
        let series = HistogramSeries::from_name(&histogram.name)?;
        let id = edges.insert(&histogram.edges).ok()?;
        let buckets = histogram.buckets.iter();
        let buckets = buckets
            .filter_map(|(i, n)| Some((u16::try_from(*i).ok()?, *n)))
            .collect();
        let delta = BucketDelta {
            edges: id,
            buckets,
            sum: histogram.sum,
            count: histogram.count,
        };
        window.histograms.insert(series, delta);
    }
    Some(window)
}

fn set_scalar(window: &mut Window, name: &str, value: f64) {
    if let Some(series) = name
        .strip_prefix(COUNTER)
        .and_then(CounterSeries::from_name)
    {
        window.counters.insert(series, value as u64);
    } else if let Some(series) = name.strip_prefix(INTEGRAL).and_then(GaugeSeries::from_name) {
        window.gauges.entry(series).or_default().integral = value;
    } else if let Some(series) = name.strip_prefix(SECONDS).and_then(GaugeSeries::from_name) {
        window.gauges.entry(series).or_default().seconds = value;
    } else {
        match name.strip_prefix(FACT) {
            Some("num_gpu_blocks") => window.cache.num_gpu_blocks = Some(value as u64),
            Some("block_size_tokens") => window.cache.block_size_tokens = Some(value as u32),
            Some("gpus") => window.gpus = value as u32,
            Some("failed_scrapes") => window.failed_scrapes = value as u32,
            Some(_) | None => {}
        }
    }
}

fn name_of<T: Serialize>(value: &T) -> Option<String> {
    serde_json::to_value(value)
        .ok()?
        .as_str()
        .map(str::to_owned)
}

fn named<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::String(name.to_owned())).ok()
}
