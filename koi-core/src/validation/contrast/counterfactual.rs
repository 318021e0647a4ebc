//! d̂(x_k with p := p_l): what the surrogate says of a deployment with one feature changed to a
//! reference's value.
//!
//! The analytic member alone answers: it has learned from no row, so it leaves out every row of
//! both deployments and all that came later. One feature is changed in whatever it belongs to: the
//! configuration, the workload, the whole model or the whole place; features that follow from it
//! move with it. Spec §8, Contrast.

use crate::catalog::{Catalog, Feature, GpuType, SetBy, Value};
use crate::configuration::{Configuration, ConfigurationDraft};
use crate::job::{JobClass, Slo, Workload};
use crate::model::ModelFacts;
use crate::surrogate::{
    Answer, Demand, Deployment, EngineGeneration, EngineProfile, predict_given,
};
use crate::validation::residual::Variable;
use crate::variables::{Mediator, MediatorValues, Outcome, OutcomeValues};
use crate::violation::FieldViolation;

use super::deployment::Subject;
use super::life::Life;

/// Why there is no prediction at a changed point; then there is no contrast.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoPoint {
    /// The changed configuration is not legal.
    #[error("the changed configuration is not legal: {}", listed(.0))]
    Illegal(Vec<FieldViolation>),
    /// The catalog has no such device.
    #[error("the catalog has no GPU type {0}")]
    UnknownGpu(String),
    /// The device memory does not suffice.
    #[error("it does not fit the device memory")]
    DoesNotFit,
    /// The engine or the surrogate cannot do it.
    #[error("{0}")]
    Unsupported(String),
}

fn listed(problems: &[FieldViolation]) -> String {
    let all: Vec<String> = problems
        .iter()
        .map(|p| format!("{}: {}", p.field, p.message))
        .collect();
    all.join("; ")
}

/// A deployment as a question to the surrogate: what it is, and the load over its life.
#[derive(Debug, Clone)]
pub struct Point<'a> {
    configuration: Configuration,
    model: &'a ModelFacts,
    gpu: &'a GpuType,
    class: JobClass,
    slo: &'a Slo,
    /// With the lengths that were seen.
    workload: Workload,
    rate_rps_per_replica: f64,
    replicas: f64,
    in_flight: Option<f64>,
    usd_per_hour_per_replica: Option<f64>,
}

impl<'a> Point<'a> {
    /// The point of a deployment at the mean load over its life.
    ///
    /// # Errors
    /// [`NoPoint::UnknownGpu`].
    pub fn of(subject: &'a Subject, life: &Life, catalog: &'a Catalog) -> Result<Self, NoPoint> {
        let seen = life.conditions();
        let gpu_type = &subject.environment.gpu_type;
        let gpu = catalog
            .gpu_type(gpu_type)
            .ok_or_else(|| NoPoint::UnknownGpu(gpu_type.clone()))?;
        let mut workload = subject.workload.clone();
        let lengths = [
            (&mut workload.isl, seen.isl_tokens),
            (&mut workload.osl, seen.osl_tokens),
        ];
        for (stats, mean) in lengths {
            if let Some(mean) = mean.filter(|m| *m >= 1.0) {
                stats.scale_to_mean(mean);
            }
        }
        Ok(Self {
            configuration: subject.configuration.clone(),
            model: &subject.model,
            gpu,
            class: subject.class,
            slo: &subject.slo,
            workload,
            rate_rps_per_replica: seen.rate_rps_per_replica.unwrap_or(0.0),
            replicas: seen.replicas.unwrap_or(1.0).max(1.0),
            in_flight: seen.in_flight.filter(|_| subject.class == JobClass::Batch),
            usd_per_hour_per_replica: seen.usd_per_hour_per_replica,
        })
    }

    /// The value of a feature here, as far as it is known.
    #[must_use]
    pub fn value(&self, row: &Feature, catalog: &Catalog) -> Option<Value> {
        match row.set_by {
            SetBy::Planner => catalog.effective(&self.configuration, &row.id).cloned(),
            SetBy::Model => self.model_value(&row.id),
            SetBy::Environment => self.gpu_value(&row.id),
            SetBy::Workload | SetBy::Job => self.workload_value(&row.id),
        }
    }

    fn model_value(&self, id: &str) -> Option<Value> {
        let moe = self.model.moe;
        let experts = |n: Option<u32>| n.map(Value::from);
        match id {
            "model_params_b" => Some(Value::Float(self.model.params_total as f64 / 1e9)),
            "num_routed_experts" => experts(moe.map(|m| m.experts)),
            "num_active_experts" => experts(moe.map(|m| m.experts_per_token)),
            _ => self.model.feature(id),
        }
    }

    fn gpu_value(&self, id: &str) -> Option<Value> {
        match id {
            "gpu_type" => Some(Value::Text(self.gpu.id.clone())),
            "gpu_memory_bytes" => Some(Value::Float(self.gpu.memory_bytes)),
            "gpu_bandwidth_bytes_per_second" => {
                Some(Value::Float(self.gpu.bandwidth_bytes_per_second))
            }
            "usd_per_hour" => self.usd_per_hour_per_replica.map(Value::Float),
            _ => None,
        }
    }

    fn workload_value(&self, id: &str) -> Option<Value> {
        let w = &self.workload;
        let number = match id {
            "isl_token_avg" => w.isl.mean,
            "osl_token_avg" => w.osl.mean,
            "isl_token_p99" => w.isl.p99,
            "osl_token_p99" => w.osl.p99,
            "request_arrival_rate" => self.rate_rps_per_replica * self.replicas,
            "peak_to_mean" => w.peak_to_mean,
            "shared_prefix_length_avg" => w.shared_prefix_tokens,
            "workload_prefix_concentration" => w.prefix_concentration,
            "multi_turn_ratio" => w.multi_turn_ratio,
            "is_session_affinity" => return Some(Value::Bool(w.session_affinity)),
            _ => return None,
        };
        Some(Value::Float(number))
    }

    /// This point with one feature as it is at another one.
    ///
    /// # Errors
    /// [`NoPoint::Illegal`] with every problem, when the rest of the configuration cannot stand
    /// beside the changed value.
    pub fn with_feature_of(
        &self,
        row: &Feature,
        other: &Point<'a>,
        catalog: &Catalog,
    ) -> Result<Self, NoPoint> {
        let mut changed = self.clone();
        match row.set_by {
            SetBy::Planner => {
                changed.configuration = changed_setting(
                    &row.id,
                    (&self.configuration, &other.configuration),
                    catalog,
                )?;
            }
            SetBy::Model => changed.model = other.model,
            SetBy::Environment => {
                changed.gpu = other.gpu;
                changed.usd_per_hour_per_replica = other.usd_per_hour_per_replica;
            }
            SetBy::Workload | SetBy::Job => changed.take_workload(&row.id, other),
        }
        Ok(changed)
    }

    fn take_workload(&mut self, id: &str, other: &Self) {
        let (w, o) = (&mut self.workload, &other.workload);
        match id {
            "isl_token_avg" => w.isl.scale_to_mean(o.isl.mean),
            "osl_token_avg" => w.osl.scale_to_mean(o.osl.mean),
            "isl_token_p99" => w.isl = with_tail_of(w.isl, o.isl),
            "osl_token_p99" => w.osl = with_tail_of(w.osl, o.osl),
            "request_arrival_rate" => {
                self.rate_rps_per_replica =
                    other.rate_rps_per_replica * other.replicas / self.replicas;
            }
            "peak_to_mean" => w.peak_to_mean = o.peak_to_mean,
            "arrival_pattern" => w.arrival_pattern = o.arrival_pattern,
            "shared_prefix_length_avg" => w.shared_prefix_tokens = o.shared_prefix_tokens,
            "workload_prefix_concentration" => w.prefix_concentration = o.prefix_concentration,
            "multi_turn_ratio" => w.multi_turn_ratio = o.multi_turn_ratio,
            "is_session_affinity" => w.session_affinity = o.session_affinity,
            // Nothing else of a job is read by the surrogate: it says that nothing changes.
            _ => {}
        }
    }

    /// The surrogate's answer here with some mediators held, at the load that is offered.
    ///
    /// Holding a live batch or a pace gives the member another rate by Little's law. That is what
    /// happens to a batch, which is as fast as it is served. What requests of users bring is upstream
    /// of every batch and pace, so as long as the replica keeps up, the rate is theirs, and a mediator
    /// explains nothing of it.
    ///
    /// # Errors
    /// [`NoPoint::DoesNotFit`] and [`NoPoint::Unsupported`].
    pub fn predict(
        &self,
        held: &MediatorValues,
    ) -> Result<(MediatorValues, OutcomeValues), NoPoint> {
        let (mediators, mut outcomes, _) = self.ask(held)?;
        let sets_the_rate = [
            Mediator::InputLengthObserved,
            Mediator::OutputLengthObserved,
            Mediator::PrefillTokensPerSec,
        ];
        let moves_none = held.present().all(|(m, _)| !sets_the_rate.contains(&m));
        if self.class == JobClass::Online && held.present().next().is_some() && moves_none {
            let (_, offered, saturated) = self.ask(&MediatorValues::absent())?;
            if !saturated {
                for outcome in [Outcome::ThroughputTokensPerSec, Outcome::CostPerToken] {
                    outcomes.set(outcome, offered.get(outcome));
                }
            }
        }
        Ok((mediators, outcomes))
    }

    fn ask(&self, held: &MediatorValues) -> Result<(MediatorValues, OutcomeValues, bool), NoPoint> {
        let deployment = Deployment {
            model: self.model,
            gpu: self.gpu,
            shape: self.configuration.shape(),
            n_replicas: self.replicas.round().max(1.0) as u32,
            price_usd_per_hour_per_replica: self.usd_per_hour_per_replica,
        };
        let demand = Demand {
            workload: &self.workload,
            class: self.class,
            slo: self.slo,
            rate_rps_per_replica: self.rate_rps_per_replica,
            batch_concurrency: self.in_flight.map(|n| n.round().clamp(1.0, 4096.0) as u32),
        };
        let profile = EngineProfile::embedded(EngineGeneration::default());
        match predict_given(&deployment, &demand, profile, held) {
            Answer::Prediction(p) => Ok((p.mediators, p.outcomes, p.saturated)),
            Answer::DoesNotFit(_) => Err(NoPoint::DoesNotFit),
            Answer::Unsupported(reason) => Err(NoPoint::Unsupported(reason)),
        }
    }
}

/// A configuration with one setting as it is in another. Settings that cannot stand beside it move
/// with it: they take the other's values too.
fn changed_setting(
    id: &str,
    (own, other): (&Configuration, &Configuration),
    catalog: &Catalog,
) -> Result<Configuration, NoPoint> {
    let mut draft = own.to_draft();
    take_setting(&mut draft, id, other);
    // An expert-parallel width that was the tensor-parallel one stays that.
    if id == "tp" && own.get("ep") == own.get("tp") {
        take_setting(&mut draft, "ep", other);
    }
    match catalog.configuration(draft.clone()) {
        Ok(configuration) => Ok(configuration),
        Err(problems) => {
            for problem in problems.iter().filter(|p| p.field != id) {
                take_setting(&mut draft, &problem.field, other);
            }
            catalog.configuration(draft).map_err(NoPoint::Illegal)
        }
    }
}

fn take_setting(draft: &mut ConfigurationDraft, id: &str, other: &Configuration) {
    match other.get(id) {
        Some(value) => drop(draft.0.insert(id.to_owned(), value.clone())),
        None => drop(draft.0.remove(id)),
    }
}

fn with_tail_of(
    own: crate::job::LengthStats,
    other: crate::job::LengthStats,
) -> crate::job::LengthStats {
    let spread = |l: crate::job::LengthStats| (l.p95 / l.mean.max(1e-9), l.p99 / l.mean.max(1e-9));
    let (p95, p99) = spread(other);
    crate::job::LengthStats {
        p95: own.mean * p95,
        p99: own.mean * p99,
        ..own
    }
}

/// A variable out of an answer.
#[must_use]
pub fn value_of(
    variable: Variable,
    (mediators, outcomes): &(MediatorValues, OutcomeValues),
) -> Option<f64> {
    match variable {
        Variable::V(v) => mediators.get(v),
        Variable::Y(y) => outcomes.get(y),
    }
}

/// One mediator held at a value in its own unit.
#[must_use]
pub fn holding(mediator: Mediator, value: f64) -> MediatorValues {
    MediatorValues::absent().with(mediator, value)
}
