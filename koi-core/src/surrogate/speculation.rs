//! Guessing tokens ahead: how many a step moves a sequence on, and what the guesses cost.
//!
//! Each guessed token is accepted with one chance, independent of the others; not a model of the
//! draft's quality, which only a measurement gives. Leviathan, Kalman and Matias, 2023; spec §4.

use crate::configuration::{ShapeEffects, Term};

/// Tokens guessed where a method is chosen and their number is not.
const USUAL_DEPTH: f64 = 3.0;

/// What guessing does to one step of one sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Guessing {
    /// Guessed tokens that a step checks.
    pub(super) tokens: f64,
    /// Tokens by which a step moves a sequence on, on average.
    pub(super) gain: f64,
    /// Passes of the draft per step.
    pub(super) passes: f64,
    /// Batch from which nothing is guessed.
    batch_limit: f64,
}

impl Guessing {
    /// No guesses.
    pub(super) const NONE: Self = Self {
        tokens: 0.0,
        gain: 1.0,
        passes: 0.0,
        batch_limit: f64::INFINITY,
    };

    /// What the settings ask for.
    ///
    /// # Formula
    /// gain = (1 − α^(d+1)) / (1 − α), α = 1 − (1 − a)^k with k branches at each of d depths
    pub(super) fn of(effects: &ShapeEffects) -> Self {
        let accepted = effects.get(Term::AcceptedShare);
        if accepted <= 0.0 {
            return Self::NONE;
        }
        let asked = |term: Term| Some(effects.get(term)).filter(|n| *n >= 1.0);
        let tokens = asked(Term::GuessedTokens);
        let depth = asked(Term::GuessDepth).or(tokens).unwrap_or(USUAL_DEPTH);
        let depth = depth.min(effects.get(Term::GuessDepthLimit));
        let branches = effects.get(Term::GuessBranches);
        let chance = 1.0 - (1.0 - accepted).powf(branches);
        let tokens = tokens.map_or(depth * branches, |n| n.min(depth * branches));
        let one_pass = effects.get(Term::DraftOnePass) > 0.5;
        Self {
            tokens,
            gain: (1.0 - chance.powf(depth + 1.0)) / (1.0 - chance),
            passes: if one_pass { 1.0 } else { depth },
            batch_limit: effects.get(Term::GuessBatchLimit),
        }
    }

    /// The same with so many live sequences.
    pub(super) fn at(&self, live: f64) -> Self {
        if live >= self.batch_limit {
            Self::NONE
        } else {
            *self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gain_is_the_published_sum_and_the_limits_hold() {
        let mut effects = ShapeEffects::NEUTRAL;
        assert_eq!(Guessing::of(&effects), Guessing::NONE);
        effects.add(Term::AcceptedShare, 0.8);
        effects.add(Term::GuessedTokens, 4.0);
        let guessing = Guessing::of(&effects);
        // 1 + 0.8 + 0.64 + 0.512 + 0.4096
        assert!((guessing.gain - 3.3616).abs() < 1e-9);
        assert!((guessing.tokens - 4.0).abs() < 1e-12);
        effects.add(Term::GuessBatchLimit, 16.0);
        let limited = Guessing::of(&effects);
        assert_eq!(limited.at(16.0), Guessing::NONE);
        assert!(limited.at(15.0).gain > 3.0);
        effects.add(Term::GuessDepthLimit, 2.0);
        let short = Guessing::of(&effects);
        assert!((short.gain - 2.44).abs() < 1e-9 && short.tokens <= 2.0);
    }
}
