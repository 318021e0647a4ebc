//! Ideal point z* and normalising ranges from similar past deployments.
//!
//! Which rows are similar is the caller's business. White paper V1, Appendix A; spec §7.

use serde::{Deserialize, Serialize};

use crate::params::Params;
use crate::variables::{Outcome, OutcomeValues};

/// The reference that J measures distance from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct IdealPoint {
    /// z*, per objective.
    pub ideal: OutcomeValues,
    /// Ranges, positive, per objective.
    pub range: OutcomeValues,
}

/// The reference before anything was observed.
#[must_use]
pub fn cold_start() -> IdealPoint {
    let mut cold = IdealPoint {
        ideal: OutcomeValues::absent(),
        range: OutcomeValues::absent(),
    };
    for outcome in Outcome::ALL {
        let (ideal, range) = match outcome {
            Outcome::CostPerToken => (1e-8, 1e-5),
            Outcome::P99TtftMs => (300.0, 500.0),
            Outcome::P99TpotMs => (50.0, 50.0),
            Outcome::ThroughputTokensPerSec => (3000.0, 1000.0),
            Outcome::SloMargin => (1.0, 1.0),
        };
        cold.ideal.set(outcome, Some(ideal));
        cold.range.set(outcome, Some(range));
    }
    cold
}

/// The reference from history, oldest row first; an objective with too few rows stays cold.
#[must_use]
pub fn ideal_point(history: &[OutcomeValues], params: &Params) -> IdealPoint {
    let mut point = cold_start();
    for outcome in Outcome::ALL {
        let mut seen: Vec<f64> = history
            .iter()
            .rev()
            .filter_map(|row| row.get(outcome))
            .take(params.range_rows as usize)
            .collect();
        if seen.len() < params.ideal_rows_min as usize {
            continue;
        }
        seen.sort_by(f64::total_cmp);
        let cold = point.range.get(outcome).unwrap_or(1.0);
        let range =
            (quantile(&seen, 0.95) - quantile(&seen, 0.05)).max(params.range_floor_fraction * cold);
        let best = best_with_slack(outcome, history, range * params.ideal_slack);
        point.range.set(outcome, Some(range));
        point.ideal.set(outcome, best);
    }
    point
}

/// Best observed value of an objective, moved by the slack beyond it.
///
/// # Formula
/// max_r y_rj + Δ_j where more is better, min_r y_rj − Δ_j else
///
/// # Source
/// White paper V1, Appendix A
#[must_use]
pub fn best_with_slack(outcome: Outcome, history: &[OutcomeValues], slack: f64) -> Option<f64> {
    let seen = history.iter().filter_map(|row| row.get(outcome));
    if outcome.is_maximised() {
        seen.max_by(f64::total_cmp).map(|best| best + slack)
    } else {
        seen.min_by(f64::total_cmp).map(|best| best - slack)
    }
}

/// Linear-interpolated quantile of sorted values, at least one.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let below = sorted[position.floor() as usize];
    let above = sorted[position.ceil() as usize];
    below + (position - position.floor()) * (above - below)
}
