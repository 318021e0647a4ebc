//! One rank judged in one tick: residuals, verdicts per variable, quadrants per mechanism.
//!
//! Observation is scoped to the rank, verdicts to the mechanism. White paper V1, Tick Algorithm
//! S2; spec §8.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::contrast::book::ContrastRow;
use super::contrast::deployment::{DeploymentId, DeploymentRow};
use super::cusum::Verdict;
use super::detector::{judge, verdict_in_bundle};
use super::icp::Icp;
use super::meta::Calibration;
use super::own_bias::OwnBias;
use super::quadrant::{Quadrant, bundle_verdict};
use super::residual::{Variable, outcome_floor};
use crate::causal::{Applicable, CausalModel, Mechanism};
use crate::environment::Environment;
use crate::ids::{Generation, JobId, TickId};
use crate::model::ModelClass;
use crate::params::{CalibrationRule, Params};
use crate::score::dro::Band;
use crate::time::UtcMicros;
use crate::variables::{Mediator, MediatorValues, Outcome, OutcomeValues};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

/// Whether a row's own deployment put a mechanism to the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exercise {
    /// Contrasts are off: the paper's rule, every row counts in full.
    NotComputed,
    /// The deployment has a contrast on one of the mechanism's edges.
    Exercised,
    /// It has none.
    Unexercised,
}

impl Exercise {
    /// Factor on the row's belief deltas.
    #[must_use]
    pub const fn weight(self, params: &Params) -> f64 {
        match self {
            Self::NotComputed | Self::Exercised => 1.0,
            Self::Unexercised => params.unexercised_weight,
        }
    }
}

/// The verdict on one variable of the rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VariableVerdict {
    /// Points with both sides present.
    pub points: u32,
    /// Mean observed value, in the variable's unit.
    pub observed_mean: f64,
    /// Mean predicted value, in the variable's unit.
    pub predicted_mean: f64,
    /// Mean residual on the natural scale: the block mean that invariance is tested on.
    pub residual_mean: f64,
    /// What the deployment's own earlier rows had missed, taken out of what the detector runs on;
    /// absent of a fresh deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_bias: Option<f64>,
    /// σ used for slack and threshold; absent below the smallest number of points.
    pub sigma: Option<f64>,
    /// Farthest that either side of the detector ran, on the natural scale; each bundle compares it
    /// with its own threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<f64>,
    /// Of the variable by itself, a bundle of one; absent below the smallest number of points.
    pub verdict: Option<Verdict>,
    /// Index of the point at which the detector fired.
    pub fired_at: Option<u32>,
}

/// The verdict on one mechanism of the rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MechanismVerdict {
    /// The mechanism.
    pub id: String,
    /// True when the plan committed to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub committed: bool,
    /// Verdict on each mediator of its bundle; absent when it could not be judged.
    pub v_verdicts: BTreeMap<Mediator, Option<Verdict>>,
    /// Verdict on each outcome of its bundle; absent when it could not be judged.
    pub y_verdicts: BTreeMap<Outcome, Option<Verdict>>,
    /// Absent when a variable of the bundle could not be judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quadrant: Option<Quadrant>,
    /// Invariance verdict of each edge that has one; an edge that is not here is undecided. Every
    /// applicable mechanism is stored with every row, so what says nothing is left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub icp: BTreeMap<String, Icp>,
    /// Whether the row put the mechanism to the test.
    pub exercise: Exercise,
    /// True when a threshold behind its verdicts was a guess: no residuals to set it by yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncalibrated: bool,
    /// Edges whose claim the contrasts of the row's environment contradict.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub contradicted: BTreeSet<String>,
}

impl MechanismVerdict {
    /// Factor on the row's belief deltas: in full when a contrast contradicts, for that needs no
    /// threshold; little when a threshold was a guess or nothing was put to the test, in whatever
    /// direction, for such a row tests the surrogate and not the mechanism.
    #[must_use]
    pub fn weight(&self, params: &Params) -> f64 {
        if !self.contradicted.is_empty() {
            1.0
        } else if self.uncalibrated {
            params.unexercised_weight
        } else {
            self.exercise.weight(params)
        }
    }
}

/// What a server that starts again must know of a row beside its verdicts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Basis {
    /// Engine that served, with its version: residuals of different ones are never mixed.
    pub engine: String,
    /// End of its newest point: what was seen up to here has been judged.
    pub until: UtcMicros,
}

/// The evidence of one rank in one tick; its identity is (tick, job, rank, generation), for
/// during a canary two generations of a rank are judged side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvidenceRow {
    /// When it was judged.
    pub tick: TickId,
    /// Job.
    pub job: JobId,
    /// Rank in the ladder.
    pub rank: u32,
    /// Generation of the ladder.
    pub generation: Generation,
    /// Where the rank ran.
    pub environment: Environment,
    /// Points offered, whether or not every variable was present in each.
    pub points: u32,
    /// Mean observed outcomes.
    pub observed: OutcomeValues,
    /// Observed against the promise stamped on the plan, for the risk band.
    pub promise_residuals: OutcomeValues,
    /// Whether each outcome fell inside the band stamped on the plan: the radius's coverage.
    pub inside_band: BTreeMap<Outcome, bool>,
    /// Verdict on each variable seen on both sides, by name.
    pub variables: BTreeMap<String, VariableVerdict>,
    /// Verdict on each applicable mechanism.
    pub mechanisms: Vec<MechanismVerdict>,
    /// What the deployment is and under which load it was seen; absent where contrasts are off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentRow>,
    /// Contrasts that are new or were revised, in the order of edge and scope.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contrasts: Vec<ContrastRow>,
    /// Where it stood and what the surrogate missed there: what the next plans learn from it. Absent
    /// where no plan of this server froze a prediction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stood: Option<crate::surrogate::own::Stood>,
    /// What it rests on; absent in rows of older builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

impl EvidenceRow {
    /// The deployment that it is about.
    #[must_use]
    pub const fn deployment_id(&self) -> DeploymentId {
        DeploymentId {
            job: self.job,
            generation: self.generation,
            rank: self.rank,
        }
    }

    /// The mechanism that the plan committed for this rank.
    #[must_use]
    pub fn committed_mechanism(&self) -> Option<&str> {
        self.mechanisms
            .iter()
            .find(|m| m.committed)
            .map(|m| m.id.as_str())
    }
}

/// What a plan promised of a rank; stamped when the plan was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stamp {
    /// Predicted outcomes.
    pub outcomes: OutcomeValues,
    /// The band around each.
    pub bands: BTreeMap<Outcome, Band>,
}

/// Everything a rank is judged from.
#[derive(Debug, Clone, Copy)]
pub struct RankValidationInput<'a> {
    /// When.
    pub tick: TickId,
    /// Job.
    pub job: JobId,
    /// Rank in the ladder.
    pub rank: u32,
    /// Generation of the ladder.
    pub generation: Generation,
    /// Where the rank runs.
    pub environment: &'a Environment,
    /// Observed values per point, in time order.
    pub observed: &'a [(MediatorValues, OutcomeValues)],
    /// Predicted values per point: the surrogate frozen at deployment, re-evaluated at the
    /// point's observed workload. Same length as `observed`; surplus on either side is ignored.
    pub predicted: &'a [(MediatorValues, OutcomeValues)],
    /// What the plan promised; `None` for a rank that no plan of this server made.
    pub promised: Option<&'a Stamp>,
    /// Mechanisms that speak about the rank.
    pub applicable: &'a [Applicable],
    /// Class of the job's model: residuals of different classes are calibrated apart.
    pub model_class: ModelClass,
    /// What earlier rows of the deployment missed.
    pub own_bias: &'a OwnBias,
    /// σ, slack and thresholds from the meta step.
    pub calibration: &'a Calibration,
}

/// Judges one rank: residuals, CUSUM per variable, a quadrant per mechanism.
#[must_use]
pub fn validate_rank(
    input: &RankValidationInput<'_>,
    model: &CausalModel,
    params: &Params,
) -> EvidenceRow {
    let points = input.observed.len().min(input.predicted.len());
    let variables: BTreeMap<String, VariableVerdict> = Variable::all()
        .filter_map(|v| judge(v, input, params).map(|verdict| (v.name().to_owned(), verdict)))
        .collect();
    let observed = mean_outcomes(input.observed);
    let (promise_residuals, inside_band) = input.promised.map_or_else(
        || (OutcomeValues::absent(), BTreeMap::new()),
        |p| {
            (
                promise_residuals(&observed, &p.outcomes),
                inside_band(&observed, p),
            )
        },
    );
    let mechanisms = input
        .applicable
        .iter()
        .filter_map(|a| {
            let mechanism = model.mechanism(&a.id)?;
            let bundle = mechanism.mediators.len() + mechanism.outcomes.len();
            let bundle = u32::try_from(bundle).unwrap_or(u32::MAX);
            let guessed = Cell::new(false);
            let verdict = |variable: Variable| {
                let judged = variables.get(variable.name())?;
                let (verdict, is_calibrated) =
                    verdict_in_bundle(variable, judged, bundle, input, params)?;
                guessed.set(guessed.get() || !is_calibrated);
                Some(verdict)
            };
            let judged = mechanism_verdict(mechanism, a.committed, verdict);
            Some(MechanismVerdict {
                uncalibrated: guessed.get() && params.calibration == CalibrationRule::On,
                ..judged
            })
        })
        .collect();
    EvidenceRow {
        tick: input.tick,
        job: input.job,
        rank: input.rank,
        generation: input.generation,
        environment: input.environment.clone(),
        points: u32::try_from(points).unwrap_or(u32::MAX),
        observed,
        promise_residuals,
        inside_band,
        variables,
        mechanisms,
        deployment: None,
        contrasts: Vec::new(),
        stood: None,
        basis: None,
    }
}

fn mechanism_verdict(
    mechanism: &Mechanism,
    committed: bool,
    verdict: impl Fn(Variable) -> Option<Verdict>,
) -> MechanismVerdict {
    let v_verdicts: BTreeMap<Mediator, Option<Verdict>> = mechanism
        .mediators
        .iter()
        .map(|v| (*v, verdict(Variable::V(*v))))
        .collect();
    let y_verdicts: BTreeMap<Outcome, Option<Verdict>> = mechanism
        .outcomes
        .iter()
        .map(|y| (*y, verdict(Variable::Y(*y))))
        .collect();
    let v_bundle = bundle_verdict(v_verdicts.values().copied());
    let y_bundle = bundle_verdict(y_verdicts.values().copied());
    MechanismVerdict {
        id: mechanism.id.clone(),
        committed,
        quadrant: v_bundle.zip(y_bundle).map(|(v, y)| Quadrant::of(v, y)),
        v_verdicts,
        y_verdicts,
        icp: BTreeMap::new(),
        exercise: Exercise::NotComputed,
        uncalibrated: false,
        contradicted: BTreeSet::new(),
    }
}

/// Observed against promised, relative except for the margin, which is already a fraction.
///
/// # Formula
/// (observed − promised) / max(|promised|, unit floor); `slo_margin`: observed − promised
///
/// # Source
/// Spec §7, DRO
#[must_use]
pub fn promise_residuals(observed: &OutcomeValues, promised: &OutcomeValues) -> OutcomeValues {
    let mut residuals = OutcomeValues::absent();
    for (outcome, seen) in observed.present() {
        let Some(promise) = promised.get(outcome) else {
            continue;
        };
        let unit = match outcome {
            Outcome::SloMargin => 1.0,
            other => promise.abs().max(outcome_floor(other)),
        };
        residuals.set(outcome, Some((seen - promise) / unit));
    }
    residuals
}

fn inside_band(observed: &OutcomeValues, promise: &Stamp) -> BTreeMap<Outcome, bool> {
    observed
        .present()
        .filter_map(|(y, seen)| Some((y, promise.bands.get(&y)?.contains(seen))))
        .collect()
}

fn mean_outcomes(points: &[(MediatorValues, OutcomeValues)]) -> OutcomeValues {
    let mut means = OutcomeValues::absent();
    for outcome in Outcome::ALL {
        let seen = points.iter().filter_map(|p| p.1.get(outcome));
        let (sum, n) = seen.fold((0.0, 0_u32), |(sum, n), x| (sum + x, n + 1));
        means.set(outcome, (n > 0).then(|| sum / f64::from(n)));
    }
    means
}
