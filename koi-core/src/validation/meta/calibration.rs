//! What the meta step found, as the detector reads it: σ, slack and thresholds per variable and
//! model class, with the shift that they still detect.
//!
//! Spec §8.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::stratum::{Phase, Stratum};
use crate::causal::Mechanism;
use crate::model::ModelClass;
use crate::params::{CalibrationRule, Params};
use crate::validation::residual::Variable;

/// Bundle sizes for which thresholds are stored; between two of them the larger one counts.
pub const BUNDLE_SIZES: [u32; 8] = [1, 2, 3, 4, 6, 8, 12, 16];
/// Standard normal quantile of 90 %: the chance with which a shift called detectable is detected.
const NORMAL_90: f64 = 1.281_551_565_544_600_4;

/// Thresholds at one number of points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThresholdRow {
    /// Largest number of points for which the row counts.
    pub points: u32,
    /// Threshold in σ for each of [`BUNDLE_SIZES`].
    pub sigmas: Vec<f64>,
}

impl ThresholdRow {
    /// Threshold in σ of a bundle of this size; the largest stored one beyond it.
    #[must_use]
    pub fn at(&self, bundle: u32) -> f64 {
        let sizes = BUNDLE_SIZES.iter().zip(&self.sigmas);
        let mut fitting = sizes.filter(|(size, _)| **size >= bundle);
        let fits = fitting.next().map(|(_, h)| *h);
        fits.or_else(|| self.sigmas.last().copied())
            .unwrap_or(f64::INFINITY)
    }
}

/// The shift of a variable that its detector still finds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DetectableShift {
    /// In residual standard deviations.
    pub sigmas: f64,
    /// As a share of the level; absent for plain units around zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
}

/// Calibration of one variable for one model class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VariableCalibration {
    /// The variable.
    pub variable: Variable,
    /// The class of models.
    pub model_class: ModelClass,
    /// Of fresh or of settled deployments.
    #[serde(default)]
    pub phase: Phase,
    /// Residual blocks behind it.
    pub blocks: u32,
    /// Residual standard deviation on the natural scale, errors of the surrogate included.
    pub sigma: f64,
    /// Slack δ in σ.
    pub slack_sigmas: f64,
    /// Mean residual: what the surrogate misses everywhere.
    pub bias: f64,
    /// Standard deviation of the surrogate's error between deployments.
    pub model_error_std: f64,
    /// Standard deviation of one point around its row.
    pub noise_std: f64,
    /// How much faster a mean of this noise wanders than one of white noise.
    pub long_run_factor: f64,
    /// Median observed value, in the variable's unit.
    pub level: f64,
    /// By growing points; empty below the smallest number of blocks.
    pub thresholds: Vec<ThresholdRow>,
}

impl VariableCalibration {
    /// Threshold in σ; `None` below the smallest number of blocks. Beyond the most points stored,
    /// the last row counts.
    #[must_use]
    pub fn threshold_sigmas(&self, points: u32, bundle: u32) -> Option<f64> {
        let row = self.thresholds.iter().find(|r| r.points >= points);
        Some(row.or_else(|| self.thresholds.last())?.at(bundle))
    }

    /// The smallest lasting shift, in either direction, that is found within one row nine times
    /// out of ten; `None` below the smallest number of blocks.
    ///
    /// # Formula
    /// δ + h/n + |bias| + z₉₀·√(τ² + s²g/n), in σ; as a fraction eˢ − 1 for positive variables,
    /// s/level else
    #[must_use]
    pub fn detectable_shift(&self, points: u32, bundle: u32) -> Option<DetectableShift> {
        let n = f64::from(points.max(1));
        let h = self.threshold_sigmas(points, bundle)?;
        let noise = self.noise_std * self.noise_std * self.long_run_factor / n;
        let wander = (self.model_error_std * self.model_error_std + noise).sqrt();
        let shift = self.sigma * (self.slack_sigmas + h / n) + self.bias.abs() + NORMAL_90 * wander;
        let fraction = if self.variable.is_log_scale() {
            Some(shift.exp_m1())
        } else {
            (self.level > self.variable.unit_floor()).then(|| shift / self.level)
        };
        Some(DetectableShift {
            sigmas: shift / self.sigma,
            fraction,
        })
    }
}

/// Calibration of every variable and model class that has enough residuals.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Calibration {
    rows: BTreeMap<Stratum, VariableCalibration>,
}

impl Calibration {
    /// One variable's row of fresh deployments.
    #[must_use]
    pub fn get(&self, variable: Variable, class: ModelClass) -> Option<&VariableCalibration> {
        self.of((variable, class))
    }

    /// The row of a stratum.
    #[must_use]
    pub fn of(&self, stratum: impl Into<Stratum>) -> Option<&VariableCalibration> {
        self.rows.get(&stratum.into())
    }

    /// Every row, by variable.
    pub fn rows(&self) -> impl Iterator<Item = &VariableCalibration> {
        self.rows.values()
    }

    /// Whether every variable that a mechanism is judged by has had its thresholds calibrated for
    /// some class of models. Thresholds that are set by hand count as they are.
    #[must_use]
    pub fn has_thresholds_of(&self, mechanism: &Mechanism, params: &Params) -> bool {
        if params.calibration == CalibrationRule::Off {
            return true;
        }
        let mediators = mechanism.mediators.iter().map(|v| Variable::V(*v));
        let outcomes = mechanism.outcomes.iter().map(|y| Variable::Y(*y));
        mediators.chain(outcomes).all(|variable| {
            self.rows()
                .any(|row| row.variable == variable && !row.thresholds.is_empty())
        })
    }

    /// Takes one row in, in the place of an older one.
    pub fn insert(&mut self, row: VariableCalibration) {
        let stratum = Stratum::from((row.variable, row.model_class, row.phase));
        self.rows.insert(stratum, row);
    }

    /// σ, slack and thresholds of one variable; `own_sigma` is asked only where none is stored.
    ///
    /// # Formula
    /// `off`: the rank's own σ, δ = .5σ, h = 4σ. `on`: stored σ, δ and h; 8σ below 30 blocks; the
    /// rank's own σ below 3.
    #[must_use]
    pub fn detector(
        &self,
        stratum: impl Into<Stratum>,
        params: &Params,
        own_sigma: impl FnOnce() -> f64,
    ) -> Detector<'_> {
        let cold = match params.calibration {
            CalibrationRule::On => params.meta_threshold_cold_sigmas,
            CalibrationRule::Off => params.cusum_threshold_sigmas,
        };
        let row = self.of(stratum);
        match row.filter(|_| params.calibration == CalibrationRule::On) {
            Some(row) => Detector {
                sigma: row.sigma,
                slack_sigmas: row.slack_sigmas,
                row: Some(row),
                cold_sigmas: cold,
            },
            None => Detector {
                sigma: own_sigma(),
                slack_sigmas: params.cusum_slack_sigmas,
                row: None,
                cold_sigmas: cold,
            },
        }
    }
}

/// The detector of one variable.
#[derive(Debug, Clone, Copy)]
pub struct Detector<'a> {
    /// Residual standard deviation, on the variable's natural scale.
    pub sigma: f64,
    slack_sigmas: f64,
    row: Option<&'a VariableCalibration>,
    cold_sigmas: f64,
}

impl Detector<'_> {
    /// Whether its thresholds come from residuals and are no guess.
    #[must_use]
    pub fn is_calibrated(&self) -> bool {
        self.row.is_some_and(|r| !r.thresholds.is_empty())
    }

    /// δ on the variable's natural scale.
    #[must_use]
    pub fn slack(&self) -> f64 {
        self.slack_sigmas * self.sigma
    }

    /// h on the variable's natural scale, for a row of so many points and a bundle of so many
    /// variables.
    #[must_use]
    pub fn threshold(&self, points: u32, bundle: u32) -> f64 {
        let stored = self.row.and_then(|r| r.threshold_sigmas(points, bundle));
        stored.unwrap_or(self.cold_sigmas) * self.sigma
    }
}

impl Serialize for Calibration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rows.values())
    }
}

impl<'de> Deserialize<'de> for Calibration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut calibration = Self::default();
        for row in Vec::<VariableCalibration>::deserialize(deserializer)? {
            calibration.insert(row);
        }
        Ok(calibration)
    }
}
