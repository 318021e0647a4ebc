//! Runs the configurations of every job on several threads and asks the surrogate about the same workloads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use koi_core::job::{JobClass, Slo, Workload as JobWorkload};
use koi_core::surrogate::{Answer, Demand, Deployment, Prediction, predict};
use koi_sim::engine::EngineConfig;
use koi_sim::truth::Truth;
use koi_sim::workload::Planned;

use super::Quantity;
use super::scenario::{Case, Scenario, told};
use super::simulate::{at_rate, open_loop, requests, saturated, span_s};
use crate::statistics::median;

/// Capacity runs have this many times the requests.
const CAPACITY_FACTOR: usize = 4;
/// Least requests of a capacity run: three times what is kept in the engine.
const MIN_CAPACITY_REQUESTS: usize = 1_536;

/// An open run has this many times the requests that the engine would hold at its load, so that
/// most of it is steady.
const STEADY_FACTOR: f64 = 3.0;

/// Configurations that would be busier than this at a rate are left out: what they queue says more
/// about the length of the run than about them.
const MAX_LOAD: f64 = 0.9;

/// One comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) environment: &'static str,
    /// Job and load level: configurations are ranked within it.
    pub(super) group: (usize, usize),
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
    /// Capacities that were the rate of arrivals in part; they say nothing about either model.
    pub(super) n_starved: usize,
}

/// Runs every configuration of every job.
pub(super) fn all(
    cases: &[Case<'_>],
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
                    let Some(case) = cases.get(index) else {
                        return;
                    };
                    let result = one(index, case, n_requests, loads);
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

impl Outcome {
    fn add(&mut self, other: Self) {
        self.n_run += other.n_run;
        self.n_unfit += other.n_unfit;
        self.n_fit_differs += other.n_fit_differs;
        self.n_unmeasured += other.n_unmeasured;
        self.n_starved += other.n_starved;
        self.samples.extend(other.samples);
    }
}

/// A configuration that starts, and its true capacity.
struct Runs<'a, 'm> {
    scenario: &'a Scenario<'m>,
    engine: (EngineConfig, Truth),
    capacity_rps: f64,
    sequences: f64,
}

fn one(index: usize, case: &Case<'_>, n_requests: usize, loads: &[f64]) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut running = Vec::new();
    for scenario in &case.scenarios {
        running.extend(at_capacity(index, scenario, n_requests, &mut outcome)?);
    }
    let capacities: Vec<f64> = running.iter().map(|r| r.capacity_rps).collect();
    let Some(middle) = median(&capacities) else {
        return Ok(outcome);
    };
    for (i, load) in loads.iter().enumerate() {
        let rate = load * middle;
        for runs in running.iter().filter(|r| rate < MAX_LOAD * r.capacity_rps) {
            let seed = runs.scenario.seed ^ ((i as u64 + 1) << 40);
            let steady = STEADY_FACTOR * rate / runs.capacity_rps * runs.sequences;
            let workload = at_rate(&runs.scenario.workload, rate);
            let planned = requests(&workload, seed, n_requests.max(steady as usize));
            match at_load((index, i + 1), runs, &planned)? {
                Some(samples) => outcome.samples.extend(samples),
                None => outcome.n_unmeasured += 1,
            }
        }
    }
    Ok(outcome)
}

/// Runs a configuration full; `None` where it does not start, or the surrogate says so.
fn at_capacity<'a, 'm>(
    index: usize,
    scenario: &'a Scenario<'m>,
    n_requests: usize,
    outcome: &mut Outcome,
) -> anyhow::Result<Option<Runs<'a, 'm>>> {
    let n_capacity = (CAPACITY_FACTOR * n_requests).max(MIN_CAPACITY_REQUESTS);
    let full = requests(&scenario.workload, scenario.seed, n_capacity);
    let workload = told(&full, 0.0);
    let prediction = predicted(scenario, &workload, 0.0);
    let engine = scenario.engine()?;
    outcome.n_fit_differs += usize::from(engine.is_some() != prediction.is_some());
    outcome.n_unfit += usize::from(engine.is_none());
    let (Some(engine), Some(prediction)) = (engine, prediction) else {
        return Ok(None);
    };
    outcome.n_run += 1;
    let Some(capacity) = saturated(&engine.0, &engine.1, &full)? else {
        outcome.n_unmeasured += 1;
        return Ok(None);
    };
    if capacity.was_starved {
        outcome.n_starved += 1;
    } else {
        outcome.samples.push(scenario.sample(
            (index, 0),
            Quantity::Throughput,
            Some(prediction.max_tokens_per_sec),
            capacity.tokens_per_second,
        ));
    }
    Ok(Some(Runs {
        scenario,
        engine,
        capacity_rps: capacity.tokens_per_second / workload.osl.mean,
        sequences: capacity.sequences,
    }))
}

/// Runs one load level; `None` when nothing could be measured.
fn at_load(
    group: (usize, usize),
    runs: &Runs<'_, '_>,
    planned: &[Planned],
) -> anyhow::Result<Option<[Sample; 2]>> {
    let (scenario, (config, truth)) = (runs.scenario, &runs.engine);
    let span = span_s(planned);
    let Some(observed) = open_loop(config, truth, planned)?.filter(|_| span > 0.0) else {
        return Ok(None);
    };
    // The surrogate is told the rate that was drawn, as it would be told the measured one.
    let rate = planned.len() as f64 / span;
    let prediction = predicted(scenario, &told(planned, rate), rate);
    let said = |of: fn(&Prediction) -> Option<f64>| prediction.as_ref().and_then(of);
    Ok(Some([
        scenario.sample(
            group,
            Quantity::TpotMean,
            said(|p| p.tpot_mean_ms),
            observed.tpot_mean_ms,
        ),
        scenario.sample(
            group,
            Quantity::TtftMean,
            said(|p| p.ttft_mean_ms),
            observed.ttft_mean_ms,
        ),
    ]))
}

pub(super) fn predicted(
    scenario: &Scenario<'_>,
    workload: &JobWorkload,
    rate: f64,
) -> Option<Prediction> {
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
    fn sample(
        &self,
        group: (usize, usize),
        quantity: Quantity,
        predicted: Option<f64>,
        truth: f64,
    ) -> Sample {
        Sample {
            environment: self.environment,
            group,
            quantity,
            predicted,
            truth,
        }
    }
}
