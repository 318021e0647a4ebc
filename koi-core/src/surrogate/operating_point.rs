//! Where a replica settles: live batch, iteration time and rate in steady state.
//!
//! A request lives for R iterations, prompt chunks and generated tokens; with B requests live the
//! replica finishes B/(R·T(B)) per second. Capacity is that rate at the largest B that memory,
//! the sequence limit and the token budget allow. Queueing beyond this mean is
//! [`super::queueing`]. Spec §4.

mod iteration;
mod settings;

use super::memory::MemoryBreakdown;
use super::queueing::Load;
use super::roofline::{EngineProfile, StageModel, StepCost, StepWork};
use super::speculation::Guessing;
use super::{Demand, Deployment, Limit, prefix};
use crate::configuration::Term;
use crate::job::LengthStats;
use iteration::{IterationPlan, mix};

/// Halvings when looking for a batch; 2⁻³² of the range is far below a request.
const BISECTIONS: u32 = 32;
/// Relative surplus of requests at which a batch counts as settled.
const SETTLED: f64 = 1e-10;
/// Live requests at which each takes its own time and hardly any of the others'.
const NEARLY_IDLE: f64 = 1e-6;
/// Share of the KV pool that a steady batch can use before growth causes preemptions.
const USABLE_POOL_FRACTION: f64 = 0.95;
/// z of the 95th percentile.
const Z95: f64 = 1.644_853_626_951_472_7;

/// The mean request, as the engine meets it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traffic {
    /// Mean prompt tokens.
    pub(super) prompt: f64,
    /// Mean prompt tokens that are computed, not cached.
    pub(super) computed: f64,
    /// Mean generated tokens, at least one.
    pub(super) output: f64,
    /// Share of prompt tokens from cache.
    pub(super) hit_fraction: f64,
    /// Mean context of a live sequence.
    pub(super) context: f64,
    /// Mean context that a prompt token attends to.
    pub(super) prefill_context: f64,
    /// Cache tokens that only this sequence holds.
    pub(super) unique_tokens: f64,
    /// Cache tokens that admission keeps room for beyond those.
    pub(super) reserved_tokens: f64,
    /// Cache tokens that all sequences share.
    pub(super) shared_tokens: f64,
    /// Tokens per request that come from host memory.
    pub(super) loaded_tokens: f64,
    /// Squared coefficient of variation of prompt lengths.
    pub(super) prompt_cv2: f64,
    /// Squared coefficient of variation of output lengths.
    pub(super) output_cv2: f64,
}

impl Traffic {
    pub(super) fn of(d: &Deployment<'_>, demand: &Demand<'_>, memory: &MemoryBreakdown) -> Self {
        let found = prefix::found(demand.workload, &d.shape, memory, d.n_replicas);
        let prompt = demand.workload.isl.mean.max(1.0);
        Self::with_hits(d, demand, found.hit_fraction, found.host_fraction * prompt)
    }

    /// The traffic of which the cache answers a given share.
    pub(super) fn with_hits(
        d: &Deployment<'_>,
        demand: &Demand<'_>,
        hit_fraction: f64,
        loaded_tokens: f64,
    ) -> Self {
        let workload = demand.workload;
        let prompt = workload.isl.mean.max(1.0);
        let output = workload.osl.mean.max(1.0);
        let computed = (prompt * (1.0 - hit_fraction)).max(1.0);
        let output_cv2 = squared_variation(&workload.osl);
        // A sequence met at a random moment is a long one: size-biased, and half done.
        let generated = output * (1.0 + output_cv2) / 2.0;
        let effects = &d.shape.effects;
        let half_block = f64::from(d.shape.block_size) / 2.0;
        let ahead = effects.get(Term::LookaheadTokens) + Guessing::of(effects).tokens;
        let beyond = effects.get(Term::ReservedAnswerFactor) - 1.0;
        let cached = prompt - computed;
        Self {
            prompt,
            computed,
            output,
            hit_fraction,
            context: prompt + generated,
            prefill_context: cached + computed / 2.0,
            unique_tokens: computed + generated + half_block + ahead,
            reserved_tokens: generated * beyond,
            shared_tokens: cached,
            loaded_tokens,
            prompt_cv2: squared_variation(&workload.isl),
            output_cv2,
        }
    }

    /// Live cache tokens with so many live requests.
    pub(super) fn live_tokens(&self, live: f64) -> f64 {
        self.unique_tokens * live + self.shared_tokens * live.min(1.0)
    }
}

/// Squared coefficient of variation of a log-normal through the median and 95th percentile.
fn squared_variation(lengths: &LengthStats) -> f64 {
    if lengths.p50 < 1.0 || lengths.p95 <= lengths.p50 {
        return 0.0;
    }
    let sigma = (lengths.p95 / lengths.p50).ln() / Z95;
    // A recorded distribution is cut off, so a tail heavier than this is not believed.
    (sigma * sigma).exp_m1().min(9.0)
}

/// The largest steady state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Envelope {
    pub(super) live_max: f64,
    pub(super) capacity_rps: f64,
    pub(super) limit: Limit,
    pub(super) at_limit: Point,
}

/// One steady state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    /// Live requests.
    pub(super) live: f64,
    /// Requests finished per second.
    pub(super) rate_rps: f64,
    /// Iterations that its prompt takes.
    pub(super) prefill_iterations: f64,
    /// Mean time in which every live sequence moves on by one token.
    pub(super) iteration_seconds: f64,
    /// The same without and with a chunk of prompt in it.
    pub(super) decode_seconds: f64,
    pub(super) chunk_seconds: f64,
    /// Share of iterations with a chunk.
    pub(super) chunk_fraction: f64,
    /// Micro-batches in flight.
    pub(super) micro_batches: f64,
    /// Mean cost of a stage's step, chunks weighed in.
    pub(super) cost: StepCost,
}

/// A deployment with its step constants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine<'a> {
    pub(super) deployment: &'a Deployment<'a>,
    pub(super) profile: EngineProfile<'a>,
    stage: StageModel<'a>,
    prefill_interference: f64,
    guessing: Guessing,
}

impl<'a> Machine<'a> {
    pub(super) fn of(deployment: &'a Deployment<'a>, profile: EngineProfile<'a>) -> Self {
        Self {
            deployment,
            profile,
            stage: StageModel::of(deployment, &profile),
            prefill_interference: profile
                .constants
                .engine(profile.generation)
                .prefill_interference,
            guessing: Guessing::of(&deployment.shape.effects),
        }
    }

    /// Time in which all micro-batches move on by one token, and the cost of one stage's step.
    ///
    /// # Formula
    /// (m + b·(pp − 1)) · t(work/m), m = micro-batches in flight, b = 1 unless a setting narrows it
    pub(super) fn iteration(&self, work: StepWork, micro_batches: f64) -> (f64, StepCost) {
        let share = StepWork {
            decode_seqs: work.decode_seqs / micro_batches,
            prefill_tokens: work.prefill_tokens / micro_batches,
            ..work
        };
        let cost = self.stage.step(share);
        let shape = &self.deployment.shape;
        let bubble = (f64::from(shape.pp) - 1.0) * shape.effects.get(Term::BubbleFactor);
        ((micro_batches + bubble) * cost.seconds, cost)
    }

    /// The largest live batch, the rate there, and what stops it.
    pub(super) fn envelope(&self, traffic: &Traffic, memory: &MemoryBreakdown) -> Envelope {
        let shape = &self.deployment.shape;
        let pool = memory.pool_tokens_at(traffic.unique_tokens);
        let used = 1.0 - shape.effects.get(Term::KeptFreeFraction);
        let usable = pool * USABLE_POOL_FRACTION * used - traffic.shared_tokens;
        let each = traffic.unique_tokens + traffic.reserved_tokens;
        let by_memory = (usable / each).max(1.0);
        let by_slots = self.slots();
        let by_budget = self.live_by_budget(traffic, by_slots.min(by_memory));
        let live_max = by_memory.min(by_slots).min(by_budget).max(1.0);
        let at_limit = self.at_live(traffic, live_max);
        let limit = if by_budget < by_memory.min(by_slots) {
            Limit::Compute
        } else if by_memory < by_slots {
            Limit::KvCapacity
        } else {
            self.limit_at(traffic, &at_limit)
        };
        Envelope {
            live_max,
            capacity_rps: at_limit.rate_rps,
            limit,
            at_limit,
        }
    }

    /// With all slots taken: more slots would help while a step's time hardly grows with them;
    /// else the largest part of the step is to blame.
    fn limit_at(&self, traffic: &Traffic, point: &Point) -> Limit {
        let larger = self.at_live(traffic, point.live * 1.1);
        let gain = (larger.rate_rps / point.rate_rps - 1.0) / 0.1;
        let cost = point.cost;
        if gain > 0.5 {
            Limit::Queue
        } else if cost.comm_seconds > cost.compute_bound_seconds.max(cost.bandwidth_bound_seconds) {
            Limit::Communication
        } else if cost.compute_bound_seconds > cost.bandwidth_bound_seconds {
            Limit::Compute
        } else {
            Limit::Bandwidth
        }
    }

    /// Largest live batch whose tokens per iteration fit the token budget.
    fn live_by_budget(&self, traffic: &Traffic, cap: f64) -> f64 {
        let budget = self.step_tokens();
        let prompts = self.deployment.shape.effects.get(Term::PromptBatchTokens);
        let fits = |live: f64| {
            let plan = self.iteration_plan(traffic, live);
            let tokens = plan.decode_seqs * (1.0 + plan.guessing.tokens) + plan.prefill_mean;
            tokens <= budget && plan.prefill_mean <= prompts
        };
        if fits(cap) {
            return f64::INFINITY;
        }
        let (mut low, mut high) = (0.0, cap);
        for _ in 0..BISECTIONS {
            let middle = 0.5 * (low + high);
            if fits(middle) {
                low = middle
            } else {
                high = middle
            }
        }
        low
    }

    fn iteration_plan(&self, traffic: &Traffic, live: f64) -> IterationPlan {
        let effects = &self.deployment.shape.effects;
        let guessing = self.guessing.at(live);
        let decoding = live * (1.0 + guessing.tokens);
        let prompts = effects.get(Term::PromptBatchTokens);
        let budget = (self.step_tokens() - decoding).min(prompts).max(1.0);
        let decode_iterations = (traffic.output - 1.0) / guessing.gain;
        let most = self.most_of_one_prompt(traffic, live, budget);
        let prefill_iterations = (traffic.computed / most).max(1.0);
        let lifetime = decode_iterations + prefill_iterations;
        let prefill_mean = live * traffic.computed / lifetime;
        let admitted = prefill_mean * effects.get(Term::AdmissionSteps);
        let chunk = traffic.computed.min(most).max(admitted.min(budget));
        IterationPlan {
            budget,
            prefill_iterations,
            lifetime,
            prefill_mean,
            chunk,
            decode_seqs: live * decode_iterations / lifetime,
            guessing,
        }
    }

    /// The steady state with so many live requests.
    pub(super) fn at_live(&self, traffic: &Traffic, live: f64) -> Point {
        let plan = self.iteration_plan(traffic, live);
        let pp = f64::from(self.deployment.shape.pp);
        let micro_batches = live.clamp(1.0, pp);
        let decode = StepWork {
            decode_seqs: plan.decode_seqs,
            decode_context: traffic.context,
            prefill_tokens: 0.0,
            prefill_context: traffic.prefill_context,
            guesses_per_sequence: plan.guessing.tokens,
        };
        let with_chunk = StepWork {
            prefill_tokens: plan.chunk,
            ..decode
        };
        let (decode_seconds, decode_cost) = self.iteration(decode, micro_batches);
        let (chunk_seconds, chunk_cost) = self.iteration(with_chunk, micro_batches);
        let chunk_fraction = (plan.prefill_mean / plan.chunk).min(1.0);
        let chunk_delay = chunk_fraction * (chunk_seconds - decode_seconds);
        let iteration_seconds = decode_seconds + self.prefill_interference * chunk_delay;
        // Prompts that delay no generation still take the device's time.
        let busy_seconds = decode_seconds + self.prefill_interference.max(1.0) * chunk_delay;
        Point {
            live,
            rate_rps: live / (plan.lifetime * busy_seconds),
            prefill_iterations: plan.prefill_iterations,
            iteration_seconds,
            decode_seconds,
            chunk_seconds,
            chunk_fraction,
            micro_batches,
            cost: mix(decode_cost, chunk_cost, chunk_fraction),
        }
    }

    /// The steady state under a load: the batch whose rate is the offered one.
    pub(super) fn at_load(&self, traffic: &Traffic, envelope: &Envelope, load: Load) -> Point {
        let rate = match load {
            Load::Saturated | Load::Backlogged => return envelope.at_limit,
            Load::Closed { concurrency } => {
                return self.at_live(traffic, concurrency.min(envelope.live_max));
            }
            Load::Open { rate_rps, .. } => rate_rps,
        };
        Point {
            rate_rps: rate,
            ..self.at_rate(traffic, envelope, rate)
        }
    }

    /// The steady state that finishes as many requests as arrive: the root of B − λ·R·T(B), by the
    /// rule of Illinois. Residence hardly bends in B, so that few steps lead there.
    fn at_rate(&self, traffic: &Traffic, envelope: &Envelope, rate: f64) -> Point {
        let surplus = |point: &Point| point.live * (1.0 - rate / point.rate_rps);
        let (mut low, mut high) = (0.0, envelope.live_max);
        let nearly_idle = self.at_live(traffic, NEARLY_IDLE);
        let mut at_low = -rate * NEARLY_IDLE / nearly_idle.rate_rps;
        let mut at_high = surplus(&envelope.at_limit);
        let mut side = 0_i8;
        let mut point = envelope.at_limit;
        for _ in 0..BISECTIONS {
            let secant = (low * at_high - high * at_low) / (at_high - at_low);
            let is_inside = secant > low && secant < high;
            let middle = if is_inside {
                secant
            } else {
                0.5 * (low + high)
            };
            point = self.at_live(traffic, middle);
            let here = surplus(&point);
            if here.abs() <= SETTLED * middle {
                break;
            }
            if here < 0.0 {
                (low, at_low) = (middle, here);
                at_high *= if side < 0 { 0.5 } else { 1.0 };
                side = -1;
            } else {
                (high, at_high) = (middle, here);
                at_low *= if side > 0 { 0.5 } else { 1.0 };
                side = 1;
            }
        }
        point
    }

    /// Seconds that a prompt of mean length takes of a replica that has more prompts waiting.
    pub(super) fn prompt_service_seconds(&self, traffic: &Traffic, point: &Point) -> f64 {
        let plan = self.iteration_plan(traffic, point.live);
        let decode_seqs = if self.profile.generation.computes_prompts_alone() {
            0.0
        } else {
            plan.decode_seqs
        };
        let budget = self.prompt_tokens_per_step(traffic, plan.budget);
        let full = StepWork {
            decode_seqs,
            decode_context: traffic.context,
            prefill_tokens: budget,
            prefill_context: traffic.prefill_context,
            guesses_per_sequence: plan.guessing.tokens,
        };
        let (seconds, _) = self.iteration(full, point.micro_batches);
        seconds * traffic.computed / budget
    }
}
