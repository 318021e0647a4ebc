//! Rows to be judged: what was seen and what was predicted, of the size that floor F9 is stated for,
//! over mechanisms of the catalog.

use std::collections::BTreeSet;

use anyhow::anyhow;
use koi_core::catalog::Catalog;
use koi_core::causal::scope::ScopeMatch;
use koi_core::causal::{Applicable, CausalModel, MechanismStatus};
use koi_core::environment::Environment;
use koi_core::ids::{Generation, JobId, TickId};
use koi_core::model::ModelClass;
use koi_core::params::Params;
use koi_core::rng::Rng;
use koi_core::time::UtcMicros;
use koi_core::validation::OwnBias;
use koi_core::validation::residual::Variable;
use koi_core::validation::{
    Basis, Calibration, EvidenceRow, RankValidationInput, Statistics, validate_rank,
};
use koi_core::variables::{MediatorValues, OutcomeValues};

/// Variables and points of a row, and the mechanisms that speak about it.
pub(super) const VARIABLES: usize = 12;
pub(super) const POINTS: usize = 20;
pub(super) const MECHANISMS: usize = 6;
/// Different rows; more of them repeat with another name.
const SAMPLES: usize = 1_000;
/// Ticks of rows from which thresholds are calibrated.
const CALIBRATION_TICKS: i64 = 40;
const ENGINE: &str = "vllm 0.10.2";

type Point = (MediatorValues, OutcomeValues);

/// What one row is judged from.
struct Sample {
    observed: Vec<Point>,
    predicted: Vec<Point>,
}

/// Mechanisms, places and samples.
pub(super) struct World {
    pub(super) model: CausalModel,
    pub(super) params: Params,
    pub(super) calibration: Calibration,
    /// Every row is the first of its deployment.
    own_bias: OwnBias,
    /// Edges that the mechanisms carry, once for each mechanism.
    pub(super) n_edges: usize,
    applicable: Vec<Applicable>,
    environments: Vec<Environment>,
    samples: Vec<Sample>,
}

impl World {
    pub(super) fn new(environments: usize, seed: u64) -> anyhow::Result<Self> {
        let model = CausalModel::embedded(Catalog::embedded())
            .map_err(|e| anyhow!("the catalog is wrong: {e:?}"))?;
        let mut rng = Rng::stream(seed, "bench.evidence");
        let (ids, mut variables) = choose(&model);
        anyhow::ensure!(ids.len() == MECHANISMS, "only {} mechanisms fit", ids.len());
        let others = Variable::all().filter(|v| !variables.contains(v));
        let others: Vec<Variable> = others.take(VARIABLES - variables.len()).collect();
        variables.extend(others);
        let n_edges = ids.iter().filter_map(|id| model.mechanism(id));
        let n_edges = n_edges.map(|m| m.edges.len()).sum();
        let place = |n: usize| format!("on_demand/cloud/region-{}/zone-{n}/H100", n % 8).parse();
        let places: Result<Vec<Environment>, _> = (0..environments).map(place).collect();
        let applicable = ids.into_iter().map(|id| Applicable {
            id,
            scope_match: ScopeMatch::Exact,
            committed: false,
        });
        let mut world = Self {
            applicable: applicable.collect(),
            environments: places.map_err(|e| anyhow!("{e}"))?,
            samples: (0..SAMPLES).map(|_| sample(&variables, &mut rng)).collect(),
            calibration: Calibration::default(),
            own_bias: OwnBias::default(),
            params: Params::default(),
            model,
            n_edges,
        };
        world.calibration = world.calibrated();
        Ok(world)
    }

    /// Thresholds as this fleet's own residuals give them.
    fn calibrated(&self) -> Calibration {
        let mut statistics = Statistics::default();
        for tick in 1..=CALIBRATION_TICKS {
            for rank in 0..2 {
                let number = tick as usize * 2 + rank;
                let input = self.input(number, TickId(tick), &statistics.calibration);
                let row = validate_rank(&input, &self.model, &self.params);
                let residuals = &mut statistics.residuals;
                residuals.observe(&input, &row, ENGINE, &self.params);
            }
            statistics.step(TickId(tick), &self.params, 1);
        }
        statistics.calibration
    }

    fn input<'a>(
        &'a self,
        number: usize,
        tick: TickId,
        calibration: &'a Calibration,
    ) -> RankValidationInput<'a> {
        let sample = &self.samples[number % self.samples.len()];
        RankValidationInput {
            tick,
            job: JobId(uuid::Uuid::from_u128(1 + number as u128 % 1_000)),
            rank: (number / 1_000) as u32,
            generation: Generation(1),
            environment: &self.environments[number % self.environments.len()],
            observed: &sample.observed,
            predicted: &sample.predicted,
            promised: None,
            applicable: &self.applicable,
            model_class: ModelClass::DenseSmall,
            own_bias: &self.own_bias,
            calibration,
        }
    }

    /// Judges the row of this number in a tick, as S2 does once predictions are there.
    pub(super) fn judge(&self, number: usize, tick: TickId) -> EvidenceRow {
        let input = self.input(number, tick, &self.calibration);
        let mut row = validate_rank(&input, &self.model, &self.params);
        row.basis = Some(Basis {
            engine: ENGINE.to_owned(),
            until: UtcMicros(tick.0 * 300_000_000),
        });
        row
    }

    /// Points of the row of this number, variable by variable: values that both sides have.
    pub(super) fn pairs(&self, number: usize) -> Vec<(Variable, Vec<(f64, f64)>)> {
        let sample = &self.samples[number % self.samples.len()];
        let both = |v: Variable| {
            let points = sample.observed.iter().zip(&sample.predicted);
            let pairs = points.filter_map(|(o, p)| Some((value(v, o)?, value(v, p)?)));
            (v, pairs.collect::<Vec<_>>())
        };
        let all = Variable::all().map(both);
        all.filter(|(_, pairs)| !pairs.is_empty()).collect()
    }
}

fn value(variable: Variable, point: &Point) -> Option<f64> {
    match variable {
        Variable::V(v) => point.0.get(v),
        Variable::Y(y) => point.1.get(y),
    }
}

/// The first mechanisms that together speak about no more variables than a row has.
fn choose(model: &CausalModel) -> (Vec<String>, BTreeSet<Variable>) {
    let (mut ids, mut variables) = (Vec::new(), BTreeSet::new());
    let active = model.mechanisms();
    for mechanism in active.filter(|m| m.status == MechanismStatus::Active) {
        let mediators = mechanism.mediators.iter().map(|v| Variable::V(*v));
        let outcomes = mechanism.outcomes.iter().map(|y| Variable::Y(*y));
        let mut more: BTreeSet<Variable> = variables.clone();
        more.extend(mediators.chain(outcomes));
        if more.len() <= VARIABLES && ids.len() < MECHANISMS {
            variables = more;
            ids.push(mechanism.id.clone());
        }
    }
    (ids, variables)
}

/// Predictions at one level and observations around them, some deployments off by more.
fn sample(variables: &BTreeSet<Variable>, rng: &mut Rng) -> Sample {
    let error: Vec<f64> = variables.iter().map(|_| 0.2 * (rng.unit() - 0.5)).collect();
    let (mut observed, mut predicted) = (Vec::new(), Vec::new());
    for _ in 0..POINTS {
        let (mut o, mut p) = (blank(), blank());
        for (variable, error) in variables.iter().zip(&error) {
            let noise = 0.1 * (rng.unit() - 0.5);
            let level = if variable.is_log_scale() { 100.0 } else { 0.5 };
            put(*variable, &mut p, level);
            put(*variable, &mut o, level * (1.0 + error + noise));
        }
        observed.push(o);
        predicted.push(p);
    }
    Sample {
        observed,
        predicted,
    }
}

fn blank() -> Point {
    (MediatorValues::absent(), OutcomeValues::absent())
}

fn put(variable: Variable, point: &mut Point, value: f64) {
    match variable {
        Variable::V(v) => point.0.set(v, Some(value)),
        Variable::Y(y) => point.1.set(y, Some(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_of_the_size_that_the_floor_is_stated_for() {
        let world = World::new(3, 1).unwrap();
        let row = world.judge(7, TickId(1));
        assert_eq!(row.variables.len(), VARIABLES);
        assert_eq!(row.mechanisms.len(), MECHANISMS);
        assert!(row.variables.values().all(|v| v.points == POINTS as u32));
        assert!(row.mechanisms.iter().any(|m| m.quadrant.is_some()));
        assert!((12..=40).contains(&world.n_edges), "{}", world.n_edges);
        let calibrated = world.calibration.rows();
        assert!(calibrated.filter(|r| !r.thresholds.is_empty()).count() >= VARIABLES);
        assert_eq!(world.pairs(7).len(), VARIABLES);
    }
}
