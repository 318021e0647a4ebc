//! DRO radius ε: holds the coverage of the bands near its target. White paper V1, Risk and
//! Appendix A.

use crate::params::Params;
use crate::validation::EvidenceRow;

/// One step.
///
/// # Formula
/// ε (1 + η) while κ < κ* − d, ε (1 − η) while κ > κ* + d, else ε; clipped
#[must_use]
pub fn step(radius: f64, coverage: f64, params: &Params) -> f64 {
    let next = if coverage < params.dro_coverage_target - params.dro_coverage_dead_band {
        radius * (1.0 + params.dro_step_size)
    } else if coverage > params.dro_coverage_target + params.dro_coverage_dead_band {
        radius * (1.0 - params.dro_step_size)
    } else {
        radius
    };
    next.clamp(params.dro_radius_min, params.dro_radius_max)
}

/// (Row, objective) pairs that fell inside their band, and all that had one.
#[must_use]
pub fn counted<'a>(rows: impl IntoIterator<Item = &'a EvidenceRow>) -> (u32, u32) {
    let (mut inside, mut banded) = (0_u32, 0_u32);
    for fell_inside in rows.into_iter().flat_map(|row| row.inside_band.values()) {
        banded += 1;
        inside += u32::from(*fell_inside);
    }
    (inside, banded)
}
