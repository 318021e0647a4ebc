//! Sparse bucket deltas, as windows keep them. Not the cumulative histograms they come from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{EdgesId, mean_of};
use crate::telemetry::percentile::histogram_quantile;

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
        mean_of(self.sum, self.count)
    }

    /// The q-quantile over `edges`; `None` without observations or when an index lies outside them.
    #[must_use]
    pub fn quantile(&self, q: f64, edges: &[f64]) -> Option<f64> {
        histogram_quantile(q, edges, &self.cumulative(edges)?)
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
