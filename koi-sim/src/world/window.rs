//! A steady state as an agent would report it: counters, gauges and histograms over ten seconds, with
//! the sampling noise of as many requests as came.

use std::collections::{BTreeMap, BTreeSet};

use koi_core::ids::ReplicaId;
use koi_core::telemetry::histogram::{BucketDelta, EdgesId, EdgesTable};
use koi_core::telemetry::sample::CachePool;
use koi_core::telemetry::series::{CounterSeries, GaugeSeries, HistogramSeries, TpotSource};
use koi_core::telemetry::window::{Integral, WINDOW_MICROS, Window};
use koi_core::time::{MICROS_PER_SECOND, UtcMicros};

use super::chain::Chain;
use super::steady::{Demand, Steady};
use crate::histogram::{REQUEST_LATENCY_EDGES_S, TOKEN_LATENCY_EDGES_S, TTFT_EDGES_S};
use crate::rng::SimRng;

/// Spread of a gauge's time mean that sampling leaves.
const GAUGE_NOISE: f64 = 0.03;
/// The same of hardware counters.
const COUNTER_NOISE: f64 = 0.015;
/// Most requests drawn one by one in a window; of more only so many are, and counted as often.
const MAX_DRAWS: u64 = 4_000;

/// The edges of all histograms of [`window`].
///
/// # Panics
/// Never: three sets of ascending edges fit an empty table.
#[must_use]
pub fn edges_table() -> EdgesTable {
    let mut table = EdgesTable::default();
    for edges in [
        &TTFT_EDGES_S[..],
        &TOKEN_LATENCY_EDGES_S[..],
        &REQUEST_LATENCY_EDGES_S[..],
    ] {
        table
            .insert(edges)
            .expect("invariant: three sets of ascending edges fit an empty table");
    }
    table
}

/// What a window is made from.
#[derive(Debug, Clone, Copy)]
pub struct WindowInput<'a> {
    /// Chain.
    pub chain: &'a Chain,
    /// Its steady state in this window.
    pub steady: &'a Steady,
    /// What it was asked for.
    pub demand: &'a Demand,
    /// Whose window.
    pub replica: &'a ReplicaId,
    /// When it ends.
    pub end: UtcMicros,
    /// Whether the host has profiling counters (arithmetic activity, memory traffic).
    pub has_profiling: bool,
    /// Whether the devices talk over their fabric instead of PCIe.
    pub has_fabric: bool,
}

/// One window of one replica.
pub fn window(input: &WindowInput<'_>, rng: &mut SimRng) -> Window {
    let (steady, demand) = (input.steady, input.demand);
    let seconds = WINDOW_MICROS as f64 / MICROS_PER_SECOND as f64;
    let requests = poisson(rng, steady.rate_rps * seconds);
    let n = requests as f64;
    let mean_of = |mean: f64, rng: &mut SimRng| {
        let cv = (demand.log_spread * demand.log_spread).exp_m1().sqrt();
        (mean * (1.0 + cv * rng.normal() / n.max(1.0).sqrt())).max(1.0)
    };
    let prompt = mean_of(demand.prompt, rng);
    let answer = mean_of(demand.answer, rng);
    let mut histograms = BTreeMap::new();
    let ttft = log_normal(steady.ttft_s, steady.ttft_sd_s);
    let tpot = log_normal(steady.round_s, steady.tpot_cv * steady.round_s);
    histograms.insert(
        HistogramSeries::TimeToFirstToken,
        drawn(&TTFT_EDGES_S, requests, ttft, rng),
    );
    histograms.insert(
        HistogramSeries::TimePerOutputToken,
        drawn(&TOKEN_LATENCY_EDGES_S, requests, tpot, rng),
    );
    let decode_s = steady.round_s * (answer - 1.0).max(0.0);
    let noisy = |value: f64, rng: &mut SimRng| value * (GAUGE_NOISE * rng.normal()).exp();
    for (series, mean) in [
        (HistogramSeries::PrefillTime, noisy(steady.prefill_s, rng)),
        (HistogramSeries::DecodeTime, noisy(decode_s, rng)),
        (HistogramSeries::PromptTokensPerRequest, prompt),
        (HistogramSeries::GenerationTokensPerRequest, answer),
    ] {
        histograms.insert(series, summed(requests, mean));
    }
    Window {
        replica: input.replica.clone(),
        start: UtcMicros(input.end.0 - WINDOW_MICROS as i64),
        end: input.end,
        elapsed_micros: WINDOW_MICROS,
        scrapes: 3,
        failed_scrapes: 0,
        gpus: input.chain.devices,
        counters: counters(input, (n, prompt, answer), seconds, rng),
        gauges: gauges(input, seconds, rng),
        histograms,
        tpot_source: Some(TpotSource::PerRequest),
        cache: CachePool {
            num_gpu_blocks: Some(input.chain.blocks),
            block_size_tokens: Some(input.chain.shape.block_size),
        },
        flags: BTreeSet::new(),
    }
}

fn counters(
    input: &WindowInput<'_>,
    (n, prompt, answer): (f64, f64, f64),
    seconds: f64,
    rng: &mut SimRng,
) -> BTreeMap<CounterSeries, u64> {
    let steady = input.steady;
    let mut noisy = |value: f64| (value * (COUNTER_NOISE * rng.normal()).exp()).max(0.0) as u64;
    let prompt_tokens = n * prompt;
    let mut counters = BTreeMap::from([
        (CounterSeries::PromptTokens, prompt_tokens as u64),
        (CounterSeries::GenerationTokens, (n * answer) as u64),
        (
            CounterSeries::Iterations,
            noisy(steady.steps_per_s * seconds),
        ),
        (CounterSeries::FinishedStop, n as u64),
    ]);
    if input.chain.shape.prefix_caching {
        let hits = noisy(steady.hit * prompt_tokens).min(prompt_tokens as u64);
        counters.insert(CounterSeries::PrefixCacheQueries, prompt_tokens as u64);
        counters.insert(CounterSeries::PrefixCacheHits, hits);
    }
    if input.chain.devices > 1 {
        let series = if input.has_fabric {
            CounterSeries::NvlinkTxBytes
        } else {
            CounterSeries::PcieTxBytes
        };
        counters.insert(series, noisy(steady.link_bytes_per_s * seconds));
    }
    counters
}

fn gauges(
    input: &WindowInput<'_>,
    seconds: f64,
    rng: &mut SimRng,
) -> BTreeMap<GaugeSeries, Integral> {
    let (chain, steady) = (input.chain, input.steady);
    let pool = chain.blocks as f64 * chain.block_bytes;
    let mut gauge = |mean: f64, spread: f64| {
        let mut integral = Integral::default();
        integral.add(mean * (spread * rng.normal()).exp(), seconds);
        integral
    };
    let usage = gauge(steady.kv_usage, GAUGE_NOISE);
    let mut gauges = BTreeMap::from([
        (
            GaugeSeries::RunningRequests,
            gauge(steady.live, GAUGE_NOISE),
        ),
        (
            GaugeSeries::WaitingRequests,
            gauge(steady.waiting, 3.0 * GAUGE_NOISE),
        ),
        (GaugeSeries::KvCacheUsage, usage),
        (
            GaugeSeries::GpuMemoryUsedBytes,
            gauge(chain.used_bytes + pool, 0.0),
        ),
    ]);
    if input.has_profiling {
        let tensor = gauge(steady.tensor_active, COUNTER_NOISE);
        let memory = gauge(steady.memory_bandwidth, COUNTER_NOISE);
        gauges.insert(GaugeSeries::TensorActive, tensor);
        gauges.insert(GaugeSeries::MemoryBandwidth, memory);
    }
    gauges
}

/// Location and scale of the log-normal with this mean and standard deviation.
fn log_normal(mean: f64, sd: f64) -> (f64, f64) {
    let scale2 = (sd * sd / (mean * mean)).ln_1p();
    (mean.ln() - scale2 / 2.0, scale2.sqrt())
}

/// As many values as requests, in buckets.
fn drawn(
    edges: &[f64],
    requests: u64,
    (location, scale): (f64, f64),
    rng: &mut SimRng,
) -> BucketDelta {
    let draws = requests.min(MAX_DRAWS);
    let weight = requests as f64 / draws.max(1) as f64;
    let mut counts = vec![0_u64; edges.len() + 1];
    let mut sum = 0.0;
    for _ in 0..draws {
        let value = (location + scale * rng.normal()).exp();
        counts[edges.partition_point(|edge| *edge < value)] += 1;
        sum += value;
    }
    let buckets: Vec<(u16, u64)> = counts
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(index, count)| (index as u16, (*count as f64 * weight).round() as u64))
        .collect();
    BucketDelta {
        edges: EdgesId::of(edges),
        count: buckets.iter().map(|(_, count)| count).sum(),
        buckets,
        sum: sum * weight,
    }
}

/// A histogram of which only sum and count are read.
fn summed(requests: u64, mean: f64) -> BucketDelta {
    let edges = &REQUEST_LATENCY_EDGES_S;
    let bucket = edges.partition_point(|edge| *edge < mean) as u16;
    BucketDelta {
        edges: EdgesId::of(edges),
        buckets: if requests > 0 {
            vec![(bucket, requests)]
        } else {
            Vec::new()
        },
        sum: mean * requests as f64,
        count: requests,
    }
}

/// A Poisson count; above 50 as a rounded normal.
fn poisson(rng: &mut SimRng, mean: f64) -> u64 {
    if mean > 50.0 {
        return (mean + mean.sqrt() * rng.normal()).round().max(0.0) as u64;
    }
    let limit = (-mean).exp();
    let (mut count, mut product) = (0, rng.uniform());
    while product > limit {
        count += 1;
        product *= rng.uniform();
    }
    count
}
