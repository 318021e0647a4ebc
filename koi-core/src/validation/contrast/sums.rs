//! Running sums of contrasts and the slope they give; a pair of deployments enters once and is
//! revised in place by removing its old value and adding the new one.
//!
//! Which pairs are contrasts is decided elsewhere. Spec §8, Contrast.

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Largest magnitude of z or Δ on the natural scale; beyond it a pair is noise of a broken sensor,
/// and its square would drown every other pair.
pub const LARGEST_DIFFERENCE: f64 = 1e6;

/// Sums over the contrasts of one (edge, scope, environment).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ContrastSums {
    /// Contrasts, one per pair of deployments.
    pub n: u32,
    /// Σz²
    pub zz: f64,
    /// ΣzΔ
    pub zd: f64,
    /// ΣΔ²
    pub dd: f64,
}

impl ContrastSums {
    /// Counts one contrast; a pair that [`is_contrast`] refuses leaves the sums as they are.
    ///
    /// # Units
    /// `z` in the source's natural unit, `delta` in the destination's: logarithms for positive
    /// quantities, plain units else.
    pub fn add(&mut self, z: f64, delta: f64) {
        if !is_contrast(z, delta) {
            return;
        }
        self.n = self.n.saturating_add(1);
        self.zz += z * z;
        self.zd += z * delta;
        self.dd += delta * delta;
    }

    /// Takes one contrast back that was added with the same values, exact to rounding.
    ///
    /// The last one leaves exactly zero, so rounding never outlives the pairs that caused it.
    pub fn remove(&mut self, z: f64, delta: f64) {
        if !is_contrast(z, delta) {
            return;
        }
        if self.n <= 1 {
            *self = Self::default();
            return;
        }
        self.n -= 1;
        self.zz = (self.zz - z * z).max(0.0);
        self.zd -= z * delta;
        self.dd = (self.dd - delta * delta).max(0.0);
    }

    /// Both together, as if every contrast of `other` had been added here.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            n: self.n.saturating_add(other.n),
            zz: self.zz + other.zz,
            zd: self.zd + other.zd,
            dd: self.dd + other.dd,
        }
    }
}

/// Whether a pair may enter the sums: finite, and within [`LARGEST_DIFFERENCE`] on both sides.
#[must_use]
pub fn is_contrast(z: f64, delta: f64) -> bool {
    [z, delta]
        .iter()
        .all(|x| x.is_finite() && x.abs() <= LARGEST_DIFFERENCE)
}

/// Effect of an edge's source on its destination in one environment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EdgeEffect {
    /// Change of the destination per unit of the source, both on their natural scale.
    pub slope: f64,
    /// Standard error of the slope, the surrogate's own error included.
    pub standard_error: f64,
    /// Contrasts behind it.
    pub n: u32,
}

/// Slope through the origin of Δ on z; `None` below two contrasts, without any change of the
/// source, or with an error of the surrogate that is not a number of 0 or more.
///
/// # Formula
/// b = ΣzΔ/Σz², s² = (ΣΔ² − b·ΣzΔ)/(n − 1), se = √(s²/Σz² + s₀²)
///
/// # Units
/// `surrogate_error` = s₀: the surrogate's own error for the destination per unit of z.
///
/// # Source
/// Spec §8, Contrast
#[must_use]
pub fn edge_effect(sums: &ContrastSums, surrogate_error: f64) -> Option<EdgeEffect> {
    let known_error = surrogate_error.is_finite() && surrogate_error >= 0.0;
    if sums.n < 2 || sums.zz <= 0.0 || !known_error {
        return None;
    }
    let slope = sums.zd / sums.zz;
    let variance = ((sums.dd - slope * sums.zd) / f64::from(sums.n - 1)).max(0.0);
    let standard_error = (variance / sums.zz + surrogate_error * surrogate_error).sqrt();
    (slope.is_finite() && standard_error.is_finite()).then_some(EdgeEffect {
        slope,
        standard_error,
        n: sums.n,
    })
}
