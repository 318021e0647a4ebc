//! Where a chain settles under a load: live batch, step times, waiting, and what its gauges would read.
//!
//! A request lives for its prompt's steps and one step per further token; the batch is the one whose
//! finish rate is the arrival rate. Waiting is that for a place in the batch and for the prompts ahead.
//! Compared with the event-by-event engine in the tests; not as exact.

use super::chain::Chain;
use crate::truth::StepLoad;

/// What a chain is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// Requests per second at this chain.
    pub rate_rps: f64,
    /// Requests kept in flight by a client that waits for answers; replaces the rate.
    pub concurrency: Option<f64>,
    /// Mean prompt tokens.
    pub prompt: f64,
    /// Mean generated tokens.
    pub answer: f64,
    /// Standard deviation of the logarithm of either length.
    pub log_spread: f64,
    /// Tokens of the prompt that many requests share.
    pub shared_prefix: f64,
    /// Share of requests that carry the most common prefix.
    pub concentration: f64,
    /// Squared coefficient of variation of the times between arrivals.
    pub arrival_cv2: f64,
}

/// A steady state. All figures are of one chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steady {
    /// Requests finished per second.
    pub rate_rps: f64,
    /// Requests per second beyond which the queue grows without bound.
    pub capacity_rps: f64,
    /// Requests running.
    pub live: f64,
    /// Requests waiting.
    pub waiting: f64,
    /// Seconds from one token of a sequence to its next.
    pub round_s: f64,
    /// Engine steps per second.
    pub steps_per_s: f64,
    /// Seconds from being scheduled to the first token.
    pub prefill_s: f64,
    /// Mean time to first token in seconds.
    pub ttft_s: f64,
    /// Its standard deviation over requests.
    pub ttft_sd_s: f64,
    /// Relative standard deviation of the time per output token over requests.
    pub tpot_cv: f64,
    /// Share of prompt tokens from cache.
    pub hit: f64,
    /// Share of the KV pool in use.
    pub kv_usage: f64,
    /// Share of the peak arithmetic rate.
    pub tensor_active: f64,
    /// Share of the peak memory bandwidth.
    pub memory_bandwidth: f64,
    /// Bytes per second that all devices send to each other.
    pub link_bytes_per_s: f64,
}

/// Halvings when looking for a batch.
const BISECTIONS: u32 = 40;
/// Share of the pool that a steady batch can use.
const USABLE_POOL: f64 = 0.96;
/// Share of the pool above which cached prefixes are evicted by live sequences.
const EVICTING_FROM: f64 = 0.75;
/// Loads above this share of the capacity are cut to it: what they queue depends on how long they last.
const MAX_LOAD: f64 = 0.985;
/// Receiving, tokenising and answering a request.
const FRONT_END_S: f64 = 0.009;
/// Spread of step times that no load explains.
const STEP_JITTER: f64 = 0.05;

/// One batch size with its step times.
#[derive(Clone, Copy)]
struct Point {
    live: f64,
    rate_rps: f64,
    prefill_steps: f64,
    plain_s: f64,
    mixed_s: f64,
    mixed_share: f64,
    round_s: f64,
    tensor_active: f64,
    memory_bandwidth: f64,
    link_bytes: f64,
}

/// A demand as a chain's cache leaves it.
#[derive(Clone, Copy)]
struct Work {
    demand: Demand,
    hit: f64,
    computed: f64,
    /// Tokens that a live sequence holds by itself, seen at a random moment.
    own_tokens: f64,
    shared_tokens: f64,
    context: f64,
}

impl Chain {
    /// The steady state under a demand.
    #[must_use]
    pub fn steady(&self, demand: &Demand) -> Steady {
        let mut work = self.work(demand, self.reuse(demand, 0.0));
        let mut point = self.settle(&work);
        // What lives in the pool evicts cached prefixes, which makes more live: a few rounds settle it.
        for _ in 0..3 {
            let usage = self.usage(&work, point.live);
            work = self.work(demand, self.reuse(demand, usage));
            point = self.settle(&work);
        }
        if (self.levers.live - 1.0).abs() > f64::EPSILON {
            // What is held moves the batch; the load decides the rate all the same.
            let rate_rps = point.rate_rps;
            point = Point {
                rate_rps,
                ..self.at(&work, point.live * self.levers.live)
            };
        }
        self.describe(&work, point)
    }

    /// Share of prompt tokens that the cache answers.
    fn reuse(&self, demand: &Demand, usage: f64) -> f64 {
        if !self.shape.prefix_caching {
            return 0.0;
        }
        let block = f64::from(self.shape.block_size);
        let prefix = demand.shared_prefix.min(demand.prompt - 1.0).max(0.0);
        let kept = (prefix / block).floor() * block / demand.prompt;
        let evicted = ((usage - EVICTING_FROM) / (1.0 - EVICTING_FROM)).clamp(0.0, 1.0);
        let share = demand.concentration * kept * (1.0 - 0.6 * evicted);
        (share + self.levers.hit).clamp(0.0, 0.97)
    }

    fn work(&self, demand: &Demand, hit: f64) -> Work {
        let computed = (demand.prompt * (1.0 - hit)).max(1.0);
        let cv2 = (demand.log_spread * demand.log_spread).exp_m1();
        let generated = demand.answer * (1.0 + cv2) / 2.0;
        Work {
            demand: *demand,
            hit,
            computed,
            own_tokens: computed + generated + f64::from(self.shape.block_size) / 2.0,
            shared_tokens: demand.prompt - computed,
            context: demand.prompt + generated,
        }
    }

    fn usage(&self, work: &Work, live: f64) -> f64 {
        let tokens = work.own_tokens * live + work.shared_tokens * live.min(1.0);
        (tokens / self.pool_tokens()).min(1.0)
    }

    fn largest_batch(&self, work: &Work) -> f64 {
        let room = (USABLE_POOL * self.pool_tokens() - work.shared_tokens) / work.own_tokens;
        room.min(f64::from(self.shape.max_num_seqs)).max(1.0)
    }

    fn settle(&self, work: &Work) -> Point {
        let largest = self.largest_batch(work);
        if let Some(in_flight) = work.demand.concurrency {
            return self.at(work, in_flight.clamp(1.0, largest));
        }
        let full = self.at(work, largest);
        let rate = work.demand.rate_rps.min(MAX_LOAD * full.rate_rps);
        let (mut low, mut high) = (0.0, largest);
        let mut point = full;
        for _ in 0..BISECTIONS {
            let middle = 0.5 * (low + high);
            point = self.at(work, middle);
            if point.rate_rps < rate {
                low = middle;
            } else {
                high = middle;
            }
            if (point.rate_rps / rate - 1.0).abs() < 1e-5 {
                break;
            }
        }
        point
    }

    /// Step times and finish rate with so many running.
    fn at(&self, work: &Work, live: f64) -> Point {
        let budget = (f64::from(self.shape.max_num_batched_tokens) - live).max(64.0);
        let chunk = if self.shape.chunked_prefill {
            work.computed.min(budget)
        } else {
            work.computed
        };
        let prefill_steps = (work.computed / chunk).max(1.0);
        let lifetime = prefill_steps + (work.demand.answer - 1.0).max(0.0);
        let prompt_tokens_per_step = live * work.computed / lifetime;
        // Several short prompts share a step; long ones fill it.
        let tokens = chunk.max(prompt_tokens_per_step.min(budget));
        let mixed_share = (prompt_tokens_per_step / tokens).min(1.0);
        let decoding = live * (lifetime - prefill_steps) / lifetime;
        let plain = self.step(work, decoding, 0.0);
        let mixed = self.step(work, decoding, tokens);
        let plain_s = plain.seconds * self.levers.decode;
        let mixed_s = plain_s + (mixed.seconds - plain.seconds).max(0.0) * self.levers.prefill;
        let (plain_s, mixed_s) = (plain_s * self.levers.step, mixed_s * self.levers.step);
        let round_s = plain_s + mixed_share * (mixed_s - plain_s);
        let mean = |of: fn(&crate::truth::StepCost) -> f64| {
            let weight = mixed_share * mixed_s / round_s;
            of(&plain) * (1.0 - weight) + of(&mixed) * weight
        };
        let per_round = plain.link_bytes_per_device * (1.0 - mixed_share)
            + mixed.link_bytes_per_device * mixed_share;
        Point {
            live,
            rate_rps: live / (lifetime * round_s),
            prefill_steps,
            plain_s,
            mixed_s,
            mixed_share,
            round_s,
            tensor_active: mean(|c| c.tensor_active_fraction) * live.min(1.0),
            memory_bandwidth: mean(|c| c.memory_bandwidth_fraction) * live.min(1.0),
            link_bytes: per_round * live.min(1.0) / round_s,
        }
    }

    fn step(&self, work: &Work, decoding: f64, prompt_tokens: f64) -> crate::truth::StepCost {
        // The tables know whole sequences: what lies between two of them is interpolated.
        let low = decoding.floor();
        let cost = |seqs: f64| {
            let prompts = prompt_tokens / work.computed.max(1.0);
            let attended = work.shared_tokens + work.computed / 2.0;
            self.truth.mean_cost(&StepLoad {
                prefill_tokens: prompt_tokens as u32,
                prefill_seqs: if prompt_tokens > 0.0 {
                    prompts.ceil() as u32
                } else {
                    0
                },
                prefill_context: prompt_tokens * attended,
                decode_seqs: seqs as u32,
                decode_context: (seqs * work.context) as u64,
            })
        };
        let (a, share) = (
            cost(low.max(if prompt_tokens > 0.0 { 0.0 } else { 1.0 })),
            decoding - low,
        );
        if share <= 0.0 || decoding < 1.0 {
            return a;
        }
        let b = cost(low + 1.0);
        let mix = |x: f64, y: f64| x + share * (y - x);
        crate::truth::StepCost {
            seconds: mix(a.seconds, b.seconds),
            tensor_active_fraction: mix(a.tensor_active_fraction, b.tensor_active_fraction),
            memory_bandwidth_fraction: mix(
                a.memory_bandwidth_fraction,
                b.memory_bandwidth_fraction,
            ),
            link_bytes_per_device: mix(a.link_bytes_per_device, b.link_bytes_per_device),
        }
    }

    fn describe(&self, work: &Work, point: Point) -> Steady {
        let demand = &work.demand;
        let full = self.at(work, self.largest_batch(work));
        let length_cv2 = (demand.log_spread * demand.log_spread).exp_m1();
        let (wait, wait_variance) = self.wait(work, &point, &full, length_cv2);
        let residual = point.live.min(1.0) * point.round_s / 2.0;
        let own = point.prefill_steps * point.mixed_s;
        let mean = FRONT_END_S + wait + residual + own;
        let prompt_part = (own - point.plain_s).max(0.0);
        let variance = wait_variance
            + residual * residual / 3.0
            + prompt_part * prompt_part * length_cv2
            + (STEP_JITTER * mean).powi(2);
        let gap = point.mixed_s - point.plain_s;
        let chunks = point.mixed_share * (1.0 - point.mixed_share) * gap * gap
            / (demand.answer - 1.0).max(1.0);
        let crowd = 0.25 / point.live.max(1.0);
        let tpot_cv =
            (chunks / (point.round_s * point.round_s) + crowd * 0.2 + STEP_JITTER * STEP_JITTER)
                .sqrt();
        let parts = point.live.clamp(1.0, f64::from(self.shape.pp));
        Steady {
            rate_rps: point.rate_rps,
            capacity_rps: full.rate_rps,
            live: point.live,
            waiting: wait * point.rate_rps,
            round_s: point.round_s,
            steps_per_s: point.live.min(1.0) * parts / point.round_s,
            prefill_s: residual + own,
            ttft_s: mean,
            ttft_sd_s: variance.sqrt(),
            tpot_cv,
            hit: work.hit,
            kv_usage: self.usage(work, point.live),
            tensor_active: (point.tensor_active * self.levers.activity).min(1.0),
            memory_bandwidth: (point.memory_bandwidth * self.levers.traffic).min(1.0),
            link_bytes_per_s: point.link_bytes * f64::from(self.devices) * self.levers.link,
        }
    }

    /// Mean and variance of the time in the engine's queue.
    fn wait(&self, work: &Work, point: &Point, full: &Point, length_cv2: f64) -> (f64, f64) {
        let demand = &work.demand;
        // Prompts are computed one after another, each beside the running batch.
        let service = work.computed
            / f64::from(self.shape.max_num_batched_tokens)
                .min(work.computed.max(1.0))
                .max(1.0)
            * (point.mixed_s - 0.5 * point.plain_s);
        if let Some(in_flight) = demand.concurrency {
            let behind = (in_flight - point.live).max(0.0) / point.rate_rps;
            let together = 0.12 * (point.live - 1.0).max(0.0) * service;
            let wait = (behind + together) * self.levers.wait;
            return (wait, wait * wait / 6.0);
        }
        let load = (point.rate_rps / full.rate_rps).min(MAX_LOAD);
        let full_chance = load.powf((2.0 * (full.live + 1.0)).sqrt() - 1.0);
        let spread = 0.5 * (demand.arrival_cv2 + length_cv2.min(1.0));
        let slots = exponential(full_chance, 1.1 * spread / ((1.0 - load) * full.rate_rps));
        let busy = (point.rate_rps * service).min(MAX_LOAD);
        let spread = 0.5 * (demand.arrival_cv2 + length_cv2);
        let prompts = exponential(busy, 0.85 * spread * service / (1.0 - busy));
        let factor = self.levers.wait;
        (
            (slots.0 + prompts.0) * factor,
            (slots.1 + prompts.1) * factor * factor,
        )
    }
}

/// Mean and variance of a wait that is exponential when it happens at all.
fn exponential(chance: f64, mean_if_any: f64) -> (f64, f64) {
    let mean = chance * mean_if_any;
    (mean, 2.0 * chance * mean_if_any * mean_if_any - mean * mean)
}

impl Steady {
    /// The state moved by small shifts of the load and of the device's speed, along what a larger
    /// shift of each does.
    ///
    /// # Formula
    /// ln q ← ln q + Σ x_s · ln(q_s / q) / shift for positive quantities
    #[must_use]
    pub fn moved(&self, by: [(&Self, f64); 2]) -> Self {
        let along = |of: fn(&Self) -> f64| {
            let base = of(self).max(1e-12);
            let sum: f64 = by
                .iter()
                .map(|(s, x)| x * (of(s).max(1e-12) / base).ln())
                .sum();
            base * sum.clamp(-1.5, 1.5).exp()
        };
        Self {
            rate_rps: along(|s| s.rate_rps),
            capacity_rps: self.capacity_rps,
            live: along(|s| s.live),
            waiting: along(|s| s.waiting),
            round_s: along(|s| s.round_s),
            steps_per_s: along(|s| s.steps_per_s),
            prefill_s: along(|s| s.prefill_s),
            ttft_s: along(|s| s.ttft_s),
            ttft_sd_s: along(|s| s.ttft_sd_s),
            tpot_cv: self.tpot_cv,
            hit: self.hit,
            kv_usage: along(|s| s.kv_usage).min(1.0),
            tensor_active: along(|s| s.tensor_active).min(1.0),
            memory_bandwidth: along(|s| s.memory_bandwidth).min(1.0),
            link_bytes_per_s: along(|s| s.link_bytes_per_s),
        }
    }
}
