//! The stack as a planner asks it: everything about a model on a kind of device looked up once, then
//! any number of deployments predicted without looking anything up or allocating.
//!
//! Learned members correct the second stage, Ŷ given V̂: distributions of latency are stretched with
//! their shape kept, and throughput where the load does not decide it. V̂, capacity and memory stay
//! those of first principles, because no measured point tells of them; so both sides of a mediator
//! have one definition, and do(V := v) keeps its meaning. Spec §4.

use super::engine_generation::EngineGeneration;
use super::interval::Reliability;
use super::latency::Spread;
use super::members::{Members, Voices};
use super::neighbours::{HeardPoint, NeighbourVoice, Spot, listen, listen_to_own};
use super::outcomes::roll_up;
use super::residual::{Quantity, Residuals};
use super::situation::{self, Situation};
use super::stack::Calibration;
use super::{
    Answer, Demand, Deployment, EngineProfile, Evaluation, LatencyShape, Prediction, support,
};
use crate::catalog::GpuType;
use crate::job::Slo;
use crate::variables::Outcome;

/// What the learned members know of a model on a kind of device.
#[derive(Debug, Clone, Copy)]
pub struct Ground<'a> {
    generation: EngineGeneration,
    residuals: &'a Residuals,
    trust: [Reliability; 3],
    /// κ by quantity.
    kappa: [f64; 3],
    near: &'a [HeardPoint],
}

impl<'a> Ground<'a> {
    /// The ground of a device, with the measured points of the model's scope on it.
    #[must_use]
    pub fn of(gpu: &GpuType, near: &'a [HeardPoint]) -> Self {
        let calibration = Calibration::embedded();
        let generation = EngineGeneration::default();
        let seen = calibration.intervals.has_seen(&gpu.id);
        let trust = |quantity| {
            calibration
                .intervals
                .reliability(quantity, seen, generation)
        };
        Self {
            generation,
            residuals: calibration.residuals,
            trust: Quantity::ALL.map(trust),
            kappa: Quantity::ALL.map(|q| calibration.mixture.weights(q).neighbours),
            near,
        }
    }

    /// What the members say of a situation, own deployments silent.
    fn speak(&self, situation: &Situation) -> Members {
        let spot = Spot::of(situation);
        let near = self.near_at(&spot);
        let voices = |quantity: Quantity| {
            let i = quantity.index();
            let neighbours = near.get(i).copied().unwrap_or_default();
            let trust = self.trust.get(i);
            Voices {
                forests: self.residuals.forest(quantity).correction(situation),
                forests_share: trust.map_or(0.0, |t| t.residual_share),
                neighbours,
                own: NeighbourVoice::default(),
                low: trust.map_or(0.0, |t| t.low),
                high: trust.map_or(0.0, |t| t.high),
            }
        };
        Members {
            spot,
            voices: Quantity::ALL.map(voices),
        }
    }

    /// What measured points say near a spot, as far as they are believed.
    #[must_use]
    pub fn near_at(&self, spot: &Spot) -> [NeighbourVoice; 3] {
        let mut voices = listen(spot, self.near.iter());
        for (voice, kappa) in voices.iter_mut().zip(self.kappa) {
            voice.correction *= kappa;
            voice.coverage *= kappa;
        }
        voices
    }
}

/// A prediction and what every member said of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Told {
    /// What would happen.
    pub prediction: Prediction,
    /// Who said what.
    pub members: Members,
}

/// Predicts a deployment with the stack, own deployments silent ([`Told::with_own`] lets them speak).
///
/// # Errors
/// [`Answer::DoesNotFit`] or [`Answer::Unsupported`].
#[expect(
    clippy::result_large_err,
    reason = "predictions stay on the stack of the hot path"
)]
pub fn predict_on(
    deployment: &Deployment<'_>,
    demand: &Demand<'_>,
    ground: &Ground<'_>,
) -> Result<Told, Answer> {
    moved(deployment, demand, ground.generation, |situation| {
        ground.speak(situation)
    })
}

/// Predicts a deployment with the members frozen when it was planned: what neighbours and own
/// deployments said then stands, forests (part of the build, as first principles are) are asked
/// about the load at hand.
#[must_use]
pub fn predict_frozen(
    deployment: &Deployment<'_>,
    demand: &Demand<'_>,
    frozen: &Members,
) -> Answer {
    let residuals = Calibration::embedded().residuals;
    let told = moved(
        deployment,
        demand,
        EngineGeneration::default(),
        |situation| {
            let mut members = *frozen;
            members.spot = Spot::of(situation);
            for (quantity, voices) in Quantity::ALL.into_iter().zip(&mut members.voices) {
                voices.forests = residuals.forest(quantity).correction(situation);
            }
            members
        },
    );
    match told {
        Ok(told) => Answer::Prediction(told.prediction),
        Err(refusal) => refusal,
    }
}

#[expect(
    clippy::result_large_err,
    reason = "predictions stay on the stack of the hot path"
)]
fn moved(
    deployment: &Deployment<'_>,
    demand: &Demand<'_>,
    generation: EngineGeneration,
    speak: impl FnOnce(&Situation) -> Members,
) -> Result<Told, Answer> {
    support::check_format(deployment).map_err(Answer::Unsupported)?;
    let profile = EngineProfile::embedded(generation);
    let evaluation = Evaluation::of(deployment, demand, profile)?;
    let members = speak(&situation::of(&evaluation));
    let prediction = evaluation.prediction(deployment, demand);
    Ok(Told {
        prediction: shifted(&prediction, &members, demand.slo),
        members,
    })
}

impl Told {
    /// The same once this fleet's own deployments have spoken. Their points' errors are what the
    /// other members miss.
    #[must_use]
    pub fn with_own(mut self, own: &[HeardPoint], slo: &Slo) -> Self {
        if own.is_empty() {
            return self;
        }
        let voices = listen_to_own(&self.members.spot, own.iter());
        let mut more = self.members;
        for (members, voice) in more.voices.iter_mut().zip(voices) {
            // What the others said is in the prediction already.
            members.forests_share = 0.0;
            members.neighbours = NeighbourVoice::default();
            members.own = voice;
        }
        self.prediction = shifted(&self.prediction, &more, slo);
        for (kept, voice) in self.members.voices.iter_mut().zip(voices) {
            kept.own = voice;
        }
        self
    }
}

/// A prediction moved by its members.
///
/// # Formula
/// μ + shift for both latencies, σ kept; throughput and capacity · exp(shift) where the load does
/// not decide the throughput
fn shifted(prediction: &Prediction, members: &Members, slo: &Slo) -> Prediction {
    let [tpot, ttft, throughput] = members.shifts();
    let moved = |spread: Option<Spread>, by: f64| spread.map(|s| Spread { mu: s.mu + by, ..s });
    let mut out = *prediction;
    out.latency = LatencyShape {
        ttft: moved(prediction.latency.ttft, ttft),
        tpot: moved(prediction.latency.tpot, tpot),
    };
    out.ttft_mean_ms = out.latency.ttft.map(|s| s.mean_ms());
    out.tpot_mean_ms = out.latency.tpot.map(|s| s.mean_ms());
    if !members.spot.is_open() {
        let factor = throughput.exp();
        let moved = prediction.outcomes.get(Outcome::ThroughputTokensPerSec);
        out.outcomes
            .set(Outcome::ThroughputTokensPerSec, moved.map(|t| t * factor));
        out.capacity_rps *= factor;
        out.max_tokens_per_sec *= factor;
    }
    out.outcomes = roll_up(&[(1.0, &out)], slo, None);
    out
}

#[cfg(test)]
mod tests;
