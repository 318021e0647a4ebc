//! What the sums of contrasts say of every edge's power, for the planner: how much one more contrast
//! would still narrow. It judges nothing and picks no probe. Spec §7 (a_e), §8.

use std::collections::BTreeMap;

use super::book::{ContrastBook, EdgeSums};
use super::errors::ChangeErrors;
use super::judgement::edge_judgement;
use super::sums::edge_effect;
use crate::causal::{CausalModel, Edge};
use crate::score::eig::{EdgePower, EdgePowers};

/// Power of every edge of the model in every environment in which it has a contrast.
///
/// Scopes overlap, so one pair of deployments may be in the sums of several: the scope with the most
/// contrasts speaks for the edge, the first of equals in the order of their canonical forms.
#[must_use]
pub fn edge_powers(book: &ContrastBook, model: &CausalModel) -> EdgePowers {
    let errors = ChangeErrors::of(book);
    let mut best: BTreeMap<(&str, &str), EdgePower> = BTreeMap::new();
    for (key, sums) in book.sums() {
        let power = model
            .edge(&key.edge)
            .and_then(|edge| edge_power(edge, sums, &errors));
        let Some(power) = power.filter(|p| p.n_contrasts > 0) else {
            continue;
        };
        let place = best
            .entry((key.edge.as_str(), key.environment.as_str()))
            .or_default();
        if power.n_contrasts > place.n_contrasts {
            *place = power;
        }
    }
    let mut powers = EdgePowers::default();
    for ((edge, environment), power) in best {
        powers.insert(edge, environment, power);
    }
    powers
}

/// A category has the error of its pair of levels with the most contrasts. `None` for an edge whose destination
/// is no variable.
fn edge_power(edge: &Edge, sums: &EdgeSums, errors: &ChangeErrors) -> Option<EdgePower> {
    let surrogate_error = errors.claim(edge, sums)?.surrogate_error;
    let of_levels = sums
        .levels
        .pairs()
        .max_by_key(|(_, _, pair)| pair.n)
        .and_then(|(_, _, pair)| edge_effect(pair, surrogate_error));
    let effect = edge_judgement(edge, sums, errors)?.effect.or(of_levels);
    Some(EdgePower {
        n_contrasts: sums.n(),
        standard_error: effect.map(|e| e.standard_error),
        surrogate_error,
    })
}
