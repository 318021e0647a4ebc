//! S3's fast learning: evidence rows to belief events, and events back to beliefs.
//!
//! S2 writes evidence and nothing else; only this file moves a Beta. White paper V1, Tick
//! Algorithm S3; spec §6.

use std::collections::BTreeMap;

use super::belief::{Belief, BeliefChange, BeliefEvent, BeliefKey, BeliefSource, MICROS_PER_COUNT};
use super::graph::CausalModel;
use crate::ids::TickId;
use crate::params::Params;
use crate::validation::evidence::EvidenceRow;
use crate::validation::icp::Icp;
use crate::validation::update_table::{Delta, UpdateTable};

#[cfg(test)]
mod tests;

/// One event per evidence row that decided something: each decided mechanism moves by its
/// quadrant, and through it its edges by quadrant and invariance.
///
/// # Formula
/// Δ_micro = round-half-even(Δ · weight / k · 10⁶), k the applicable mechanisms of the row that
/// carry the edge
///
/// # Source
/// Spec §6
#[must_use]
pub fn fan_out(
    rows: &[EvidenceRow],
    model: &CausalModel,
    table: &UpdateTable,
    params: &Params,
) -> Vec<BeliefEvent> {
    rows.iter()
        .filter_map(|row| row_event(row, model, table, params))
        .collect()
}

fn row_event(
    row: &EvidenceRow,
    model: &CausalModel,
    table: &UpdateTable,
    params: &Params,
) -> Option<BeliefEvent> {
    let carriers = carriers(row, model);
    let mut sums: BTreeMap<BeliefKey, (i64, i64)> = BTreeMap::new();
    let mut add = |key: BeliefKey, delta: Delta, weight: f64, k: i64| {
        let sum = sums.entry(key).or_default();
        sum.0 += scaled(delta.alpha_micro, weight, k);
        sum.1 += scaled(delta.beta_micro, weight, k);
    };
    for verdict in &row.mechanisms {
        let (Some(quadrant), Some(mechanism)) = (verdict.quadrant, model.mechanism(&verdict.id))
        else {
            continue;
        };
        let weight = verdict.weight(params);
        add(
            BeliefKey::Mechanism(mechanism.id.clone()),
            table.mechanism(quadrant),
            weight,
            1,
        );
        for edge in &mechanism.edges {
            let icp = verdict.icp.get(edge).copied().unwrap_or(Icp::Undecided);
            let shared = carriers.get(edge.as_str()).copied().unwrap_or(1);
            let k = if params.normalize_shared_edges {
                shared
            } else {
                1
            };
            add(
                BeliefKey::Edge(edge.clone()),
                table.edge(icp, quadrant),
                weight,
                k,
            );
        }
    }
    let changes: Vec<BeliefChange> = sums
        .into_iter()
        .filter(|(_, sum)| *sum != (0, 0))
        .map(|(key, (alpha_micro, beta_micro))| BeliefChange {
            key,
            alpha_micro,
            beta_micro,
        })
        .collect();
    let source = BeliefSource::Evidence {
        job: row.job,
        rank: row.rank,
        generation: row.generation,
    };
    (!changes.is_empty()).then_some(BeliefEvent {
        tick: row.tick,
        source,
        changes,
    })
}

/// How many applicable mechanisms of the row carry each edge.
fn carriers<'a>(row: &EvidenceRow, model: &'a CausalModel) -> BTreeMap<&'a str, i64> {
    let mut count = BTreeMap::new();
    let mechanisms = row.mechanisms.iter().filter_map(|v| model.mechanism(&v.id));
    for edge in mechanisms.flat_map(|m| &m.edges) {
        *count.entry(edge.as_str()).or_default() += 1;
    }
    count
}

/// `delta · weight / k`, rounded half to even, in integers so that ties are ties.
fn scaled(delta_micro: i64, weight: f64, k: i64) -> i64 {
    let weight_micro = (weight * MICROS_PER_COUNT as f64).round_ties_even() as i64;
    round_half_even(
        i128::from(delta_micro) * i128::from(weight_micro),
        i128::from(MICROS_PER_COUNT) * i128::from(k),
    )
}

/// The integer nearest to `numerator / denominator`, ties to the even one.
///
/// # Panics
/// When the denominator is not positive.
pub(crate) fn round_half_even(numerator: i128, denominator: i128) -> i64 {
    assert!(
        denominator > 0,
        "invariant: counts and weights that divide are positive"
    );
    let floor = numerator.div_euclid(denominator);
    let twice = 2 * numerator.rem_euclid(denominator);
    let up = twice > denominator || (twice == denominator && floor % 2 != 0);
    (floor + i128::from(up)).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// The event that scales every belief above the bound back to it, keeping its mean; `None` when
/// no belief is above.
///
/// # Formula
/// α ← round-half-even(α · bound / (α + β)), β ← bound − α
///
/// # Source
/// Spec §6
#[must_use]
pub fn forget(
    tick: TickId,
    beliefs: &BTreeMap<BeliefKey, Belief>,
    params: &Params,
) -> Option<BeliefEvent> {
    let bound = (params.belief_forget_above * MICROS_PER_COUNT as f64).round() as i64;
    let scale = |key: &BeliefKey, belief: &Belief| {
        let total = belief.alpha_micro.saturating_add(belief.beta_micro);
        (total > bound).then(|| {
            let product = i128::from(belief.alpha_micro) * i128::from(bound);
            let alpha = round_half_even(product, i128::from(total));
            BeliefChange {
                key: key.clone(),
                alpha_micro: alpha - belief.alpha_micro,
                beta_micro: bound - alpha - belief.beta_micro,
            }
        })
    };
    let changes: Vec<BeliefChange> = beliefs.iter().filter_map(|(k, b)| scale(k, b)).collect();
    (!changes.is_empty()).then_some(BeliefEvent {
        tick,
        source: BeliefSource::Forget,
        changes,
    })
}

/// Applies events to beliefs; a key without a belief starts at Beta(1, 1), as proposals do.
#[must_use]
pub fn replay<'a>(
    seeds: &BTreeMap<BeliefKey, Belief>,
    events: impl IntoIterator<Item = &'a BeliefEvent>,
) -> BTreeMap<BeliefKey, Belief> {
    let mut beliefs = seeds.clone();
    for change in events.into_iter().flat_map(|e| &e.changes) {
        let belief = beliefs
            .entry(change.key.clone())
            .or_insert_with(|| Belief::of_counts(1, 1));
        *belief = belief.plus(change.alpha_micro, change.beta_micro);
    }
    beliefs
}
