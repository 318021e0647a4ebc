//! Skill or luck: the two bundle verdicts as a 2 × 2 table.
//!
//! White paper V1, Quadrant Classification; spec §8.

use serde::{Deserialize, Serialize};

use super::cusum::Verdict;

/// Did the mediators match, did the outcomes match?
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Quadrant {
    /// Both matched: replicable success.
    Q1,
    /// Mediators matched, outcomes diverged: sound mechanism, unlucky outcome.
    Q2,
    /// Mediators diverged, outcomes matched: lucky.
    Q3,
    /// Both diverged: falsified.
    Q4,
}

impl Quadrant {
    /// All four in order.
    pub const ALL: [Self; 4] = [Self::Q1, Self::Q2, Self::Q3, Self::Q4];

    /// The same with the mediators' verdict turned to diverged, which a contradicted edge does.
    #[must_use]
    pub const fn with_mediators_diverged(self) -> Self {
        match self {
            Self::Q1 | Self::Q3 => Self::Q3,
            Self::Q2 | Self::Q4 => Self::Q4,
        }
    }

    /// The quadrant of two bundle verdicts.
    #[must_use]
    pub const fn of(mediators: Verdict, outcomes: Verdict) -> Self {
        match (mediators, outcomes) {
            (Verdict::Matched, Verdict::Matched) => Self::Q1,
            (Verdict::Matched, Verdict::Diverged) => Self::Q2,
            (Verdict::Diverged, Verdict::Matched) => Self::Q3,
            (Verdict::Diverged, Verdict::Diverged) => Self::Q4,
        }
    }
}

/// A bundle diverges when any of its variables does; it has no verdict when any has none, or
/// when it is empty.
pub fn bundle_verdict(verdicts: impl IntoIterator<Item = Option<Verdict>>) -> Option<Verdict> {
    let all: Option<Vec<Verdict>> = verdicts.into_iter().collect();
    all?.into_iter().max()
}
