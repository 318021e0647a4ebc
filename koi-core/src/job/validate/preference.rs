//! The preference of a job: weights on the simplex, hard limits, and the breach probability allowed.
//! White paper V1, Exploitation: Augmented Tchebycheff.

use std::collections::BTreeMap;

use super::super::draft::PreferenceDraft;
use super::super::{JobClass, Preference};
use super::{choice, in_range};
use crate::variables::{OUTCOME_COUNT, Outcome};
use crate::violation::Violations;

/// How far the weights' sum may be from 1.
const SIMPLEX_TOLERANCE: f64 = 1e-6;
const DEFAULT_TAU: f64 = 0.10;
/// Largest hard limit, in the outcome's unit.
const MAX_LIMIT: f64 = 1e12;

/// Default weights of a class, in the order cost, TTFT, TPOT, throughput, SLO margin.
const fn class_weights(class: JobClass) -> [f64; OUTCOME_COUNT] {
    match class {
        JobClass::Online => [0.10, 0.35, 0.35, 0.10, 0.10],
        JobClass::Batch => [0.35, 0.05, 0.05, 0.35, 0.20],
    }
}

pub(super) fn validate(
    draft: &PreferenceDraft,
    class: Option<JobClass>,
    bad: &mut Violations,
) -> Option<Preference> {
    let weights = weights(&draft.weights, class, bad);
    let hard = hard(&draft.hard, bad);
    let tau = in_range(
        "preference.tau",
        draft.tau.unwrap_or(DEFAULT_TAU),
        0.001..=0.5,
        "(a probability)",
        bad,
    );
    Some(Preference {
        pinned: !draft.weights.is_empty(),
        weights: weights?,
        hard: hard?,
        tau: tau?,
    })
}

fn outcome(field: &str, name: &str, bad: &mut Violations) -> Option<Outcome> {
    choice(field, name, &Outcome::ALL.map(|o| (o.name(), o)), bad)
}

fn shown(name: &str) -> String {
    name.chars().take(48).flat_map(char::escape_debug).collect()
}

fn weights(
    draft: &BTreeMap<String, f64>,
    class: Option<JobClass>,
    bad: &mut Violations,
) -> Option<[f64; OUTCOME_COUNT]> {
    if draft.is_empty() {
        return class.map(class_weights);
    }
    let mut given = [None; OUTCOME_COUNT];
    let mut fine = true;
    for (name, weight) in draft {
        let field = format!("preference.weights.{}", shown(name));
        let outcome = outcome(&field, name, bad);
        let weight = in_range(&field, *weight, 0.0..=1.0, "", bad);
        fine &= outcome.is_some() && weight.is_some();
        if let Some(outcome) = outcome {
            given[outcome.index()] = weight;
        }
    }
    let missing: Vec<&str> = Outcome::ALL
        .into_iter()
        .filter(|o| !draft.contains_key(o.name()))
        .map(Outcome::name)
        .collect();
    if !missing.is_empty() && fine {
        bad.add(
            "preference.weights",
            format!(
                "name all five outcomes, 0 where one does not matter; missing: {}",
                missing.join(", ")
            ),
        );
        return None;
    }
    let weights = given.map(|w| w.unwrap_or(0.0));
    let sum: f64 = weights.iter().sum();
    if fine && (sum - 1.0).abs() > SIMPLEX_TOLERANCE {
        bad.add("preference.weights", format!("must sum to 1, got {sum}"));
        return None;
    }
    fine.then_some(weights)
}

fn hard(draft: &BTreeMap<String, f64>, bad: &mut Violations) -> Option<BTreeMap<Outcome, f64>> {
    let mut limits = BTreeMap::new();
    for (name, limit) in draft {
        let field = format!("preference.hard.{}", shown(name));
        let outcome = outcome(&field, name, bad);
        let lowest = if outcome.is_some_and(Outcome::is_log_scale) {
            1e-12
        } else {
            -MAX_LIMIT
        };
        let limit = in_range(
            &field,
            *limit,
            lowest..=MAX_LIMIT,
            outcome.map_or("", Outcome::unit),
            bad,
        );
        if let (Some(outcome), Some(limit)) = (outcome, limit) {
            limits.insert(outcome, limit);
        }
    }
    (limits.len() == draft.len()).then_some(limits)
}
