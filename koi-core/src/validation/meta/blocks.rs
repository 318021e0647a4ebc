//! Stored residual blocks: the residuals of one variable in one evidence row, in time order.
//!
//! Bounded per stratum; the newest stay. Spec §8.

use std::collections::{BTreeMap, VecDeque};

use super::stratum::Stratum;
use crate::params::Params;
use crate::validation::cusum::Verdict;
use crate::validation::residual::median;

/// Points of a block that are kept: the newest.
const MAX_POINTS: usize = 64;

/// The residuals of one variable in one evidence row.
#[derive(Debug, Clone, PartialEq)]
pub struct ResidualBlock {
    residuals: Vec<f64>,
    level: f64,
    diverged: bool,
}

impl ResidualBlock {
    /// `None` below two finite residuals; `level` is the mean observed value.
    #[must_use]
    pub fn new(residuals: &[f64], level: f64, verdict: Option<Verdict>) -> Option<Self> {
        let finite: Vec<f64> = residuals
            .iter()
            .copied()
            .filter(|r| r.is_finite())
            .collect();
        let from = finite.len().saturating_sub(MAX_POINTS);
        let kept = finite.get(from..).unwrap_or_default().to_vec();
        (kept.len() >= 2).then_some(Self {
            residuals: kept,
            level: if level.is_finite() { level.abs() } else { 0.0 },
            diverged: verdict == Some(Verdict::Diverged),
        })
    }

    /// The residuals in time order.
    #[must_use]
    pub fn residuals(&self) -> &[f64] {
        &self.residuals
    }

    /// Their mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.residuals.iter().sum::<f64>() / self.residuals.len() as f64
    }

    /// Largest distance of a running sum from where it started: what a detector without slack
    /// would have seen.
    fn excursion(&self) -> f64 {
        let mut sum = 0.0_f64;
        self.residuals.iter().fold(0.0_f64, |largest, r| {
            sum += r;
            largest.max(sum.abs())
        })
    }
}

/// Blocks per stratum, newest last.
#[derive(Debug, Clone, Default)]
pub struct ResidualBlocks {
    by_stratum: BTreeMap<Stratum, VecDeque<ResidualBlock>>,
}

impl ResidualBlocks {
    /// Keeps one block; the oldest makes room.
    pub fn push(&mut self, stratum: impl Into<Stratum>, block: ResidualBlock, params: &Params) {
        let blocks = self.by_stratum.entry(stratum.into()).or_default();
        while blocks.len() >= params.meta_blocks_max as usize {
            blocks.pop_front();
        }
        blocks.push_back(block);
    }

    /// Every stratum with its blocks, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (Stratum, impl Iterator<Item = &ResidualBlock>)> {
        self.by_stratum
            .iter()
            .map(|(stratum, blocks)| (*stratum, blocks.iter()))
    }

    /// Blocks of one stratum.
    #[must_use]
    pub fn count(&self, stratum: impl Into<Stratum>) -> usize {
        self.by_stratum
            .get(&stratum.into())
            .map_or(0, VecDeque::len)
    }
}

/// The blocks that calibration may use, and the share it left out: every block that matched, and
/// of those that diverged all but the most extreme of the whole store.
///
/// Taking the matched alone would never let a threshold grow that is too low; taking all would let
/// every real change raise it.
pub(super) fn trimmed<'a>(
    blocks: &[&'a ResidualBlock],
    fraction: f64,
) -> (Vec<&'a ResidualBlock>, f64) {
    let mut order: Vec<(f64, usize)> = blocks
        .iter()
        .enumerate()
        .map(|(i, b)| (b.excursion(), i))
        .collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    let most = (fraction * blocks.len() as f64).floor() as usize;
    let dropped: Vec<usize> = order
        .into_iter()
        .take(most)
        .map(|(_, i)| i)
        .filter(|i| blocks.get(*i).is_some_and(|b| b.diverged))
        .collect();
    let share = dropped.len() as f64 / blocks.len().max(1) as f64;
    let kept = blocks.iter().enumerate();
    let kept = kept.filter(|(i, _)| !dropped.contains(i)).map(|(_, b)| *b);
    (kept.collect(), share)
}

/// Median of the blocks' levels.
pub(super) fn typical_level(blocks: &[&ResidualBlock]) -> f64 {
    let levels: Vec<f64> = blocks.iter().map(|b| b.level).collect();
    median(&levels).unwrap_or(0.0)
}
