//! The memory member: measured points near the question, in a hard scope.
//!
//! A point counts only when model, GPU and weight format are the question's own; within the scope
//! it counts by distance over the features that a deployment can change. Where nothing is near,
//! coverage is nil and the member is silent. Points come from the caller (a performance database);
//! this file keeps none. Spec §4, member 2.

use super::situation::{COUNT, Situation};

/// Distance at which a point counts e^(−½); in units of the features (logarithms, shares).
const BANDWIDTH: f64 = 0.35;
/// Weight of believing that there is nothing to correct.
const PRIOR_WEIGHT: f64 = 0.5;
/// How much each feature matters for distance; features not listed do not move within a scope.
const SCALES: [(usize, f64); 9] = [
    (0, 0.25),  // log_live
    (1, 0.25),  // log_concurrency
    (2, 0.20),  // log_prompt
    (3, 0.20),  // log_output
    (4, 0.50),  // log_tp
    (5, 1.00),  // is_pipelined
    (12, 0.10), // log_prompt_per_step
    (26, 1.00), // is_open
    (27, 1.00), // is_backlogged
];
/// Where the engine indicators begin; another engine is far away.
const FIRST_ENGINE: usize = 28;
const ENGINE_SCALE: f64 = 1.5;

/// A measured point of the question's scope.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Neighbour<'a> {
    /// What was measured, as a situation.
    pub situation: &'a Situation,
    /// ln(measured / what the other members predicted).
    pub log_error: f64,
    /// How much the point is trusted, 0..=1.
    pub weight: f64,
}

/// What the neighbours say.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NeighbourVoice {
    /// Correction in log space, shrunk while little is near.
    pub correction: f64,
    /// 0 with nothing near, towards 1 with much.
    pub coverage: f64,
}

/// The distance-weighted mean of the neighbours' errors.
///
/// # Formula
/// Σ wᵢ·rᵢ / (w₀ + Σ wᵢ), wᵢ = trustᵢ · exp(−dᵢ² / 2h²); coverage = Σ wᵢ / (w₀ + Σ wᵢ)
#[must_use]
pub fn consult<'a>(
    question: &Situation,
    scope: impl Iterator<Item = Neighbour<'a>>,
) -> NeighbourVoice {
    let (mut weights, mut sum) = (0.0, 0.0);
    for point in scope {
        let distance = squared_distance(question, point.situation);
        let weight = point.weight * (-distance / (2.0 * BANDWIDTH * BANDWIDTH)).exp();
        if weight.is_finite() && point.log_error.is_finite() {
            weights += weight;
            sum += weight * point.log_error;
        }
    }
    NeighbourVoice {
        correction: sum / (PRIOR_WEIGHT + weights),
        coverage: weights / (PRIOR_WEIGHT + weights),
    }
}

fn squared_distance(a: &Situation, b: &Situation) -> f64 {
    let gap = |i: usize, scale: f64| {
        let difference = a.get(i).zip(b.get(i)).map_or(0.0, |(a, b)| a - b);
        (difference * scale).powi(2)
    };
    let shapes: f64 = SCALES.iter().map(|(i, scale)| gap(*i, *scale)).sum();
    let engines: f64 = (FIRST_ENGINE..COUNT).map(|i| gap(i, ENGINE_SCALE)).sum();
    shapes + engines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voice(distance: f64, log_error: f64) -> NeighbourVoice {
        let here = [0.0; COUNT];
        let mut there = here;
        there[0] = distance / 0.25;
        let point = Neighbour {
            situation: &there,
            log_error,
            weight: 1.0,
        };
        consult(&here, [point].into_iter())
    }

    #[test]
    fn a_near_point_corrects_and_a_far_one_is_silent() {
        let near = voice(0.0, 0.3);
        // One point of full weight against a prior of a half.
        assert!((near.correction - 0.2).abs() < 1e-12);
        assert!((near.coverage - 2.0 / 3.0).abs() < 1e-12);
        let far = voice(10.0 * BANDWIDTH, 0.3);
        assert!(far.correction.abs() < 1e-12 && far.coverage < 1e-12);
        assert_eq!(
            consult(&[0.0; COUNT], std::iter::empty()),
            NeighbourVoice::default()
        );
    }

    #[test]
    fn the_engine_block_is_where_the_features_say() {
        assert!(super::super::situation::FEATURES[FIRST_ENGINE].starts_with("is_vllm"));
        assert_eq!(super::super::situation::FEATURES[27], "is_backlogged");
        assert_eq!(super::super::situation::FEATURES[12], "log_prompt_per_step");
    }
}
