//! Cumulative histograms as engines export them, and sparse bucket deltas as windows keep them.
//!
//! Not quantiles (`percentile.rs`). Bucket edges are stored once under a content hash, so that two
//! replicas with equal edges share an id without having to agree on it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

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
        let fits = cumulative.len() == edges.len() + 1 && cumulative.is_sorted() && sum.is_finite();
        if fits {
            Ok(Self {
                edges,
                cumulative,
                sum,
            })
        } else {
            Err(BadHistogram::Counts)
        }
    }

    /// Finite bucket edges.
    #[must_use]
    pub fn edges(&self) -> &[f64] {
        &self.edges
    }

    /// Observations since the process started.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.cumulative.last().copied().unwrap_or_default()
    }

    /// What was observed since `earlier`; `None` when any bucket went backwards or the edges differ,
    /// which means another process answers.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<BucketDelta> {
        if self.edges != earlier.edges {
            return None;
        }
        let mut below = 0;
        let mut buckets = Vec::new();
        for (index, (now, then)) in self.cumulative.iter().zip(&earlier.cumulative).enumerate() {
            let up_to = now.checked_sub(*then)?;
            let count = up_to.checked_sub(below)?;
            if count > 0 {
                buckets.push((u16::try_from(index).ok()?, count));
            }
            below = up_to;
        }
        let sum = self.sum - earlier.sum;
        Some(BucketDelta {
            edges: EdgesId::of(&self.edges),
            buckets,
            sum,
            count: below,
        })
    }
}

/// Observations of a window: counts per bucket, empty buckets left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BucketDelta {
    /// Which edges the indices refer to.
    pub edges: EdgesId,
    /// (bucket index, count), ascending; the index past the last edge is the +Inf bucket.
    pub buckets: Vec<(u16, u64)>,
    /// Sum of the observed values.
    pub sum: f64,
    /// Number of observations.
    pub count: u64,
}

impl BucketDelta {
    /// Mean of the observed values; `None` without observations.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0)
            .then(|| self.sum / self.count as f64)
            .filter(|m| m.is_finite())
    }

    /// Adds another delta over the same edges; false (and unchanged) when the edges differ.
    #[must_use]
    pub fn add(&mut self, other: &Self) -> bool {
        if self.edges != other.edges {
            return false;
        }
        let mut counts: BTreeMap<u16, u64> = self.buckets.iter().copied().collect();
        for (index, count) in &other.buckets {
            let slot = counts.entry(*index).or_default();
            *slot = slot.saturating_add(*count);
        }
        self.buckets = counts.into_iter().collect();
        self.sum += other.sum;
        self.count = self.count.saturating_add(other.count);
        true
    }

    /// Cumulative counts over `edges` with one more entry for +Inf; `None` when an index lies
    /// outside them.
    #[must_use]
    pub fn cumulative(&self, edges: &[f64]) -> Option<Vec<f64>> {
        let mut counts = vec![0.0; edges.len() + 1];
        for (index, count) in &self.buckets {
            *counts.get_mut(usize::from(*index))? += *count as f64;
        }
        let mut below = 0.0;
        for count in &mut counts {
            below += *count;
            *count = below;
        }
        Some(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cumulative(counts: &[u64], sum: f64) -> CumulativeHistogram {
        CumulativeHistogram::new(vec![1.0, 2.0], counts.to_vec(), sum).unwrap()
    }

    #[test]
    fn a_delta_holds_only_what_is_new() {
        let delta = cumulative(&[3, 5, 9], 20.0)
            .since(&cumulative(&[3, 4, 6], 12.5))
            .unwrap();
        assert_eq!(
            (delta.buckets.as_slice(), delta.count),
            (&[(1, 1), (2, 2)][..], 3)
        );
        assert_eq!(delta.mean(), Some(2.5));
        assert_eq!(delta.cumulative(&[1.0, 2.0]).unwrap(), [0.0, 1.0, 3.0]);
        assert_eq!(delta.cumulative(&[1.0]), None, "an index outside the edges");
    }

    #[test]
    fn going_backwards_or_other_edges_give_no_delta() {
        assert_eq!(
            cumulative(&[0, 0, 1], 1.0).since(&cumulative(&[3, 4, 6], 12.5)),
            None
        );
        assert_eq!(
            cumulative(&[5, 5, 7], 1.0).since(&cumulative(&[3, 4, 6], 0.0)),
            None,
            "one bucket fell"
        );
        let other = CumulativeHistogram::new(vec![1.0], vec![0, 0], 0.0).unwrap();
        assert_eq!(cumulative(&[0, 0, 1], 1.0).since(&other), None);
    }

    #[test]
    fn bad_parts_are_refused() {
        let bad = |edges: Vec<f64>, counts: Vec<u64>| {
            CumulativeHistogram::new(edges, counts, 0.0).unwrap_err()
        };
        assert_eq!(bad(vec![], vec![1]), BadHistogram::EdgeCount);
        assert_eq!(bad(vec![2.0, 1.0], vec![1, 1, 1]), BadHistogram::EdgeOrder);
        assert_eq!(bad(vec![f64::NAN], vec![1, 1]), BadHistogram::EdgeOrder);
        assert_eq!(bad(vec![1.0], vec![2, 1]), BadHistogram::Counts);
        assert_eq!(bad(vec![1.0], vec![2]), BadHistogram::Counts);
        assert!(CumulativeHistogram::new(vec![1.0], vec![0, 1], f64::INFINITY).is_err());
    }

    #[test]
    fn the_table_keeps_each_set_once_and_is_bounded() {
        let mut table = EdgesTable::default();
        let id = table.insert(&[0.1, 0.2]).unwrap();
        assert_eq!(table.insert(&[0.1, 0.2]), Ok(id));
        assert_eq!(table.get(id), Some(&[0.1, 0.2][..]));
        for i in 1..MAX_EDGE_SETS {
            table.insert(&[i as f64]).unwrap();
        }
        assert_eq!(table.insert(&[-1.0]), Err(BadHistogram::TooManySets));
        let text = serde_json::to_string(&table).unwrap();
        assert_eq!(serde_json::from_str::<EdgesTable>(&text).unwrap(), table);
    }

    #[test]
    fn adding_needs_the_same_edges() {
        let mut delta = cumulative(&[1, 1, 2], 3.0)
            .since(&cumulative(&[0, 0, 0], 0.0))
            .unwrap();
        let again = delta.clone();
        assert!(delta.add(&again));
        assert_eq!(
            (delta.buckets.as_slice(), delta.count),
            (&[(0, 2), (2, 2)][..], 4)
        );
        assert!(!delta.add(&BucketDelta {
            edges: EdgesId(0),
            ..again
        }));
    }
}
