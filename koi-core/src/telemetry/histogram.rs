//! Cumulative histograms as engines export them, and sparse bucket deltas as windows keep them.
//!
//! Not quantiles (`percentile.rs`). Bucket edges are stored once under a content hash, so that two
//! replicas with equal edges share an id without having to agree on it.

mod delta;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::telemetry::percentile::histogram_quantile;

pub use delta::BucketDelta;

/// Finite bucket edges of one histogram; vLLM's longest has 38.
pub const MAX_EDGES: usize = 256;
/// Distinct sets of edges that one table keeps.
pub const MAX_EDGE_SETS: usize = 1024;

/// Content hash of a set of bucket edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EdgesId(pub u64);

impl EdgesId {
    /// The id of these edges.
    #[must_use]
    pub fn of(edges: &[f64]) -> Self {
        let mut hash = Sha256::new();
        for edge in edges {
            hash.update(edge.to_bits().to_le_bytes());
        }
        let digest = hash.finalize();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        Self(u64::from_le_bytes(first))
    }
}

impl fmt::Display for EdgesId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Why edges or buckets were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadHistogram {
    /// No edges, or more than [`MAX_EDGES`].
    #[error("a histogram needs 1 to 256 finite bucket edges")]
    EdgeCount,
    /// Edges that do not ascend or are not finite.
    #[error("bucket edges must be finite and ascend")]
    EdgeOrder,
    /// Counts that fall from one bucket to the next, or whose number does not fit the edges.
    #[error("cumulative counts must not fall, one per edge and one for +Inf")]
    Counts,
    /// A count that is not a whole number from 0 to 2^53.
    #[error("a bucket count is not a whole number from 0 to 2^53")]
    CountRange,
    /// No bucket le="+Inf".
    #[error("there is no bucket le=\"+Inf\", so the total is unknown")]
    NoInfinity,
    /// The `_count` series is not what the +Inf bucket says.
    #[error("_count differs from the bucket le=\"+Inf\"")]
    CountDiffers,
    /// No finite `_sum` series.
    #[error("there is no finite _sum")]
    NoSum,
    /// The table already holds [`MAX_EDGE_SETS`] sets.
    #[error("more than 1024 different sets of bucket edges")]
    TooManySets,
    /// Two different sets of edges with one hash.
    #[error("two sets of bucket edges have the same id")]
    Collision,
}

/// Edge sets by id.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EdgesTable(BTreeMap<EdgesId, Vec<f64>>);

impl EdgesTable {
    /// Stores edges and returns their id.
    ///
    /// # Errors
    /// [`BadHistogram`] when the edges are not a valid set or the table is full.
    pub fn insert(&mut self, edges: &[f64]) -> Result<EdgesId, BadHistogram> {
        check_edges(edges)?;
        let id = EdgesId::of(edges);
        match self.0.get(&id) {
            Some(known) if known.as_slice() == edges => Ok(id),
            Some(_) => Err(BadHistogram::Collision),
            None if self.0.len() >= MAX_EDGE_SETS => Err(BadHistogram::TooManySets),
            None => {
                self.0.insert(id, edges.to_vec());
                Ok(id)
            }
        }
    }

    /// Takes over every set of another table that fits.
    ///
    /// # Errors
    /// The first [`BadHistogram`]; sets before it are kept.
    pub fn extend(&mut self, other: &Self) -> Result<(), BadHistogram> {
        other
            .0
            .values()
            .try_for_each(|edges| self.insert(edges).map(|_| ()))
    }

    /// The finite edges of this id.
    #[must_use]
    pub fn get(&self, id: EdgesId) -> Option<&[f64]> {
        self.0.get(&id).map(Vec::as_slice)
    }

    /// All sets, by id.
    pub fn iter(&self) -> impl Iterator<Item = (EdgesId, &[f64])> {
        self.0.iter().map(|(id, edges)| (*id, edges.as_slice()))
    }
}

fn check_edges(edges: &[f64]) -> Result<(), BadHistogram> {
    if !(1..=MAX_EDGES).contains(&edges.len()) {
        return Err(BadHistogram::EdgeCount);
    }
    let ascends = edges.windows(2).all(|pair| pair[0] < pair[1]);
    if ascends && edges.iter().all(|e| e.is_finite()) {
        Ok(())
    } else {
        Err(BadHistogram::EdgeOrder)
    }
}

/// Largest count that a double holds exactly.
pub(super) const MAX_COUNT: f64 = 9_007_199_254_740_992.0;

/// A count as read from a page; `None` when it is not one.
pub(super) fn whole_number(value: f64) -> Option<u64> {
    (0.0..=MAX_COUNT)
        .contains(&value)
        .then(|| value.round() as u64)
}

/// A histogram as read from a page: counts since the process started.
#[derive(Debug, Clone, PartialEq)]
pub struct CumulativeHistogram {
    edges: Vec<f64>,
    cumulative: Vec<u64>,
    sum: f64,
}

impl CumulativeHistogram {
    /// Finite `edges`, `cumulative` counts with one more entry for +Inf, and the sum of all values.
    ///
    /// # Errors
    /// [`BadHistogram`] when the parts do not fit together.
    pub fn new(edges: Vec<f64>, cumulative: Vec<u64>, sum: f64) -> Result<Self, BadHistogram> {
        check_edges(&edges)?;
        if !sum.is_finite() {
            return Err(BadHistogram::NoSum);
        }
        if cumulative.len() != edges.len() + 1 || !cumulative.is_sorted() {
            return Err(BadHistogram::Counts);
        }
        Ok(Self {
            edges,
            cumulative,
            sum,
        })
    }

    /// From the (edge, cumulative count) pairs of a page in ascending order, the last one for +Inf,
    /// and its `_sum` and `_count`; the count may be left out.
    ///
    /// # Errors
    /// [`BadHistogram`]: no +Inf, no sum, a count that differs, falling counts, bad edges.
    pub fn from_series(
        buckets: &[(f64, f64)],
        sum: Option<f64>,
        count: Option<f64>,
    ) -> Result<Self, BadHistogram> {
        let (infinite, finite) = buckets.split_last().ok_or(BadHistogram::EdgeCount)?;
        if infinite.0 != f64::INFINITY {
            return Err(BadHistogram::NoInfinity);
        }
        let edges = finite.iter().map(|b| b.0).collect();
        let counts: Option<Vec<u64>> = buckets.iter().map(|b| whole_number(b.1)).collect();
        let counts = counts.ok_or(BadHistogram::CountRange)?;
        let agrees = |c: f64| whole_number(c).as_ref() == counts.last();
        if !count.is_none_or(agrees) {
            return Err(BadHistogram::CountDiffers);
        }
        Self::new(edges, counts, sum.unwrap_or(f64::NAN))
    }

    /// Finite bucket edges.
    #[must_use]
    pub fn edges(&self) -> &[f64] {
        &self.edges
    }

    /// Counts up to each edge, and the total last.
    #[must_use]
    pub fn cumulative(&self) -> &[u64] {
        &self.cumulative
    }

    /// Sum of all observed values.
    #[must_use]
    pub const fn sum(&self) -> f64 {
        self.sum
    }

    /// Observations since the process started.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.cumulative.last().copied().unwrap_or_default()
    }

    /// Mean of the observed values; `None` without observations.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        mean_of(self.sum, self.count())
    }

    /// The q-quantile of everything observed since the process started; see [`histogram_quantile`].
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let counts: Vec<f64> = self.cumulative.iter().map(|c| *c as f64).collect();
        histogram_quantile(q, &self.edges, &counts)
    }

    /// What was observed since `earlier`; `None` when any bucket went backwards or the edges differ,
    /// which means another process answers.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<BucketDelta> {
        self.delta_since(earlier).ok()
    }

    /// What was observed since `earlier`, or why that cannot be said.
    ///
    /// # Errors
    /// [`NoDelta`]: other edges, or counts that fell.
    pub fn delta_since(&self, earlier: &Self) -> Result<BucketDelta, NoDelta> {
        if self.edges != earlier.edges {
            return Err(NoDelta::EdgesChanged);
        }
        let mut below = 0;
        let mut buckets = Vec::new();
        for (index, (now, then)) in (0..).zip(self.cumulative.iter().zip(&earlier.cumulative)) {
            let up_to = now.checked_sub(*then).ok_or(NoDelta::Reset)?;
            // A bucket of its own fell although all up to it grew.
            let count = up_to.checked_sub(below).ok_or(NoDelta::Reset)?;
            if count > 0 {
                buckets.push((index, count));
            }
            below = up_to;
        }
        Ok(BucketDelta {
            edges: EdgesId::of(&self.edges),
            buckets,
            sum: self.sum - earlier.sum,
            count: below,
        })
    }
}

/// Why two readings of a histogram have no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoDelta {
    /// The bucket edges differ, as between engine versions.
    #[error("the bucket edges changed")]
    EdgesChanged,
    /// The values come from another metric than before.
    #[error("the values come from another metric than before")]
    SourceChanged,
    /// A count fell: the process started again.
    #[error("counts fell: the process started again")]
    Reset,
}

fn mean_of(sum: f64, count: u64) -> Option<f64> {
    (count > 0)
        .then(|| sum / count as f64)
        .filter(|m| m.is_finite())
}

#[cfg(test)]
mod tests;
