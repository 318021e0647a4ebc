//! What is believed of an edge or a mechanism: Beta counts in integer micro-units.
//!
//! Integers, so that the counts equal the seed plus the sum of the events exactly, in any order.
//! White paper V1, The Beta-Bernoulli Confidence Model; spec §6.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{Generation, JobId, TickId};

/// Micro-units of one evidence count.
pub const MICROS_PER_COUNT: i64 = 1_000_000;

/// Beta(α, β) evidence counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Belief {
    /// α in millionths.
    pub alpha_micro: i64,
    /// β in millionths.
    pub beta_micro: i64,
}

impl Belief {
    /// A belief of whole counts.
    #[must_use]
    pub const fn of_counts(alpha: u32, beta: u32) -> Self {
        Self {
            alpha_micro: alpha as i64 * MICROS_PER_COUNT,
            beta_micro: beta as i64 * MICROS_PER_COUNT,
        }
    }

    /// α in counts.
    #[must_use]
    pub fn alpha(self) -> f64 {
        self.alpha_micro as f64 / MICROS_PER_COUNT as f64
    }

    /// β in counts.
    #[must_use]
    pub fn beta(self) -> f64 {
        self.beta_micro as f64 / MICROS_PER_COUNT as f64
    }

    /// Confidence: the posterior mean.
    ///
    /// # Formula
    /// c = α / (α + β)
    ///
    /// # Source
    /// White paper V1, The Beta-Bernoulli Confidence Model
    #[must_use]
    pub fn mean(self) -> f64 {
        self.alpha() / (self.alpha() + self.beta())
    }

    /// Posterior variance.
    ///
    /// # Formula
    /// αβ / ((α + β)² (α + β + 1))
    ///
    /// # Source
    /// White paper V1, The Beta-Bernoulli Confidence Model
    #[must_use]
    pub fn variance(self) -> f64 {
        let (a, b) = (self.alpha(), self.beta());
        let n = a + b;
        a * b / (n * n * (n + 1.0))
    }

    /// Relative uncertainty: 1 for an untested link, toward 0 as evidence accumulates.
    ///
    /// # Formula
    /// U(α, β) = 12 αβ / ((α + β)² (α + β + 1))
    ///
    /// # Source
    /// White paper V1, The Beta-Bernoulli Confidence Model
    #[must_use]
    pub fn uncertainty(self) -> f64 {
        12.0 * self.variance()
    }

    /// The belief after a change.
    #[must_use]
    pub const fn plus(self, alpha_micro: i64, beta_micro: i64) -> Self {
        Self {
            alpha_micro: self.alpha_micro.saturating_add(alpha_micro),
            beta_micro: self.beta_micro.saturating_add(beta_micro),
        }
    }
}

/// Confidence bins in which priors are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PriorBin {
    /// Beta(9, 1).
    Certain,
    /// Beta(4, 1).
    Strong,
    /// Beta(3, 1).
    Likely,
    /// Beta(2, 1).
    Plausible,
    /// Beta(1, 1): nothing is claimed.
    Even,
    /// Beta(1, 2).
    Doubtful,
    /// Beta(1, 4).
    VeryDoubtful,
}

impl PriorBin {
    /// The counts of the bin.
    #[must_use]
    pub const fn belief(self) -> Belief {
        match self {
            Self::Certain => Belief::of_counts(9, 1),
            Self::Strong => Belief::of_counts(4, 1),
            Self::Likely => Belief::of_counts(3, 1),
            Self::Plausible => Belief::of_counts(2, 1),
            Self::Even => Belief::of_counts(1, 1),
            Self::Doubtful => Belief::of_counts(1, 2),
            Self::VeryDoubtful => Belief::of_counts(1, 4),
        }
    }
}

/// What a belief is about; as text `edge:<id>` or `mechanism:<id>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BeliefKey {
    /// An edge, by id.
    Edge(String),
    /// A mechanism, by id.
    Mechanism(String),
}

impl fmt::Display for BeliefKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edge(id) => write!(f, "edge:{id}"),
            Self::Mechanism(id) => write!(f, "mechanism:{id}"),
        }
    }
}

/// The text is not a belief key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a belief: write edge:ID or mechanism:ID")]
pub struct NotABeliefKey {
    /// What was offered, cut to 120 characters.
    pub text: String,
}

impl FromStr for BeliefKey {
    type Err = NotABeliefKey;
    fn from_str(text: &str) -> Result<Self, NotABeliefKey> {
        match text.split_once(':') {
            Some(("edge", id)) if !id.is_empty() => Ok(Self::Edge(id.to_owned())),
            Some(("mechanism", id)) if !id.is_empty() => Ok(Self::Mechanism(id.to_owned())),
            _ => Err(NotABeliefKey {
                text: text.chars().take(120).collect(),
            }),
        }
    }
}

impl Serialize for BeliefKey {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BeliefKey {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// What moved beliefs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BeliefSource {
    /// The evidence row of this tick, job and rank.
    Evidence {
        /// Job of the row.
        job: JobId,
        /// Rank of the row.
        rank: u32,
        /// Generation of the row's ladder.
        generation: Generation,
    },
    /// Counts above the bound were scaled back to it.
    Forget,
}

/// One change of one belief, in millionths of a count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeliefChange {
    /// Whose belief.
    pub key: BeliefKey,
    /// Change of α.
    pub alpha_micro: i64,
    /// Change of β.
    pub beta_micro: i64,
}

/// An append-only record: everything that one source moved in one tick.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeliefEvent {
    /// When.
    pub tick: TickId,
    /// Why.
    pub source: BeliefSource,
    /// What, in the order of the keys; never empty.
    pub changes: Vec<BeliefChange>,
}
