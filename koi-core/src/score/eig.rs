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

#[cfg(test)]
mod tests {
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

    #[test]
    fn not_computed_is_not_zero() {
        assert_eq!(Eig::default().value(), None);
        let text = serde_json::to_string(&[Eig::NotComputed, Eig::Computed(0.0)]).unwrap();
        assert_eq!(text, r#"["not_computed",{"computed":0.0}]"#);
    }
}
