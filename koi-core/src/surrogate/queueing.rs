//! Waiting: for a slot in the batch and for the prompts ahead.
//!
//! The batch is a queue with as many servers as the batch has room for; prompts are a queue with
//! one server, whose work is prompt tokens. Not a simulation: a test compares both with one.
//! Spec §4.

use super::Demand;
use super::operating_point::{Envelope, Machine, Point, Traffic};
use crate::configuration::Term;
use crate::job::{ArrivalPattern, JobClass};

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Load {
    /// Arrivals at a rate below capacity.
    Open {
        /// Requests per second at one replica.
        rate_rps: f64,
        /// Squared coefficient of variation of the times between arrivals.
        arrival_cv2: f64,
    },
    /// A fixed number in flight.
    Closed {
        /// Requests in flight at one replica.
        concurrency: f64,
    },
    /// A batch job that always has more to do.
    Backlogged,
    /// Arrivals above capacity.
    Saturated,
}

impl Load {
    pub(super) fn of(demand: &Demand<'_>, envelope: &Envelope) -> Self {
        if let Some(concurrency) = demand.batch_concurrency.filter(|n| *n > 0) {
            return Self::Closed {
                concurrency: f64::from(concurrency),
            };
        }
        let rate_rps = demand.rate_rps_per_replica;
        if demand.class == JobClass::Batch && rate_rps == 0.0 {
            return Self::Backlogged;
        }
        if rate_rps >= envelope.capacity_rps {
            return Self::Saturated;
        }
        Self::Open {
            rate_rps,
            arrival_cv2: arrival_cv2(demand),
        }
    }
}

/// Bursts widen the times between arrivals; a peak of k times the mean is taken as k times the
/// variance of independent arrivals.
fn arrival_cv2(demand: &Demand<'_>) -> f64 {
    match demand.workload.arrival_pattern {
        ArrivalPattern::Poisson => 1.0,
        ArrivalPattern::Bursty | ArrivalPattern::Trace => {
            demand.workload.peak_to_mean.clamp(1.0, 100.0)
        }
    }
}

/// Mean and variance of waiting before the own prompt is computed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    /// Waiting for a slot and for prompts ahead, in seconds; the engine counts these as waiting.
    pub(super) queue_seconds: f64,
    /// Rest of the iteration under way at arrival.
    pub(super) residual_seconds: f64,
    /// Variance of both.
    pub(super) variance: f64,
    /// Squared coefficient of variation of arrivals, for fluctuations of the batch.
    pub(super) arrival_cv2: f64,
}

/// The wait of a load; `None` where it is unbounded or not a property of the replica.
pub(super) fn wait(
    machine: &Machine<'_>,
    point: &Point,
    envelope: &Envelope,
    traffic: &Traffic,
    load: Load,
) -> Option<Wait> {
    let wait = natural_wait(machine, point, envelope, traffic, load)?;
    if machine.deployment.shape.effects.is_neutral() {
        return Some(wait);
    }
    Some(cut_off(
        machine,
        point,
        traffic,
        held_back(machine, point, wait),
    ))
}

/// Waits that settings add: for the next admission, for the last prompt's echo, for the rest of a
/// round of steps.
///
/// # Formula
/// (k − 1)/2 iterations between admissions every k steps; of a delay d·s after the last of arrivals
/// at rate λ, d·s − (1 − e^(−λ·d·s))/λ; in a round of n steps the rest of n − 1 more, mean and
/// spread of the whole rest growing n and n² times
fn held_back(machine: &Machine<'_>, point: &Point, wait: Wait) -> Wait {
    let effects = &machine.deployment.shape.effects;
    let between = effects.get(Term::AdmissionSteps) - 1.0;
    let admission = between / 2.0 * point.iteration_seconds * point.live.min(1.0);
    let delay = effects.get(Term::PromptDelayFactor) * point.chunk_seconds;
    let echo = if delay > 0.0 && point.rate_rps > 0.0 {
        delay - (-(-point.rate_rps * delay).exp_m1()) / point.rate_rps
    } else {
        0.0
    };
    let rounds = effects.get(Term::RoundSteps);
    // Requests that no step looks at wait in the queue; the last step's rest is the prompt's own.
    let round = wait.residual_seconds * (rounds - 1.0);
    let spread = (2.0 * admission).powi(2) / 12.0
        + echo * echo
        + residual_variance(wait.residual_seconds) * (rounds * rounds - 1.0);
    Wait {
        queue_seconds: wait.queue_seconds + admission + echo + round,
        variance: wait.variance + spread,
        ..wait
    }
}

/// The wait where requests beyond a bound are refused: no more wait than the bound leaves.
fn cut_off(machine: &Machine<'_>, point: &Point, traffic: &Traffic, wait: Wait) -> Wait {
    let effects = &machine.deployment.shape.effects;
    let in_flight = effects.get(Term::RequestsInFlight) - point.live;
    let by_tokens = effects.get(Term::QueuedPromptTokens) / traffic.computed;
    let most = in_flight.min(by_tokens).max(0.0);
    let waiting = wait.queue_seconds * point.rate_rps;
    if waiting <= most {
        return wait;
    }
    let share = most / waiting;
    Wait {
        queue_seconds: wait.queue_seconds * share,
        variance: wait.variance * share * share,
        ..wait
    }
}

fn natural_wait(
    machine: &Machine<'_>,
    point: &Point,
    envelope: &Envelope,
    traffic: &Traffic,
    load: Load,
) -> Option<Wait> {
    let residual = residual_seconds(point);
    match load {
        Load::Saturated | Load::Backlogged => None,
        Load::Closed { concurrency } => {
            let for_a_slot = (concurrency - point.live).max(0.0) / point.rate_rps;
            let for_prompts = burst_wait(machine, point, traffic);
            // Those in front finish one by one: the spread is that of the batch's own lifetimes;
            // of prompts that come together, the last waits twice the mean and the first not.
            let variance = for_a_slot * for_a_slot / 9.0
                + for_prompts * for_prompts / 3.0
                + residual * residual / 3.0;
            Some(Wait {
                queue_seconds: for_a_slot + for_prompts,
                residual_seconds: residual,
                variance,
                arrival_cv2: 0.0,
            })
        }
        Load::Open {
            rate_rps,
            arrival_cv2,
        } => {
            let slots = slot_wait(envelope, traffic, rate_rps, arrival_cv2);
            let prompts = prompt_wait(
                machine.prompt_service_seconds(traffic, point),
                shared_cv2(machine, traffic),
                rate_rps,
                arrival_cv2,
            );
            Some(Wait {
                queue_seconds: slots.0 + prompts.0,
                residual_seconds: residual,
                variance: slots.1 + prompts.1 + residual * residual / 3.0,
                arrival_cv2,
            })
        }
    }
}

/// Variance of the rest of an iteration that is uniform over it, by its mean.
pub(super) fn residual_variance(residual_seconds: f64) -> f64 {
    residual_seconds * residual_seconds / 3.0
}

/// The wait of a replica for which only its mean is known: exponential, of independent arrivals.
pub(super) fn exponential_wait(point: &Point, queue_seconds: f64) -> Wait {
    let residual = residual_seconds(point);
    Wait {
        queue_seconds,
        residual_seconds: residual,
        variance: queue_seconds * queue_seconds + residual_variance(residual),
        arrival_cv2: 1.0,
    }
}

/// Mean wait for prompts of the others in a closed system: requests that finish together are
/// followed by requests that start together.
///
/// # Formula
/// min(1, a + b·φ)·(n − 1)·s, n live requests, s a prompt's service, φ the part of time that prompts take
fn burst_wait(machine: &Machine<'_>, point: &Point, traffic: &Traffic) -> f64 {
    let profile = machine.profile;
    let engine = profile.constants.engine(profile.generation);
    let prompts = point.chunk_fraction * (point.chunk_seconds - point.decode_seconds);
    let crowding = prompts / point.iteration_seconds;
    let share = engine.burst_wait_share + engine.crowded_wait_share * crowding;
    let others = (point.live - 1.0).max(0.0);
    share.min(1.0) * others * machine.prompt_service_seconds(traffic, point)
}

/// Mean rest of the iteration under way, by the inspection paradox; an idle replica starts at once.
fn residual_seconds(point: &Point) -> f64 {
    let share = point.chunk_fraction;
    let mean_square =
        (1.0 - share) * point.decode_seconds.powi(2) + share * point.chunk_seconds.powi(2);
    point.live.min(1.0) * mean_square / (2.0 * point.iteration_seconds)
}

/// Mean and variance of the wait for one of c slots.
///
/// # Formula
/// W = (ca² + cs²)/2 · ρ^(√(2(c+1)) − 1) / (1 − ρ) · S/c, where S/c = 1/capacity
fn slot_wait(
    envelope: &Envelope,
    traffic: &Traffic,
    rate_rps: f64,
    arrival_cv2: f64,
) -> (f64, f64) {
    let load = (rate_rps / envelope.capacity_rps).clamp(0.0, 1.0 - 1e-9);
    let probability = load.powf((2.0 * (envelope.live_max + 1.0)).sqrt() - 1.0);
    let spread = 0.5 * (arrival_cv2 + traffic.output_cv2.min(1.0));
    waiting(probability, spread / ((1.0 - load) * envelope.capacity_rps))
}

/// Spread of prompts as the wait for them sees it: prompts that are computed side by side delay each
/// other as if their lengths were exponential, however they are spread.
///
/// # Formula
/// 1 + (cv² − 1)/n, n prompts side by side: one server first come first served at n = 1, an equally
/// shared one as n grows
fn shared_cv2(machine: &Machine<'_>, traffic: &Traffic) -> f64 {
    let side_by_side = machine.deployment.shape.effects.get(Term::PartialPrompts);
    if side_by_side <= 1.0 {
        return traffic.prompt_cv2;
    }
    1.0 + (traffic.prompt_cv2 - 1.0) / side_by_side
}

/// Mean and variance of the wait for prompts ahead: one server, general service.
fn prompt_wait(service: f64, prompt_cv2: f64, rate_rps: f64, arrival_cv2: f64) -> (f64, f64) {
    let load = (rate_rps * service).clamp(0.0, 1.0 - 1e-9);
    waiting(
        load,
        0.5 * (arrival_cv2 + prompt_cv2) * service / (1.0 - load),
    )
}

/// Mean and variance of a wait that is exponential with the given mean when it happens at all.
fn waiting(probability: f64, mean_if_any: f64) -> (f64, f64) {
    let mean = probability * mean_if_any;
    (
        mean,
        2.0 * probability * mean_if_any * mean_if_any - mean * mean,
    )
}
