//! Histograms with vLLM V1's bucket edges.

use serde::{Deserialize, Serialize};

/// Edges of `time_to_first_token_seconds`.
pub const TTFT_EDGES_S: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
/// Edges of `inter_token_latency_seconds` and `request_time_per_output_token_seconds`.
pub const TOKEN_LATENCY_EDGES_S: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
/// Edges of the request's phases: end to end, queue, inference, prefill, decode.
pub const REQUEST_LATENCY_EDGES_S: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
/// Edges of `iteration_tokens_total`.
pub const ITERATION_TOKENS_EDGES: [f64; 13] = [
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
];
/// Edges of `request_num_preemptions`.
pub const PREEMPTION_EDGES: [f64; 7] = [1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];
/// Edges of `request_params_n`.
pub const PARAMS_N_EDGES: [f64; 5] = [1.0, 2.0, 5.0, 10.0, 20.0];

/// Edges of the token-count histograms: 1, 2, 5, 10, … up to the model's longest sequence.
#[must_use]
pub fn token_count_edges(max_model_len: u32) -> Vec<f64> {
    let mut edges = Vec::new();
    let mut decade = 1_u64;
    while decade <= u64::from(max_model_len) {
        for step in [1, 2, 5] {
            let edge = decade * step;
            if edge <= u64::from(max_model_len) {
                edges.push(edge as f64);
            }
        }
        decade *= 10;
    }
    edges
}

/// Counts per bucket (not cumulated; one more than edges) and the sum of what was observed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Upper edges, ascending.
    pub edges: Vec<f64>,
    /// Observations per bucket; the last one is above every edge.
    pub counts: Vec<u64>,
    /// Sum of the observations.
    pub sum: f64,
}

impl Histogram {
    /// An empty histogram.
    #[must_use]
    pub fn new(edges: &[f64]) -> Self {
        Self {
            edges: edges.to_vec(),
            counts: vec![0; edges.len() + 1],
            sum: 0.0,
        }
    }

    /// Counts one value; a value on an edge belongs to the bucket below it.
    pub fn observe(&mut self, value: f64) {
        self.observe_n(value, 1);
    }

    /// Counts one value several times.
    pub fn observe_n(&mut self, value: f64, n: u64) {
        let bucket = self.edges.partition_point(|edge| *edge < value);
        self.counts[bucket] += n;
        self.sum += value * n as f64;
    }

    /// Number of observations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_follow_the_longest_sequence() {
        let want = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0];
        assert_eq!(token_count_edges(512), want);
        assert_eq!(token_count_edges(8192).last().copied(), Some(5000.0));
        assert!(token_count_edges(0).is_empty());
    }

    #[test]
    fn a_value_on_an_edge_counts_below_it() {
        let mut h = Histogram::new(&[1.0, 2.0]);
        for value in [1.0, 1.5, 2.0, 9.0] {
            h.observe(value);
        }
        assert_eq!((h.counts.as_slice(), h.count()), ([1, 2, 1].as_slice(), 4));
        assert!((h.sum - 13.5).abs() < 1e-12);
    }
}
