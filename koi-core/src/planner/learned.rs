//! What the surrogate's learned members know about one job, looked up once per device type and
//! environment. Spec §4, §10.

use super::context::PlanningContext;
use super::enumerate::rules::device_defaults;
use crate::catalog::GpuType;
use crate::causal::{Belief, BeliefKey};
use crate::environment::Environment;
use crate::model::WeightDtype;
use crate::snapshot::Snapshot;
use crate::store::JobRecord;
use crate::surrogate::neighbours::HeardPoint;
use crate::surrogate::points::matrices;
use crate::surrogate::{Ground, own};

/// Confidence of a row whose plan committed no mechanism: as of one that nobody has tested.
const UNCOMMITTED: f64 = 0.5;

#[derive(Debug, Clone)]
struct OnDevice<'a> {
    gpu: &'a GpuType,
    weights: WeightDtype,
    ground: Ground<'a>,
}

#[derive(Debug, Clone)]
struct InEnvironment<'a> {
    environment: &'a Environment,
    weights: WeightDtype,
    points: Vec<HeardPoint>,
}

/// The learned members on a job's model.
#[derive(Debug, Clone, Default)]
pub struct Learned<'a> {
    devices: Vec<OnDevice<'a>>,
    own: Vec<InEnvironment<'a>>,
}

impl<'a> Learned<'a> {
    /// What is known of a job's model on the devices of a snapshot.
    #[must_use]
    pub fn of(record: &JobRecord, snapshot: &'a Snapshot, context: &PlanningContext<'a>) -> Self {
        let mut learned = Self::default();
        for host in snapshot.state.hosts.values() {
            let id = &host.facts.environment.gpu_type;
            if learned.devices.iter().any(|d| d.gpu.id == *id) {
                continue;
            }
            if let Some(gpu) = context.catalog.gpu_type(id) {
                learned.add_device(record, gpu, context);
            }
        }
        let model = matrices(&record.spec.model.facts);
        let confidence = |mechanism: Option<&str>| {
            mechanism.map_or(UNCOMMITTED, |id| belief(id, snapshot, context).mean())
        };
        for (scope, rows) in snapshot.experience.own(model) {
            let Some(gpu) = context.catalog.gpu_type(&scope.environment.gpu_type) else {
                continue;
            };
            let ground = learned.on(gpu, scope.weights);
            learned.own.push(InEnvironment {
                environment: &scope.environment,
                weights: scope.weights,
                points: own::heard(rows, snapshot.tick.0, &ground, &confidence),
            });
        }
        learned
    }

    /// A device in every format that the job has or would have there.
    fn add_device(&mut self, record: &JobRecord, gpu: &'a GpuType, context: &PlanningContext<'a>) {
        let model = &record.spec.model.facts;
        let ladders = record.active.iter().map(|l| &l.ladder);
        let running = ladders.flat_map(|l| &l.ranks);
        let mut formats: Vec<WeightDtype> = running
            .filter(|rank| rank.environment.gpu_type == gpu.id)
            .map(|rank| rank.configuration.shape().weight_dtype)
            .chain([device_defaults(gpu, model).weight_dtype])
            .map(|format| model.served_dtype(format))
            .collect();
        formats.sort_unstable();
        formats.dedup();
        for weights in formats {
            let near = context.points.of_scope(matrices(model), gpu, weights);
            self.devices.push(OnDevice {
                gpu,
                weights,
                ground: Ground::of(gpu, near),
            });
        }
    }

    /// The ground on a device, for weights as served.
    #[must_use]
    pub fn on(&self, gpu: &GpuType, weights: WeightDtype) -> Ground<'a> {
        let is_it = |d: &&OnDevice<'a>| {
            (std::ptr::eq(d.gpu, gpu) || d.gpu.id == gpu.id) && d.weights == weights
        };
        let known = self.devices.iter().find(is_it);
        known.map_or_else(|| Ground::of(gpu, &[]), |d| d.ground)
    }

    /// What own deployments in an environment showed; empty where there were none.
    #[must_use]
    pub fn own_in(&self, environment: &Environment, weights: WeightDtype) -> &[HeardPoint] {
        let mut here = self
            .own
            .iter()
            .filter(|o| o.weights == weights && o.environment == environment);
        here.next().map_or(&[], |o| &o.points)
    }
}

fn belief(id: &str, snapshot: &Snapshot, context: &PlanningContext<'_>) -> Belief {
    let seed = context
        .causal
        .mechanism(id)
        .map_or_else(|| Belief::of_counts(1, 1), |m| m.prior.belief());
    let key = BeliefKey::Mechanism(id.to_owned());
    let moved = snapshot.state.beliefs.get(&key);
    moved.map_or(seed, |m| m.from_seed(seed))
}

#[cfg(test)]
mod tests;
