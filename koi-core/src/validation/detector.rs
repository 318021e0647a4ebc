//! One variable of one rank put through the detector; its peak is found once and compared with the
//! threshold of every bundle that holds the variable.
//!
//! White paper V1, CUSUM on Mediators and Outcomes; spec §8.

use super::cusum::{Verdict, cusum};
use super::evidence::{RankValidationInput, VariableVerdict};
use super::meta::{Phase, ResidualBlock, ResidualBlocks, Stratum};
use super::residual::{Variable, residual, residual_std};
use crate::params::Params;
use crate::variables::{MediatorValues, OutcomeValues};

/// Verdict on one variable by itself; `None` when no point has it on both sides.
pub(super) fn judge(
    variable: Variable,
    input: &RankValidationInput<'_>,
    params: &Params,
) -> Option<VariableVerdict> {
    let pairs = || pairs(variable, input);
    let own_bias = input.own_bias.of(variable);
    let residuals = residuals(variable, own_bias, input);
    let points = u32::try_from(residuals.len()).unwrap_or(u32::MAX);
    let found = (points >= params.trajectory_points_min).then(|| {
        let detector =
            input
                .calibration
                .detector(stratum(variable, own_bias, input), params, || {
                    let observed: Vec<f64> = pairs().map(|(o, _)| o).collect();
                    residual_std(variable, &residuals, &observed, params.sigma_floor_fraction)
                });
        let threshold = detector.threshold(points, 1);
        (
            detector.sigma,
            cusum(&residuals, detector.slack(), threshold),
        )
    });
    Some(VariableVerdict {
        points,
        observed_mean: mean(pairs().map(|(o, _)| o))?,
        predicted_mean: mean(pairs().map(|(_, p)| p))?,
        residual_mean: mean(residuals.iter().copied())? + own_bias.unwrap_or(0.0),
        own_bias,
        sigma: found.map(|(sigma, _)| sigma),
        peak: found.map(|(_, c)| c.peak),
        verdict: found.map(|(_, c)| c.verdict),
        fired_at: found
            .and_then(|(_, c)| c.fired_at)
            .and_then(|i| u32::try_from(i).ok()),
    })
}

/// Verdict on the same variable as one of a bundle: the larger the bundle, the higher the
/// threshold, so that the bundle as a whole fires on noise no more often. Beside it, whether the
/// threshold was calibrated.
pub(super) fn verdict_in_bundle(
    variable: Variable,
    judged: &VariableVerdict,
    bundle: u32,
    input: &RankValidationInput<'_>,
    params: &Params,
) -> Option<(Verdict, bool)> {
    let (sigma, peak) = judged.sigma.zip(judged.peak)?;
    let detector =
        input
            .calibration
            .detector(stratum(variable, judged.own_bias, input), params, || sigma);
    let verdict = if peak > detector.threshold(judged.points, bundle) {
        Verdict::Diverged
    } else {
        Verdict::Matched
    };
    Some((verdict, detector.is_calibrated()))
}

fn stratum(variable: Variable, own_bias: Option<f64>, input: &RankValidationInput<'_>) -> Stratum {
    Stratum::from((variable, input.model_class, Phase::of(own_bias)))
}

/// What the detector runs on: residuals, less what the deployment's own earlier rows missed.
fn residuals(
    variable: Variable,
    own_bias: Option<f64>,
    input: &RankValidationInput<'_>,
) -> Vec<f64> {
    let known = own_bias.unwrap_or(0.0);
    let all = pairs(variable, input);
    all.map(|(o, p)| residual(variable, o, p) - known).collect()
}

impl ResidualBlocks {
    /// Stores the residuals that a row was judged from.
    pub fn observe(
        &mut self,
        input: &RankValidationInput<'_>,
        row: &super::EvidenceRow,
        params: &Params,
    ) {
        for variable in Variable::all() {
            let Some(judged) = row.variables.get(variable.name()) else {
                continue;
            };
            if judged.verdict.is_none() {
                continue;
            }
            let residuals = residuals(variable, judged.own_bias, input);
            let block = ResidualBlock::new(&residuals, judged.observed_mean, judged.verdict);
            if let Some(block) = block {
                self.push(stratum(variable, judged.own_bias, input), block, params);
            }
        }
    }
}

/// Observed and predicted values of the points that have both.
fn pairs<'a>(
    variable: Variable,
    input: &RankValidationInput<'a>,
) -> impl Iterator<Item = (f64, f64)> + use<'a> {
    let both = input.observed.iter().zip(input.predicted);
    both.filter_map(move |(o, p)| Some((value(variable, o)?, value(variable, p)?)))
}

fn value(variable: Variable, point: &(MediatorValues, OutcomeValues)) -> Option<f64> {
    match variable {
        Variable::V(v) => point.0.get(v),
        Variable::Y(y) => point.1.get(y),
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut n) = (0.0, 0_u32);
    for value in values {
        sum += value;
        n += 1;
    }
    (n > 0).then(|| sum / f64::from(n))
}
