//! How much one rank would put each edge and its mechanism to the test.
//!
//! Works on what contrasts already know and on gates that the caller decided; it neither picks
//! references nor predicts. Spec §7 (a_e, a_M).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Masks;
use crate::causal::{BeliefKey, CausalModel, EdgeEnds, Mechanism};
use crate::params::Params;
use crate::variables::Mediator;

/// What contrasts know of an edge in one environment.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgePower {
    /// Contrasts.
    pub n_contrasts: u32,
    /// Standard error of the edge's slope, the surrogate's own error included; absent below two
    /// contrasts.
    pub standard_error: Option<f64>,
    /// s₀: the surrogate's own error for the destination, which no contrast removes.
    pub surrogate_error: f64,
}

/// What contrasts know of every edge, by edge and environment (or ordered pair of environments, as
/// contrasts name them). An edge that is not here has no contrast.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EdgePowers {
    edges: BTreeMap<String, BTreeMap<String, EdgePower>>,
}

impl EdgePowers {
    /// States what is known of an edge in an environment.
    pub fn insert(&mut self, edge: &str, environment: &str, power: EdgePower) {
        let environments = self.edges.entry(edge.to_owned()).or_default();
        environments.insert(environment.to_owned(), power);
    }

    /// What is known of an edge in an environment.
    #[must_use]
    pub fn power(&self, edge: &str, environment: &str) -> Option<&EdgePower> {
        self.edges.get(edge)?.get(environment)
    }

    /// Environments in which the edge has a contrast, with one more.
    #[must_use]
    pub fn environments_with(&self, edge: &str, environment: &str) -> usize {
        let seen = self.edges.get(edge).into_iter().flatten();
        let mut names: BTreeSet<&str> = seen
            .filter(|(_, power)| power.n_contrasts > 0)
            .map(|(name, _)| name.as_str())
            .collect();
        names.insert(environment);
        names.len()
    }

    /// True when enough environments have a contrast precise enough for a verdict.
    ///
    /// # Formula
    /// ≥ `icp_environments_min` environments with ≥ 3 contrasts and 2·se ≤ the smallest effect
    ///
    /// # Source
    /// Spec §8, ICP (b)
    #[must_use]
    pub fn is_powered(&self, edge: &str, smallest_effect: f64, params: &Params) -> bool {
        let known = self.edges.get(edge).into_iter().flat_map(BTreeMap::values);
        let precise = known.filter(|power| {
            let se = power.standard_error.filter(|se| se.is_finite());
            power.n_contrasts >= CONTRASTS_MIN && se.is_some_and(|se| 2.0 * se <= smallest_effect)
        });
        precise.count() >= params.icp_environments_min as usize
    }
}

/// Contrasts that an environment needs before its slope is believed.
const CONTRASTS_MIN: u32 = 3;
/// Points that a child must be expected to bring.
pub const POINTS_MIN: f64 = 3.0;

/// What must hold before a rank can test an edge at all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EdgeGates {
    /// The ladder sets the source; for an edge out of a mediator, an eligible edge enters it.
    pub source_is_set: bool,
    /// The host shows the child.
    pub child_is_observable: bool,
    /// Points of the child that are expected.
    pub points_expected: f64,
    /// The rank would create or deepen a contrast: an earlier deployment differs in the source.
    pub makes_contrast: bool,
}

impl EdgeGates {
    /// True when all gates are open.
    #[must_use]
    pub fn are_open(&self) -> bool {
        self.source_is_set
            && self.child_is_observable
            && self.points_expected >= POINTS_MIN
            && self.makes_contrast
    }
}

/// By how much one more contrast of the usual size narrows the slope's error.
///
/// # Formula
/// 1 − se_after / se_before with se_after² = (se² − s₀²)·n/(n + 1) + s₀²; 1 without a contrast or
/// without an error yet
#[must_use]
pub fn narrowing(power: Option<&EdgePower>) -> f64 {
    let Some(power) = power.filter(|p| p.n_contrasts > 0) else {
        return 1.0;
    };
    let Some(before) = power
        .standard_error
        .filter(|se| se.is_finite() && *se > 0.0)
    else {
        return 1.0;
    };
    let floor = power.surrogate_error * power.surrogate_error;
    let sampled = (before * before - floor).max(0.0);
    let n = f64::from(power.n_contrasts);
    let after = (sampled * n / (n + 1.0) + floor.min(before * before)).sqrt();
    (1.0 - after / before).clamp(0.0, 1.0)
}

/// a_e: how much a rank tests an edge in an environment.
///
/// # Formula
/// gates × (1 − se_after/se_before) × min(1, |envs_seen ∪ {e}| / 3)
///
/// # Source
/// Spec §7
#[must_use]
pub fn edge_mask(
    gates: &EdgeGates,
    (edge, environment): (&str, &str),
    powers: &EdgePowers,
    params: &Params,
) -> f64 {
    if !gates.are_open() {
        return 0.0;
    }
    let seen = powers.environments_with(edge, environment) as f64;
    let spread = (seen / f64::from(params.icp_environments_min.max(1))).min(1.0);
    narrowing(powers.power(edge, environment)) * spread
}

/// a_M: the largest over the mechanism's X→V→Y paths of the smallest a_e.
///
/// # Source
/// Spec §7
#[must_use]
pub fn mechanism_mask(
    mechanism: &Mechanism,
    model: &CausalModel,
    edge_masks: &BTreeMap<String, f64>,
) -> f64 {
    let edges = || {
        let known = mechanism.edges.iter().filter_map(|id| model.edge(id));
        known.map(|e| (&e.ends, edge_masks.get(&e.id).copied().unwrap_or(0.0)))
    };
    let mut reached: BTreeMap<Mediator, f64> = BTreeMap::new();
    let mut raise = |v: Mediator, mask: f64| {
        let best = reached.entry(v).or_insert(0.0);
        *best = best.max(mask);
    };
    for (ends, mask) in edges() {
        if let EdgeEnds::FeatureToMediator(_, v) = ends {
            raise(*v, mask);
        }
    }
    // Mediators form no circle: after as many rounds as there are edges nothing moves any more.
    for _ in 0..mechanism.edges.len() {
        for (ends, mask) in edges() {
            if let EdgeEnds::MediatorToMediator(from, to) = ends {
                let through = reached.get(from).copied().unwrap_or(0.0).min(mask);
                let best = reached.entry(*to).or_insert(0.0);
                *best = best.max(through);
            }
        }
    }
    let ends = edges().filter_map(|(ends, mask)| match ends {
        EdgeEnds::MediatorToOutcome(v, _) => Some(reached.get(v).copied().unwrap_or(0.0).min(mask)),
        EdgeEnds::FeatureToMediator(..) | EdgeEnds::MediatorToMediator(..) => None,
    });
    ends.fold(0.0, f64::max)
}

/// The masks of one rank that commits a mechanism: its edges and itself. Zeros are left out.
#[must_use]
pub fn rank_masks(
    mechanism: &Mechanism,
    model: &CausalModel,
    edge_masks: &BTreeMap<String, f64>,
) -> Masks {
    let of_edges = edge_masks
        .iter()
        .filter(|(id, _)| mechanism.edges.contains(*id))
        .map(|(id, mask)| (BeliefKey::Edge(id.clone()), *mask));
    let own = mechanism_mask(mechanism, model, edge_masks);
    let own = (BeliefKey::Mechanism(mechanism.id.clone()), own);
    of_edges
        .chain([own])
        .filter(|(_, mask)| *mask > 0.0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causal::testing::model;
    use proptest::prelude::*;

    const OPEN: EdgeGates = EdgeGates {
        source_is_set: true,
        child_is_observable: true,
        points_expected: 3.0,
        makes_contrast: true,
    };

    fn power(n_contrasts: u32, se: f64, surrogate_error: f64) -> EdgePower {
        EdgePower {
            n_contrasts,
            standard_error: Some(se),
            surrogate_error,
        }
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    }

    #[test]
    fn an_untested_edge_is_worth_most_and_a_known_one_little() {
        close(narrowing(None), 1.0);
        close(
            narrowing(Some(&EdgePower {
                n_contrasts: 1,
                ..EdgePower::default()
            })),
            1.0,
        );
        close(
            narrowing(Some(&power(3, 0.1, 0.0))),
            1.0 - (0.75_f64).sqrt(),
        );
        // Nothing is left but the surrogate's own error: more contrasts teach nothing.
        close(narrowing(Some(&power(3, 0.1, 0.1))), 0.0);
        close(narrowing(Some(&power(3, 0.1, 0.5))), 0.0);
    }

    #[test]
    fn the_first_environment_counts_a_third_and_the_third_in_full() {
        let params = Params::default();
        let mut powers = EdgePowers::default();
        let mask = |powers: &EdgePowers, e: &str| edge_mask(&OPEN, ("a->b", e), powers, &params);
        // An unexplored link is never blocked for being unexplored.
        close(mask(&powers, "e1"), 1.0 / 3.0);
        powers.insert("a->b", "e1", power(4, 0.2, 0.0));
        powers.insert("a->b", "e2", power(0, 0.0, 0.0));
        close(mask(&powers, "e3"), 2.0 / 3.0);
        close(mask(&powers, "e1"), (1.0 - (0.8_f64).sqrt()) / 3.0);
        powers.insert("a->b", "e2", power(4, 0.2, 0.0));
        close(mask(&powers, "e3"), 1.0);
    }

    #[test]
    fn every_gate_shuts_alone() {
        let params = Params::default();
        let shut = [
            EdgeGates {
                source_is_set: false,
                ..OPEN
            },
            EdgeGates {
                child_is_observable: false,
                ..OPEN
            },
            EdgeGates {
                points_expected: 2.9,
                ..OPEN
            },
            EdgeGates {
                points_expected: f64::NAN,
                ..OPEN
            },
            EdgeGates {
                makes_contrast: false,
                ..OPEN
            },
        ];
        for gates in shut {
            close(
                edge_mask(&gates, ("a->b", "e"), &EdgePowers::default(), &params),
                0.0,
            );
        }
    }

    #[test]
    fn three_precise_environments_make_power() {
        let params = Params::default();
        let mut powers = EdgePowers::default();
        for (i, e) in ["e1", "e2", "e3"].into_iter().enumerate() {
            assert!(!powers.is_powered("a->b", 0.05, &params), "{i}");
            powers.insert("a->b", e, power(3, 0.025, 0.0));
        }
        assert!(powers.is_powered("a->b", 0.05, &params));
        assert!(!powers.is_powered("a->b", 0.04, &params));
        powers.insert("a->b", "e3", power(2, 0.001, 0.0));
        assert!(!powers.is_powered("a->b", 0.05, &params));
    }

    #[test]
    fn a_mechanism_is_tested_by_its_best_path() {
        let model = model();
        let two_paths = model.mechanisms().find(|m| m.mediators.len() > 1).unwrap();
        let mut masks: BTreeMap<String, f64> =
            two_paths.edges.iter().map(|e| (e.clone(), 0.0)).collect();
        close(mechanism_mask(two_paths, &model, &masks), 0.0);
        for mask in masks.values_mut() {
            *mask = 0.5;
        }
        close(mechanism_mask(two_paths, &model, &masks), 0.5);
        // The way in alone tests no path.
        let into = |id: &String| model.edge(id).unwrap().ends.outcome().is_none();
        let ways_in: BTreeMap<String, f64> = two_paths
            .edges
            .iter()
            .filter(|e| into(e))
            .map(|e| (e.clone(), 0.9))
            .collect();
        close(mechanism_mask(two_paths, &model, &ways_in), 0.0);
        let all = rank_masks(two_paths, &model, &masks);
        assert_eq!(all.len(), two_paths.edges.len() + 1);
        assert!(rank_masks(two_paths, &model, &BTreeMap::new()).is_empty());
    }

    proptest! {
        #[test]
        fn masks_stay_between_zero_and_one_and_more_contrasts_teach_less(
            n in 1..10_000_u32, se in 1e-9..10.0_f64, s0 in 0.0..10.0_f64,
        ) {
            let params = Params::default();
            let mut powers = EdgePowers::default();
            powers.insert("a->b", "e", power(n, se, s0));
            let mask = edge_mask(&OPEN, ("a->b", "e"), &powers, &params);
            prop_assert!((0.0..=1.0).contains(&mask));
            let now = narrowing(Some(&power(n, se, s0)));
            let later = narrowing(Some(&power(n + 1, se, s0)));
            prop_assert!(later <= now + 1e-12);
        }
    }
}
