//! The small world: jobs, places, swaps, and evidence rows as S2 makes them.

mod stories;

use std::collections::BTreeMap;

pub(super) use stories::claims;
use stories::{EDGES, mechanisms};

use super::super::counterfactual::Point;
use super::super::life::Life;
use super::super::*;
use crate::catalog::{Catalog, Value};
use crate::causal::{Belief, BeliefEvent, BeliefKey, CausalModel, fan_out, replay};
use crate::configuration::ConfigurationDraft;
use crate::ids::{Generation, JobId, TickId};
use crate::job::{ArrivalPattern, JobClass, LengthStats, Slo, Workload};
use crate::model::ModelFacts;
use crate::params::Params;
use crate::rng::Rng;
use crate::time::UtcMicros;
use crate::validation::cusum::Verdict;
use crate::validation::evidence::testing::{row, verdict};
use crate::validation::evidence::{EvidenceRow, Exercise, VariableVerdict};
use crate::validation::residual::Variable;
use crate::validation::{Quadrant, UpdateTable};
use crate::variables::{Mediator, MediatorValues, Outcome};

pub(super) const ENVIRONMENTS: [&str; 6] = [
    "reserved/aws/us-east-1/a/H100",
    "spot/aws/us-east-1/b/H100",
    "on_demand/gcp/us-central1/a/H100",
    "reserved/lab/eu/hall/H100",
    "spot/gcp/us-central1/b/H100",
    "on_demand/aws/eu-west-1/a/H100",
];
/// The place where `api_server_count` works.
pub(super) const SPECIAL: usize = 2;
const JOBS: usize = 24;
const NOISE: f64 = 0.05;

/// The settings that swaps change, with the values they take.
const KNOBS: [(&str, [f64; 4]); 4] = [
    ("max_num_seqs", [32.0, 64.0, 128.0, 192.0]),
    ("gpu_memory_utilization", [0.45, 0.6, 0.75, 0.95]),
    ("swap_space_gib", [1.0, 2.0, 4.0, 8.0]),
    ("api_server_count", [1.0, 2.0, 4.0, 8.0]),
];

struct Job {
    id: JobId,
    environment: usize,
    generation: u32,
    /// Position of each knob's value.
    knobs: [usize; 4],
    shift: f64,
}

pub(super) struct World {
    pub(super) model: CausalModel,
    pub(super) book: ContrastBook,
    /// By tick.
    pub(super) rows: Vec<Vec<EvidenceRow>>,
    pub(super) events: Vec<BeliefEvent>,
    jobs: Vec<Job>,
    rng: Rng,
    shifts: [f64; 6],
    facts: ModelFacts,
    is_on: bool,
}

fn lengths(mean: f64) -> LengthStats {
    LengthStats {
        mean,
        p50: mean,
        p95: mean,
        p99: mean,
    }
}

fn workload() -> Workload {
    Workload {
        arrival_rate_rps: 0.0,
        arrival_pattern: ArrivalPattern::Poisson,
        peak_to_mean: 1.0,
        isl: lengths(300.0),
        osl: lengths(150.0),
        shared_prefix_tokens: 0.0,
        prefix_concentration: 0.0,
        multi_turn_ratio: 0.0,
        session_affinity: false,
    }
}

impl World {
    pub(super) fn new(seed: u64, is_on: bool) -> Self {
        let catalog = Catalog::embedded();
        let kind_of = |name: &str| crate::causal::graph::id_kind(catalog, name);
        let mechanisms = mechanisms();
        let files = [("mechanisms/test.toml", mechanisms.as_str())];
        let model = CausalModel::load(EDGES, &files, &kind_of).unwrap();
        let mut rng = Rng::from_seed(seed);
        let jobs = (0..JOBS)
            .map(|n| Job {
                id: JobId(uuid::Uuid::from_u128(n as u128 + 1)),
                environment: rng.below(ENVIRONMENTS.len()),
                generation: 1,
                knobs: std::array::from_fn(|_| rng.below(4)),
                shift: 0.2 * normal(&mut rng),
            })
            .collect();
        let shifts = std::array::from_fn(|_| 0.25 * normal(&mut rng));
        let config = include_str!("../../../../../configs/models/Llama-3.1-8B.json");
        Self {
            model,
            book: ContrastBook::default(),
            rows: Vec::new(),
            events: Vec::new(),
            jobs,
            rng,
            shifts,
            facts: ModelFacts::from_config_json(config).unwrap(),
            is_on,
        }
    }

    pub(super) fn belief(&self, mechanism: &str) -> Belief {
        let key = BeliefKey::Mechanism(mechanism.to_owned());
        replay(&self.model.seed_beliefs(), &self.events)[&key]
    }

    pub(super) fn run(&mut self, ticks: i64) {
        let from = self.rows.len() as i64;
        for tick in from..from + ticks {
            if tick > 0 {
                self.swap(if tick < 60 { 10 } else { 2 });
            }
            self.tick(TickId(tick));
        }
    }

    /// Slopes and verdicts of every edge and place, and what is believed.
    pub(super) fn report(&self) -> String {
        let errors = errors::ChangeErrors::of(&self.book);
        let mut text = format!("after {} ticks", self.rows.len());
        for id in claims() {
            text += &format!("\n  {id}: {:.3}", self.belief(id).mean());
        }
        for (key, sums) in self.book.sums() {
            let Some(edge) = self.model.edge(&key.edge) else {
                continue;
            };
            let Some(judged) = judgement::edge_judgement(edge, sums, &errors) else {
                continue;
            };
            let claim = errors.claim(edge, sums).unwrap();
            text += &format!(
                "\n  {} in {}: n {} {:?} {:?} s0 {:.3}",
                key.edge,
                key.environment,
                judged.n,
                judged.effect.map(|e| (e.slope, e.standard_error)),
                judged.verdict,
                claim.surrogate_error
            );
        }
        text
    }

    /// Some jobs get other values of one to four knobs, and some another place.
    fn swap(&mut self, n: usize) {
        for _ in 0..n {
            let at = self.rng.below(JOBS);
            let n_knobs = 1 + self.rng.below(4);
            let job = &mut self.jobs[at];
            for _ in 0..n_knobs {
                job.knobs[self.rng.below(4)] = self.rng.below(4);
            }
            if self.rng.unit() < 0.3 {
                job.environment = self.rng.below(ENVIRONMENTS.len());
            }
            job.generation += 1;
        }
    }

    fn tick(&mut self, tick: TickId) {
        let mut rows: Vec<EvidenceRow> = (0..JOBS).map(|at| self.judged(tick, at)).collect();
        if self.is_on {
            let ctx = CompareContext {
                catalog: Catalog::embedded(),
                model: &self.model,
                params: &Params::default(),
                residual_invariance: &BTreeMap::new(),
            };
            compare(&self.book, &mut rows, ctx);
        }
        let table = UpdateTable::embedded().unwrap();
        let moved = fan_out(&rows, &self.model, &table, &Params::default());
        self.events.extend(moved);
        let (book, update) = fold_tick(&self.book, tick, &rows);
        // What a store writes down is what S3 computed.
        let mut written = self.book.clone();
        written.write(&update).unwrap();
        assert_eq!(written, book);
        self.book = book;
        self.rows.push(rows);
    }

    /// A row in which CUSUM saw nothing wrong: the surrogate's residuals are all corrected away, as
    /// they are on a fleet it has learned.
    fn judged(&mut self, tick: TickId, at: usize) -> EvidenceRow {
        let subject = self.subject(at);
        let is_on = self.is_on;
        let exercise = if is_on {
            Exercise::Unexercised
        } else {
            Exercise::NotComputed
        };
        let verdicts = claims().map(|id| verdict(id, Some(Quadrant::Q1), exercise));
        let conditions = Conditions {
            in_flight: Some(600.0),
            replicas: Some(1.0),
            ..Conditions::default()
        };
        let mut row = EvidenceRow {
            job: subject.id.job,
            generation: subject.id.generation,
            environment: subject.environment.clone(),
            variables: self.observed(at, &subject),
            ..row(tick.0, verdicts.to_vec())
        };
        let id = subject.id;
        row.deployment = is_on.then(|| DeploymentRow {
            subject: self.book.wants_subject(id).then(|| Box::new(subject)),
            conditions,
            superseded: false,
        });
        row
    }

    fn subject(&self, at: usize) -> Subject {
        let job = &self.jobs[at];
        let mut draft = BTreeMap::new();
        for ((id, values), position) in KNOBS.into_iter().zip(job.knobs) {
            let value = values[position];
            let whole = ["max_num_seqs", "api_server_count"].contains(&id);
            let value = if whole {
                Value::Int(value as i64)
            } else {
                Value::Float(value)
            };
            draft.insert(id.to_owned(), value);
        }
        draft.insert("max_model_len".to_owned(), Value::Int(4096));
        let configuration = Catalog::embedded().configuration(ConfigurationDraft(draft));
        Subject {
            id: DeploymentId {
                job: job.id,
                generation: Generation(job.generation),
                rank: 0,
            },
            environment: ENVIRONMENTS[job.environment].parse().unwrap(),
            configuration: configuration.unwrap(),
            n_replicas: 1,
            model_id: "llama".to_owned(),
            model: self.facts.clone(),
            class: JobClass::Batch,
            slo: Slo::Batch {
                total_token_budget: 1 << 40,
                deadline: UtcMicros(i64::MAX),
            },
            workload: workload(),
        }
    }

    /// What the world shows: the surrogate's answer, bent.
    fn observed(&mut self, at: usize, subject: &Subject) -> BTreeMap<String, VariableVerdict> {
        let mut life = Life::born(TickId(0));
        life.total.conditions[4] = super::super::life::Moments::of(600.0, 0.0);
        let point = Point::of(subject, &life, Catalog::embedded()).unwrap();
        let (said, _) = point.predict(&MediatorValues::absent()).unwrap();
        let job = &self.jobs[at];
        let value = |knob: usize| KNOBS[knob].1[job.knobs[knob]];
        let shift = job.shift + self.shifts[job.environment];
        // The surrogate believes in a full effect of the batch limit and none of API servers.
        let mut bend = shift - 0.15 * (value(0) / 64.0).ln();
        if job.environment == SPECIAL {
            bend += 0.6 * value(3).ln();
        }
        let noise = |rng: &mut Rng| NOISE * normal(rng) / 30.0_f64.sqrt();
        let running = said.get(Mediator::RunningRequests).unwrap();
        let running = running * (bend + noise(&mut self.rng)).exp();
        let used = said.get(Mediator::KvCacheUtil).unwrap();
        let used = used * (1.0 + 0.2 * shift + noise(&mut self.rng));
        let held = MediatorValues::absent().with(Mediator::RunningRequests, running);
        let (_, outcomes) = point.predict(&held).unwrap();
        let throughput = outcomes.get(Outcome::ThroughputTokensPerSec).unwrap();
        let throughput = throughput * (0.5 * shift + noise(&mut self.rng)).exp();
        let seen = [
            (
                Variable::V(Mediator::RunningRequests),
                running,
                said.get(Mediator::RunningRequests),
            ),
            (
                Variable::V(Mediator::KvCacheUtil),
                used,
                said.get(Mediator::KvCacheUtil),
            ),
            (
                Variable::Y(Outcome::ThroughputTokensPerSec),
                throughput,
                outcomes.get(Outcome::ThroughputTokensPerSec),
            ),
        ];
        let of = |(variable, observed, predicted): (Variable, f64, Option<f64>)| {
            let verdict = VariableVerdict {
                points: 30,
                observed_mean: observed,
                predicted_mean: predicted.unwrap(),
                residual_mean: 0.0,
                own_bias: None,
                sigma: Some(NOISE),
                peak: Some(0.0),
                verdict: Some(Verdict::Matched),
                fired_at: None,
            };
            (variable.name().to_owned(), verdict)
        };
        seen.into_iter().map(of).collect()
    }
}

/// A standard normal number, by Box and Muller.
fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.unit()).cos()
}
