//! The walk over a page's samples: raw values first, then the preferred name of each series.

use std::collections::BTreeMap;

use super::{
    CACHE_INFO, EnginePage, MAX_ENGINES, PROCESS_START, TPOT_SOURCES, counter_metrics,
    gauge_metrics, histogram_metrics,
};
use crate::telemetry::histogram::{CumulativeHistogram, MAX_EDGES};
use crate::telemetry::metrics_text::{Page, Sample};
use crate::telemetry::sample::{CachePool, EngineKey, EngineSample};
use crate::telemetry::series::{CounterSeries, GaugeSeries, HistogramSeries};

/// Largest counter that a double holds exactly.
const MAX_COUNT: f64 = 9_007_199_254_740_992.0;
/// Rounding that a usage fraction may show above 1.
const FRACTION_SLACK: f64 = 1e-6;

/// One engine's raw values, by metric name.
#[derive(Default)]
struct Raw<'p> {
    plain: BTreeMap<&'p str, f64>,
    finished: BTreeMap<CounterSeries, f64>,
    buckets: BTreeMap<&'p str, BTreeMap<u64, (f64, f64)>>,
}

pub(super) fn collect(page: &Page<'_>) -> EnginePage {
    let mut out = EnginePage::default();
    let mut raw: BTreeMap<EngineKey, Raw<'_>> = BTreeMap::new();
    let mut pools: BTreeMap<Option<u32>, CachePool> = BTreeMap::new();
    for sample in page.whole_samples() {
        match sample.name.as_ref() {
            PROCESS_START => {
                out.process_start_seconds = Some(sample.value).filter(|v| v.is_finite() && *v > 0.0)
            }
            CACHE_INFO if pools.len() < MAX_ENGINES => {
                pools.insert(
                    sample.label("engine").and_then(|e| e.parse().ok()),
                    cache_pool(sample),
                );
            }
            name if name.starts_with("vllm:") => take(&mut raw, sample, &mut out),
            _ => {}
        }
    }
    for (key, raw) in raw {
        let mut engine = resolve(&raw, &mut out);
        let exports_something = engine != EngineSample::default();
        engine.cache = pools
            .get(&Some(key.engine))
            .or_else(|| pools.get(&None))
            .copied()
            .unwrap_or_default();
        if exports_something {
            out.engines.insert(key, engine);
        }
    }
    out
}

fn cache_pool(sample: &Sample<'_>) -> CachePool {
    let number = |name: &str| {
        sample
            .label(name)
            .and_then(|v| v.parse::<u64>().ok())
            .filter(|n| *n > 0)
    };
    CachePool {
        num_gpu_blocks: number("num_gpu_blocks").filter(|n| *n as f64 <= MAX_COUNT),
        block_size_tokens: number("block_size").and_then(|n| u32::try_from(n).ok()),
    }
}

fn take<'p>(raw: &mut BTreeMap<EngineKey, Raw<'p>>, sample: &'p Sample<'_>, out: &mut EnginePage) {
    if !super::is_wanted(&sample.name) {
        return;
    }
    let key = EngineKey {
        model_name: sample.label("model_name").unwrap_or_default().to_owned(),
        engine: sample
            .label("engine")
            .and_then(|e| e.parse().ok())
            .unwrap_or(0),
    };
    if raw.len() >= MAX_ENGINES && !raw.contains_key(&key) {
        out.over_limit += 1;
        return;
    }
    let fresh = raw.entry(key).or_default().put(sample);
    out.duplicates += usize::from(!fresh);
}

impl<'p> Raw<'p> {
    /// Stores one value; false when the series was there already.
    fn put(&mut self, sample: &'p Sample<'_>) -> bool {
        let name = sample.name.as_ref();
        if name == "vllm:request_success_total" {
            return self.put_finished(sample);
        }
        if let (Some(family), Some(edge)) = (name.strip_suffix("_bucket"), sample.label("le")) {
            let Ok(edge) = edge.parse::<f64>() else {
                return true;
            };
            let buckets = self.buckets.entry(family).or_default();
            return buckets.len() > MAX_EDGES
                || buckets
                    .insert(ordered_bits(edge), (edge, sample.value))
                    .is_none();
        }
        let fresh = !self.plain.contains_key(name);
        self.plain.entry(name).or_insert(sample.value);
        fresh
    }

    /// Reasons that we do not know are summed; a known reason that repeats is a duplicate.
    fn put_finished(&mut self, sample: &Sample<'_>) -> bool {
        let series = match sample.label("finished_reason") {
            Some("stop") => CounterSeries::FinishedStop,
            Some("length") => CounterSeries::FinishedLength,
            Some("abort") => CounterSeries::FinishedAbort,
            Some("error") => CounterSeries::FinishedError,
            Some(_) | None => CounterSeries::FinishedOther,
        };
        let fresh = !self.finished.contains_key(&series) || series == CounterSeries::FinishedOther;
        if fresh {
            *self.finished.entry(series).or_insert(0.0) += sample.value;
        }
        fresh
    }
}

/// Bits of a double that sort like the number.
fn ordered_bits(x: f64) -> u64 {
    let bits = x.to_bits();
    if bits >> 63 == 1 {
        !bits
    } else {
        bits | (1 << 63)
    }
}

fn resolve(raw: &Raw<'_>, out: &mut EnginePage) -> EngineSample {
    let mut engine = EngineSample::default();
    for series in CounterSeries::ALL {
        let named = counter_metrics(series)
            .iter()
            .find_map(|name| raw.plain.get(name));
        if let Some(value) = named.or_else(|| raw.finished.get(&series)) {
            keep(whole_number(*value), out, |n| {
                engine.counters.insert(series, n)
            });
        }
    }
    for series in GaugeSeries::ALL {
        if let Some(value) = gauge_metrics(series)
            .iter()
            .find_map(|name| raw.plain.get(name))
        {
            keep(gauge_value(series, *value), out, |x| {
                engine.gauges.insert(series, x)
            });
        }
    }
    for series in HistogramSeries::ALL {
        let families = histogram_metrics(series);
        let Some(index) = families.iter().position(|f| raw.buckets.contains_key(f)) else {
            continue;
        };
        match histogram(raw, families[index]) {
            Some(histogram) => {
                if series == HistogramSeries::TimePerOutputToken {
                    engine.tpot_source = TPOT_SOURCES.get(index).copied();
                }
                engine.histograms.insert(series, histogram);
            }
            None => out.bad_histograms += 1,
        }
    }
    engine
}

/// Stores a value that is in range, counts one that is not.
fn keep<T>(value: Option<T>, out: &mut EnginePage, mut store: impl FnMut(T) -> Option<T>) {
    match value {
        Some(value) => drop(store(value)),
        None => out.out_of_range += 1,
    }
}

fn whole_number(value: f64) -> Option<u64> {
    (0.0..=MAX_COUNT)
        .contains(&value)
        .then(|| value.round() as u64)
}

fn gauge_value(series: GaugeSeries, value: f64) -> Option<f64> {
    let limit = if series == GaugeSeries::KvCacheUsage {
        1.0
    } else {
        MAX_COUNT
    };
    (0.0..=limit + FRACTION_SLACK)
        .contains(&value)
        .then(|| value.min(limit))
}

fn histogram(raw: &Raw<'_>, family: &str) -> Option<CumulativeHistogram> {
    let buckets = raw.buckets.get(family)?;
    let mut edges = Vec::with_capacity(buckets.len());
    let mut counts = Vec::with_capacity(buckets.len());
    for (edge, count) in buckets.values() {
        edges.push(*edge);
        counts.push(whole_number(*count)?);
    }
    let last = edges.pop()?;
    let sum = *raw.plain.get(format!("{family}_sum").as_str())?;
    let count = raw
        .plain
        .get(format!("{family}_count").as_str())
        .copied()
        .and_then(whole_number);
    let whole = last == f64::INFINITY && count.is_none_or(|c| Some(&c) == counts.last());
    if whole {
        CumulativeHistogram::new(edges, counts, sum).ok()
    } else {
        None
    }
}
