//! A small discrete-event simulation of the same engine, to hold the queue model against.
//!
//! It schedules requests one by one (admission, chunked prompts, one token per iteration) with the
//! same step times, so what differs is only the steady-state and queueing arithmetic.

use super::operating_point::{Machine, Traffic};
use super::roofline::StepWork;
use super::tests::{facts, gpu, online_slo, workload};
use super::*;
use crate::job::LengthStats;
use crate::variables::Mediator;

/// Means over a run.
#[derive(Debug)]
struct Measured {
    live: f64,
    queue: f64,
    ttft_ms: f64,
    tpot_ms: f64,
    p99_ttft_ms: f64,
}

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

fn simulate(deployment: &Deployment<'_>, demand: &Demand<'_>, seconds: f64) -> Measured {
    let memory = MemoryBreakdown::of(deployment.model, deployment.gpu, &deployment.shape);
    let traffic = Traffic::of(deployment, demand, &memory);
    let machine = Machine::of(deployment);
    let shape = deployment.shape;
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let (mut now, mut next_arrival) = (0.0, 0.0);
    let (mut waiting, mut live): (Vec<Request>, Vec<Request>) = (Vec::new(), Vec::new());
    let (mut live_time, mut queue_time) = (0.0, 0.0);
    let (mut ttfts, mut tpots) = (Vec::new(), Vec::new());
    while now < seconds {
        while next_arrival <= now {
            waiting.push(Request {
                arrival: next_arrival,
                prompt_left: dice.log_normal(&demand.workload.isl),
                output_left: dice.log_normal(&demand.workload.osl),
                first_token: None,
                output: 0.0,
            });
            next_arrival += dice.exponential(1.0 / demand.rate_rps_per_replica);
        }
        let mut budget = f64::from(shape.max_num_batched_tokens)
            - live.iter().filter(|r| r.prompt_left <= 0.0).count() as f64;
        let mut prefill = 0.0;
        let decoding = live.iter().filter(|r| r.prompt_left <= 0.0).count() as f64;
        let mut take = |request: &mut Request| {
            let chunk = request.prompt_left.min(budget);
            request.prompt_left -= chunk;
            budget -= chunk;
            prefill += chunk;
        };
        for request in live.iter_mut().filter(|r| r.prompt_left > 0.0) {
            take(request);
        }
        while live.len() < shape.max_num_seqs as usize && !waiting.is_empty() && budget > 0.0 {
            let mut request = waiting.remove(0);
            let chunk = request.prompt_left.min(budget);
            request.prompt_left -= chunk;
            budget -= chunk;
            prefill += chunk;
            live.push(request);
        }
        if live.is_empty() {
            now = next_arrival;
            continue;
        }
        let work = StepWork {
            decode_seqs: decoding,
            decode_context: traffic.context,
            prefill_tokens: prefill,
            prefill_context: traffic.prefill_context,
        };
        let (step, _) = machine.iteration(work, 1.0);
        live_time += step * live.len() as f64;
        queue_time += step * waiting.len() as f64;
        now += step;
        for request in live.iter_mut().filter(|r| r.prompt_left <= 0.0) {
            request.first_token.get_or_insert(now);
            request.output += 1.0;
            request.output_left -= 1.0;
        }
        for done in live.extract_if(.., |r| r.prompt_left <= 0.0 && r.output_left <= 0.0) {
            let first = done.first_token.unwrap();
            ttfts.push((first - done.arrival) * 1e3);
            if done.output > 1.0 {
                tpots.push((now - first) * 1e3 / (done.output - 1.0));
            }
        }
    }
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    ttfts.sort_by(f64::total_cmp);
    Measured {
        live: live_time / now,
        queue: queue_time / now,
        ttft_ms: mean(&ttfts),
        tpot_ms: mean(&tpots),
        p99_ttft_ms: ttfts[ttfts.len() * 99 / 100],
    }
}

fn case(rate: f64, max_num_seqs: u32, check: impl Fn(&Prediction, &Measured)) {
    let model = facts("Llama-3.1-8B");
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
    let profile = workload(isl, osl);
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
        workload: &profile,
        class: JobClass::Online,
        slo: &slo,
        rate_rps_per_replica: rate,
        batch_concurrency: None,
    };
    let Answer::Prediction(prediction) = predict(&deployment, &demand) else {
        panic!()
    };
    let measured = simulate(&deployment, &demand, 600.0);
    eprintln!(
        "rate {rate} slots {max_num_seqs}: {measured:?}; said live {:?} queue {:?} ttft {:?} tpot {:?} capacity {:.2}",
        prediction.mediators.get(Mediator::RunningRequests),
        prediction.mediators.get(Mediator::QueueDepth),
        prediction.ttft_mean_ms,
        prediction.tpot_mean_ms,
        prediction.capacity_rps,
    );
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
    for rate in [2.0, 8.0, 16.0] {
        case(rate, 256, |p, m| {
            within(p.mediators.get(Mediator::RunningRequests), m.live, 0.15);
            within(p.tpot_mean_ms, m.tpot_ms, 0.15);
            // The simulation has no front end.
            within(p.ttft_mean_ms.map(|t| t - 8.0), m.ttft_ms, 0.40);
        });
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
