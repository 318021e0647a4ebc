//! Ŷ = g(x, e, V) with some mediators held at given values: what do(V := v) means in the analytic
//! member.
//!
//! A mediator is *carried* by one quantity of the operating point (the live batch, the time of an
//! iteration, the rate, the wait, the cached share of a prompt). Holding it changes that quantity,
//! and everything downstream of it follows; everything upstream stays. A mediator that the member
//! only reports ([`is_carried`] says which) moves no outcome here, so whatever it seems to move is
//! left for a contrast to find. Not on the path of plain predictions. White paper V1, The
//! Surrogate Stack; spec §4 and §8.

mod carriers;

#[cfg(test)]
mod tests;

use super::operating_point::Traffic;
use super::{Answer, Demand, Deployment, EngineProfile, Evaluation, queueing, support};
use crate::job::Workload;
use crate::variables::{Mediator, MediatorValues};

/// Whether a held value of this mediator changes the analytic member's outcomes.
#[must_use]
pub const fn is_carried(mediator: Mediator) -> bool {
    !matches!(mediator, Mediator::ActivationMemPressure)
}

/// [`super::predict_as`] with some mediators held.
///
/// # Formula
/// Lengths and the cached share of a prompt change the traffic, and the replica settles again at
/// the offered load. Under open load requests arrive as offered whatever batch is held, so that a
/// queue lasts waiting / offered rate. Then, in this order and each at what the earlier ones left: the live batch
/// (running_requests, kv_pressure_score, kv_cache_util, gpu_mem_used_fraction,
/// vram_headroom_gb), the time of an iteration (per_tok_comm_bytes, the links' bytes and
/// comm_overhead_pct, expert_imbalance, dispatch_overhead_ms, pipeline_bubble_fraction,
/// pd_imbalance, sm_utilization, mem_bandwidth_utilization, decode_steps_per_sec), the rate
/// (prefill_tokens_per_sec), the wait (queue_depth). At a fixed live batch the rate is inverse to
/// the time of an iteration, by Little's law.
///
/// # Units
/// Those of the mediators; a held value must be of one replica, as predicted ones are.
///
/// # Source
/// Spec §4, "no term of g bypassing a mediator that carries it"; spec §8, contrasts of V→Y edges.
#[must_use]
pub fn predict_given(
    deployment: &Deployment<'_>,
    demand: &Demand<'_>,
    profile: EngineProfile<'_>,
    held: &MediatorValues,
) -> Answer {
    if let Err(reason) = support::check_format(deployment) {
        return Answer::Unsupported(reason);
    }
    let workload = with_lengths(demand.workload, held);
    let demand = Demand {
        workload: &workload,
        ..*demand
    };
    match Evaluation::of(deployment, &demand, profile) {
        Ok(evaluation) => {
            let held_evaluation = evaluation.with_hits(&demand, held).hold(held);
            let mut prediction = held_evaluation.prediction(deployment, &demand);
            for (mediator, value) in held.present().filter(|(m, _)| is_carried(*m)) {
                prediction.mediators.set(mediator, Some(value));
            }
            Answer::Prediction(prediction)
        }
        Err(refusal) => refusal,
    }
}

/// The workload with held mean lengths; the shape around the mean is kept.
fn with_lengths(workload: &Workload, held: &MediatorValues) -> Workload {
    let mut workload = workload.clone();
    for (stats, mediator) in [
        (&mut workload.isl, Mediator::InputLengthObserved),
        (&mut workload.osl, Mediator::OutputLengthObserved),
    ] {
        if let Some(mean) = held.get(mediator).filter(|m| *m >= 1.0) {
            stats.scale_to_mean(mean);
        }
    }
    workload
}

impl<'a> Evaluation<'a> {
    /// The same replica settled again with a held cached share of prompts.
    fn with_hits(self, demand: &Demand<'_>, held: &MediatorValues) -> Self {
        let is_cached = self.machine.deployment.shape.prefix_caching;
        let held = held.get(Mediator::KvcacheHitRate).filter(|_| is_cached);
        let Some(fraction) = held.map(|h| h.clamp(0.0, 1.0)) else {
            return self;
        };
        let loaded = self
            .traffic
            .loaded_tokens
            .min(fraction * self.traffic.prompt);
        let traffic = Traffic::with_hits(self.machine.deployment, demand, fraction, loaded);
        Self::settled(self.machine, traffic, self.memory, demand)
    }

    /// Every other held mediator through its carrier.
    fn hold(mut self, held: &MediatorValues) -> Self {
        let own_rate = self.arrivals_rps();
        let own = self.wait.map(|w| w.queue_seconds * own_rate);
        let waiting = self.hold_live(held, own);
        self.hold_iteration(held);
        if let Some(tokens) = held.get(Mediator::PrefillTokensPerSec).filter(|v| *v > 0.0) {
            self.point.rate_rps = tokens / self.traffic.prompt;
            self.arrivals_rps = None;
        }
        // A wait of which nothing was moved stays as it is, to the last bit.
        let bits = |waiting: Option<f64>, rate: f64| (waiting.map(f64::to_bits), rate.to_bits());
        let is_moved = bits(waiting, self.arrivals_rps()) != bits(own, own_rate);
        if is_moved || held.get(Mediator::QueueDepth).is_some() {
            self.hold_wait(held, waiting);
        }
        self
    }

    /// The wait of so many waiting requests, which is what the rate and the queue say.
    fn hold_wait(&mut self, held: &MediatorValues, waiting: Option<f64>) {
        let given = held.get(Mediator::QueueDepth).map(|q| q.max(0.0));
        let Some(waiting) = given.or(waiting) else {
            return;
        };
        let queue_seconds = waiting / self.arrivals_rps();
        match &mut self.wait {
            Some(wait) => {
                let before = wait.queue_seconds;
                // The spread of a wait grows with it.
                let ratio = if before > 0.0 {
                    queue_seconds / before
                } else {
                    1.0
                };
                let own = queueing::residual_variance(wait.residual_seconds);
                wait.variance = own + (wait.variance - own).max(0.0) * ratio * ratio;
                wait.queue_seconds = queue_seconds;
            }
            None if given.is_some() => {
                self.wait = Some(queueing::exponential_wait(&self.point, queue_seconds));
            }
            None => {}
        }
    }
}
