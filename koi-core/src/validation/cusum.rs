//! Two-sided CUSUM on a residual stream: sequential, and sensitive to small persistent drift.
//!
//! White paper V1, CUSUM on Mediators and Outcomes; spec §8.

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// What the detector says of one variable; diverged orders above matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// The observation follows the prediction.
    Matched,
    /// It has drifted away.
    Diverged,
}

/// The detector after a whole stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cusum {
    /// Whether either side ever passed the threshold.
    pub verdict: Verdict,
    /// Index of the first residual at which one did.
    pub fired_at: Option<usize>,
    /// S⁺ after the last residual, ≥ 0.
    pub high: f64,
    /// S⁻ after the last residual, ≤ 0.
    pub low: f64,
    /// Farthest that either side ran, ≥ 0: it diverges under exactly the thresholds below it.
    pub peak: f64,
}

/// Runs both sides from zero over a stream of residuals.
///
/// # Formula
/// S⁺ ← max(0, S⁺ + r − δ), S⁻ ← min(0, S⁻ + r + δ); diverged when S⁺ > h or S⁻ < −h
///
/// # Units
/// `slack` = δ and `threshold` = h in the unit of the residuals.
///
/// # Source
/// White paper V1, CUSUM on Mediators and Outcomes
#[must_use]
pub fn cusum(residuals: &[f64], slack: f64, threshold: f64) -> Cusum {
    let (mut high, mut low, mut peak, mut fired_at) = (0.0_f64, 0.0_f64, 0.0_f64, None);
    for (i, r) in residuals.iter().enumerate() {
        high = (high + r - slack).max(0.0);
        low = (low + r + slack).min(0.0);
        peak = peak.max(high).max(-low);
        if fired_at.is_none() && peak > threshold {
            fired_at = Some(i);
        }
    }
    let verdict = if fired_at.is_some() {
        Verdict::Diverged
    } else {
        Verdict::Matched
    };
    Cusum {
        verdict,
        fired_at,
        high,
        low,
        peak,
    }
}
