//! The surrogate stack: S(X, e) → (V̂, Ŷ), from first principles and from measured points.
//!
//! [`predict`] is the analytic member: roofline step times, device memory, pipeline and links, and
//! a queue give every outcome and every mediator that follows from them, in two stages: the
//! operating point and its mediators first, outcomes from them. [`stack`] mixes it with the learned
//! members and says how far to trust the result, for rows of a table; [`predict_on`] does so for
//! deployments that are planned, and [`predict_frozen`] for one that was. White paper V1, The
//! Surrogate Stack; spec §3, §4.

mod buckets;
mod cold_start;
pub mod constants;
mod engine_generation;
mod given;
mod ground;
pub mod interval;
mod latency;
mod links;
pub mod measured_row;
mod mediators;
pub mod members;
mod memory;
pub mod mixture;
pub mod neighbours;
mod operating_point;
mod outcomes;
pub mod own;
pub mod points;
mod prefix;
mod queueing;
mod rates;
pub mod residual;
mod roofline;
pub mod situation;
mod speculation;
pub mod stack;
mod support;

#[cfg(test)]
mod calibration;
#[cfg(test)]
mod event_simulation;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use buckets::{TPOT_EDGES_SECONDS, TTFT_EDGES_SECONDS, through_buckets};
pub use cold_start::cold_start_seconds;
pub use engine_generation::EngineGeneration;
pub use given::{is_carried, predict_given};
pub use ground::{Ground, Told, predict_frozen, predict_on};
pub use latency::{LatencyShape, Spread};
pub use memory::MemoryBreakdown;
pub use outcomes::{BatchProgress, batch_slo_margin, cost_per_token, online_slo_margin, roll_up};
pub use roofline::{EngineProfile, roofline_step_ms};

use crate::catalog::GpuType;
use crate::configuration::EngineShape;
use crate::job::{JobClass, Slo, Workload};
use crate::model::ModelFacts;
use crate::variables::{MediatorValues, OutcomeValues};
use operating_point::{Machine, Traffic};

/// What would run.
#[derive(Debug, Clone, Copy)]
pub struct Deployment<'a> {
    /// Model.
    pub model: &'a ModelFacts,
    /// Device.
    pub gpu: &'a GpuType,
    /// Engine settings of every replica.
    pub shape: EngineShape,
    /// Equal replicas.
    pub n_replicas: u32,
    /// Price of one replica, when known.
    pub price_usd_per_hour_per_replica: Option<f64>,
}

/// What it would be asked to do.
#[derive(Debug, Clone, Copy)]
pub struct Demand<'a> {
    /// Lengths, prefixes and burstiness.
    pub workload: &'a Workload,
    /// Latency-bound or deadline-bound.
    pub class: JobClass,
    /// Targets.
    pub slo: &'a Slo,
    /// Mean arrivals at one replica, in requests per second.
    pub rate_rps_per_replica: f64,
    /// Requests kept in flight at one replica by a client that waits for answers. A batch job
    /// without this number and without a rate keeps every replica full.
    pub batch_concurrency: Option<u32>,
}

/// Three different outcomes of asking; an internal error is none of them.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "predictions stay on the stack of the hot path"
)]
pub enum Answer {
    /// It would run, like this.
    Prediction(Prediction),
    /// The device memory does not suffice; the numbers say by how much.
    DoesNotFit(MemoryBreakdown),
    /// The engine or this member cannot do it; the reason.
    Unsupported(String),
}

/// What bounds the capacity of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Arithmetic: prompt tokens or the token budget of a step.
    Compute,
    /// Memory bandwidth: reading weights and cache.
    Bandwidth,
    /// Room in the KV cache.
    KvCapacity,
    /// Links between GPUs.
    Communication,
    /// The number of sequences that the engine may batch.
    Queue,
}

/// What would happen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Mediators of one replica.
    pub mediators: MediatorValues,
    /// Outcomes of all replicas together. The margin of a batch job needs the time left and is
    /// filled in by [`roll_up`].
    pub outcomes: OutcomeValues,
    /// Requests per second at which one replica's queue stops being bounded.
    pub capacity_rps: f64,
    /// Generated tokens per second of all replicas at that rate.
    pub max_tokens_per_sec: f64,
    /// Offered load is above capacity: latencies are unbounded, hence absent.
    pub saturated: bool,
    /// What bounds the capacity.
    pub limited_by: Limit,
    /// Device memory of the fullest GPU.
    pub memory: MemoryBreakdown,
    /// Mean time to first token.
    pub ttft_mean_ms: Option<f64>,
    /// Mean time per output token.
    pub tpot_mean_ms: Option<f64>,
    /// Distributions, to be mixed over ranks.
    pub latency: LatencyShape,
    /// Price of all replicas, when known.
    pub price_usd_per_hour: Option<f64>,
}

/// Predicts mediators and outcomes of a deployment under a demand, on the current engine.
///
/// # Units
/// As named in the fields; rates are per replica, outcomes of all replicas.
///
/// # Source
/// White paper V1, The Surrogate Stack; spec §4, member 1.
#[must_use]
pub fn predict(deployment: &Deployment<'_>, demand: &Demand<'_>) -> Answer {
    let profile = EngineProfile::embedded(EngineGeneration::default());
    predict_as(deployment, demand, profile)
}

/// [`predict`] for an engine generation and with constants of the caller's choice.
#[must_use]
pub fn predict_as(
    deployment: &Deployment<'_>,
    demand: &Demand<'_>,
    profile: EngineProfile<'_>,
) -> Answer {
    if let Err(reason) = support::check_format(deployment) {
        return Answer::Unsupported(reason);
    }
    match Evaluation::of(deployment, demand, profile) {
        Ok(evaluation) => Answer::Prediction(evaluation.prediction(deployment, demand)),
        Err(refusal) => refusal,
    }
}

/// The analytic member's workings: what the outcomes follow from.
struct Evaluation<'a> {
    machine: Machine<'a>,
    traffic: Traffic,
    memory: MemoryBreakdown,
    envelope: operating_point::Envelope,
    load: queueing::Load,
    point: operating_point::Point,
    wait: Option<queueing::Wait>,
    /// Time of an iteration over what the machine gives; 1 unless a mediator is held.
    pace: f64,
    /// Arrivals where they are not the point's rate: a batch is held and requests come as they came.
    arrivals_rps: Option<f64>,
}

impl<'a> Evaluation<'a> {
    /// Everything up to the operating point, or why there is none.
    #[expect(
        clippy::result_large_err,
        reason = "predictions stay on the stack of the hot path"
    )]
    fn of(
        deployment: &'a Deployment<'a>,
        demand: &Demand<'_>,
        profile: EngineProfile<'a>,
    ) -> Result<Self, Answer> {
        if let Err(reason) = support::check(deployment, demand) {
            return Err(Answer::Unsupported(reason));
        }
        let memory = MemoryBreakdown::of(deployment.model, deployment.gpu, &deployment.shape);
        if !memory.fits() {
            return Err(Answer::DoesNotFit(memory));
        }
        let traffic = Traffic::of(deployment, demand, &memory);
        let machine = Machine::of(deployment, profile);
        Ok(Self::settled(machine, traffic, memory, demand))
    }

    /// Where a replica settles under this traffic.
    fn settled(
        machine: Machine<'a>,
        traffic: Traffic,
        memory: MemoryBreakdown,
        demand: &Demand<'_>,
    ) -> Self {
        let envelope = machine.envelope(&traffic, &memory);
        let load = queueing::Load::of(demand, &envelope);
        let point = machine.at_load(&traffic, &envelope, load);
        let wait = queueing::wait(&machine, &point, &envelope, &traffic, load);
        Self {
            machine,
            traffic,
            memory,
            envelope,
            load,
            point,
            wait,
            pace: 1.0,
            arrivals_rps: None,
        }
    }

    /// Requests that arrive per second.
    fn arrivals_rps(&self) -> f64 {
        self.arrivals_rps.unwrap_or(self.point.rate_rps)
    }

    fn latency(&self) -> LatencyShape {
        let is_saturated = self.load == queueing::Load::Saturated;
        let wait = self.wait.as_ref();
        if is_saturated {
            return LatencyShape::default();
        }
        latency::of(&self.machine, &self.traffic, &self.point, wait, self.pace)
    }

    fn prediction(&self, deployment: &Deployment<'_>, demand: &Demand<'_>) -> Prediction {
        let Self {
            machine,
            traffic,
            memory,
            point,
            ..
        } = self;
        let wait = self.wait.as_ref();
        let parts = outcomes::Parts {
            traffic,
            envelope: &self.envelope,
            load: self.load,
            memory: *memory,
            point,
            mediators: mediators::of(machine, traffic, memory, point, (wait, self.arrivals_rps())),
            latency: self.latency(),
        };
        outcomes::of(deployment, demand, parts)
    }
}
