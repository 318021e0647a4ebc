//! V and Y of a steady state without noise: what infinitely many windows would show.
//!
//! By the definitions of the observing side; percentiles are exact and not read off buckets. For finite
//! differences of the truth. What no agent shows is absent.

use koi_core::telemetry::observe::{KvDemand, kv_pressure_score};
use koi_core::variables::{Mediator, MediatorValues, Outcome, OutcomeValues};

use super::chain::Chain;
use super::steady::{Demand, Steady};

/// z of the 99th percentile.
const Z99: f64 = 2.326_347_874_040_841;
const BYTES_PER_GIB: f64 = 1_073_741_824.0;

/// What the host and the job add to a reading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadingFacts {
    /// Memory of one device.
    pub gpu_memory_bytes: f64,
    /// Peak of the link that the devices use, per device.
    pub link_peak_bytes_per_s: f64,
    /// Whether that link is a fabric and not PCIe.
    pub has_fabric: bool,
    /// Price of the chain.
    pub usd_per_hour: Option<f64>,
    /// Target of the 99th percentile of time to first token.
    pub p99_ttft_ms: Option<f64>,
    /// Target of the 99th percentile of time per output token.
    pub p99_tpot_ms: Option<f64>,
}

impl Chain {
    /// V and Y of one chain in a steady state.
    #[must_use]
    pub fn reading(
        &self,
        steady: &Steady,
        demand: &Demand,
        facts: &ReadingFacts,
    ) -> (MediatorValues, OutcomeValues) {
        (
            self.mediators(steady, demand, facts),
            outcomes(steady, demand, facts),
        )
    }

    fn mediators(&self, s: &Steady, demand: &Demand, facts: &ReadingFacts) -> MediatorValues {
        let mut v = MediatorValues::absent();
        if self.shape.prefix_caching {
            v.set(Mediator::KvcacheHitRate, Some(s.hit));
        }
        v.set(Mediator::InputLengthObserved, Some(demand.prompt));
        v.set(Mediator::OutputLengthObserved, Some(demand.answer));
        let in_use = self.used_bytes + s.kv_usage * self.blocks as f64 * self.block_bytes;
        v.set(
            Mediator::GpuMemUsedFraction,
            Some(in_use / facts.gpu_memory_bytes),
        );
        let allowed = facts.gpu_memory_bytes * self.shape.gpu_memory_utilization;
        v.set(
            Mediator::VramHeadroomGb,
            Some((allowed - in_use) / BYTES_PER_GIB),
        );
        v.set(Mediator::KvCacheUtil, Some(s.kv_usage));
        v.set(
            Mediator::KvPressureScore,
            kv_pressure_score(KvDemand {
                requests: s.live + s.waiting,
                sequence_tokens: demand.prompt + demand.answer,
                block_size_tokens: f64::from(self.shape.block_size),
                total_blocks: self.blocks as f64,
                cache: None,
            }),
        );
        v.set(Mediator::RunningRequests, Some(s.live));
        v.set(Mediator::QueueDepth, Some(s.waiting));
        v.set(Mediator::SmUtilization, Some(s.tensor_active));
        v.set(Mediator::MemBandwidthUtilization, Some(s.memory_bandwidth));
        v.set(
            Mediator::PrefillTokensPerSec,
            Some(s.rate_rps * demand.prompt),
        );
        v.set(Mediator::DecodeStepsPerSec, Some(s.steps_per_s));
        let decode_s = s.round_s * (demand.answer - 1.0).max(1e-9);
        v.set(Mediator::PdImbalance, Some((s.prefill_s / decode_s).ln()));
        if self.shape.pp == 1 {
            v.set(Mediator::PipelineBubbleFraction, Some(0.0));
        }
        if self.devices > 1 {
            self.set_links(&mut v, s, demand, facts);
        }
        v
    }

    fn set_links(&self, v: &mut MediatorValues, s: &Steady, demand: &Demand, facts: &ReadingFacts) {
        let rate = if facts.has_fabric {
            Mediator::NvlinkBytesPerSec
        } else {
            Mediator::PcieBytesPerSec
        };
        v.set(rate, Some(s.link_bytes_per_s));
        let peak = facts.link_peak_bytes_per_s * f64::from(self.devices);
        v.set(Mediator::CommOverheadPct, Some(s.link_bytes_per_s / peak));
        let tokens_per_s = s.rate_rps * (demand.prompt + demand.answer);
        v.set(
            Mediator::PerTokCommBytes,
            Some(s.link_bytes_per_s / f64::from(self.shape.tp) / tokens_per_s),
        );
    }
}

fn outcomes(s: &Steady, demand: &Demand, facts: &ReadingFacts) -> OutcomeValues {
    let throughput = s.rate_rps * demand.answer;
    let ttft = p99_ms(s.ttft_s, s.ttft_sd_s);
    let tpot = p99_ms(s.round_s, s.tpot_cv * s.round_s);
    let mut y = OutcomeValues::absent();
    y.set(Outcome::ThroughputTokensPerSec, Some(throughput));
    y.set(Outcome::P99TtftMs, Some(ttft));
    y.set(Outcome::P99TpotMs, Some(tpot));
    let cost = facts.usd_per_hour.map(|usd| usd / (3600.0 * throughput));
    y.set(Outcome::CostPerToken, cost);
    let margins = [(facts.p99_ttft_ms, ttft), (facts.p99_tpot_ms, tpot)];
    let margin = margins
        .into_iter()
        .filter_map(|(target, y)| target.map(|t| (t - y) / t))
        .min_by(f64::total_cmp);
    y.set(Outcome::SloMargin, margin);
    y
}

/// The 99th percentile of a log-normal in milliseconds.
fn p99_ms(mean_s: f64, sd_s: f64) -> f64 {
    let scale2 = (sd_s * sd_s / (mean_s * mean_s)).ln_1p();
    1e3 * (mean_s.ln() - scale2 / 2.0 + Z99 * scale2.sqrt()).exp()
}
