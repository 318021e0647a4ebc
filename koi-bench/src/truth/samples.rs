//! The online sample jobs of `koi up` against the hidden truth: on the H100 and A100 hosts of the demo fleet,
//! sized on the uncorrected surrogate's word with the planner's headroom, they stay inside their SLO.
//!
//! Not a claim about L40S, where that word is wrong by a factor of two and experience has to correct it.

use koi_core::catalog::Catalog;
use koi_core::configuration::EngineShape;
use koi_core::params::Params;
use koi_core::variables::Outcome;
use koi_sim::histogram::Histogram;
use koi_sim::workload::{Arrivals, Lengths, Workload};

use super::run::predicted;
use super::scenario::{ENVIRONMENTS, Model, Scenario, models, told};
use super::simulate::{requests, window};

/// What `configs/jobs` says of an online job.
struct Sample {
    model: &'static str,
    rate_rps: f64,
    peak_to_mean: f64,
    prompt: Lengths,
    answer: Lengths,
    prefix: (u32, u32),
    p99_ttft_ms: f64,
    p99_tpot_ms: f64,
    /// One device of 80 GB holds 32B parameters but hardly any cache.
    least_tp: u32,
    max_replicas: u32,
}

const fn lengths(mean_tokens: f64, log_spread: f64, max_tokens: u32) -> Lengths {
    Lengths {
        mean_tokens,
        log_spread,
        min_tokens: 8,
        max_tokens,
    }
}

const CHAT: Sample = Sample {
    model: "Llama-3.1-8B",
    rate_rps: 12.0,
    peak_to_mean: 1.3,
    prompt: lengths(993.0, 0.57, 8_000),
    answer: lengths(197.0, 0.56, 2_000),
    prefix: (0, 1),
    p99_ttft_ms: 2_500.0,
    p99_tpot_ms: 75.0,
    least_tp: 1,
    max_replicas: 8,
};

const RAG: Sample = Sample {
    model: "Qwen3-32B",
    rate_rps: 1.5,
    peak_to_mean: 1.2,
    prompt: lengths(3_436.0, 0.26, 8_000),
    answer: lengths(148.0, 0.45, 1_000),
    prefix: (2_048, 40),
    p99_ttft_ms: 5_000.0,
    p99_tpot_ms: 100.0,
    least_tp: 2,
    max_replicas: 4,
};

/// Requests of one run.
const N: usize = 800;

impl Sample {
    fn workload(&self, n_replicas: u32) -> Workload {
        Workload {
            arrivals: Arrivals::Poisson {
                rate_rps: self.rate_rps / f64::from(n_replicas),
            },
            prompt: self.prompt,
            answer: self.answer,
            shared_prefix_tokens: self.prefix.0,
            n_prefixes: self.prefix.1,
        }
    }

    /// The narrowest engine that starts, and the fewest of them that the surrogate finds inside the SLO with
    /// the planner's headroom at peak.
    fn planned<'a>(
        &self,
        environment: &'static str,
        model: &'a Model,
    ) -> Option<(Scenario<'a>, u32)> {
        let id = environment.rsplit('/').next()?;
        let gpu = Catalog::embedded().gpu_type(id)?;
        let scenario = |tp, n| Scenario {
            environment,
            gpu,
            model,
            shape: EngineShape {
                tp,
                max_model_len: Some(16_384),
                ..EngineShape::default()
            },
            workload: self.workload(n),
            seed: 7,
        };
        let choices = [1, 2, 4]
            .iter()
            .filter(|tp| **tp >= self.least_tp)
            .flat_map(|tp| (1..=self.max_replicas).map(|n| (*tp, n)));
        choices
            .map(|(tp, n)| (scenario(tp, n), n))
            .find(|(s, n)| s.engine().unwrap().is_some() && self.is_inside(s, *n))
    }

    fn is_inside(&self, scenario: &Scenario<'_>, n: u32) -> bool {
        let planned = requests(&scenario.workload, scenario.seed, N);
        let peak = self.peak_to_mean * self.rate_rps / f64::from(n);
        let Some(prediction) = predicted(scenario, &told(&planned, peak), peak) else {
            return false;
        };
        let under = |outcome, limit| {
            prediction
                .outcomes
                .get(outcome)
                .is_some_and(|ms| ms < limit)
        };
        peak <= Params::default().utilization_max * prediction.capacity_rps
            && under(Outcome::P99TtftMs, self.p99_ttft_ms)
            && under(Outcome::P99TpotMs, self.p99_tpot_ms)
    }
}

/// Milliseconds below which 99 % of the newer observations lie, as the upper edge of their bucket.
fn p99_ms(before: &Histogram, after: &Histogram) -> f64 {
    let counts = after.counts.iter().zip(&before.counts).map(|(a, b)| a - b);
    let needed = 0.99 * (after.count() - before.count()) as f64;
    let mut seen = 0;
    let bucket = counts.take_while(|n| {
        let is_below = (seen as f64) < needed;
        seen += n;
        is_below
    });
    let last = bucket.count().saturating_sub(1);
    1_000.0 * after.edges.get(last).copied().unwrap_or(f64::INFINITY)
}

fn check(sample: &Sample) {
    let models = models().unwrap();
    let model = models.iter().find(|m| m.name == sample.model).unwrap();
    let mut outside = Vec::new();
    for environment in &ENVIRONMENTS[..4] {
        let Some((scenario, n)) = sample.planned(environment, model) else {
            panic!(
                "the surrogate finds no way for {} on {environment}",
                sample.model
            );
        };
        let (config, truth) = scenario.engine().unwrap().unwrap();
        let planned = requests(&scenario.workload, scenario.seed, N);
        let (before, after) = window(&config, &truth, &planned).unwrap().unwrap();
        let ttft = p99_ms(&before.time_to_first_token_s, &after.time_to_first_token_s);
        let tpot = p99_ms(
            &before.request_time_per_output_token_s,
            &after.request_time_per_output_token_s,
        );
        let what = format!(
            "{} on {environment}, {n} × tp {}",
            sample.model, scenario.shape.tp
        );
        println!("{what}: p99 TTFT ≤ {ttft:.0} ms, p99 TPOT ≤ {tpot:.0} ms");
        if ttft > sample.p99_ttft_ms || tpot > sample.p99_tpot_ms {
            outside.push(what);
        }
    }
    assert!(outside.is_empty(), "{outside:?}");
}

#[test]
fn chat_stays_inside_its_slo() {
    check(&CHAT);
}

#[test]
fn rag_stays_inside_its_slo() {
    check(&RAG);
}
