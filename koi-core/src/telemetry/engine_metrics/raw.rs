//! One engine's values as they come, by row of the name table, and which of them count. Not the walk
//! over the page (`collect.rs`).

use std::collections::{BTreeMap, BTreeSet};

use super::names::{METRIC_NAMES, Meaning, Part};
use super::{EnginePage, ValueProblem};
use crate::telemetry::histogram::{
    BadHistogram, CumulativeHistogram, MAX_COUNT, MAX_EDGES, whole_number,
};
use crate::telemetry::metrics_text::Labels;
use crate::telemetry::sample::EngineSample;
use crate::telemetry::series::{CounterSeries, GaugeSeries, HistogramSeries, TpotSource};

/// Rounding that a usage fraction may show above 1.
const FRACTION_SLACK: f64 = 1e-6;
/// Label sets that are added up to one counter; vLLM has five finish reasons.
const MAX_SPLITS: usize = 256;

/// A value with its place and time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub(super) value: f64,
    pub(super) timestamp: Option<f64>,
    pub(super) line: u32,
}

/// One part of a counter that is split by labels.
struct Split<'p> {
    row: usize,
    series: CounterSeries,
    labels: Labels<'p>,
    reading: Reading,
}

#[derive(Default)]
struct RawHistogram {
    /// Edge and count, in the order of the page.
    buckets: Vec<(f64, Reading)>,
    sum: Option<Reading>,
    count: Option<Reading>,
    /// A bucket without a readable edge.
    bad_edge: bool,
    /// Line of its last sample.
    line: u32,
}

/// One engine's raw values.
pub(super) struct Raw<'p> {
    scalars: Vec<Option<Reading>>,
    histograms: Vec<Option<Box<RawHistogram>>>,
    splits: Vec<Split<'p>>,
    /// Series whose histogram was resolved, well or badly.
    seen: BTreeSet<HistogramSeries>,
    /// A name for finished requests was resolved.
    has_finished: bool,
    pub(super) has_engine_label: bool,
}

impl<'p> Raw<'p> {
    pub(super) fn new() -> Self {
        let none = std::iter::repeat_with(|| None);
        Self {
            scalars: vec![None; METRIC_NAMES.len()],
            histograms: none.take(METRIC_NAMES.len()).collect(),
            splits: Vec::new(),
            seen: BTreeSet::new(),
            has_finished: false,
            has_engine_label: false,
        }
    }

    /// Stores a whole metric.
    pub(super) fn put(
        &mut self,
        row: usize,
        reason: Option<&str>,
        labels: Labels<'p>,
        reading: Reading,
    ) -> Result<(), ValueProblem> {
        match METRIC_NAMES[row].meaning {
            Meaning::Finished => self.put_split(row, finish_reason(reason), labels, reading),
            Meaning::SplitCounter(series) => self.put_split(row, series, labels, reading),
            _ => put_once(&mut self.scalars[row], reading),
        }
    }

    fn put_split(
        &mut self,
        row: usize,
        series: CounterSeries,
        labels: Labels<'p>,
        reading: Reading,
    ) -> Result<(), ValueProblem> {
        let same = |s: &&mut Split<'p>| s.row == row && s.labels == labels;
        if let Some(split) = self.splits.iter_mut().find(same) {
            let mut slot = Some(split.reading);
            let put = put_once(&mut slot, reading);
            split.reading = slot.unwrap_or(reading);
            return put;
        }
        if self.splits.len() >= MAX_SPLITS {
            return Err(ValueProblem::TooMany);
        }
        self.splits.push(Split {
            row,
            series,
            labels,
            reading,
        });
        Ok(())
    }

    /// Stores a part of a histogram; `edge` is the bucket's.
    pub(super) fn put_part(
        &mut self,
        row: usize,
        part: Part,
        edge: Option<f64>,
        reading: Reading,
    ) -> Result<(), ValueProblem> {
        let histogram = self.histograms[row].get_or_insert_default();
        histogram.line = reading.line;
        match (part, edge) {
            (Part::Sum, _) => put_once(&mut histogram.sum, reading),
            (Part::Count, _) => put_once(&mut histogram.count, reading),
            (Part::Bucket, Some(edge)) if !edge.is_nan() => {
                // One too many is enough to know that there are too many.
                if histogram.buckets.len() <= MAX_EDGES + 1 {
                    histogram.buckets.push((edge, reading));
                }
                Ok(())
            }
            (Part::Bucket | Part::Whole, _) => {
                histogram.bad_edge = true;
                Err(ValueProblem::BadEdge)
            }
        }
    }

    /// The typed sample: of several names of one meaning the first one of the table that is there.
    pub(super) fn resolve(mut self, out: &mut EnginePage) -> EngineSample {
        let mut engine = EngineSample {
            has_engine_label: self.has_engine_label,
            ..EngineSample::default()
        };
        for (row, name) in METRIC_NAMES.iter().enumerate() {
            match name.meaning {
                Meaning::Counter(series) => self.counter(row, series, &mut engine, out),
                Meaning::Finished | Meaning::SplitCounter(_) => {
                    self.split_counters(row, &mut engine, out);
                }
                Meaning::Gauge(series) => self.gauge(row, series, &mut engine, out),
                Meaning::PrefixCacheHitRate => self.hit_rate(row, &mut engine, out),
                Meaning::Histogram(series) => self.histogram(row, series, None, &mut engine, out),
                Meaning::TimePerOutputToken(source) => {
                    let series = HistogramSeries::TimePerOutputToken;
                    self.histogram(row, series, Some(source), &mut engine, out);
                }
                Meaning::CacheInfo => {}
            }
        }
        complete_prefix_cache(&mut engine, &self);
        engine
    }

    fn counter(
        &self,
        row: usize,
        series: CounterSeries,
        engine: &mut EngineSample,
        out: &mut EnginePage,
    ) {
        let Some(reading) = self.scalars[row].filter(|_| !engine.counters.contains_key(&series))
        else {
            return;
        };
        match whole_number(reading.value) {
            Some(count) => drop(engine.counters.insert(series, count)),
            None => out_of_range(row, reading, out),
        }
    }

    /// Sums the parts of one row, unless an earlier name of the same meaning was there. A part that
    /// is no count spoils the sum: less than all parts is a wrong number.
    fn split_counters(&mut self, row: usize, engine: &mut EngineSample, out: &mut EnginePage) {
        let mut sums: BTreeMap<CounterSeries, Option<u64>> = BTreeMap::new();
        for split in self.splits.iter().filter(|s| s.row == row) {
            let count = whole_number(split.reading.value);
            if count.is_none() {
                out_of_range(row, split.reading, out);
            }
            let sum = sums.entry(split.series).or_insert(Some(0));
            *sum = sum
                .zip(count)
                .and_then(|(sum, count)| sum.checked_add(count));
        }
        let finished = METRIC_NAMES[row].meaning == Meaning::Finished;
        if finished && std::mem::replace(&mut self.has_finished, !sums.is_empty()) {
            return;
        }
        for (series, sum) in sums {
            if let Some(sum) = sum {
                engine.counters.entry(series).or_insert(sum);
            }
        }
    }

    fn gauge(
        &self,
        row: usize,
        series: GaugeSeries,
        engine: &mut EngineSample,
        out: &mut EnginePage,
    ) {
        let Some(reading) = self.scalars[row].filter(|_| !engine.gauges.contains_key(&series))
        else {
            return;
        };
        let limit = if series == GaugeSeries::KvCacheUsage {
            1.0
        } else {
            MAX_COUNT
        };
        match up_to(limit, reading.value) {
            Some(value) => drop(engine.gauges.insert(series, value)),
            None => out_of_range(row, reading, out),
        }
    }

    /// Engines write −1 when they do not know it.
    fn hit_rate(&self, row: usize, engine: &mut EngineSample, out: &mut EnginePage) {
        let Some(reading) = self.scalars[row].filter(|r| r.value.to_bits() != (-1.0_f64).to_bits())
        else {
            return;
        };
        engine.prefix_cache_hit_rate = up_to(1.0, reading.value);
        if engine.prefix_cache_hit_rate.is_none() {
            out_of_range(row, reading, out);
        }
    }

    fn histogram(
        &mut self,
        row: usize,
        series: HistogramSeries,
        source: Option<TpotSource>,
        engine: &mut EngineSample,
        out: &mut EnginePage,
    ) {
        let Some(raw) = self.histograms[row].take().filter(|h| h.has_buckets()) else {
            return;
        };
        // A worse name never stands in for a better one that is there but broken: the source must
        // not change from page to page.
        if !self.seen.insert(series) {
            return;
        }
        let line = raw.line;
        let name = METRIC_NAMES[row].full_name();
        match raw.read(out, &name) {
            Ok(histogram) => {
                engine.tpot_source = source.or(engine.tpot_source);
                engine.histograms.insert(series, histogram);
            }
            Err(bad) => out.note(line, &name, ValueProblem::Histogram(bad)),
        }
    }
}

impl RawHistogram {
    const fn has_buckets(&self) -> bool {
        self.bad_edge || !self.buckets.is_empty()
    }

    fn read(
        mut self,
        out: &mut EnginePage,
        name: &str,
    ) -> Result<CumulativeHistogram, BadHistogram> {
        if self.bad_edge {
            return Err(BadHistogram::EdgeOrder);
        }
        if self.buckets.len() > MAX_EDGES + 1 {
            return Err(BadHistogram::EdgeCount);
        }
        // Stable: of repeated buckets the first one counts.
        self.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut buckets: Vec<(f64, f64)> = Vec::with_capacity(self.buckets.len());
        for (edge, reading) in self.buckets {
            let repeated = buckets
                .last()
                .is_some_and(|(last, _)| last.total_cmp(&edge).is_eq());
            if repeated {
                out.note(reading.line, name, ValueProblem::Duplicate);
            } else {
                buckets.push((edge, reading.value));
            }
        }
        let value = |reading: Option<Reading>| reading.map(|r| r.value);
        CumulativeHistogram::from_series(&buckets, value(self.sum), value(self.count))
    }
}

/// SGLang looks every prompt token up but counts only what it finds.
fn complete_prefix_cache(engine: &mut EngineSample, raw: &Raw<'_>) {
    let is_hits = |s: &Split<'_>| s.series == CounterSeries::PrefixCacheHits;
    let prompt_tokens = engine.counters.get(&CounterSeries::PromptTokens).copied();
    if let Some(prompt_tokens) = prompt_tokens.filter(|_| raw.splits.iter().any(is_hits)) {
        let queries = CounterSeries::PrefixCacheQueries;
        engine.counters.entry(queries).or_insert(prompt_tokens);
    }
}

/// Takes a value whose place is free. Of values with timestamps the newest counts; else the first,
/// and the other one is a duplicate.
fn put_once(slot: &mut Option<Reading>, reading: Reading) -> Result<(), ValueProblem> {
    let Some(earlier) = slot else {
        *slot = Some(reading);
        return Ok(());
    };
    match earlier.timestamp.zip(reading.timestamp) {
        Some((then, now)) if then.total_cmp(&now).is_ne() => {
            if then < now {
                *earlier = reading;
            }
            Ok(())
        }
        Some(_) | None => Err(ValueProblem::Duplicate),
    }
}

fn finish_reason(label: Option<&str>) -> CounterSeries {
    match label {
        Some("stop") => CounterSeries::FinishedStop,
        Some("length") => CounterSeries::FinishedLength,
        Some("abort") => CounterSeries::FinishedAbort,
        Some("error") => CounterSeries::FinishedError,
        Some(_) | None => CounterSeries::FinishedOther,
    }
}

fn out_of_range(row: usize, reading: Reading, out: &mut EnginePage) {
    let name = METRIC_NAMES[row].full_name();
    out.note(reading.line, &name, ValueProblem::OutOfRange);
}

fn up_to(limit: f64, value: f64) -> Option<f64> {
    (0.0..=limit + FRACTION_SLACK)
        .contains(&value)
        .then(|| value.min(limit))
}
