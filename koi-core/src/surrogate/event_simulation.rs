//! A small discrete-event simulation of the same engine, to hold the queue model against.
//!
//! It schedules requests one by one (admission, chunked prompts, one token per iteration) with the
//! same step times, so what differs is only the steady-state and queueing arithmetic.

use std::collections::VecDeque;

use super::operating_point::{Machine, Traffic};
use super::roofline::StepWork;
use super::tests::{facts, gpu, online_slo, profile, workload};
use super::*;
use crate::job::{ArrivalPattern, LengthStats};
use crate::variables::{Mediator, Outcome};

/// Means over a run.
#[derive(Debug)]
struct Measured {
    live: f64,
    queue: f64,
    ttft_ms: f64,
    tpot_ms: f64,
    p99_ttft_ms: f64,
    p99_tpot_ms: f64,
}

#[derive(Default)]
struct Request {
    arrival: f64,
    prompt_left: f64,
    output_left: f64,
    first_token: Option<f64>,
    output: f64,
}

/// Uniform numbers in (0, 1): xorshift64*, enough for a test.
struct Dice(u64);

impl Dice {
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform().ln()
    }

    fn log_normal(&mut self, l: &LengthStats) -> f64 {
        let sigma = (l.p95 / l.p50).ln() / 1.644_853_626_951_472_7;
        let normal =
            (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos();
        (l.p50 * (sigma * normal).exp()).round().max(1.0)
    }
}

/// The engine under simulation.
struct Simulation<'a> {
    machine: Machine<'a>,
    traffic: Traffic,
    demand: &'a Demand<'a>,
    dice: Dice,
    now: f64,
    next_arrival: f64,
    /// Mean requests that arrive together.
    group: f64,
    waiting: VecDeque<Request>,
    live: Vec<Request>,
    live_seconds: f64,
    queue_seconds: f64,
    ttfts: Vec<f64>,
    tpots: Vec<f64>,
}

impl Simulation<'_> {
    fn take_arrivals(&mut self) {
        while self.next_arrival <= self.now {
            // Requests come in groups of a geometric number whose arrivals are Poisson.
            loop {
                self.waiting.push_back(Request {
                    arrival: self.next_arrival,
                    prompt_left: self.dice.log_normal(&self.demand.workload.isl),
                    output_left: self.dice.log_normal(&self.demand.workload.osl),
                    first_token: None,
                    output: 0.0,
                });
                if self.dice.uniform() * self.group <= 1.0 {
                    break;
                }
            }
            self.next_arrival += self
                .dice
                .exponential(self.group / self.demand.rate_rps_per_replica);
        }
    }

    /// Admits what fits and returns the work of the next step.
    fn schedule(&mut self) -> StepWork {
        let shape = self.machine.deployment.shape;
        let decoding = self.live.iter().filter(|r| r.prompt_left <= 0.0).count() as f64;
        let room = f64::from(shape.max_num_batched_tokens) - decoding;
        let mut budget = room;
        let mut take = |request: &mut Request| {
            let chunk = request.prompt_left.min(budget);
            request.prompt_left -= chunk;
            budget -= chunk;
            budget
        };
        self.live
            .iter_mut()
            .filter(|r| r.prompt_left > 0.0)
            .for_each(|r| {
                take(r);
            });
        let mut left = take(&mut Request {
            prompt_left: 0.0,
            ..Request::default()
        });
        while self.live.len() < shape.max_num_seqs as usize && left > 0.0 {
            let Some(mut request) = self.waiting.pop_front() else {
                break;
            };
            left = take(&mut request);
            self.live.push(request);
        }
        StepWork {
            decode_seqs: decoding,
            decode_context: self.traffic.context,
            prefill_tokens: room - left,
            prefill_context: self.traffic.prefill_context,
            guesses_per_sequence: 0.0,
        }
    }

    fn finish_step(&mut self, seconds: f64) {
        self.live_seconds += seconds * self.live.len() as f64;
        self.queue_seconds += seconds * self.waiting.len() as f64;
        self.now += seconds;
        for request in self.live.iter_mut().filter(|r| r.prompt_left <= 0.0) {
            request.first_token.get_or_insert(self.now);
            request.output += 1.0;
            request.output_left -= 1.0;
        }
        let is_done = |r: &mut Request| r.prompt_left <= 0.0 && r.output_left <= 0.0;
        for done in self.live.extract_if(.., is_done) {
            let first = done.first_token.unwrap();
            self.ttfts.push((first - done.arrival) * 1e3);
            if done.output > 1.0 {
                self.tpots
                    .push((self.now - first) * 1e3 / (done.output - 1.0));
            }
        }
    }

    fn run(mut self, seconds: f64) -> Measured {
        while self.now < seconds {
            self.take_arrivals();
            let work = self.schedule();
            if self.live.is_empty() {
                self.now = self.next_arrival;
                continue;
            }
            let (step, _) = self.machine.iteration(work, 1.0);
            self.finish_step(step);
        }
        let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
        self.ttfts.sort_by(f64::total_cmp);
        self.tpots.sort_by(f64::total_cmp);
        Measured {
            live: self.live_seconds / self.now,
            queue: self.queue_seconds / self.now,
            ttft_ms: mean(&self.ttfts),
            tpot_ms: mean(&self.tpots),
            p99_ttft_ms: self.ttfts[self.ttfts.len() * 99 / 100],
            p99_tpot_ms: self.tpots[self.tpots.len() * 99 / 100],
        }
    }
}

fn simulate(deployment: &Deployment<'_>, demand: &Demand<'_>, seconds: f64) -> Measured {
    let memory = MemoryBreakdown::of(deployment.model, deployment.gpu, &deployment.shape);
    let simulation = Simulation {
        machine: Machine::of(deployment, profile()),
        traffic: Traffic::of(deployment, demand, &memory),
        demand,
        dice: Dice(0x9E37_79B9_7F4A_7C15),
        now: 0.0,
        next_arrival: 0.0,
        // Counts of such arrivals vary 2·group − 1 times as much as those of single ones.
        group: match demand.workload.arrival_pattern {
            ArrivalPattern::Poisson => 1.0,
            ArrivalPattern::Bursty | ArrivalPattern::Trace => {
                f64::midpoint(demand.workload.peak_to_mean, 1.0)
            }
        },
        waiting: VecDeque::new(),
        live: Vec::new(),
        live_seconds: 0.0,
        queue_seconds: 0.0,
        ttfts: Vec::new(),
        tpots: Vec::new(),
    };
    simulation.run(seconds)
}

/// A log-normal of this median and 95th percentile.
fn log_normal(p50: f64, p95: f64) -> LengthStats {
    let sigma = (p95 / p50).ln() / 1.644_853_626_951_472_7;
    LengthStats {
        mean: p50 * (0.5 * sigma * sigma).exp(),
        p50,
        p95,
        p99: p50 * (2.326 * sigma).exp(),
    }
}

fn case(rate: f64, max_num_seqs: u32, check: impl Fn(&Prediction, &Measured)) {
    let isl = LengthStats {
        mean: 620.0,
        p50: 500.0,
        p95: 1_500.0,
        p99: 2_400.0,
    };
    let osl = LengthStats {
        mean: 250.0,
        p50: 200.0,
        p95: 600.0,
        p99: 950.0,
    };
    case_of(&workload(isl, osl), (rate, max_num_seqs), check);
}

fn case_of(
    profile: &crate::job::Workload,
    (rate, max_num_seqs): (f64, u32),
    check: impl Fn(&Prediction, &Measured),
) {
    let model = facts("Llama-3.1-8B");
    let slo = online_slo();
    let deployment = Deployment {
        model: &model,
        gpu: gpu("H100"),
        shape: EngineShape {
            max_num_seqs,
            max_model_len: Some(16_384),
            prefix_caching: false,
            ..EngineShape::default()
        },
        n_replicas: 1,
        price_usd_per_hour_per_replica: None,
    };
    let demand = Demand {
        workload: profile,
        class: JobClass::Online,
        slo: &slo,
        rate_rps_per_replica: rate,
        batch_concurrency: None,
    };
    let Answer::Prediction(prediction) = predict(&deployment, &demand) else {
        panic!()
    };
    let measured = simulate(&deployment, &demand, 600.0);
    check(&prediction, &measured);
}

fn within(said: Option<f64>, seen: f64, share: f64) {
    let said = said.unwrap();
    assert!(
        (said - seen).abs() <= share * seen,
        "said {said}, simulated {seen}"
    );
}

#[test]
fn steady_states_agree_with_the_simulation() {
    // The simulation has no front end.
    let front_end_ms = profile()
        .constants
        .engine(EngineGeneration::default())
        .first_token_overhead_ms;
    for rate in [2.0, 8.0, 16.0] {
        case(rate, 256, |p, m| {
            within(p.mediators.get(Mediator::RunningRequests), m.live, 0.15);
            within(p.tpot_mean_ms, m.tpot_ms, 0.15);
            within(p.ttft_mean_ms.map(|t| t - front_end_ms), m.ttft_ms, 0.25);
            // Buckets are coarse: 60, 80 and 100 ms are neighbouring edges.
            within(
                p.outcomes.get(Outcome::P99TtftMs),
                m.p99_ttft_ms + front_end_ms,
                0.35,
            );
        });
    }
}

/// The tail of a request's mean time per token comes from prompts that arrive while it generates:
/// longer ones, more at once, and the more so for short answers.
#[test]
fn tails_of_token_times_agree_with_the_simulation() {
    for (isl, osl) in [
        (log_normal(500.0, 1_500.0), log_normal(200.0, 600.0)),
        (log_normal(800.0, 5_000.0), log_normal(200.0, 600.0)),
        (log_normal(500.0, 1_500.0), log_normal(60.0, 400.0)),
        (log_normal(800.0, 5_000.0), log_normal(60.0, 400.0)),
    ] {
        for peak_to_mean in [1.0, 3.0] {
            for rate in [2.0, 6.0] {
                let mut profile = workload(isl, osl);
                profile.peak_to_mean = peak_to_mean;
                if peak_to_mean > 1.0 {
                    profile.arrival_pattern = ArrivalPattern::Bursty;
                }
                case_of(&profile, (rate, 256), |p, m| {
                    let said = p.latency.tpot.unwrap().p99_ms();
                    println!(
                        "prompts to {} answers to {} burst {peak_to_mean} rate {rate}: mean {:.2} simulated {:.2}, p99 {said:.2} simulated {:.2}",
                        isl.p95,
                        osl.p95,
                        p.tpot_mean_ms.unwrap(),
                        m.tpot_ms,
                        m.p99_tpot_ms
                    );
                    within(Some(said), m.p99_tpot_ms, 0.35);
                });
            }
        }
    }
}

#[test]
fn waiting_for_slots_agrees_near_capacity() {
    // 32 slots give about 13 requests per second.
    case(11.5, 32, |p, m| {
        assert!(!p.saturated);
        within(p.mediators.get(Mediator::RunningRequests), m.live, 0.2);
        let (said, seen) = (p.mediators.get(Mediator::QueueDepth).unwrap(), m.queue);
        assert!(
            said / seen < 3.0 && seen / said < 3.0,
            "queue: said {said}, simulated {seen}"
        );
    });
}

#[test]
fn beyond_capacity_the_simulated_queue_grows_and_the_prediction_is_saturated() {
    case(25.0, 32, |p, m| {
        assert!(p.saturated);
        assert!(m.queue > 500.0 && m.p99_ttft_ms > 60_000.0, "{m:?}");
        assert_eq!(p.ttft_mean_ms, None);
        assert_eq!(p.mediators.get(Mediator::QueueDepth), None);
        within(p.mediators.get(Mediator::RunningRequests), m.live, 0.05);
    });
}
