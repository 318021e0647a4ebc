//! Regret: how often mechanisms failed to be replicable successes lately.
//!
//! White paper V1, The Slow Loop and Assumption 2; spec §9.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::causal::{Belief, BeliefKey};
use crate::lifecycle::MechanismTrack;
use crate::params::Params;
use crate::validation::{EvidenceRow, Quadrant};

/// Decided verdicts of one mechanism, weighted by exercise.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerdictTally {
    /// Σ of the weights: how much it was put to the test.
    pub weight: f64,
    /// Σ of the weights of those that landed in Q1.
    pub q1: f64,
}

/// Tallies by mechanism.
pub type Tallies = BTreeMap<String, VerdictTally>;

/// What rows decided about each mechanism. Kept with every tick, so that no later one reads its rows
/// again.
#[must_use]
pub fn tally<'a>(rows: impl IntoIterator<Item = &'a EvidenceRow>, params: &Params) -> Tallies {
    let mut tallies = Tallies::new();
    for verdict in rows.into_iter().flat_map(|row| &row.mechanisms) {
        let Some(quadrant) = verdict.quadrant else {
            continue;
        };
        let weight = verdict.weight(params);
        let sum = tallies.entry(verdict.id.clone()).or_default();
        sum.weight += weight;
        if quadrant == Quadrant::Q1 {
            sum.q1 += weight;
        }
    }
    tallies
}

/// The tallies of several ticks together.
#[must_use]
pub fn together<'a>(ticks: impl IntoIterator<Item = &'a Tallies>) -> Tallies {
    let mut sums = Tallies::new();
    for (id, tally) in ticks.into_iter().flatten() {
        let sum = sums.entry(id.clone()).or_default();
        sum.weight += tally.weight;
        sum.q1 += tally.q1;
    }
    sums
}

/// Share of decided verdicts that landed in Q1, weighted by exercise; `None` when nothing was
/// decided.
///
/// Mechanisms already known to be bad are left out: at least `promote_rows_min` decided rows and
/// a confidence below one half.
#[must_use]
pub fn q1_rate(
    tallies: &Tallies,
    beliefs: &BTreeMap<BeliefKey, Belief>,
    tracks: &BTreeMap<String, MechanismTrack>,
    params: &Params,
) -> Option<f64> {
    let known_bad = |id: &str| {
        tracks
            .get(id)
            .is_some_and(|t| t.n_decided >= params.promote_rows_min)
            && beliefs
                .get(&BeliefKey::Mechanism(id.to_owned()))
                .is_some_and(|b| b.mean() < 0.5)
    };
    let counted = tallies.iter().filter(|(id, _)| !known_bad(id));
    let (q1, weight) = counted.fold((0.0, 0.0), |sum, (_, t)| (sum.0 + t.q1, sum.1 + t.weight));
    (weight > 0.0).then(|| q1 / weight)
}

/// Rolling regret over the Q1 rates of the window; `None` when there is none.
///
/// # Formula
/// s = (1 / W) Σ max(0, 1 − q_k)
///
/// # Source
/// White paper V1, Assumption 2
#[must_use]
pub fn regret(q1_rates: &[f64]) -> Option<f64> {
    let shortfall: f64 = q1_rates.iter().map(|q| (1.0 - q).max(0.0)).sum();
    (!q1_rates.is_empty()).then(|| shortfall / q1_rates.len() as f64)
}
