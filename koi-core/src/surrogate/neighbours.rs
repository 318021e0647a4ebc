//! The memory member: measured points near the question, in a hard scope.
//!
//! A point counts only when model, GPU and weight format are the question's own; within the scope
//! it counts by distance over the features that a deployment can change. Where nothing is near,
//! coverage is nil and the member is silent. Points come from the caller (a performance database);
//! this file keeps none. Spec §4, member 2.

use serde::{Deserialize, Serialize};

use super::engine_generation::EngineGeneration;
use super::situation::Situation;

/// Distance at which a point counts e^(−½); in units of the features (logarithms, shares).
const BANDWIDTH: f64 = 0.35;
/// Weight of believing that there is nothing to correct.
const PRIOR_WEIGHT: f64 = 0.5;
/// How much each feature matters for distance; features not listed do not move within a scope.
const SCALES: [(usize, f64); DIMENSIONS] = [
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
/// How many features count.
const DIMENSIONS: usize = 9;
/// Where the engine indicators begin; another engine is far away: two indicators differ.
const FIRST_ENGINE: usize = 28;
const ENGINE_SCALE: f64 = 1.5;
/// Squared distance over 2h² beyond which a point is not heard: e^(−20).
const SILENT: f64 = 20.0;

/// Where a situation lies within its scope: the features that distance counts, scaled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spot {
    at: [f64; DIMENSIONS],
    engine: EngineGeneration,
}

impl Spot {
    /// The spot of a situation.
    #[must_use]
    pub fn of(situation: &Situation) -> Self {
        let scaled = |(i, scale): (usize, f64)| situation.get(i).map_or(0.0, |x| x * scale);
        let engines = situation.get(FIRST_ENGINE..).unwrap_or_default();
        let engine = engines.iter().position(|x| *x > 0.5);
        Self {
            at: SCALES.map(scaled),
            engine: engine
                .and_then(|i| EngineGeneration::ALL.get(i).copied())
                .unwrap_or_default(),
        }
    }

    /// The same deployment with so many live requests of such lengths; what is absent stays.
    #[must_use]
    pub fn moved(mut self, live: Option<f64>, prompt: Option<f64>, output: Option<f64>) -> Self {
        let values = [live, live, prompt, output];
        for ((slot, (_, scale)), value) in self.at.iter_mut().zip(SCALES).zip(values) {
            if let Some(value) = value.filter(|x| x.is_finite() && *x > 0.0) {
                *slot = scale * value.ln();
            }
        }
        self
    }

    /// Whether requests arrive by themselves.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let [.., is_open, _] = self.at;
        is_open > 0.5
    }

    /// The cell of one bandwidth's width that the spot lies in: points of one cell say the same.
    #[must_use]
    pub fn cell(&self) -> ([i32; DIMENSIONS], EngineGeneration) {
        (self.at.map(|x| (x / BANDWIDTH).round() as i32), self.engine)
    }

    /// How near another spot is.
    ///
    /// # Formula
    /// exp(−d² / 2h²)
    #[must_use]
    pub fn nearness(&self, other: &Self) -> f64 {
        let mut distance = 0.0;
        for (a, b) in self.at.iter().zip(&other.at) {
            distance += (a - b) * (a - b);
        }
        if self.engine != other.engine {
            distance += 2.0 * ENGINE_SCALE * ENGINE_SCALE;
        }
        let exponent = distance / (2.0 * BANDWIDTH * BANDWIDTH);
        if exponent > SILENT {
            return 0.0;
        }
        (-exponent).exp()
    }
}

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
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct NeighbourVoice {
    /// Correction in log space, shrunk while little is near.
    pub correction: f64,
    /// 0 with nothing near, towards 1 with much.
    pub coverage: f64,
}

/// Σ of weights and of weighted errors.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    weights: f64,
    errors: f64,
    nearest: f64,
}

impl Sum {
    fn add(&mut self, (nearness, trust): (f64, f64), log_error: Option<f64>) {
        let weight = nearness * trust;
        if let Some(error) = log_error.filter(|e| e.is_finite() && weight > 0.0) {
            self.weights += weight;
            self.errors += weight * error;
            self.nearest = f64::max(self.nearest, nearness);
        }
    }

    fn voice(self) -> NeighbourVoice {
        let all = PRIOR_WEIGHT + self.weights;
        NeighbourVoice {
            correction: self.errors / all,
            coverage: self.weights / all,
        }
    }

    /// The same, at most as loud as the nearest point is near.
    fn quiet_voice(self) -> NeighbourVoice {
        let voice = self.voice();
        NeighbourVoice {
            correction: voice.correction * self.nearest,
            coverage: voice.coverage * self.nearest,
        }
    }
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
    let here = Spot::of(question);
    let mut sum = Sum::default();
    for point in scope {
        let nearness = here.nearness(&Spot::of(point.situation));
        sum.add((nearness, point.weight), Some(point.log_error));
    }
    sum.voice()
}

/// A point as it is kept: by quantity, what was missed there; absent where nothing was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HeardPoint {
    /// Where.
    pub spot: Spot,
    /// ln(measured / what the other members say), by [`super::residual::Quantity::index`].
    pub log_errors: [Option<f64>; 3],
    /// How much the point is trusted, at least 0.
    pub weight: f64,
}

fn sums<'a>(question: &Spot, points: impl Iterator<Item = &'a HeardPoint>) -> [Sum; 3] {
    let mut sums = [Sum::default(); 3];
    for point in points {
        let nearness = question.nearness(&point.spot);
        if nearness > 0.0 {
            for (sum, error) in sums.iter_mut().zip(point.log_errors) {
                sum.add((nearness, point.weight), error);
            }
        }
    }
    sums
}

/// [`consult`] for every quantity at once.
#[must_use]
pub fn listen<'a>(
    question: &Spot,
    points: impl Iterator<Item = &'a HeardPoint>,
) -> [NeighbourVoice; 3] {
    sums(question, points).map(Sum::voice)
}

/// What many rows of one deployment say: however many there are, they speak of other settings and
/// loads only as far as those are near.
///
/// # Formula
/// maxᵢ exp(−dᵢ² / 2h²) times the correction and coverage of [`consult`]
#[must_use]
pub fn listen_to_own<'a>(
    question: &Spot,
    points: impl Iterator<Item = &'a HeardPoint>,
) -> [NeighbourVoice; 3] {
    sums(question, points).map(Sum::quiet_voice)
}

#[cfg(test)]
mod tests {
    use super::super::situation::COUNT;
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
