//! Observed mediators V and outcomes Y of a rank, from its pooled window and facts of its chain.
//!
//! This is the "observed" column of spec §3. Mediators and rates are those of one replica, as the
//! surrogate predicts them for one chain; the throughput outcome is the whole rank's. What cannot be
//! observed is absent. Nothing here is predicted.

mod memory;
mod outcomes;

use serde::{Deserialize, Serialize};

pub use memory::{KvDemand, gpu_memory_in_use_bytes, kv_pressure_score};

use crate::model::CacheShape;
use crate::telemetry::histogram::EdgesTable;
use crate::telemetry::pool::PooledWindow;
use crate::telemetry::series::{CounterSeries, GaugeSeries, HistogramSeries, TpotSource};
use crate::time::UtcMicros;
use crate::variables::{Mediator, MediatorValues, OutcomeValues};

/// Largest mean batch at which the step time is dispatch overhead plus roofline.
pub const SMALL_BATCH_REQUESTS: f64 = 8.0;

/// The link that carries traffic between the shards of one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardLinkKind {
    /// NVLink, with or without a switch.
    Nvlink,
    /// PCIe peer to peer or through the host.
    Pcie,
}

/// Which link the shards use, and how much one GPU can send over it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ShardLink {
    /// Kind; only its counters say something about the chain's communication.
    pub kind: ShardLinkKind,
    /// Peak bytes per second that one GPU can send.
    pub peak_bytes_per_second: f64,
}

/// Facts of a rank's chain that turn measurements into variables; absent facts make variables absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ObserveFacts {
    /// Tensor-parallel width.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Memory of one GPU.
    pub gpu_memory_bytes: Option<f64>,
    /// Share of it that the engine may use.
    pub gpu_memory_utilization: Option<f64>,
    /// Bytes of one KV block on one GPU.
    pub kv_block_bytes_per_gpu: Option<f64>,
    /// What the cache of one sequence takes on one GPU by its length.
    pub cache: Option<CacheShape>,
    /// KV blocks of one replica, where the engine does not export them.
    pub kv_blocks: Option<f64>,
    /// Tokens of a KV block, where the engine does not export them.
    pub block_size_tokens: Option<u32>,
    /// Peak activation bytes of one GPU, from the engine's profile line.
    pub activation_peak_bytes: Option<f64>,
    /// Link between the shards.
    pub shard_link: Option<ShardLink>,
    /// Tensor-active share of the same stage at pp = 1 under saturation.
    pub tensor_active_at_saturation: Option<f64>,
    /// Roofline time of one step at small batch, in milliseconds.
    pub roofline_step_ms: Option<f64>,
    /// Price of one replica in USD per hour.
    pub price_usd_per_replica_hour: Option<f64>,
    /// What the job was promised.
    pub slo: SloFacts,
}

/// Targets against which the margin is taken.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SloFacts {
    /// Target of the 99th percentile of time to first token.
    pub p99_ttft_ms: Option<f64>,
    /// Target of the 99th percentile of time per output token.
    pub p99_tpot_ms: Option<f64>,
    /// A batch job's remaining work; its margin replaces the latency margins.
    pub batch: Option<BatchProgress>,
}

/// A batch job's remaining work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BatchProgress {
    /// Tokens still to generate at the end of the window.
    pub tokens_left: f64,
    /// When they are due.
    pub deadline: UtcMicros,
}

/// What a rank showed over a window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Mediators of one replica.
    pub mediators: MediatorValues,
    /// Outcomes of the rank.
    pub outcomes: OutcomeValues,
    /// Generated tokens per second of one replica.
    pub throughput_per_replica_tokens_per_sec: Option<f64>,
    /// Replicas that took part.
    pub replicas: u32,
    /// Requests behind the time to first token.
    pub ttft_observations: u64,
    /// Observations behind the time per output token.
    pub tpot_observations: u64,
    /// True when a mean stands in for a 99th percentile.
    pub mean_based: bool,
    /// Where the time per output token came from.
    pub tpot_source: Option<TpotSource>,
}

/// Observed variables of a rank.
///
/// # Shapes    one pooled window; `edges` must hold the edge sets of its histograms, else their
/// variables are absent
/// # Units     as in [`crate::variables`]
/// # Source    spec §3, "observed"
#[must_use]
pub fn observe(window: &PooledWindow, edges: &EdgesTable, facts: &ObserveFacts) -> Observation {
    let (outcomes, latency) = outcomes::outcomes(window, edges, facts);
    Observation {
        mediators: mediators(window, facts),
        outcomes,
        throughput_per_replica_tokens_per_sec: window
            .per_replica_second(CounterSeries::GenerationTokens),
        replicas: window.replicas.len() as u32,
        ttft_observations: window.observations(HistogramSeries::TimeToFirstToken),
        tpot_observations: window.observations(HistogramSeries::TimePerOutputToken),
        mean_based: latency.mean_based,
        tpot_source: window.tpot_source,
    }
}

fn mediators(window: &PooledWindow, facts: &ObserveFacts) -> MediatorValues {
    let mut v = MediatorValues::absent();
    v.set(Mediator::KvcacheHitRate, hit_rate(window));
    v.set(
        Mediator::InputLengthObserved,
        mean_of(window, HistogramSeries::PromptTokensPerRequest),
    );
    v.set(
        Mediator::OutputLengthObserved,
        mean_of(window, HistogramSeries::GenerationTokensPerRequest),
    );
    v.set(
        Mediator::KvCacheUtil,
        window.mean(GaugeSeries::KvCacheUsage),
    );
    v.set(
        Mediator::RunningRequests,
        window.mean(GaugeSeries::RunningRequests),
    );
    v.set(
        Mediator::QueueDepth,
        window.mean(GaugeSeries::WaitingRequests),
    );
    v.set(
        Mediator::SmUtilization,
        window.mean(GaugeSeries::TensorActive),
    );
    v.set(
        Mediator::MemBandwidthUtilization,
        window.mean(GaugeSeries::MemoryBandwidth),
    );
    v.set(
        Mediator::PrefillTokensPerSec,
        window.per_replica_second(CounterSeries::PromptTokens),
    );
    v.set(
        Mediator::DecodeStepsPerSec,
        window.per_replica_second(CounterSeries::Iterations),
    );
    v.set(Mediator::PdImbalance, prefill_decode_imbalance(window));
    v.set(
        Mediator::PipelineBubbleFraction,
        pipeline_bubble(window, facts),
    );
    v.set(
        Mediator::DispatchOverheadMs,
        dispatch_overhead_ms(window, facts),
    );
    memory::set_memory(&mut v, window, facts);
    set_communication(&mut v, window, facts);
    v
}

/// Δhits / Δqueries; absent when nothing was asked.
fn hit_rate(window: &PooledWindow) -> Option<f64> {
    let queries = window
        .total(CounterSeries::PrefixCacheQueries)
        .filter(|q| *q > 0)? as f64;
    let rate = window.total(CounterSeries::PrefixCacheHits)? as f64 / queries;
    (rate <= 1.0).then_some(rate)
}

/// Δsum / Δcount of a histogram.
fn mean_of(window: &PooledWindow, series: HistogramSeries) -> Option<f64> {
    window
        .histograms
        .get(&series)
        .and_then(|h| h.mean())
        .filter(|m| *m >= 0.0)
}

/// ln(Δprefill time / Δdecode time); absent unless both are positive.
fn prefill_decode_imbalance(window: &PooledWindow) -> Option<f64> {
    let seconds = |series| {
        window
            .histograms
            .get(&series)
            .map(|h| h.sum)
            .filter(|s| *s > 0.0)
    };
    Some((seconds(HistogramSeries::PrefillTime)? / seconds(HistogramSeries::DecodeTime)?).ln())
}

/// 0 for one stage; else the share of arithmetic activity that a stage lost against pp = 1 at saturation,
/// which only a window with waiting requests can show.
fn pipeline_bubble(window: &PooledWindow, facts: &ObserveFacts) -> Option<f64> {
    if facts.pp == 1 {
        return Some(0.0);
    }
    window
        .mean(GaugeSeries::WaitingRequests)
        .filter(|w| *w > 0.0)?;
    let saturated = facts.tensor_active_at_saturation.filter(|s| *s > 0.0)?;
    Some((1.0 - window.mean(GaugeSeries::TensorActive)? / saturated).clamp(0.0, 1.0))
}

/// Mean step time minus roofline where the batch is small and the step time is not a proxy.
fn dispatch_overhead_ms(window: &PooledWindow, facts: &ObserveFacts) -> Option<f64> {
    window
        .mean(GaugeSeries::RunningRequests)
        .filter(|r| *r > 0.0 && *r <= SMALL_BATCH_REQUESTS)?;
    window.tpot_source.filter(|s| !s.is_proxy())?;
    let step_ms = 1000.0 * mean_of(window, HistogramSeries::TimePerOutputToken)?;
    Some(step_ms - facts.roofline_step_ms?).filter(|ms| *ms > 0.0)
}

/// Link traffic, from the counters of the one link that the shards use: the other link carries host
/// traffic, which the prediction does not contain. A single GPU has no shards to talk to.
fn set_communication(v: &mut MediatorValues, window: &PooledWindow, facts: &ObserveFacts) {
    let gpus = f64::from(facts.tp) * f64::from(facts.pp);
    if gpus <= 1.0 {
        return;
    }
    let Some(link) = facts.shard_link else { return };
    let (counter, rate) = match link.kind {
        ShardLinkKind::Nvlink => (CounterSeries::NvlinkTxBytes, Mediator::NvlinkBytesPerSec),
        ShardLinkKind::Pcie => (CounterSeries::PcieTxBytes, Mediator::PcieBytesPerSec),
    };
    let Some(bytes_per_second) = window.per_replica_second(counter) else {
        return;
    };
    v.set(rate, Some(bytes_per_second));
    let peak = link.peak_bytes_per_second * gpus;
    v.set(
        Mediator::CommOverheadPct,
        (peak > 0.0).then(|| bytes_per_second / peak),
    );
    let tokens_per_second = window
        .per_replica_second(CounterSeries::PromptTokens)
        .zip(window.per_replica_second(CounterSeries::GenerationTokens))
        .map(|(prompt, generated)| prompt + generated)
        .filter(|t| *t > 0.0);
    v.set(
        Mediator::PerTokCommBytes,
        tokens_per_second.map(|t| bytes_per_second / f64::from(facts.tp) / t),
    );
}

#[cfg(test)]
mod tests;
