//! One rank judged in one tick: residuals, verdicts per variable, quadrants per mechanism.
//!
//! Observation is scoped to the rank, verdicts to the mechanism. White paper V1, Tick Algorithm
//! S2; spec §8.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cusum::{Verdict, cusum};
use super::icp::Icp;
use super::quadrant::{Quadrant, bundle_verdict};
use super::residual::{Variable, outcome_floor, residual, residual_std};
use crate::causal::{Applicable, CausalModel, Mechanism};
use crate::environment::Environment;
use crate::ids::{Generation, JobId, TickId};
use crate::params::Params;
use crate::score::dro::Band;
use crate::variables::{Mediator, MediatorValues, Outcome, OutcomeValues};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

/// Whether a row's own deployment put a mechanism to the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exercise {
    /// Contrasts are not built: the paper's rule, every row counts in full.
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
    /// σ used for slack and threshold; absent below the smallest number of points.
    pub sigma: Option<f64>,
    /// Absent below the smallest number of points.
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
}

/// The evidence of one rank in one tick; its identity is (tick, job, rank).
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
    /// Where it stood and what the surrogate missed there: what the next plans learn from it. Absent
    /// where no plan of this server froze a prediction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stood: Option<crate::surrogate::own::Stood>,
}

impl EvidenceRow {
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
    /// σ by variable name from the meta step; the rank's own spread where absent.
    pub sigmas: &'a BTreeMap<String, f64>,
}

/// Judges one rank: residuals, CUSUM per variable, a quadrant per mechanism.
#[must_use]
pub fn validate_rank(
    input: &RankValidationInput<'_>,
    model: &CausalModel,
    params: &Params,
) -> EvidenceRow {
    let points = input.observed.len().min(input.predicted.len());
    let variables: BTreeMap<String, VariableVerdict> = all_variables()
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
            Some(mechanism_verdict(
                model.mechanism(&a.id)?,
                a.committed,
                &variables,
            ))
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
        stood: None,
    }
}

fn all_variables() -> impl Iterator<Item = Variable> {
    let outcomes = Outcome::ALL.into_iter().map(Variable::Y);
    Mediator::ALL.into_iter().map(Variable::V).chain(outcomes)
}

fn value(variable: Variable, point: &(MediatorValues, OutcomeValues)) -> Option<f64> {
    match variable {
        Variable::V(v) => point.0.get(v),
        Variable::Y(y) => point.1.get(y),
    }
}

/// `None` when no point has the variable on both sides.
fn judge(
    variable: Variable,
    input: &RankValidationInput<'_>,
    params: &Params,
) -> Option<VariableVerdict> {
    let (observed, predicted): (Vec<f64>, Vec<f64>) = input
        .observed
        .iter()
        .zip(input.predicted)
        .filter_map(|(o, p)| Some((value(variable, o)?, value(variable, p)?)))
        .unzip();
    let residuals: Vec<f64> = observed
        .iter()
        .zip(&predicted)
        .map(|(o, p)| residual(variable, *o, *p))
        .collect();
    let points = u32::try_from(residuals.len()).unwrap_or(u32::MAX);
    let detector = (points >= params.trajectory_points_min).then(|| {
        let own = residual_std(variable, &residuals, &observed, params.sigma_floor_fraction);
        let stored = input
            .sigmas
            .get(variable.name())
            .copied()
            .filter(|s| *s > 0.0);
        let sigma = stored.unwrap_or(own);
        let slack = params.cusum_slack_sigmas * sigma;
        (
            sigma,
            cusum(&residuals, slack, params.cusum_threshold_sigmas * sigma),
        )
    });
    Some(VariableVerdict {
        points,
        observed_mean: mean(&observed)?,
        predicted_mean: mean(&predicted)?,
        residual_mean: mean(&residuals)?,
        sigma: detector.map(|d| d.0),
        verdict: detector.map(|d| d.1.verdict),
        fired_at: detector
            .and_then(|d| d.1.fired_at)
            .and_then(|i| u32::try_from(i).ok()),
    })
}

fn mechanism_verdict(
    mechanism: &Mechanism,
    committed: bool,
    variables: &BTreeMap<String, VariableVerdict>,
) -> MechanismVerdict {
    let verdict = |name: &str| variables.get(name).and_then(|v| v.verdict);
    let v_verdicts: BTreeMap<Mediator, Option<Verdict>> = mechanism
        .mediators
        .iter()
        .map(|v| (*v, verdict(v.name())))
        .collect();
    let y_verdicts: BTreeMap<Outcome, Option<Verdict>> = mechanism
        .outcomes
        .iter()
        .map(|y| (*y, verdict(y.name())))
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
        let seen: Vec<f64> = points.iter().filter_map(|p| p.1.get(outcome)).collect();
        means.set(outcome, mean(&seen));
    }
    means
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
