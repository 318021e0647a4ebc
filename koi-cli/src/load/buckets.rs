//! The engine's bucket edges for the two latencies, and counts in them.

use koi_core::telemetry::percentile::histogram_quantile;
use serde::{Deserialize, Serialize};

/// Edges of `vllm:time_to_first_token_seconds` (vLLM 0.32).
pub(super) const TTFT_EDGES_S: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];

/// Edges of `vllm:request_time_per_output_token_seconds` (vLLM 0.32).
pub(super) const TPOT_EDGES_S: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];

/// Samples kept for raw quantiles, per minute and latency; 30 requests a second give 1,800.
pub(super) const MAX_SAMPLES: usize = 8192;

/// Observations of one latency: counts per bucket and, up to a bound, the observations themselves.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Latency {
    /// Count per bucket, the last one for +Inf; empty before the first observation.
    pub(super) counts: Vec<u64>,
    /// Observations in milliseconds, to a microsecond.
    pub(super) samples_ms: Vec<f64>,
    /// Observations that found `samples_ms` full.
    pub(super) n_samples_dropped: u64,
}

impl Latency {
    /// Counts an observation; a value on an edge belongs to the bucket below it, as `le` says.
    pub(super) fn observe(&mut self, edges_s: &[f64], seconds: f64) {
        self.counts.resize(edges_s.len() + 1, 0);
        let bucket = edges_s
            .iter()
            .position(|edge| seconds <= *edge)
            .unwrap_or(edges_s.len());
        self.counts[bucket] += 1;
        if self.samples_ms.len() < MAX_SAMPLES {
            self.samples_ms.push((seconds * 1e6).round() / 1e3);
        } else {
            self.n_samples_dropped += 1;
        }
    }

    /// Adds the observations of another minute.
    pub(super) fn add(&mut self, other: &Self) {
        self.counts
            .resize(self.counts.len().max(other.counts.len()), 0);
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.samples_ms.extend(&other.samples_ms);
        self.n_samples_dropped += other.n_samples_dropped;
    }

    /// Number of observations.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The q-quantile through the buckets, in milliseconds.
    pub(super) fn bucket_quantile_ms(&self, q: f64, edges_s: &[f64]) -> Option<f64> {
        let mut below = 0.0;
        let cumulative: Vec<f64> = self
            .counts
            .iter()
            .map(|n| {
                below += *n as f64;
                below
            })
            .collect();
        histogram_quantile(q, edges_s, &cumulative).map(|s| 1000.0 * s)
    }

    /// The q-quantile of the observations themselves, interpolated between neighbours, in
    /// milliseconds; absent when observations were dropped.
    pub(super) fn raw_quantile_ms(&self, q: f64) -> Option<f64> {
        if self.samples_ms.is_empty() || self.n_samples_dropped > 0 {
            return None;
        }
        let mut sorted = self.samples_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let at = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
        let (low, high) = (at.floor() as usize, at.ceil() as usize);
        Some(sorted[low] + (sorted[high] - sorted[low]) * (at - at.floor()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(edges: &[f64], seconds: impl IntoIterator<Item = f64>) -> Latency {
        let mut latency = Latency::default();
        for s in seconds {
            latency.observe(edges, s);
        }
        latency
    }

    #[test]
    fn quantiles_equal_numbers_computed_by_hand() {
        // 0.01 … 1.00 s: 100 observations, ten per tenth.
        let l = latency(&TTFT_EDGES_S, (1..=100).map(|i| f64::from(i) / 100.0));
        // Raw p99 sits at position 98.01 of 0-based 0..99: 990.1 ms.
        assert!((l.raw_quantile_ms(0.99).unwrap() - 990.1).abs() < 1e-9);
        assert!((l.raw_quantile_ms(0.5).unwrap() - 505.0).abs() < 1e-9);
        // Rank 99 lies in (0.75, 1.0], which holds 25 after 75: 0.75 + 0.25·24/25.
        assert!((l.bucket_quantile_ms(0.99, &TTFT_EDGES_S).unwrap() - 990.0).abs() < 1e-9);
        // Rank 50 closes (0.25, 0.5], which holds 25 after 25.
        assert!((l.bucket_quantile_ms(0.5, &TTFT_EDGES_S).unwrap() - 500.0).abs() < 1e-9);
        // Rank 5 lies in (0.04, 0.06], which holds 2 after 4.
        assert!((l.bucket_quantile_ms(0.05, &TTFT_EDGES_S).unwrap() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn an_observation_on_an_edge_counts_below_it() {
        let l = latency(&TPOT_EDGES_S, [0.025, 0.025_000_1, 81.0]);
        assert_eq!((l.counts[1], l.counts[2], l.counts[19]), (1, 1, 1));
        assert_eq!(l.count(), 3);
        assert_eq!(
            l.bucket_quantile_ms(1.0, &TPOT_EDGES_S),
            Some(80_000.0),
            "+Inf answers with the last edge"
        );
    }

    #[test]
    fn minutes_add_up() {
        let mut a = latency(&TPOT_EDGES_S, [0.02, 0.03]);
        let b = latency(&TPOT_EDGES_S, [0.04]);
        a.add(&b);
        assert_eq!(a, latency(&TPOT_EDGES_S, [0.02, 0.03, 0.04]));
        let mut empty = Latency::default();
        empty.add(&b);
        assert_eq!(empty, b);
        assert_eq!(
            (
                Latency::default().raw_quantile_ms(0.5),
                Latency::default().bucket_quantile_ms(0.5, &TPOT_EDGES_S)
            ),
            (None, None)
        );
    }

    #[test]
    fn memory_is_bounded_and_a_cut_sample_gives_no_raw_quantile() {
        let l = latency(&TPOT_EDGES_S, (0..MAX_SAMPLES + 5).map(|_| 0.01));
        assert_eq!(
            (l.samples_ms.len(), l.n_samples_dropped, l.count()),
            (MAX_SAMPLES, 5, MAX_SAMPLES as u64 + 5)
        );
        assert_eq!(l.raw_quantile_ms(0.5), None);
    }

    #[test]
    fn edges_are_those_of_the_captured_engine() {
        let shared = std::env::var("KOI_SHARED")
            .map(std::path::PathBuf::from)
            .ok()
            .or_else(|| {
                let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
                here.ancestors()
                    .map(|a| a.join("shared"))
                    .find(|s| s.join("vectors").is_dir())
            });
        let capture = shared.map(|s| s.join("data/vllm-cpu-capture/00-idle.metrics.txt"));
        let Some(text) = capture.and_then(|c| std::fs::read_to_string(c).ok()) else {
            eprintln!("SKIPPED: no shared/data/vllm-cpu-capture here");
            return;
        };
        let edges = |name: &str| -> Vec<f64> {
            let lines = text
                .lines()
                .filter(|l| l.starts_with(&format!("vllm:{name}_bucket")));
            lines
                .filter_map(|l| l.split("le=\"").nth(1)?.split('"').next()?.parse().ok())
                .filter(|e: &f64| e.is_finite())
                .collect()
        };
        assert_eq!(edges("time_to_first_token_seconds"), TTFT_EDGES_S);
        assert_eq!(edges("request_time_per_output_token_seconds"), TPOT_EDGES_S);
    }
}
