//! Which quantity of the operating point carries each mediator, and how a held value changes it.

use crate::catalog::Link;
use crate::configuration::Term;
use crate::model::pipeline_bubble_fraction;
use crate::surrogate::{Evaluation, mediators, queueing};
use crate::variables::{Mediator, MediatorValues};

const GIB: f64 = (1_u64 << 30) as f64;
/// Largest factor by which one held value may change a time; beyond it the carrier is not it.
const MAX_CHANGE: f64 = 1e3;

impl Evaluation<'_> {
    /// Changes the live batch; returns the waiting requests that go with it.
    pub(super) fn hold_live(&mut self, held: &MediatorValues, waiting: Option<f64>) -> Option<f64> {
        let pressure = held.get(Mediator::KvPressureScore).filter(|p| *p > 0.0);
        let own = self.mediators().get(Mediator::KvPressureScore);
        let by_pressure = pressure.zip(own).map(|(p, own)| p / own);
        let running = held.get(Mediator::RunningRequests);
        let by_memory = self.held_tokens(held).map(|t| self.live_of_tokens(t));
        let scaled = by_pressure.map(|ratio| self.point.live * ratio);
        let live = running.or(scaled).or(by_memory);
        if let Some(live) = live.filter(|l| *l > 0.0 && l.is_finite()) {
            self.point = self.machine.at_live(&self.traffic, live);
            // Requests come as they came, whatever the batch: a larger one drains no queue.
            if let queueing::Load::Open { rate_rps, .. } = self.load {
                self.arrivals_rps = Some(rate_rps);
            }
            if self.load == queueing::Load::Saturated {
                self.load = queueing::Load::Closed { concurrency: live };
            }
        }
        match by_pressure {
            Some(ratio) => waiting.map(|w| w * ratio),
            None => waiting,
        }
    }

    /// Live cache tokens that a held memory state says.
    fn held_tokens(&self, held: &MediatorValues) -> Option<f64> {
        let memory = &self.memory;
        let of_bytes = |used: f64| (used - memory.used_bytes(0.0)) / memory.kv_bytes_per_token;
        let by_share = held
            .get(Mediator::KvCacheUtil)
            .map(|u| u * memory.kv_pool_tokens);
        let by_use = held
            .get(Mediator::GpuMemUsedFraction)
            .map(|f| of_bytes(f * memory.device_bytes));
        let by_headroom = held
            .get(Mediator::VramHeadroomGb)
            .map(|h| of_bytes(memory.allowed_bytes - h * GIB));
        by_share.or(by_use).or(by_headroom).filter(|t| *t > 0.0)
    }

    /// The live requests that hold so many cache tokens: the inverse of [`mediators::held_tokens`].
    fn live_of_tokens(&self, tokens: f64) -> f64 {
        let traffic = &self.traffic;
        let tokens = tokens / self.memory.cache.held_share(traffic.unique_tokens);
        let one = traffic.unique_tokens + traffic.shared_tokens;
        if tokens >= one {
            (tokens - traffic.shared_tokens) / traffic.unique_tokens
        } else {
            tokens / one
        }
    }

    /// Changes the time of an iteration.
    pub(super) fn hold_iteration(&mut self, held: &MediatorValues) {
        self.hold_links(held);
        let own = self.mediators();
        let ratio = |m: Mediator| held.get(m).zip(own.get(m)).map(|(v, own)| v / own);
        if let Some(ratio) = ratio(Mediator::ExpertImbalance) {
            self.lengthen(self.point.cost.expert_seconds * (ratio - 1.0));
        }
        let overhead = held.get(Mediator::DispatchOverheadMs);
        if let Some((v, own)) = overhead.zip(own.get(Mediator::DispatchOverheadMs)) {
            self.lengthen((v - own) * 1e-3);
        }
        self.hold_bubble(held);
        self.hold_imbalance(held);
        for mediator in [
            Mediator::SmUtilization,
            Mediator::MemBandwidthUtilization,
            Mediator::DecodeStepsPerSec,
        ] {
            // The same work per step: more of it per second is shorter steps.
            let own = self.mediators().get(mediator);
            if let Some((v, own)) = held.get(mediator).zip(own) {
                self.stretch(own / v);
            }
        }
    }

    /// Time on the links follows the bytes on them.
    fn hold_links(&mut self, held: &MediatorValues) {
        let own = self.mediators();
        let of_link = match self.machine.deployment.gpu.best_link().0 {
            Link::Nvlink => Mediator::NvlinkBytesPerSec,
            Link::Pcie => Mediator::PcieBytesPerSec,
        };
        let carried = [
            Mediator::PerTokCommBytes,
            Mediator::CommOverheadPct,
            of_link,
        ];
        let ratio = carried
            .into_iter()
            .find_map(|m| Some(held.get(m)? / own.get(m)?));
        if let Some(ratio) = ratio {
            self.lengthen(self.point.cost.comm_seconds * (ratio - 1.0));
        }
    }

    /// # Formula
    /// useful = T·(1 − bubble) stays, so T' = T·(1 − bubble)/(1 − held)
    fn hold_bubble(&mut self, held: &MediatorValues) {
        let shape = &self.machine.deployment.shape;
        let own = pipeline_bubble_fraction(shape.pp, self.point.micro_batches)
            * shape.effects.get(Term::BubbleFactor);
        if let Some(v) = held.get(Mediator::PipelineBubbleFraction) {
            self.stretch((1.0 - own) / (1.0 - v));
        }
    }

    /// The time of an iteration with prompts in it, such that prefill over decode time is as held.
    ///
    /// # Formula
    /// P·c + r = e^held · D · (d + κ·φ·(c − d)), solved for c; P a prompt's iterations, r the rest of
    /// one at arrival, D the steps of an answer, d and c an iteration without and with a chunk
    fn hold_imbalance(&mut self, held: &MediatorValues) {
        let own = self.mediators().get(Mediator::PdImbalance);
        let Some((held, _)) = held.get(Mediator::PdImbalance).zip(own) else {
            return;
        };
        let point = self.point;
        let gain = self.machine.guessing_at(point.live).gain;
        let steps = held.exp() * (self.traffic.output - 1.0) / gain;
        let delayed = point.chunk_seconds - point.decode_seconds;
        if delayed <= 0.0 {
            return;
        }
        // Interference times the share of iterations with a chunk.
        let share = (point.iteration_seconds - point.decode_seconds) / delayed;
        let rest = self.wait.map_or(0.0, |w| w.residual_seconds);
        let slope = point.prefill_iterations - steps * share;
        let chunk = (steps * point.decode_seconds * (1.0 - share) - rest) / slope;
        if slope > 0.0 && chunk > 0.0 && chunk / point.chunk_seconds < MAX_CHANGE {
            let iteration = point.decode_seconds + share * (chunk - point.decode_seconds);
            self.point.chunk_seconds = chunk;
            self.change_pace(iteration / point.iteration_seconds);
        }
    }

    /// Every step of a stage takes so much longer, or shorter.
    fn lengthen(&mut self, seconds_per_step: f64) {
        let shape = &self.machine.deployment.shape;
        let bubble = (f64::from(shape.pp) - 1.0) * shape.effects.get(Term::BubbleFactor);
        let more = seconds_per_step * (self.point.micro_batches + bubble);
        let ratio = 1.0 + more / self.point.iteration_seconds;
        if (1.0 / MAX_CHANGE..MAX_CHANGE).contains(&ratio) {
            self.point.decode_seconds += more;
            self.point.chunk_seconds += more;
            self.change_pace(ratio);
        }
    }

    /// Every iteration takes so many times as long.
    fn stretch(&mut self, ratio: f64) {
        if (1.0 / MAX_CHANGE..MAX_CHANGE).contains(&ratio) {
            self.point.decode_seconds *= ratio;
            self.point.chunk_seconds *= ratio;
            self.change_pace(ratio);
        }
    }

    fn change_pace(&mut self, ratio: f64) {
        self.point.iteration_seconds *= ratio;
        self.point.rate_rps /= ratio;
        self.pace *= ratio;
    }

    /// V̂ of the operating point as it stands.
    fn mediators(&self) -> MediatorValues {
        let wait = self.wait.as_ref();
        mediators::of(
            &self.machine,
            &self.traffic,
            &self.memory,
            &self.point,
            (wait, self.arrivals_rps()),
        )
    }
}
