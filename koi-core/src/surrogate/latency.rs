//! Distributions of time to first token and of time per output token.
//!
//! Means and variances come from the operating point and the queue; the shape is log-normal, so
//! that ranks can be mixed. Not percentiles: those go through [`super::through_buckets`].

use serde::{Deserialize, Serialize};
use statrs::function::erf::erf;

use super::operating_point::{Machine, Point, Traffic};
use super::queueing::Wait;

/// Spread of iteration times that no term above explains; seen on every measured engine.
const ITERATION_JITTER: f64 = 0.04;
/// Share of a step that generation keeps however many prompts arrive, for the growth of delays.
const LEAST_LEFT: f64 = 0.1;

/// A log-normal over milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Mean of ln(ms).
    pub mu: f64,
    /// Standard deviation of ln(ms).
    pub sigma: f64,
}

impl Spread {
    /// The log-normal with this mean and variance.
    ///
    /// # Formula
    /// σ² = ln(1 + var/mean²), μ = ln(mean) − σ²/2
    #[must_use]
    pub fn from_moments(mean_ms: f64, variance: f64) -> Self {
        let sigma2 = (variance / (mean_ms * mean_ms)).ln_1p();
        Self {
            mu: mean_ms.ln() - 0.5 * sigma2,
            sigma: sigma2.sqrt(),
        }
    }

    /// Share of values up to `ms`.
    #[must_use]
    pub fn cdf(&self, ms: f64) -> f64 {
        if ms <= 0.0 {
            return 0.0;
        }
        if self.sigma <= 0.0 {
            return if ms.ln() >= self.mu { 1.0 } else { 0.0 };
        }
        let z = (ms.ln() - self.mu) / self.sigma;
        0.5 * (1.0 + erf(z * std::f64::consts::FRAC_1_SQRT_2))
    }

    /// 99th percentile in milliseconds, as a client that keeps every value sees it.
    #[must_use]
    pub fn p99_ms(&self) -> f64 {
        /// z of the 99th percentile.
        const Z99: f64 = 2.326_347_874_040_840_8;
        (self.mu + Z99 * self.sigma).exp()
    }

    /// Mean in milliseconds.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        (self.mu + 0.5 * self.sigma * self.sigma).exp()
    }
}

/// Both latencies of a replica; absent where unbounded or undefined.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LatencyShape {
    /// Time to first token.
    pub ttft: Option<Spread>,
    /// Time per output token, as a mean per request; absent when one token is generated.
    pub tpot: Option<Spread>,
}

/// Latencies at an operating point that is not overloaded. Without a wait (full by design) the
/// first token has no bounded time; tokens after it still come at the iteration's pace. `pace` is
/// the time of an iteration over what the machine gives by itself.
pub(super) fn of(
    machine: &Machine<'_>,
    traffic: &Traffic,
    point: &Point,
    wait: Option<&Wait>,
    pace: f64,
) -> LatencyShape {
    let arrival_cv2 = wait.map_or(0.0, |w| w.arrival_cv2);
    LatencyShape {
        ttft: wait.map(|wait| ttft(machine, traffic, point, wait)),
        tpot: (traffic.output > 1.0).then(|| tpot(machine, traffic, point, (arrival_cv2, pace))),
    }
}

fn ttft(machine: &Machine<'_>, traffic: &Traffic, point: &Point, wait: &Wait) -> Spread {
    let profile = machine.profile;
    let engine = profile.constants.engine(profile.generation);
    let front_end = engine.first_token_overhead_ms * 1e-3 + expert_launch_seconds(machine);
    let own = point.prefill_iterations * point.chunk_seconds;
    // The part of the own prompt's time that scales with its length varies as lengths do.
    let scaling = (own - point.decode_seconds).max(0.0);
    let loading = machine.loading_seconds(traffic);
    let mean = front_end + wait.queue_seconds + wait.residual_seconds + own + loading;
    let variance =
        wait.variance + scaling * scaling * traffic.prompt_cv2 + (ITERATION_JITTER * mean).powi(2);
    Spread::from_moments(mean * 1e3, variance * 1e6)
}

/// Launching the experts of a prompt, which no captured graph does.
fn expert_launch_seconds(machine: &Machine<'_>) -> f64 {
    let model = machine.deployment.model;
    let experts = model.moe.map_or(0.0, |moe| {
        f64::from(moe.experts) * f64::from(moe.sparse_layers)
    });
    experts * machine.profile.constants.device.expert_first_token_us * 1e-6
}

fn tpot(
    machine: &Machine<'_>,
    traffic: &Traffic,
    point: &Point,
    (arrival_cv2, pace): (f64, f64),
) -> Spread {
    let gain = machine.guessing_at(point.live).gain;
    let mean = point.iteration_seconds / gain;
    let chunks = if arrival_cv2 > 0.0 {
        arriving_prompts(traffic, point, arrival_cv2) / gain
    } else {
        following_prompts(traffic, point) / gain
    };
    let larger = machine.at_live(traffic, point.live * 1.1);
    let more = larger.iteration_seconds * pace / gain;
    let slope = (more - mean).max(0.0) / (0.1 * point.live).max(f64::MIN_POSITIVE);
    // The batch of an open system varies like a Poisson count.
    let load = slope * slope * point.live * arrival_cv2;
    let variance = chunks + load + (ITERATION_JITTER * mean).powi(2);
    Spread::from_moments(mean * 1e3, variance * 1e6)
}

/// Variance that the prompts of other requests add to a request's mean time per token, in seconds
/// squared, where each finished request is followed by the next.
fn following_prompts(traffic: &Traffic, point: &Point) -> f64 {
    let gap = point.chunk_seconds - point.decode_seconds;
    let share = point.chunk_fraction;
    share * (1.0 - share) * gap * gap / (traffic.output - 1.0).max(1.0)
}

/// The same where requests arrive by themselves. While a request generates, prompts arrive, and
/// each stretches the time in which more arrive: a delay cycle of one server, begun by the answer's
/// own steps. Arrivals that vary more than independent ones come in groups: what comes with a
/// request is computed during its first steps. Short answers average over few steps, so a prompt
/// weighs the more on them. Not the mean, which is the operating point's.
///
/// # Formula
/// (n·s²·(cₐ² + cₚ²)·E\[1/(N − 1)\] + (m·s²·(1 + cₚ²) + 2m²·s²)·E\[1/(N − 1)²\])/(1 − ρ)²; n prompts
/// of s seconds in a step of which they take the share ρ; cₐ², cₚ² the squared variation of arrivals
/// and prompts; m = (cₐ² − 1)/2 others behind a request in a group of geometric size; E\[1/Nᵏ\] =
/// (1 + c²)^(k(k+1)/2)/E\[N\]ᵏ of a log-normal answer
///
/// # Source
/// L. Kleinrock, Queueing Systems I, the delay cycle of M/G/1 and bulk arrivals
fn arriving_prompts(traffic: &Traffic, point: &Point, arrival_cv2: f64) -> f64 {
    let delay = (point.iteration_seconds - point.decode_seconds).max(0.0);
    let prompts = point.rate_rps * point.iteration_seconds;
    if prompts <= 0.0 {
        return 0.0;
    }
    let left = (1.0 - delay / point.iteration_seconds).max(LEAST_LEFT);
    let steps = (traffic.output - 1.0).max(1.0);
    let wider = 1.0 + traffic.output_cv2;
    let (of_one, of_two) = (wider / steps, wider.powi(3) / (steps * steps));
    let prompt = delay / prompts;
    let later = prompts * (arrival_cv2 + traffic.prompt_cv2);
    let others = (arrival_cv2 - 1.0).max(0.0) / 2.0;
    let together = others * (1.0 + traffic.prompt_cv2) + 2.0 * others * others;
    let in_steps = later * of_one.min(1.0) + together * of_two.min(1.0);
    prompt * prompt * in_steps / (left * left)
}
