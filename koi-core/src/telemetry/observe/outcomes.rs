//! Outcomes of a rank: throughput, latency percentiles, cost and margin. Spec §3 (Y), §7 (batch).

use super::{BatchProgress, ObserveFacts, SloFacts};
use crate::telemetry::histogram::EdgesTable;
use crate::telemetry::percentile::{Percentile, percentile_or_mean};
use crate::telemetry::pool::PooledWindow;
use crate::telemetry::series::{CounterSeries, HistogramSeries};
use crate::time::UtcMicros;
use crate::variables::{Outcome, OutcomeValues};

const SECONDS_PER_HOUR: f64 = 3600.0;
const MS_PER_SECOND: f64 = 1000.0;

/// How the latencies were obtained.
pub(super) struct Latency {
    pub(super) mean_based: bool,
}

pub(super) fn outcomes(
    window: &PooledWindow,
    edges: &EdgesTable,
    facts: &ObserveFacts,
) -> (OutcomeValues, Latency) {
    let ttft = p99(window, edges, HistogramSeries::TimeToFirstToken);
    let tpot = p99(window, edges, HistogramSeries::TimePerOutputToken);
    let per_replica = window.per_replica_second(CounterSeries::GenerationTokens);
    let throughput = per_replica.map(|t| t * window.replicas.len() as f64);
    let mut y = OutcomeValues::absent();
    y.set(Outcome::P99TtftMs, ttft.map(|p| p.value * MS_PER_SECOND));
    y.set(Outcome::P99TpotMs, tpot.map(|p| p.value * MS_PER_SECOND));
    y.set(Outcome::ThroughputTokensPerSec, throughput);
    y.set(
        Outcome::CostPerToken,
        cost_per_token(facts.price_usd_per_replica_hour, per_replica),
    );
    y.set(Outcome::SloMargin, slo_margin(&y, &facts.slo, window.end));
    let mean_based = [ttft, tpot].into_iter().flatten().any(|p| p.mean_based);
    (y, Latency { mean_based })
}

fn p99(window: &PooledWindow, edges: &EdgesTable, series: HistogramSeries) -> Option<Percentile> {
    let delta = window.histograms.get(&series)?;
    percentile_or_mean(0.99, delta, edges.get(delta.edges)?).filter(|p| p.value >= 0.0)
}

/// USD per generated token: price / (3600 · throughput), the same for one replica and for all.
fn cost_per_token(price_usd_per_hour: Option<f64>, tokens_per_second: Option<f64>) -> Option<f64> {
    let price = price_usd_per_hour.filter(|p| *p > 0.0)?;
    Some(price / (SECONDS_PER_HOUR * tokens_per_second.filter(|t| *t > 0.0)?))
}

/// min over the latency targets of (target − y) / target; a batch job's margin is that of its
/// projected finish. Absent when a target's latency is.
fn slo_margin(y: &OutcomeValues, slo: &SloFacts, now: UtcMicros) -> Option<f64> {
    if let Some(batch) = slo.batch {
        return batch_margin(batch, y.get(Outcome::ThroughputTokensPerSec)?, now);
    }
    let targets = [
        (slo.p99_ttft_ms, Outcome::P99TtftMs),
        (slo.p99_tpot_ms, Outcome::P99TpotMs),
    ];
    let mut margin: Option<f64> = None;
    for (target, outcome) in targets {
        let Some(target) = target.filter(|t| *t > 0.0) else {
            continue;
        };
        let headroom = (target - y.get(outcome)?) / target;
        margin = Some(margin.map_or(headroom, |m| m.min(headroom)));
    }
    margin
}

/// (time left − tokens left / throughput) / time left; absent after the deadline or without progress.
fn batch_margin(batch: BatchProgress, tokens_per_second: f64, now: UtcMicros) -> Option<f64> {
    let left = batch.deadline.seconds_since(now);
    let known = left > 0.0 && tokens_per_second > 0.0 && batch.tokens_left >= 0.0;
    known.then(|| (left - batch.tokens_left / tokens_per_second) / left)
}
