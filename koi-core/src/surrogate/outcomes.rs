//! Ŷ of a deployment and of a ladder of ranks.
//!
//! Throughput adds up, cost is Σprice over Σthroughput, percentiles are those of the
//! traffic-weighted mixture, never a mean or a maximum of percentiles. Spec §3 and §4.

use super::buckets::{TPOT_EDGES_SECONDS, TTFT_EDGES_SECONDS, through_buckets};
use super::latency::{LatencyShape, Spread};
use super::memory::MemoryBreakdown;
use super::operating_point::{Envelope, Point, Traffic};
use super::queueing::Load;
use super::{Demand, Deployment, Prediction};
use crate::job::Slo;
use crate::variables::{MediatorValues, Outcome, OutcomeValues};

const SECONDS_PER_HOUR: f64 = 3600.0;

/// What is left of a batch job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchProgress {
    /// Output tokens still to generate.
    pub tokens_left: f64,
    /// Seconds until the deadline; negative after it.
    pub seconds_left: f64,
}

/// Relative headroom of a batch job: how much of the time left it would not need.
///
/// # Formula
/// (time left − tokens left / throughput) / time left
///
/// `None` when the throughput is absent, and past the deadline with work left: there is no time
/// left to share. 1 when nothing is left to do.
#[must_use]
pub fn batch_slo_margin(throughput: Option<f64>, progress: BatchProgress) -> Option<f64> {
    if progress.tokens_left <= 0.0 {
        return Some(1.0);
    }
    let needed = progress.tokens_left / throughput.filter(|t| *t > 0.0)?;
    if progress.seconds_left <= 0.0 {
        return None;
    }
    let margin = (progress.seconds_left - needed) / progress.seconds_left;
    margin.is_finite().then_some(margin)
}

/// Smallest relative headroom to the latency targets; absent when a targeted latency is.
///
/// # Formula
/// min_j (target_j − y_j)/target_j
#[must_use]
pub fn online_slo_margin(
    slo: &Slo,
    p99_ttft_ms: Option<f64>,
    p99_tpot_ms: Option<f64>,
) -> Option<f64> {
    let Slo::Online {
        p99_ttft_ms: ttft_target,
        p99_tpot_ms: tpot_target,
    } = slo
    else {
        return None;
    };
    let mut smallest: Option<f64> = None;
    for (target, value) in [(ttft_target, p99_ttft_ms), (tpot_target, p99_tpot_ms)] {
        let Some(target) = target else { continue };
        let margin = (target - value?) / target;
        smallest = Some(smallest.map_or(margin, |s| s.min(margin)));
    }
    smallest
}

/// Outcomes of a ladder: each rank with its share of the traffic (any positive scale).
///
/// A saturated rank that gets traffic makes the ladder's latencies absent.
#[must_use]
pub fn roll_up(
    ranks: &[(f64, &Prediction)],
    slo: &Slo,
    batch: Option<BatchProgress>,
) -> OutcomeValues {
    let throughput: f64 = ranks
        .iter()
        .filter_map(|(_, rank)| rank.outcomes.get(Outcome::ThroughputTokensPerSec))
        .sum();
    let throughput = Some(throughput).filter(|t| *t > 0.0);
    let price = ranks
        .iter()
        .try_fold(0.0, |sum, (_, rank)| Some(sum + rank.price_usd_per_hour?));
    let ttft = mixture_p99(ranks, &TTFT_EDGES_SECONDS, |latency| latency.ttft);
    let tpot = mixture_p99(ranks, &TPOT_EDGES_SECONDS, |latency| latency.tpot);
    let margin = match slo {
        Slo::Online { .. } => online_slo_margin(slo, ttft, tpot),
        Slo::Batch { .. } => batch.and_then(|progress| batch_slo_margin(throughput, progress)),
    };
    let mut outcomes = OutcomeValues::absent();
    outcomes.set(Outcome::ThroughputTokensPerSec, throughput);
    outcomes.set(Outcome::CostPerToken, cost_per_token(price, throughput));
    outcomes.set(Outcome::P99TtftMs, ttft);
    outcomes.set(Outcome::P99TpotMs, tpot);
    outcomes.set(Outcome::SloMargin, margin);
    outcomes
}

/// USD per generated token.
///
/// # Formula
/// price / (3600 · throughput)
#[must_use]
pub fn cost_per_token(price_usd_per_hour: Option<f64>, throughput: Option<f64>) -> Option<f64> {
    Some(price_usd_per_hour? / (SECONDS_PER_HOUR * throughput?))
}

/// The 99th percentile in milliseconds of the traffic-weighted mixture, through the buckets.
fn mixture_p99(
    ranks: &[(f64, &Prediction)],
    edges: &[f64],
    spread: impl Fn(&LatencyShape) -> Option<Spread>,
) -> Option<f64> {
    let carries = |weight: f64| weight.is_finite() && weight > 0.0;
    let total: f64 = ranks.iter().map(|(w, _)| *w).filter(|w| carries(*w)).sum();
    let used = || ranks.iter().filter(|(w, _)| carries(*w));
    if total <= 0.0 || used().any(|(_, rank)| spread(&rank.latency).is_none()) {
        return None;
    }
    let cdf = |seconds: f64| {
        let share = |(w, rank): &(f64, &Prediction)| {
            spread(&rank.latency).map_or(0.0, |s| w / total * s.cdf(seconds * 1e3))
        };
        used().map(share).sum::<f64>()
    };
    through_buckets(0.99, edges, cdf).map(|seconds| seconds * 1e3)
}

/// Everything that the outcomes follow from.
pub(super) struct Parts<'a> {
    pub(super) traffic: &'a Traffic,
    pub(super) envelope: &'a Envelope,
    pub(super) load: Load,
    pub(super) memory: MemoryBreakdown,
    pub(super) point: &'a Point,
    pub(super) mediators: MediatorValues,
    pub(super) latency: LatencyShape,
}

/// The prediction of one deployment.
pub(super) fn of(deployment: &Deployment<'_>, demand: &Demand<'_>, parts: Parts<'_>) -> Prediction {
    let replicas = f64::from(deployment.n_replicas);
    let throughput = parts.point.rate_rps * parts.traffic.output * replicas;
    let mut prediction = Prediction {
        mediators: parts.mediators,
        outcomes: OutcomeValues::absent().with(Outcome::ThroughputTokensPerSec, throughput),
        capacity_rps: parts.envelope.capacity_rps,
        max_tokens_per_sec: parts.envelope.capacity_rps * parts.traffic.output * replicas,
        saturated: parts.load == Load::Saturated,
        limited_by: parts.envelope.limit,
        memory: parts.memory,
        ttft_mean_ms: parts.latency.ttft.map(|s| s.mean_ms()),
        tpot_mean_ms: parts.latency.tpot.map(|s| s.mean_ms()),
        latency: parts.latency,
        price_usd_per_hour: deployment
            .price_usd_per_hour_per_replica
            .map(|p| p * replicas),
    };
    prediction.outcomes = roll_up(&[(1.0, &prediction)], demand.slo, None);
    prediction
}
