//! Builds one replica's windows from its scrapes. Holds two readings at most.

use std::collections::{BTreeMap, BTreeSet};

use super::gpu_readings::GpuState;
use super::{
    Integral, MAX_CLOCK_SKEW_SECONDS, MAX_SCRAPE_GAP_MICROS, MAX_WINDOW_MICROS, WINDOW_MICROS,
    Window, WindowFlag,
};
use crate::gpu::GpuReading;
use crate::ids::ReplicaId;
use crate::telemetry::engine_metrics::EnginePage;
use crate::telemetry::histogram::{BucketDelta, EdgesTable};
use crate::telemetry::sample::{CachePool, EngineKey, EngineSample};
use crate::telemetry::series::{CounterSeries, GaugeSeries, HistogramSeries, TpotSource};
use crate::time::{MICROS_PER_SECOND, UtcMicros};

/// Shorter pieces, left by a reset, say nothing.
const MIN_WINDOW_MICROS: u64 = 1_000_000;

/// One successful scrape of an engine, with the GPU readings taken at the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Wall time.
    pub at: UtcMicros,
    /// The agent's monotonic clock.
    pub monotonic_micros: u64,
    /// The engine's page.
    pub page: EnginePage,
    /// The replica's GPUs; empty when they could not be read.
    pub gpus: Vec<GpuReading>,
}

/// What is kept of a reading.
#[derive(Debug, Clone)]
struct State {
    at: UtcMicros,
    monotonic_micros: u64,
    process_start_seconds: Option<f64>,
    engines: BTreeMap<EngineKey, EngineSample>,
    gpus: GpuState,
    series_missing: bool,
}

/// The window being filled.
#[derive(Debug, Clone)]
struct Open {
    first: State,
    last: State,
    scrapes: u32,
    failed_scrapes: u32,
    gauges: BTreeMap<GaugeSeries, Integral>,
    gpu_counters_lost: BTreeSet<CounterSeries>,
    flags: BTreeSet<WindowFlag>,
}

/// Turns the scrapes of one replica into windows.
#[derive(Debug, Clone)]
pub struct WindowBuilder {
    replica: ReplicaId,
    served_model: String,
    length_micros: u64,
    edges: EdgesTable,
    open: Option<Open>,
}

impl WindowBuilder {
    /// A builder for the replica that serves this model name.
    #[must_use]
    pub fn new(replica: ReplicaId, served_model: String) -> Self {
        Self {
            replica,
            served_model,
            length_micros: WINDOW_MICROS,
            edges: EdgesTable::default(),
            open: None,
        }
    }

    /// With another window length, 1 s to 15 min; others are brought into that range.
    #[must_use]
    pub fn with_length_micros(mut self, length_micros: u64) -> Self {
        self.length_micros = length_micros.clamp(MIN_WINDOW_MICROS, MAX_WINDOW_MICROS);
        self
    }

    /// Bucket edges of the windows made so far.
    #[must_use]
    pub fn edges(&self) -> &EdgesTable {
        &self.edges
    }

    /// A scrape that failed: the open window says so, and no value is made up for it.
    pub fn push_failure(&mut self) {
        if let Some(open) = &mut self.open {
            open.failed_scrapes = open.failed_scrapes.saturating_add(1);
            open.flags.insert(WindowFlag::SparseScrapes);
        }
    }

    /// A successful scrape; answers with the window that it closes. A page without an engine of the
    /// served model counts as a failure.
    pub fn push(&mut self, reading: &Reading) -> Option<Window> {
        let state = State::new(reading, &self.served_model);
        if state.engines.is_empty() {
            self.push_failure();
            return None;
        }
        let Some(mut open) = self.open.take() else {
            self.open = Some(Open::new(state));
            return None;
        };
        let Some(since_last) = state
            .monotonic_micros
            .checked_sub(open.last.monotonic_micros)
        else {
            self.open = Some(Open::new(state).flagged(WindowFlag::AfterReset));
            return None;
        };
        if state.is_reset_after(&open.last) {
            self.open = Some(Open::new(state).flagged(WindowFlag::AfterReset));
            return self.finish(open.flagged(WindowFlag::CutByReset));
        }
        if since_last > MAX_WINDOW_MICROS {
            self.open = Some(Open::new(state).flagged(WindowFlag::SparseScrapes));
            return self.finish(open);
        }
        if since_last > 0 {
            open.advance(state, since_last);
        }
        self.close_if_due(open)
    }

    /// Closes what is open, for example when the replica stops.
    pub fn flush(&mut self) -> Option<Window> {
        self.open.take().and_then(|open| self.finish(open))
    }

    /// A window may close half a scrape early rather than run on for a whole one.
    fn close_if_due(&mut self, open: Open) -> Option<Window> {
        if open.elapsed_micros() + self.length_micros / 20 < self.length_micros {
            self.open = Some(open);
            return None;
        }
        self.open = Some(Open::new(open.last.clone()));
        self.finish(open)
    }

    fn finish(&mut self, open: Open) -> Option<Window> {
        let elapsed_micros = open.elapsed_micros();
        if open.scrapes < 2 || elapsed_micros < MIN_WINDOW_MICROS {
            return None;
        }
        let mut flags = open.flags.clone();
        let (counters, histograms, tpot_source) = self.growth(&open, &mut flags);
        let skew = open.last.at.seconds_since(open.first.at)
            - elapsed_micros as f64 / MICROS_PER_SECOND as f64;
        let set = |flags: &mut BTreeSet<_>, on: bool, flag| on && flags.insert(flag);
        set(
            &mut flags,
            skew.abs() > MAX_CLOCK_SKEW_SECONDS,
            WindowFlag::ClockStepped,
        );
        set(
            &mut flags,
            open.last.series_missing,
            WindowFlag::SeriesMissing,
        );
        set(
            &mut flags,
            tpot_source.is_some_and(TpotSource::is_proxy),
            WindowFlag::TpotProxy,
        );
        Some(Window {
            replica: self.replica.clone(),
            start: open.first.at,
            end: open.last.at,
            elapsed_micros,
            scrapes: open.scrapes,
            failed_scrapes: open.failed_scrapes,
            gpus: open.last.gpus.count(),
            counters,
            gauges: open.gauges,
            histograms,
            tpot_source,
            cache: pool_of(&open.last.engines),
            flags,
        })
    }

    /// Growth of counters and histograms from the first to the last scrape of the window.
    fn growth(&mut self, open: &Open, flags: &mut BTreeSet<WindowFlag>) -> Growth {
        let mut counters: BTreeMap<_, _> = CounterSeries::ALL
            .into_iter()
            .filter_map(|s| Some((s, open.counter_growth(s)?)))
            .collect();
        if !open.gpu_counters_lost.is_empty() {
            flags.insert(WindowFlag::GpuCounterReset);
        }
        let of_gpus = open.last.gpus.growth_since(&open.first.gpus);
        counters.extend(
            of_gpus
                .into_iter()
                .filter(|(s, _)| !open.gpu_counters_lost.contains(s)),
        );
        let mut histograms = BTreeMap::new();
        for series in HistogramSeries::ALL {
            if let Some(delta) = open.histogram_growth(series, &mut self.edges) {
                histograms.insert(series, delta);
            }
        }
        let has_tpot = histograms.contains_key(&HistogramSeries::TimePerOutputToken);
        let tpot_source = open.last.tpot_source().filter(|_| has_tpot);
        (counters, histograms, tpot_source)
    }
}

type Growth = (
    BTreeMap<CounterSeries, u64>,
    BTreeMap<HistogramSeries, BucketDelta>,
    Option<TpotSource>,
);

impl State {
    fn new(reading: &Reading, served_model: &str) -> Self {
        Self {
            at: reading.at,
            monotonic_micros: reading.monotonic_micros,
            process_start_seconds: reading.page.process_start_seconds,
            engines: reading
                .page
                .of_model(served_model)
                .map(|(k, s)| (k.clone(), s.clone()))
                .collect(),
            gpus: GpuState::new(&reading.gpus),
            series_missing: !reading.page.missing(served_model).is_empty(),
        }
    }

    /// True when another process answers than at `earlier`, or the same one started over.
    fn is_reset_after(&self, earlier: &Self) -> bool {
        let restarted = matches!(
            (self.process_start_seconds, earlier.process_start_seconds),
            (Some(now), Some(then)) if (now - then).abs() > 0.5
        );
        restarted
            || !self.engines.keys().eq(earlier.engines.keys())
            || self.engines.iter().any(|(key, now)| {
                earlier
                    .engines
                    .get(key)
                    .is_some_and(|then| went_back(now, then))
            })
    }

    /// The one source that all engines share.
    fn tpot_source(&self) -> Option<TpotSource> {
        let mut sources = self.engines.values().map(|e| e.tpot_source);
        let first = sources.next().flatten();
        first.filter(|_| sources.all(|s| s == first))
    }

    /// Requests add up over a replica's engines; the cache usage is their mean.
    fn gauge(&self, series: GaugeSeries) -> Option<f64> {
        if let Some(value) = self.gpus.gauges().get(&series) {
            return Some(*value);
        }
        let sum = self
            .engines
            .values()
            .try_fold(0.0, |sum, e| Some(sum + e.gauges.get(&series)?))?;
        Some(if series == GaugeSeries::KvCacheUsage {
            sum / self.engines.len() as f64
        } else {
            sum
        })
    }
}

fn went_back(now: &EngineSample, then: &EngineSample) -> bool {
    let counter = |s: CounterSeries| matches!((now.counters.get(&s), then.counters.get(&s)), (Some(n), Some(t)) if n < t);
    let histogram = |s: HistogramSeries| matches!((now.histograms.get(&s), then.histograms.get(&s)), (Some(n), Some(t)) if n.since(t).is_none());
    let source_changed = now.tpot_source != then.tpot_source
        && now.tpot_source.is_some()
        && then.tpot_source.is_some();
    source_changed
        || CounterSeries::ALL.into_iter().any(counter)
        || HistogramSeries::ALL.into_iter().any(histogram)
}

fn pool_of(engines: &BTreeMap<EngineKey, EngineSample>) -> CachePool {
    let blocks = engines
        .values()
        .try_fold(0_u64, |sum, e| sum.checked_add(e.cache.num_gpu_blocks?));
    let size = engines
        .values()
        .next()
        .and_then(|e| e.cache.block_size_tokens);
    CachePool {
        num_gpu_blocks: blocks,
        block_size_tokens: size
            .filter(|_| engines.values().all(|e| e.cache.block_size_tokens == size)),
    }
}

impl Open {
    fn new(first: State) -> Self {
        Self {
            last: first.clone(),
            first,
            scrapes: 1,
            failed_scrapes: 0,
            gauges: BTreeMap::new(),
            gpu_counters_lost: BTreeSet::new(),
            flags: BTreeSet::new(),
        }
    }

    fn flagged(mut self, flag: WindowFlag) -> Self {
        self.flags.insert(flag);
        self
    }

    fn elapsed_micros(&self) -> u64 {
        self.last
            .monotonic_micros
            .saturating_sub(self.first.monotonic_micros)
    }

    /// Takes the next scrape in: gauges by the trapezoid rule, unless the silence was too long.
    fn advance(&mut self, state: State, since_last: u64) {
        let seconds = since_last as f64 / MICROS_PER_SECOND as f64;
        if since_last > MAX_SCRAPE_GAP_MICROS {
            self.flags.insert(WindowFlag::SparseScrapes);
        } else {
            for series in GaugeSeries::ALL {
                if let (Some(then), Some(now)) = (self.last.gauge(series), state.gauge(series)) {
                    self.gauges
                        .entry(series)
                        .or_default()
                        .add(f64::midpoint(then, now), seconds);
                }
            }
        }
        if !state.gpus.same_gpus(&self.last.gpus) {
            self.flags.insert(WindowFlag::GpusChanged);
        }
        self.gpu_counters_lost
            .extend(self.last.gpus.went_backwards(&state.gpus));
        self.scrapes = self.scrapes.saturating_add(1);
        self.last = state;
    }

    fn counter_growth(&self, series: CounterSeries) -> Option<u64> {
        self.last.engines.iter().try_fold(0_u64, |sum, (key, now)| {
            let then = *self.first.engines.get(key)?.counters.get(&series)?;
            sum.checked_add(now.counters.get(&series)?.checked_sub(then)?)
        })
    }

    fn histogram_growth(
        &self,
        series: HistogramSeries,
        edges: &mut EdgesTable,
    ) -> Option<BucketDelta> {
        let mut total: Option<BucketDelta> = None;
        for (key, now) in &self.last.engines {
            let now = now.histograms.get(&series)?;
            let delta = now.since(self.first.engines.get(key)?.histograms.get(&series)?)?;
            edges.insert(now.edges()).ok()?;
            match &mut total {
                None => total = Some(delta),
                Some(total) => total.add(&delta).then_some(())?,
            }
        }
        total
    }
}
