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
    // Names are compared where they lie and copied once, for what moves.
    let mut moves: Vec<(Subject<'_>, i64, i64)> =
        Vec::with_capacity(carriers.len() + row.mechanisms.len());
    let mut add = |subject, delta: Delta, weight: f64, k: i64| {
        let alpha = scaled(delta.alpha_micro, weight, k);
        moves.push((subject, alpha, scaled(delta.beta_micro, weight, k)));
    };
    for verdict in &row.mechanisms {
        let (Some(quadrant), Some(mechanism)) = (verdict.quadrant, model.mechanism(&verdict.id))
        else {
            continue;
        };
        let weight = verdict.weight(params);
        let own = Subject::Mechanism(&mechanism.id);
        add(own, table.mechanism(quadrant), weight, 1);
        for edge in &mechanism.edges {
            let icp = verdict.icp.get(edge).copied().unwrap_or(Icp::Undecided);
            let k = if params.normalize_shared_edges {
                shared(&carriers, edge)
            } else {
                1
            };
            add(Subject::Edge(edge), table.edge(icp, quadrant), weight, k);
        }
    }
    moves.sort_unstable_by_key(|m| m.0);
    let groups = moves.chunk_by(|a, b| a.0 == b.0);
    let sums = groups.filter_map(|group| {
        let (alpha, beta) = group
            .iter()
            .fold((0, 0), |sum, m| (sum.0 + m.1, sum.1 + m.2));
        Some((group.first()?.0, alpha, beta))
    });
    let changes: Vec<BeliefChange> = sums
        .filter(|(_, alpha, beta)| (*alpha, *beta) != (0, 0))
        .map(|(subject, alpha_micro, beta_micro)| BeliefChange {
            key: subject.key(),
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

/// Whose belief, by a name that lies elsewhere; ordered as [`BeliefKey`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Subject<'a> {
    Edge(&'a str),
    Mechanism(&'a str),
}

impl Subject<'_> {
    fn key(self) -> BeliefKey {
        match self {
            Self::Edge(id) => BeliefKey::Edge(id.to_owned()),
            Self::Mechanism(id) => BeliefKey::Mechanism(id.to_owned()),
        }
    }
}

/// Every edge that an applicable mechanism of the row carries, once for each, in order.
fn carriers<'a>(row: &EvidenceRow, model: &'a CausalModel) -> Vec<&'a str> {
    let mechanisms = row.mechanisms.iter().filter_map(|v| model.mechanism(&v.id));
    let edges = mechanisms.flat_map(|m| &m.edges).map(String::as_str);
    let mut edges: Vec<&str> = edges.collect();
    edges.sort_unstable();
    edges
}

/// How many of the row's mechanisms carry an edge.
fn shared(carriers: &[&str], edge: &str) -> i64 {
    let first = carriers.partition_point(|e| *e < edge);
    let of_edge = carriers.get(first..).unwrap_or_default();
    let n = of_edge.iter().take_while(|e| **e == edge).count();
    i64::try_from(n.max(1)).unwrap_or(i64::MAX)
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
    add_events(&mut beliefs, events);
    beliefs
}

/// Applies events to beliefs in place.
pub fn add_events<'a>(
    beliefs: &mut BTreeMap<BeliefKey, Belief>,
    events: impl IntoIterator<Item = &'a BeliefEvent>,
) {
    for change in events.into_iter().flat_map(|e| &e.changes) {
        // Looked up by reference first: a key is copied once, not with every change.
        if let Some(belief) = beliefs.get_mut(&change.key) {
            *belief = belief.plus(change.alpha_micro, change.beta_micro);
            continue;
        }
        let fresh = Belief::of_counts(1, 1).plus(change.alpha_micro, change.beta_micro);
        beliefs.insert(change.key.clone(), fresh);
    }
}
