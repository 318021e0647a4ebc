//! The meta step: σ, slack and thresholds of the detector, re-estimated every 20 ticks from the
//! residuals of this fleet, so that a true mechanism is not punished for noise.
//!
//! At the paper's h = 4σ a true bundle of four variables is Q1 only about half the time. White
//! paper V1, Slow Loop (META); spec §8.

pub mod blocks;
pub mod bootstrap;
pub mod calibration;
pub mod components;
pub mod stored;
pub mod stratum;

pub use blocks::{ResidualBlock, ResidualBlocks};
pub use calibration::{Calibration, DetectableShift, ThresholdRow, VariableCalibration};
pub use stored::{CALIBRATION_VERSION, CalibrationRecord};
pub use stratum::{Phase, Stratum};

use crate::ids::TickId;
use crate::params::{CalibrationRule, Params};
use crate::rng::Rng;
use crate::validation::residual::Variable;

#[cfg(test)]
mod tests;

/// True on the ticks at which the meta step runs.
#[must_use]
pub fn is_due(tick: TickId, params: &Params) -> bool {
    params.calibration == CalibrationRule::On
        && tick.0.rem_euclid(i64::from(params.meta_period_ticks)) == 0
}

/// Calibration from the stored blocks. What has too few of them keeps what it had, so that a
/// restart does not forget.
///
/// The result is the same for the same blocks and seed, whatever else is stored: every variable
/// draws from a stream of its own.
#[must_use]
pub fn recalibrate(
    blocks: &ResidualBlocks,
    previous: &Calibration,
    params: &Params,
    seed: u64,
) -> Calibration {
    anew(blocks, previous, (params, seed), |_| true)
}

/// The first thresholds of every variable that has blocks enough and none yet, on whatever tick;
/// the others stay as they are.
#[must_use]
pub fn calibrate_first(
    blocks: &ResidualBlocks,
    previous: &Calibration,
    params: &Params,
    seed: u64,
) -> Calibration {
    if params.calibration == CalibrationRule::Off {
        return previous.clone();
    }
    anew(blocks, previous, (params, seed), |stratum| {
        let before = previous.of(stratum);
        let enough = blocks.count(stratum) >= params.meta_blocks_min as usize;
        enough && before.is_none_or(|row| row.thresholds.is_empty())
    })
}

fn anew(
    blocks: &ResidualBlocks,
    previous: &Calibration,
    (params, seed): (&Params, u64),
    wanted: impl Fn(Stratum) -> bool,
) -> Calibration {
    let mut next = previous.clone();
    for (stratum, stored) in blocks.iter() {
        if !wanted(stratum) {
            continue;
        }
        let (variable, class) = (stratum.variable.name(), stratum.model_class.name());
        let name = format!("{variable}/{class}/{}", stratum.phase.name());
        let mut rng = Rng::stream(seed, &name);
        let blocks: Vec<&ResidualBlock> = stored.collect();
        let before = previous.of(stratum);
        if let Some(row) = calibrated(stratum, &blocks, before, params, &mut rng) {
            next.insert(row);
        }
    }
    next
}

/// `None` leaves what was there.
fn calibrated(
    stratum: Stratum,
    blocks: &[&ResidualBlock],
    before: Option<&VariableCalibration>,
    params: &Params,
    rng: &mut Rng,
) -> Option<VariableCalibration> {
    let (kept, dropped) = blocks::trimmed(blocks, params.meta_trim_fraction);
    let count = u32::try_from(kept.len()).unwrap_or(u32::MAX);
    let had_thresholds = before.is_some_and(|b| !b.thresholds.is_empty());
    if count < params.meta_sigma_blocks_min || (count < params.meta_blocks_min && had_thresholds) {
        return None;
    }
    let parts = components::of(&kept, dropped)?;
    let level = blocks::typical_level(&kept);
    let floor = floor_of(stratum.variable, level, params.sigma_floor_fraction);
    let sigma = parts.sigma().max(floor);
    let (slack_sigmas, thresholds) = if count < params.meta_blocks_min {
        (params.cusum_slack_sigmas, Vec::new())
    } else {
        bootstrap::thresholds(&kept, &parts, sigma, params, rng)
    };
    Some(VariableCalibration {
        variable: stratum.variable,
        model_class: stratum.model_class,
        phase: stratum.phase,
        blocks: count,
        sigma,
        slack_sigmas,
        bias: parts.bias,
        model_error_std: parts.model_error_std,
        noise_std: parts.noise_std,
        long_run_factor: parts.long_run_factor,
        level,
        thresholds,
    })
}

fn floor_of(variable: Variable, level: f64, fraction: f64) -> f64 {
    if variable.is_log_scale() {
        fraction
    } else {
        (fraction * level).max(variable.unit_floor())
    }
}
