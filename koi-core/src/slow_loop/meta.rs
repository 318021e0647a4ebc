//! When thresholds and σ of the validation are recalibrated. What the calibration is, and how it
//! is made from stored residuals, belongs to [`crate::validation`]. Spec §8, §9.

use crate::params::Params;

/// True when the tick that has just been counted ends with a recalibration: every N ticks.
#[must_use]
pub fn is_due(tick_count: u64, params: &Params) -> bool {
    let period = u64::from(params.meta_period_ticks.max(1));
    tick_count > 0 && tick_count.is_multiple_of(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_twentieth_tick_is_due() {
        let params = Params::default();
        let due: Vec<u64> = (0..=60).filter(|n| is_due(*n, &params)).collect();
        assert_eq!(due, [20, 40, 60]);
    }
}
