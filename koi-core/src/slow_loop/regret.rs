//! Regret: how often mechanisms failed to be replicable successes lately.
//!
//! White paper V1, The Slow Loop and Assumption 2; spec §9.

use std::collections::BTreeMap;

use crate::causal::{Belief, BeliefKey};
use crate::lifecycle::MechanismTrack;
use crate::params::Params;
use crate::validation::{EvidenceRow, Quadrant};

/// Share of decided verdicts that landed in Q1, weighted by exercise, and their weight; `None`
/// when nothing was decided.
///
/// Mechanisms already known to be bad are left out: at least `promote_rows_min` decided rows and
/// a confidence below one half.
#[must_use]
pub fn q1_rate<'a>(
    rows: impl IntoIterator<Item = &'a EvidenceRow>,
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
    let (mut successes, mut total) = (0.0, 0.0);
    for verdict in rows.into_iter().flat_map(|row| &row.mechanisms) {
        let Some(quadrant) = verdict.quadrant else {
            continue;
        };
        if known_bad(&verdict.id) {
            continue;
        }
        let weight = verdict.weight(params);
        total += weight;
        if quadrant == Quadrant::Q1 {
            successes += weight;
        }
    }
    (total > 0.0).then(|| successes / total)
}

/// How much each mechanism was put to the test in these rows: decided verdicts weighted by
/// exercise, by id.
#[must_use]
pub fn exercise_of<'a>(
    rows: impl IntoIterator<Item = &'a EvidenceRow>,
    params: &Params,
) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for verdict in rows.into_iter().flat_map(|row| &row.mechanisms) {
        if verdict.quadrant.is_some() {
            *sums.entry(verdict.id.clone()).or_default() += verdict.weight(params);
        }
    }
    sums
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
