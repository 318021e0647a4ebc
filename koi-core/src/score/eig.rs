//! Explore: the saturating sum of uncertainty that a plan would put to the test.
//!
//! Holds the sum; what one rank tests is [`masks`]. While nothing says what contrasts know, a gain is
//! [`Eig::NotComputed`], never 0. White paper V1, Exploration: EIG; spec §7.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::causal::BeliefKey;
use crate::params::Params;

pub mod masks;

pub use masks::{EdgeGates, EdgePower, EdgePowers};

/// Expected information gain of a ladder or a plan; not computed is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Eig {
    /// The masks were not computed: nothing is known of the gain.
    #[default]
    NotComputed,
    /// The gain.
    Computed(f64),
}

impl Eig {
    /// The gain, when it was computed.
    #[must_use]
    pub const fn value(self) -> Option<f64> {
        match self {
            Self::NotComputed => None,
            Self::Computed(gain) => Some(gain),
        }
    }
}

/// How much each link is put to the test by one ladder, 0..=1.
pub type Masks = BTreeMap<BeliefKey, f64>;

/// Saturation over the ladders of a plan: testing a link twice teaches less than twice.
///
/// # Formula
/// A_e(P) = 1 − Π_i (1 − a_e(L_i))
///
/// # Source
/// White paper V1, Exploration: Expected Information Gain
#[must_use]
pub fn saturate(ladders: &[Masks]) -> Masks {
    let mut untested: Masks = BTreeMap::new();
    for (key, mask) in ladders.iter().flatten() {
        *untested.entry(key.clone()).or_insert(1.0) *= 1.0 - mask.clamp(0.0, 1.0);
    }
    untested
        .into_iter()
        .map(|(key, rest)| (key, 1.0 - rest))
        .collect()
}

/// The gain of saturated masks; a link of unknown uncertainty counts in full, as Beta(1, 1).
///
/// # Formula
/// Σ_e A_e U_e + w_M Σ_M A_M U_M
///
/// # Source
/// White paper V1, Exploration: Expected Information Gain
#[must_use]
pub fn information_gain(
    saturated: &Masks,
    uncertainty: &BTreeMap<BeliefKey, f64>,
    params: &Params,
) -> f64 {
    let term = |(key, mask): (&BeliefKey, &f64)| {
        let weight = match key {
            BeliefKey::Edge(_) => 1.0,
            BeliefKey::Mechanism(_) => params.eig_mechanism_weight,
        };
        weight * mask * uncertainty.get(key).copied().unwrap_or(1.0)
    };
    // The sum of nothing is -0; people read 0.
    saturated.iter().map(term).sum::<f64>() + 0.0
}

/// What a ladder adds to the gain of those that were counted before it; in whatever order ladders are
/// counted, the additions sum to the gain of all together.
///
/// # Formula
/// Σ_e (1 − A_e) a_e U_e + w_M Σ_M (1 − A_M) a_M U_M, A the saturated masks counted before
///
/// # Source
/// White paper V1, Exploration: Expected Information Gain
#[must_use]
pub fn marginal_gain(
    counted: &Masks,
    own: &Masks,
    uncertainty: &BTreeMap<BeliefKey, f64>,
    params: &Params,
) -> f64 {
    let untested = |key: &BeliefKey| 1.0 - counted.get(key).copied().unwrap_or(0.0).clamp(0.0, 1.0);
    let left = own
        .iter()
        .map(|(key, mask)| (key.clone(), untested(key) * mask.clamp(0.0, 1.0)))
        .collect();
    information_gain(&left, uncertainty, params)
}

/// Counts one more ladder.
pub fn count(counted: &mut Masks, own: &Masks) {
    for (key, mask) in own {
        let sum = counted.entry(key.clone()).or_insert(0.0);
        *sum = 1.0 - (1.0 - *sum) * (1.0 - mask.clamp(0.0, 1.0));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::score::vectors;

    #[derive(Deserialize)]
    struct In {
        masks: Vec<BTreeMap<String, f64>>,
        u: BTreeMap<String, f64>,
        w_m: f64,
    }

    #[derive(Deserialize)]
    struct Out {
        saturated: BTreeMap<String, f64>,
        eig: f64,
    }

    fn keys(named: BTreeMap<String, f64>) -> Masks {
        let key = |name: String| match name.split_once(':') {
            Some(("E", id)) => BeliefKey::Edge(id.to_owned()),
            Some(("M", id)) => BeliefKey::Mechanism(id.to_owned()),
            _ => panic!("{name}"),
        };
        named.into_iter().map(|(name, x)| (key(name), x)).collect()
    }

    #[test]
    fn vector_eig() {
        for case in vectors::load::<In, Out>("eig", "") {
            let ladders: Vec<Masks> = case.input.masks.into_iter().map(keys).collect();
            let saturated = saturate(&ladders);
            let expected = keys(case.output.saturated);
            assert_eq!(saturated.len(), expected.len(), "{}", case.name);
            for (key, mask) in &expected {
                vectors::assert_close(&case.name, saturated[key], *mask);
            }
            let params = Params {
                eig_mechanism_weight: case.input.w_m,
                ..Params::default()
            };
            let gain = information_gain(&saturated, &keys(case.input.u), &params);
            vectors::assert_close(&case.name, gain, case.output.eig);
        }
    }

    fn credits(ladders: &[Masks], uncertainty: &BTreeMap<BeliefKey, f64>) -> Vec<f64> {
        let mut counted = Masks::new();
        let credit = |own: &Masks| {
            let credit = marginal_gain(&counted, own, uncertainty, &Params::default());
            count(&mut counted, own);
            credit
        };
        ladders.iter().map(credit).collect()
    }

    fn link(n: u8) -> BeliefKey {
        match n % 2 {
            0 => BeliefKey::Edge(format!("e{n}")),
            _ => BeliefKey::Mechanism(format!("m{n}")),
        }
    }

    #[test]
    fn a_second_ladder_on_the_same_link_adds_what_the_first_left() {
        let own = Masks::from([(link(0), 0.6)]);
        let uncertainty = BTreeMap::from([(link(0), 0.5)]);
        let got = credits(&[own.clone(), own], &uncertainty);
        assert!((got[0] - 0.3).abs() < 1e-12 && (got[1] - 0.12).abs() < 1e-12);
        let whole = Masks::from([(link(0), 1.0)]);
        assert_eq!(credits(&[whole.clone(), whole], &uncertainty), [0.5, 0.0]);
    }

    proptest! {
        #[test]
        fn credits_sum_to_the_plan_in_any_order_and_never_exceed_their_own(
            ladders in prop::collection::vec(
                prop::collection::btree_map(0..8_u8, 0.0..=1.0_f64, 0..6), 0..7),
            doubts in prop::collection::btree_map(0..8_u8, 0.0..=1.0_f64, 0..8),
        ) {
            let named = |m: BTreeMap<u8, f64>| m.into_iter().map(|(n, x)| (link(n), x)).collect();
            let uncertainty: BTreeMap<BeliefKey, f64> = named(doubts);
            let mut ladders: Vec<Masks> = ladders.into_iter().map(named).collect();
            let params = Params::default();
            let whole = information_gain(&saturate(&ladders), &uncertainty, &params);
            for _ in 0..2 {
                let credits = credits(&ladders, &uncertainty);
                prop_assert!((credits.iter().sum::<f64>() - whole).abs() < 1e-9);
                for (credit, own) in credits.iter().zip(&ladders) {
                    let alone = information_gain(own, &uncertainty, &params);
                    prop_assert!(*credit >= -1e-12 && *credit <= alone + 1e-12);
                }
                ladders.reverse();
            }
        }
    }

    #[test]
    fn not_computed_is_not_zero() {
        assert_eq!(Eig::default().value(), None);
        let text = serde_json::to_string(&[Eig::NotComputed, Eig::Computed(0.0)]).unwrap();
        assert_eq!(text, r#"["not_computed",{"computed":0.0}]"#);
    }
}
