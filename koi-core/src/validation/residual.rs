//! Residuals on each variable's natural scale, and their spread.
//!
//! White paper V1, Closing the Loop; spec §8: ln for positive variables, plain units else.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::variables::{MEDIATOR_COUNT, Mediator, OUTCOME_COUNT, Outcome};

/// A mediator or an outcome, where both are judged alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variable {
    /// A mediator.
    V(Mediator),
    /// An outcome.
    Y(Outcome),
}

/// How many variables there are, mediators and outcomes together.
pub const VARIABLE_COUNT: usize = MEDIATOR_COUNT + OUTCOME_COUNT;

impl Variable {
    /// Every mediator, then every outcome.
    pub fn all() -> impl Iterator<Item = Self> {
        let outcomes = Outcome::ALL.into_iter().map(Self::Y);
        Mediator::ALL.into_iter().map(Self::V).chain(outcomes)
    }

    /// Position in dense vectors over all variables.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::V(v) => v.index(),
            Self::Y(y) => MEDIATOR_COUNT + y.index(),
        }
    }

    /// The published name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V(v) => v.name(),
            Self::Y(y) => y.name(),
        }
    }

    /// The variable of this published name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let mediator = Mediator::from_name(name).map(Self::V);
        mediator.or_else(|| Outcome::from_name(name).map(Self::Y))
    }

    /// True when residuals are logarithms.
    #[must_use]
    pub const fn is_log_scale(self) -> bool {
        match self {
            Self::V(v) => v.is_log_scale(),
            Self::Y(y) => y.is_log_scale(),
        }
    }

    /// The smallest amount worth telling apart, in the variable's unit: the bottom of the
    /// logarithm for positive variables, the smallest σ for the others.
    #[must_use]
    pub const fn unit_floor(self) -> f64 {
        match self {
            Self::V(v) => mediator_floor(v),
            Self::Y(y) => outcome_floor(y),
        }
    }
}

impl Serialize for Variable {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Variable {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let name = String::deserialize(d)?;
        Self::from_name(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("unknown variable {name:?}")))
    }
}

/// Smallest amount of an outcome worth telling apart, in its unit.
#[must_use]
pub const fn outcome_floor(outcome: Outcome) -> f64 {
    match outcome {
        Outcome::CostPerToken => 1e-10,
        Outcome::P99TtftMs => 1.0,
        Outcome::P99TpotMs => 0.1,
        Outcome::ThroughputTokensPerSec => 0.1,
        Outcome::SloMargin => 0.01,
    }
}

const fn mediator_floor(mediator: Mediator) -> f64 {
    match mediator {
        Mediator::KvcacheHitRate
        | Mediator::GpuMemUsedFraction
        | Mediator::KvCacheUtil
        | Mediator::ActivationMemPressure
        | Mediator::SmUtilization
        | Mediator::MemBandwidthUtilization
        | Mediator::PipelineBubbleFraction
        | Mediator::CommOverheadPct
        | Mediator::KvPressureScore => 0.01,
        Mediator::InputLengthObserved | Mediator::OutputLengthObserved => 1.0,
        Mediator::VramHeadroomGb | Mediator::RunningRequests => 0.1,
        Mediator::QueueDepth => 0.5,
        Mediator::NvlinkBytesPerSec | Mediator::PcieBytesPerSec => 1e6,
        Mediator::PrefillTokensPerSec | Mediator::DecodeStepsPerSec => 0.1,
        Mediator::PdImbalance => 0.05,
        Mediator::PerTokCommBytes => 1.0,
        Mediator::ExpertImbalance => 0.01,
        Mediator::DispatchOverheadMs => 0.01,
    }
}

/// Observed against predicted on the variable's natural scale.
///
/// # Formula
/// ln observed − ln predicted for positive variables (both raised to the unit floor), observed −
/// predicted else
///
/// # Source
/// Spec §8
#[must_use]
pub fn residual(variable: Variable, observed: f64, predicted: f64) -> f64 {
    if variable.is_log_scale() {
        let floor = variable.unit_floor();
        observed.max(floor).ln() - predicted.max(floor).ln()
    } else {
        observed - predicted
    }
}

/// Standard deviation of residuals, never below the floor of the variable.
///
/// # Formula
/// max(sd with n − 1, floor); the floor is 1 % of |median| of the observed values, on the
/// variable's scale, or the unit floor if that is larger
///
/// # Source
/// Spec §8
#[must_use]
pub fn residual_std(
    variable: Variable,
    residuals: &[f64],
    observed: &[f64],
    floor_fraction: f64,
) -> f64 {
    let floor = if variable.is_log_scale() {
        // One per cent of any level is 0.01 in logarithms, whatever the level.
        floor_fraction
    } else {
        (floor_fraction * median(observed).unwrap_or(0.0).abs()).max(variable.unit_floor())
    };
    sample_std(residuals).unwrap_or(0.0).max(floor)
}

/// Sample standard deviation with n − 1; `None` below two values.
#[must_use]
pub fn sample_std(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    Some((squares / (n - 1.0)).sqrt())
}

/// The middle value, the mean of the two middle ones for even counts; `None` for none.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    sorted
        .get(sorted.len() / 2 - 1)
        .map(|lower| f64::midpoint(*lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positive_variables_are_compared_by_ratio_and_survive_zero() {
        let ttft = Variable::Y(Outcome::P99TtftMs);
        assert!((residual(ttft, 400.0, 200.0) - 2.0_f64.ln()).abs() < 1e-12);
        assert!(residual(Variable::V(Mediator::RunningRequests), 0.0, 0.0).abs() < 1e-12);
        let hit = Variable::V(Mediator::KvcacheHitRate);
        assert!((residual(hit, 0.5, 0.2) - 0.3).abs() < 1e-12);
    }

    #[test]
    fn spread_never_falls_below_the_floor() {
        let headroom = Variable::V(Mediator::VramHeadroomGb);
        // 1 % of the median 40 is 0.4, above the unit floor of 0.1.
        assert!((residual_std(headroom, &[0.0; 3], &[30.0, 40.0, 90.0], 0.01) - 0.4).abs() < 1e-12);
        assert!(
            (residual_std(headroom, &[1.0, -1.0], &[1.0, 3.0], 0.01) - 2.0_f64.sqrt()).abs()
                < 1e-12
        );
        assert!((residual_std(headroom, &[0.0; 3], &[0.0; 3], 0.01) - 0.1).abs() < 1e-12);
    }
}
