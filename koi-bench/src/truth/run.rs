//! Runs the scenarios on several threads and asks the surrogate about the same workloads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use koi_core::job::{JobClass, Slo, Workload as JobWorkload};
use koi_core::surrogate::{Answer, Demand, Deployment, Prediction, predict};
use koi_sim::engine::EngineConfig;
use koi_sim::truth::Truth;
use koi_sim::workload::Planned;

use super::Quantity;
use super::scenario::{Scenario, told};
use super::simulate::{at_rate, open_loop, requests, saturated, span_s};

/// Capacity runs have this many times the requests.
const CAPACITY_FACTOR: usize = 4;
/// Least requests of a capacity run: three times what is kept in the engine.
const MIN_CAPACITY_REQUESTS: usize = 1_536;

/// An open run has this many times the requests that the engine would hold at its load, so that
/// most of it is steady.
const STEADY_FACTOR: f64 = 3.0;

/// One comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) environment: &'static str,
    pub(super) quantity: Quantity,
    /// Absent when the surrogate takes the engine for saturated.
    pub(super) predicted: Option<f64>,
    pub(super) truth: f64,
}

/// All comparisons and what was left out.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) samples: Vec<Sample>,
    pub(super) n_run: usize,
    pub(super) n_unfit: usize,
    /// The engine starts and the surrogate says it would not, or the other way round.
    pub(super) n_fit_differs: usize,
    /// Load levels at which nothing finished.
    pub(super) n_unmeasured: usize,
}

/// Runs every scenario.
pub(super) fn all(
    scenarios: &[Scenario<'_>],
    n_requests: usize,
    loads: &[f64],
    threads: Option<usize>,
) -> anyhow::Result<Outcome> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or(processors).clamp(1, 64);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scenario) = scenarios.get(index) else {
                        return;
                    };
                    let result = one(scenario, n_requests, loads);
                    let mut results = results.lock().unwrap_or_else(|e| e.into_inner());
                    results.push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(|e| e.into_inner());
    results.sort_by_key(|(index, _)| *index);
    let mut outcome = Outcome::default();
    for (_, result) in results {
        outcome.add(result?);
    }
    Ok(outcome)
}

/// Whether the engine started, whether the surrogate said so, and the comparisons.
struct Ran {
    started: bool,
    said_to_fit: bool,
    samples: Vec<Sample>,
    n_unmeasured: usize,
}

impl Outcome {
    fn add(&mut self, ran: Ran) {
        self.n_run += usize::from(ran.started && ran.said_to_fit);
        self.n_unfit += usize::from(!ran.started);
        self.n_fit_differs += usize::from(ran.started != ran.said_to_fit);
        self.n_unmeasured += ran.n_unmeasured;
        self.samples.extend(ran.samples);
    }
}

fn one(scenario: &Scenario<'_>, n_requests: usize, loads: &[f64]) -> anyhow::Result<Ran> {
    let n_capacity = (CAPACITY_FACTOR * n_requests).max(MIN_CAPACITY_REQUESTS);
    let full = requests(&scenario.workload, scenario.seed, n_capacity);
    let workload = told(&full, 0.0);
    let full_prediction = ask(scenario, &workload, 0.0);
    let mut ran = Ran {
        started: false,
        said_to_fit: full_prediction.is_some(),
        samples: Vec::new(),
        n_unmeasured: 0,
    };
    let Some((config, truth)) = scenario.engine()? else {
        return Ok(ran);
    };
    ran.started = true;
    let (Some(prediction), Some(capacity)) = (full_prediction, saturated(&config, &truth, &full)?)
    else {
        return Ok(ran);
    };
    ran.samples.push(scenario.sample(
        Quantity::Throughput,
        Some(prediction.max_tokens_per_sec),
        capacity.tokens_per_second,
    ));
    for (i, load) in loads.iter().enumerate() {
        let rate = load * capacity.tokens_per_second / workload.osl.mean;
        let seed = scenario.seed ^ ((i as u64 + 1) << 40);
        let steady = (STEADY_FACTOR * load * capacity.sequences) as usize;
        let workload = at_rate(&scenario.workload, rate);
        let planned = requests(&workload, seed, n_requests.max(steady));
        match at_load(scenario, (&config, &truth), &planned)? {
            Some(samples) => ran.samples.extend(samples),
            None => ran.n_unmeasured += 1,
        }
    }
    Ok(ran)
}

/// Runs one load level; `None` when nothing could be measured.
fn at_load(
    scenario: &Scenario<'_>,
    (config, truth): (&EngineConfig, &Truth),
    planned: &[Planned],
) -> anyhow::Result<Option<[Sample; 2]>> {
    let span = span_s(planned);
    let Some(observed) = open_loop(config, truth, planned)?.filter(|_| span > 0.0) else {
        return Ok(None);
    };
    // The surrogate is told the rate that was drawn, as it would be told the measured one.
    let rate = planned.len() as f64 / span;
    let prediction = ask(scenario, &told(planned, rate), rate);
    let said = |of: fn(&Prediction) -> Option<f64>| prediction.as_ref().and_then(of);
    Ok(Some([
        scenario.sample(
            Quantity::TpotMean,
            said(|p| p.tpot_mean_ms),
            observed.tpot_mean_ms,
        ),
        scenario.sample(
            Quantity::TtftMean,
            said(|p| p.ttft_mean_ms),
            observed.ttft_mean_ms,
        ),
    ]))
}

fn ask(scenario: &Scenario<'_>, workload: &JobWorkload, rate: f64) -> Option<Prediction> {
    let deployment = Deployment {
        model: &scenario.model.facts,
        gpu: scenario.gpu,
        shape: scenario.shape,
        n_replicas: 1,
        price_usd_per_hour_per_replica: None,
    };
    let demand = Demand {
        workload,
        class: JobClass::Online,
        slo: &Slo::Online {
            p99_ttft_ms: Some(2_000.0),
            p99_tpot_ms: Some(100.0),
        },
        rate_rps_per_replica: rate,
        batch_concurrency: None,
    };
    match predict(&deployment, &demand) {
        Answer::Prediction(prediction) => Some(prediction),
        Answer::DoesNotFit(_) | Answer::Unsupported(_) => None,
    }
}

impl Scenario<'_> {
    fn sample(&self, quantity: Quantity, predicted: Option<f64>, truth: f64) -> Sample {
        Sample {
            environment: self.environment,
            quantity,
            predicted,
            truth,
        }
    }
}
