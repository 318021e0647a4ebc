//! The members' answers as one, with learned weights.
//!
//! Everything happens in log space: the analytic value, times what the forests learned, times what
//! near measurements say. A member weighs as much as its coverage, so a silent member costs
//! nothing. Spec §4.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::neighbours::NeighbourVoice;
use super::residual::Quantity;

/// How much near measurements are believed, by quantity; how much the forests are, stands with the
/// intervals, since both come from the same left-out rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberWeights {
    /// Share of the neighbours' correction at full coverage, 0..=1.
    pub neighbours: f64,
}

/// Weights of every quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixture {
    /// How and when the numbers were found.
    pub fitted: String,
    /// Mean time per output token.
    pub tpot: MemberWeights,
    /// Mean time to first token.
    pub ttft: MemberWeights,
    /// Generated tokens per second.
    pub throughput: MemberWeights,
}

const EMBEDDED: &str = include_str!("../../../configs/calibration/mixture.toml");

impl Mixture {
    /// The weights that this build carries.
    #[must_use]
    pub fn embedded() -> &'static Self {
        static MIXTURE: LazyLock<Mixture> = LazyLock::new(|| {
            Mixture::parse(EMBEDDED).expect("invariant: a test parses the embedded weights")
        });
        &MIXTURE
    }

    /// Reads weights from TOML.
    ///
    /// # Errors
    /// What is malformed or outside 0..=1, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mixture: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        let is_share = |x: f64| (0.0..=1.0).contains(&x);
        let bad = Quantity::ALL.into_iter().find(|q| {
            let w = mixture.weights(*q);
            !is_share(w.neighbours)
        });
        match bad {
            Some(quantity) => Err(format!("a weight of {} is not in 0..=1", quantity.name())),
            None => Ok(mixture),
        }
    }

    /// Weights of a quantity.
    #[must_use]
    pub const fn weights(&self, quantity: Quantity) -> MemberWeights {
        match quantity {
            Quantity::Tpot => self.tpot,
            Quantity::Ttft => self.ttft,
            Quantity::Throughput => self.throughput,
        }
    }
}

/// What each member said of one quantity, and the mixture of it. Values are in the quantity's unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mixed {
    /// The mixture.
    pub value: f64,
    /// First principles alone.
    pub analytic: f64,
    /// With the forest's correction in full.
    pub residual: f64,
    /// With the neighbours' on top; absent when none is near.
    pub neighbours: Option<f64>,
    /// Weight of the analytic, residual and neighbours member; they add up to 1.
    pub weights: [f64; 3],
    /// How much measured ground is near: the neighbours' coverage.
    pub coverage: f64,
}

/// Mixes the members.
///
/// # Formula
/// ln y = ln a + λ·c + κ·v, λ = `share`, v = the voice of neighbours; its errors are measured
/// after λ·c
#[must_use]
pub fn mix(
    analytic: f64,
    correction: f64,
    voice: NeighbourVoice,
    weights: MemberWeights,
    share: f64,
) -> Mixed {
    let near = weights.neighbours * voice.coverage;
    let learned = analytic * (share * correction).exp();
    let neighbours = learned * (weights.neighbours * voice.correction).exp();
    Mixed {
        value: neighbours,
        analytic,
        residual: analytic * correction.exp(),
        neighbours: (voice.coverage > 1e-6).then_some(neighbours),
        weights: [(1.0 - near) * (1.0 - share), (1.0 - near) * share, near],
        coverage: voice.coverage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEIGHTS: MemberWeights = MemberWeights { neighbours: 0.8 };

    #[test]
    fn members_weigh_by_coverage_and_a_silent_one_costs_nothing() {
        let silent = mix(10.0, 0.2, NeighbourVoice::default(), WEIGHTS, 0.5);
        assert!((silent.value - 10.0 * 0.1_f64.exp()).abs() < 1e-12);
        assert_eq!(silent.neighbours, None);
        let voice = NeighbourVoice {
            correction: -0.1,
            coverage: 0.5,
        };
        let heard = mix(10.0, 0.2, voice, WEIGHTS, 1.0);
        assert!((heard.value - 10.0 * 0.12_f64.exp()).abs() < 1e-12);
        for mixed in [silent, heard] {
            assert!((mixed.weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn embedded_weights_parse_and_others_are_refused() {
        let text = EMBEDDED;
        assert!(Mixture::parse(text).is_ok());
        let bad = text.replacen("neighbours = 1", "neighbours = 7", 1);
        assert!(Mixture::parse(&bad).unwrap_err().contains("tpot"));
    }
}
