//! Asking the analytic member about a row, and reading its answer in the table's columns.

use super::{LoadKind, Question, first_wave};
use crate::catalog::GpuType;
use crate::surrogate::situation::{self, Situation};
use crate::surrogate::{Answer, Demand, Deployment, EngineProfile, Evaluation, MemoryBreakdown};
use crate::variables::Outcome;

/// A row's prediction, in the table's columns.
#[derive(Debug, Clone, PartialEq)]
pub struct RowPrediction {
    /// Mean time per output token.
    pub tpot_mean_ms: Option<f64>,
    /// Mean time to first token.
    pub ttft_mean_ms: Option<f64>,
    /// 99th percentile of time per output token, as a client measures it: not through buckets.
    pub tpot_p99_ms: Option<f64>,
    /// 99th percentile of time to first token.
    pub ttft_p99_ms: Option<f64>,
    /// Generated tokens per second of the whole deployment.
    pub out_tok_s_system: Option<f64>,
    /// Requests in flight of the whole deployment, where an answer is over with its first token:
    /// tokens per second are then these over the mean TTFT.
    pub in_flight_of_single_tokens: Option<f64>,
    /// What the learned members stand on.
    pub situation: Situation,
}

/// What a row's question comes to.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one answer per row; nothing holds many of them"
)]
pub enum RowAnswer {
    /// It would run, like this.
    Prediction(RowPrediction),
    /// The weights and one request do not fit the memory.
    DoesNotFit(MemoryBreakdown),
    /// The reason why there is no answer.
    Unsupported(String),
}

impl Question {
    /// The analytic member's answer.
    #[must_use]
    pub fn ask(&self, gpu: &GpuType, profile: EngineProfile<'_>) -> RowAnswer {
        let deployment = self.deployment(gpu);
        let slo = Self::slo();
        let demand = self.demand(&slo);
        let evaluation = match Evaluation::of(&deployment, &demand, profile) {
            Ok(evaluation) => evaluation,
            Err(Answer::DoesNotFit(memory)) => return RowAnswer::DoesNotFit(memory),
            Err(Answer::Unsupported(reason)) => return RowAnswer::Unsupported(reason),
            Err(Answer::Prediction(_)) => {
                return RowAnswer::Unsupported("no operating point".to_owned());
            }
        };
        let prediction = evaluation.prediction(&deployment, &demand);
        let latency = prediction.latency;
        let backlog = self
            .backlog_per_replica
            .map(|n| backlog_ttft_ms(&evaluation, n));
        let wave = first_wave::ttft_p99_ms(self, &evaluation);
        let steady = latency.ttft.map(|s| s.p99_ms());
        RowAnswer::Prediction(RowPrediction {
            tpot_mean_ms: prediction.tpot_mean_ms,
            ttft_mean_ms: backlog.or(prediction.ttft_mean_ms),
            tpot_p99_ms: latency.tpot.map(|s| s.p99_ms()),
            // Of requests that come at once, the last waits for all others: twice the mean.
            ttft_p99_ms: backlog
                .map(|mean| 2.0 * mean)
                .or_else(|| steady.map(|ms| wave.map_or(ms, |wave| wave.max(ms)))),
            out_tok_s_system: prediction.outcomes.get(Outcome::ThroughputTokensPerSec),
            in_flight_of_single_tokens: self.in_flight_of_single_tokens(),
            situation: situation::of(&evaluation),
        })
    }

    /// Mean TPOT and TTFT in milliseconds and generated tokens per second, nothing else: what a fit
    /// asks many times. All absent where there is no prediction.
    #[must_use]
    pub fn ask_means(&self, gpu: &GpuType, profile: EngineProfile<'_>) -> [Option<f64>; 3] {
        let deployment = self.deployment(gpu);
        let slo = Self::slo();
        let demand = self.demand(&slo);
        let Ok(evaluation) = Evaluation::of(&deployment, &demand, profile) else {
            return [None; 3];
        };
        let latency = evaluation.latency();
        let backlog = self
            .backlog_per_replica
            .map(|n| backlog_ttft_ms(&evaluation, n));
        let rate = evaluation.point.rate_rps * evaluation.traffic.output;
        [
            latency.tpot.map(|s| s.mean_ms()),
            backlog.or(latency.ttft.map(|s| s.mean_ms())),
            Some(rate * f64::from(self.n_busy_replicas)),
        ]
    }

    /// Every mediator and outcome that the analytic member predicts for the row, or its refusal.
    #[must_use]
    pub fn predict(&self, gpu: &GpuType, profile: EngineProfile<'_>) -> Answer {
        let slo = Self::slo();
        crate::surrogate::predict_as(&self.deployment(gpu), &self.demand(&slo), profile)
    }

    /// What the planner's stack says of the row, or its refusal.
    ///
    /// # Errors
    /// [`Answer::DoesNotFit`] or [`Answer::Unsupported`].
    #[expect(
        clippy::result_large_err,
        reason = "predictions stay on the stack of the hot path"
    )]
    pub fn planned(
        &self,
        gpu: &GpuType,
        ground: &crate::surrogate::Ground<'_>,
    ) -> Result<crate::surrogate::Told, Answer> {
        let slo = Self::slo();
        crate::surrogate::predict_on(&self.deployment(gpu), &self.demand(&slo), ground)
    }

    fn in_flight_of_single_tokens(&self) -> Option<f64> {
        let keeps_them = matches!(
            self.load_kind,
            LoadKind::Concurrency | LoadKind::StaticBatch
        );
        let is_single = self.workload.osl.mean <= 1.0;
        let busy = f64::from(self.n_busy_replicas);
        let load = self.load_per_replica.filter(|_| keeps_them && is_single);
        load.map(|n| n * busy)
    }

    fn deployment<'a>(&'a self, gpu: &'a GpuType) -> Deployment<'a> {
        Deployment {
            model: &self.model,
            gpu,
            shape: self.shape,
            n_replicas: self.n_busy_replicas,
            price_usd_per_hour_per_replica: None,
        }
    }

    fn demand<'a>(&'a self, slo: &'a crate::job::Slo) -> Demand<'a> {
        let load = self.load_per_replica;
        let (rate, concurrency) = match self.load_kind {
            LoadKind::RateRps => (load.unwrap_or(0.0), None),
            LoadKind::Concurrency
            | LoadKind::StaticBatch
            | LoadKind::MaxNumSeqs
            | LoadKind::AllAtOnce => (0.0, load.map(|n| n.round().max(1.0) as u32)),
            LoadKind::Offline | LoadKind::Scenario => (0.0, None),
        };
        Demand {
            workload: &self.workload,
            class: self.class(),
            slo,
            rate_rps_per_replica: rate,
            batch_concurrency: concurrency,
        }
    }
}

/// Mean time to first token of `requests` that all come at once to a replica.
///
/// # Formula
/// t₀ + s + r·n/2 + s·(l − 1)/2 + (n − l)²/(2·n·λ): the first l enter and their prompts are
/// computed one after the other; the rest enter at the rate at which others finish.
fn backlog_ttft_ms(evaluation: &Evaluation<'_>, requests: f64) -> f64 {
    let (machine, point) = (&evaluation.machine, &evaluation.point);
    let engine = machine.profile.constants.engine(machine.profile.generation);
    let live = point.live.min(requests);
    let service = machine.prompt_service_seconds(&evaluation.traffic, point);
    let waiting = requests - live;
    let for_a_slot = waiting * waiting / (2.0 * requests * point.rate_rps);
    let for_prompts = service * (1.0 + (live - 1.0).max(0.0) / 2.0);
    let front_end = engine.first_token_overhead_ms + engine.request_overhead_ms * requests / 2.0;
    front_end + (for_prompts + for_a_slot) * 1e3
}
