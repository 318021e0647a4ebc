//! The direction in which the objective weights move: toward objectives that past deployments
//! cover badly. Not the step itself, which is [`super::weights`].
//!
//! White paper V1, Appendix A (R2 Pareto-coverage gradient); spec §9.

use super::ideal_point;
use super::weights::class_default;
use crate::experience::Experience;
use crate::job::JobClass;
use crate::params::Params;
use crate::score::TchebycheffInput;
use crate::score::tchebycheff::gaps;
use crate::variables::{OUTCOME_COUNT, Outcome, OutcomeValues};

/// Fixed weights at which coverage is measured.
const PROBE_WEIGHTS: usize = 64;
/// 1/φ^i with φ⁵ = φ + 1: the additive steps of a four-dimensional low-discrepancy sequence.
const STEPS: [f64; OUTCOME_COUNT - 1] = [
    0.856_674_883_854_502_9,
    0.733_891_856_627_126,
    0.628_706_721_037_808_6,
    0.538_597_257_223_61,
];

/// The `k`-th of the fixed weights: points of an additive recurrence, carried evenly onto the
/// simplex as the distances between sorted coordinates.
///
/// # Formula
/// u_i = frac(½ + k·φ^−i), w = differences of (0, sort(u), 1)
#[must_use]
pub fn simplex_point(k: usize) -> [f64; OUTCOME_COUNT] {
    let mut cuts = STEPS.map(|step| (0.5 + (k + 1) as f64 * step).fract());
    cuts.sort_by(f64::total_cmp);
    let mut weights = [0.0; OUTCOME_COUNT];
    let mut below = 0.0;
    for (weight, cut) in weights.iter_mut().zip(cuts.into_iter().chain([1.0])) {
        *weight = cut - below;
        below = cut;
    }
    weights
}

/// The R2 gradient over the gaps of past deployments; `None` when no deployment can be compared.
///
/// Objectives that fewer than half of the rows observed take no part and have gradient 0; rows
/// that lack one of the others are left out.
///
/// # Formula
/// u_k = min_r max_j w_kj g_rj; ∇_j = Σ_k w_kj u_k / Σ_k w_kj − mean_k u_k, divided by
/// max(1, max_j |∇_j|)
///
/// # Shapes
/// `history`: one row of gaps to the ideal point per deployment, in ranges.
///
/// # Source
/// White paper V1, Appendix A; spec §9
#[must_use]
pub fn r2_gradient(history: &[OutcomeValues]) -> Option<[f64; OUTCOME_COUNT]> {
    let seen = |y: Outcome| history.iter().filter(|r| r.get(y).is_some()).count();
    let live: Vec<Outcome> = Outcome::ALL
        .into_iter()
        .filter(|y| seen(*y) > 0 && 2 * seen(*y) >= history.len())
        .collect();
    let whole =
        |row: &OutcomeValues| -> Option<Vec<f64>> { live.iter().map(|y| row.get(*y)).collect() };
    let rows: Vec<Vec<f64>> = history.iter().filter_map(whole).collect();
    if rows.is_empty() || live.is_empty() {
        return None;
    }
    let points: Vec<Vec<f64>> = (0..PROBE_WEIGHTS).map(|k| among(k, &live)).collect();
    let utilities: Vec<f64> = points.iter().map(|w| utility(w, &rows)).collect();
    let mean = utilities.iter().sum::<f64>() / utilities.len() as f64;
    let mut gradient = [0.0; OUTCOME_COUNT];
    for (position, outcome) in live.iter().enumerate() {
        let pairs = || points.iter().map(|w| w[position]).zip(&utilities);
        let weight: f64 = pairs().map(|(w, _)| w).sum();
        let weighted: f64 = pairs().map(|(w, u)| w * u).sum();
        if weight > 0.0 {
            gradient[outcome.index()] = weighted / weight - mean;
        }
    }
    let size = gradient.iter().fold(1.0_f64, |m, g| m.max(g.abs()));
    let scaled = gradient.map(|g| g / size);
    scaled.iter().all(|g| g.is_finite()).then_some(scaled)
}

/// The `k`-th weights with only these objectives, on their simplex.
fn among(k: usize, live: &[Outcome]) -> Vec<f64> {
    let all = simplex_point(k);
    let sum: f64 = live.iter().map(|y| all[y.index()]).sum();
    let even = 1.0 / live.len() as f64;
    let share = |y: &Outcome| {
        if sum > 0.0 {
            all[y.index()] / sum
        } else {
            even
        }
    };
    live.iter().map(share).collect()
}

/// How near the best row comes to the ideal point under these weights; smaller is better.
fn utility(weights: &[f64], rows: &[Vec<f64>]) -> f64 {
    let distance = |row: &Vec<f64>| {
        let products = weights.iter().zip(row).map(|(w, g)| w * g);
        products.fold(f64::NEG_INFINITY, f64::max)
    };
    rows.iter().map(distance).fold(f64::INFINITY, f64::min)
}

/// Gaps of a class's past deployments to the class's own ideal point.
#[must_use]
pub fn class_gaps(experience: &Experience, class: JobClass, params: &Params) -> Vec<OutcomeValues> {
    let of_class = experience
        .outcomes
        .iter()
        .filter(|p| p.class == Some(class));
    let rows: Vec<OutcomeValues> = of_class
        .rev()
        .take(params.range_rows as usize)
        .map(|p| p.outcomes)
        .collect();
    let reference = ideal_point(&rows, params);
    let of = |row: &OutcomeValues| {
        let input = TchebycheffInput {
            predicted: row,
            unbounded: &[],
            ideal: &reference.ideal,
            range: &reference.range,
            weights: &class_default(class),
        };
        gaps(&input, params)
    };
    rows.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(gaps: [f64; OUTCOME_COUNT]) -> OutcomeValues {
        let pairs = Outcome::ALL.into_iter().zip(gaps);
        pairs.fold(OutcomeValues::absent(), |r, (y, g)| r.with(y, g))
    }

    #[test]
    fn the_fixed_weights_cover_the_simplex() {
        let points: Vec<_> = (0..PROBE_WEIGHTS).map(simplex_point).collect();
        for point in &points {
            assert!((point.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            assert!(point.iter().all(|w| *w >= 0.0));
        }
        for j in 0..OUTCOME_COUNT {
            let mean = points.iter().map(|p| p[j]).sum::<f64>() / points.len() as f64;
            assert!((mean - 0.2).abs() < 0.03, "objective {j}: {mean}");
            assert!(points.iter().any(|p| p[j] > 0.5), "objective {j}");
        }
    }

    #[test]
    fn weight_moves_toward_what_no_deployment_does_well() {
        // Every deployment is near the ideal but for TPOT.
        let g = r2_gradient(&[row([0.1, 0.1, 2.0, 0.1, 0.1]); 8]).unwrap();
        let tpot = Outcome::P99TpotMs.index();
        let others = (0..OUTCOME_COUNT).filter(|j| *j != tpot);
        assert!(g[tpot] > 0.0, "{g:?}");
        for j in others {
            assert!(g[j] < 0.0, "{g:?}");
        }
        let even = r2_gradient(&[row([0.3; OUTCOME_COUNT]); 8]).unwrap();
        assert!(even.iter().all(|x| x.abs() < 0.02), "{even:?}");
    }

    #[test]
    fn what_is_rarely_seen_takes_no_part() {
        let mut rows = vec![row([0.5, 1.0, 0.2, 0.1, 0.4]); 4];
        for r in rows.iter_mut().take(3) {
            r.set(Outcome::SloMargin, None);
        }
        let g = r2_gradient(&rows).unwrap();
        assert!(g[Outcome::SloMargin.index()].abs() < f64::EPSILON);
        assert!(g.iter().any(|x| *x > 0.0));
        assert_eq!(r2_gradient(&[]), None);
        assert_eq!(r2_gradient(&[OutcomeValues::absent()]), None);
    }

    proptest! {
        #[test]
        fn the_gradient_stays_within_one_and_ignores_the_order_of_rows(
            gaps in prop::collection::vec(prop::array::uniform5(-1.0..5.0_f64), 1..40),
        ) {
            let rows: Vec<_> = gaps.into_iter().map(row).collect();
            let g = r2_gradient(&rows).unwrap();
            prop_assert!(g.iter().all(|x| x.abs() <= 1.0));
            let back: Vec<_> = rows.iter().rev().copied().collect();
            let there = g.map(f64::to_bits);
            prop_assert_eq!(r2_gradient(&back).unwrap().map(f64::to_bits), there);
        }
    }
}
