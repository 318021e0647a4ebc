//! The scale on which a contrast compares two values of a variable, and when they differ enough.
//!
//! Spec §8, Contrast: logarithms for positive quantities, 0 and 1 for flags, levels for categories.

use crate::catalog::{Domain, Feature, Value};
use crate::validation::residual::Variable;
use crate::variables::Mediator;

/// Smallest |ln ratio| of two values that differ materially.
pub const MATERIAL_LOG_RATIO: f64 = 0.2;

/// What a level is called where a setting is left to the engine.
const UNSET: &str = "(unset)";

/// A change of an edge's source from a reference to the deployment.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// By so much on the natural scale.
    By(f64),
    /// From one level to another.
    Levels {
        /// Level of the reference.
        from: String,
        /// Level of the deployment.
        to: String,
    },
}

impl Step {
    /// z of the step; a change of level counts as one.
    #[must_use]
    pub const fn z(&self) -> f64 {
        match self {
            Self::By(z) => *z,
            Self::Levels { .. } => 1.0,
        }
    }
}

/// True when a variable is compared by ratio: everything but fractions, margins and log ratios.
///
/// Wider than the scale of residuals: a queue or the memory left over may be zero, yet between two
/// deployments it changes by factors.
#[must_use]
pub const fn is_by_ratio(variable: Variable) -> bool {
    match variable {
        Variable::V(Mediator::QueueDepth | Mediator::VramHeadroomGb) => true,
        Variable::V(v) => v.is_log_scale(),
        Variable::Y(y) => y.is_log_scale(),
    }
}

/// A variable's value on its natural scale.
///
/// # Formula
/// ln max(x, unit floor) where ratios count, x else
#[must_use]
pub fn natural(variable: Variable, value: f64) -> f64 {
    if is_by_ratio(variable) {
        value.max(variable.unit_floor()).ln()
    } else {
        value
    }
}

/// The step of a mediator between two means on the natural scale, if it is material.
///
/// # Formula
/// |ln ratio| ≥ 0.2; of a fraction both at least the unit floor, of a log ratio the difference itself
#[must_use]
pub fn mediator_step(mediator: Mediator, from: f64, to: f64) -> Option<Step> {
    let variable = Variable::V(mediator);
    let log_ratio = if is_by_ratio(variable) || mediator == Mediator::PdImbalance {
        to - from
    } else {
        let floor = variable.unit_floor();
        (to.max(floor) / from.max(floor)).ln()
    };
    let z = to - from;
    let is_material = log_ratio.abs() >= MATERIAL_LOG_RATIO;
    (is_material && z.is_finite()).then_some(Step::By(z))
}

/// The step of a feature between two values, if it is material. `None` is a setting that is left
/// to the engine and of which the catalog does not know what the engine does.
///
/// # Formula
/// flags: ±1; names and unordered choices: from level to level; positive numbers: ln of the ratio
/// from |ln ratio| = 0.2 on; between zero and a positive number ±1, for then it is switched on or
/// off
#[must_use]
pub fn feature_step(row: &Feature, from: Option<&Value>, to: Option<&Value>) -> Option<Step> {
    if is_level(row) {
        let name = |v: Option<&Value>| v.map_or_else(|| UNSET.to_owned(), ToString::to_string);
        let (from, to) = (name(from), name(to));
        return (from != to).then_some(Step::Levels { from, to });
    }
    let (from, to) = (number(from?)?, number(to?)?);
    let z = match (from > 0.0, to > 0.0) {
        (true, true) if row.domain != Domain::Bool => {
            let log_ratio = (to / from).ln();
            (log_ratio.abs() >= MATERIAL_LOG_RATIO).then_some(log_ratio)?
        }
        (false, true) => 1.0,
        (true, false) => -1.0,
        _ => return None,
    };
    z.is_finite().then_some(Step::By(z))
}

/// Names have no order, nor have numbers that name something.
fn is_level(row: &Feature) -> bool {
    match &row.domain {
        Domain::Choice(_) | Domain::Text { .. } => true,
        Domain::IntChoice(_) => row.unit == "none",
        Domain::Bool | Domain::Int { .. } | Domain::Float { .. } => false,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        Value::Int(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        Value::Text(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    fn step(id: &str, from: Option<Value>, to: Option<Value>) -> Option<Step> {
        let row = Catalog::embedded().feature(id).unwrap();
        feature_step(row, from.as_ref(), to.as_ref())
    }

    #[test]
    fn each_kind_of_feature_steps_on_its_own_scale() {
        let some = |v: u32| Some(Value::from(v));
        let by = |z: f64| Some(Step::By(z));
        assert_eq!(step("max_num_seqs", some(64), some(128)), by(2.0_f64.ln()));
        assert_eq!(
            step("max_num_seqs", some(64), some(70)),
            None,
            "not material"
        );
        assert_eq!(step("num_lookahead_slots", some(0), some(4)), by(1.0));
        assert_eq!(step("num_lookahead_slots", some(4), some(0)), by(-1.0));
        let flag = |v: bool| Some(Value::from(v));
        assert_eq!(step("enforce_eager", flag(true), flag(false)), by(-1.0));
        assert_eq!(step("enforce_eager", flag(true), flag(true)), None);
        let levels = |from: &str, to: &str| {
            let (from, to) = (from.to_owned(), to.to_owned());
            Some(Step::Levels { from, to })
        };
        let text = |v: &str| Some(Value::from(v));
        assert_eq!(
            step("kvcache_dtype", text("auto"), text("fp8")),
            levels("auto", "fp8")
        );
        assert_eq!(
            step("attention_backend", None, text("triton")),
            levels("(unset)", "triton")
        );
        assert_eq!(
            step("optimization_level", some(0), some(3)),
            levels("0", "3")
        );
        assert_eq!(step("max_num_seqs", None, some(128)), None);
    }

    #[test]
    fn mediators_step_by_ratio_or_by_their_fraction() {
        let running = |from: f64, to: f64| {
            let ln = |x| natural(Variable::V(Mediator::RunningRequests), x);
            mediator_step(Mediator::RunningRequests, ln(from), ln(to))
        };
        assert!(
            matches!(running(10.0, 20.0), Some(Step::By(z)) if (z - 2.0_f64.ln()).abs() < 1e-12)
        );
        assert_eq!(running(10.0, 11.0), None);
        assert_eq!(
            mediator_step(Mediator::KvCacheUtil, 0.5, 0.25),
            Some(Step::By(-0.25))
        );
        assert_eq!(mediator_step(Mediator::KvCacheUtil, 0.5, 0.55), None);
        let queue = Variable::V(Mediator::QueueDepth);
        assert!(natural(queue, 0.0).is_finite());
    }
}
