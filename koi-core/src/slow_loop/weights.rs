//! Objective weights w on the simplex: entropic mirror descent along a Pareto-coverage gradient.
//! White paper V1, Appendix A; spec §9.

use crate::job::JobClass;
use crate::params::Params;
use crate::variables::OUTCOME_COUNT;

/// Default weights of online jobs, in the order of `Outcome::ALL`.
pub const ONLINE_WEIGHTS: [f64; OUTCOME_COUNT] = [0.10, 0.35, 0.35, 0.10, 0.10];
/// Default weights of batch jobs, in the order of `Outcome::ALL`.
pub const BATCH_WEIGHTS: [f64; OUTCOME_COUNT] = [0.35, 0.05, 0.05, 0.35, 0.20];

/// The weights from which a class starts and to which it is pulled.
#[must_use]
pub const fn class_default(class: JobClass) -> [f64; OUTCOME_COUNT] {
    match class {
        JobClass::Online => ONLINE_WEIGHTS,
        JobClass::Batch => BATCH_WEIGHTS,
    }
}

/// One step along a gradient; the result sums to one.
///
/// # Formula
/// w_j ← w_j exp(η ∇_j) / Σ_k w_k exp(η ∇_k)
///
/// # Source
/// White paper V1, Appendix A
#[must_use]
pub fn step(
    weights: &[f64; OUTCOME_COUNT],
    gradient: &[f64; OUTCOME_COUNT],
    params: &Params,
) -> [f64; OUTCOME_COUNT] {
    let mut next = *weights;
    for (w, g) in next.iter_mut().zip(gradient) {
        *w *= (params.weight_step_size * g).exp();
    }
    normalised(next)
}

/// Pulls weights toward the class default and lifts each to the floor; the result sums to one.
///
/// # Formula
/// w ← (1 − pull) w + pull · default; weights below the floor rise to it, the others give in
/// proportion
///
/// # Source
/// Spec §9
#[must_use]
pub fn tempered(
    weights: &[f64; OUTCOME_COUNT],
    class_default: &[f64; OUTCOME_COUNT],
    params: &Params,
) -> [f64; OUTCOME_COUNT] {
    let mut pulled = *weights;
    for (w, default) in pulled.iter_mut().zip(class_default) {
        *w += params.weight_pull * (default - *w);
    }
    lifted(normalised(pulled), params.weight_floor)
}

/// Raises weights below the floor to it and takes the difference from the others in proportion.
fn lifted(weights: [f64; OUTCOME_COUNT], floor: f64) -> [f64; OUTCOME_COUNT] {
    let floor = floor.min(1.0 / OUTCOME_COUNT as f64);
    let mut next = weights;
    // Each round fixes at least one more weight at the floor, so five rounds are enough.
    for _ in 0..OUTCOME_COUNT {
        let low = next.iter().filter(|w| **w <= floor).count();
        let high: f64 = next.iter().filter(|w| **w > floor).sum();
        if high <= 0.0 {
            break;
        }
        let scale = (1.0 - floor * low as f64) / high;
        for w in &mut next {
            *w = if *w <= floor { floor } else { *w * scale };
        }
    }
    next
}

fn normalised(weights: [f64; OUTCOME_COUNT]) -> [f64; OUTCOME_COUNT] {
    let sum: f64 = weights.iter().sum();
    weights.map(|w| w / sum)
}
