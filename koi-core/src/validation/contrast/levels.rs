//! Contrasts of categories: one sum per ordered pair of levels, for levels have no distance.
//!
//! Spec §8, Contrast.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::sums::{ContrastSums, edge_effect};
use super::verdict::{
    EdgeVerdict, EffectClaim, EnvironmentEffect, edge_verdict, invariance_of_powered, is_proven,
};
use crate::causal::Sign;
use crate::validation::icp::Icp;

#[cfg(test)]
mod tests;

/// Sums of one (edge, scope, environment) whose source is a category: (from, to) → sums with z = 1.
///
/// A change back is another pair: it has its own surrogate error and need not undo the first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LevelPairSums {
    #[serde(with = "as_rows")]
    pairs: BTreeMap<(String, String), ContrastSums>,
}

impl LevelPairSums {
    /// Counts what the change from one level to another left for the edge; equal levels are no
    /// contrast.
    pub fn add(&mut self, from: &str, to: &str, delta: f64) {
        if from == to || !super::sums::is_contrast(1.0, delta) {
            return;
        }
        let key = (from.to_owned(), to.to_owned());
        self.pairs.entry(key).or_default().add(1.0, delta);
    }

    /// Takes one contrast back that was added with the same values.
    pub fn remove(&mut self, from: &str, to: &str, delta: f64) {
        let key = (from.to_owned(), to.to_owned());
        let Some(sums) = self.pairs.get_mut(&key) else {
            return;
        };
        sums.remove(1.0, delta);
        if sums.n == 0 {
            self.pairs.remove(&key);
        }
    }

    /// Every ordered pair that has contrasts.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str, &ContrastSums)> {
        self.pairs
            .iter()
            .map(|((from, to), sums)| (from.as_str(), to.as_str(), sums))
    }

    /// Whether some pair of levels shows an effect.
    #[must_use]
    pub fn is_proven(&self, claim: &EffectClaim) -> bool {
        self.pairs.values().any(|sums| {
            let effect = edge_effect(sums, claim.surrogate_error);
            is_proven(sums, effect, &of_pair(claim, sums))
        })
    }

    /// Verdict on the edge: exercised when any pair is; contradicted when every exercised pair is.
    ///
    /// One pair without effect does not contradict: two levels may well be alike. Levels have no
    /// order, so a claimed sign says no more than that the level matters.
    #[must_use]
    pub fn verdict(&self, claim: &EffectClaim) -> EdgeVerdict {
        let verdict = |sums| edge_verdict(sums, &of_pair(claim, sums));
        let verdicts = self.pairs.values().map(verdict);
        // `Exercised` orders below `Contradicted`: the least of the exercised ones.
        verdicts
            .filter(|v| *v != EdgeVerdict::Unexercised)
            .min()
            .unwrap_or(EdgeVerdict::Unexercised)
    }
}

/// Leg (b) of the invariance verdict of a category: every pair of levels in every environment is a
/// test of its own, except that no environment counts twice.
#[must_use]
pub fn level_invariance(per_environment: &[(LevelPairSums, EffectClaim)]) -> Icp {
    let powered: Vec<EnvironmentEffect> = per_environment
        .iter()
        .filter_map(|(levels, claim)| {
            let pairs = levels.pairs.values().filter_map(|sums| {
                let claim = of_pair(claim, sums);
                let effect = edge_effect(sums, claim.surrogate_error)?;
                Some(EnvironmentEffect::powered(sums, effect, &claim)?.of_unordered())
            });
            EnvironmentEffect::strongest(pairs)
        })
        .collect();
    invariance_of_powered(&powered)
}

/// What the edge claims of one pair: an effect in whichever direction it shows. Between two levels
/// that direction is the same every time, so the mean change is the effect, and noise that averages
/// out of it does not pass for one.
fn of_pair(claim: &EffectClaim, sums: &ContrastSums) -> EffectClaim {
    let sign = if sums.zd < 0.0 {
        Sign::Negative
    } else {
        Sign::Positive
    };
    EffectClaim { sign, ..*claim }
}

/// JSON has no keys of two parts: pairs travel as rows of (from, to, sums).
mod as_rows {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::ContrastSums;

    type Pairs = BTreeMap<(String, String), ContrastSums>;

    pub(super) fn serialize<S: Serializer>(pairs: &Pairs, to: S) -> Result<S::Ok, S::Error> {
        let rows: Vec<_> = pairs.iter().map(|((a, b), sums)| (a, b, sums)).collect();
        rows.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Pairs, D::Error> {
        let rows = Vec::<(String, String, ContrastSums)>::deserialize(from)?;
        Ok(rows.into_iter().map(|(a, b, s)| ((a, b), s)).collect())
    }
}
