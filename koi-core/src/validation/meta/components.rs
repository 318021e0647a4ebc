//! What residual blocks are made of: a bias of the surrogate, an error per deployment, and
//! autocorrelated noise inside the block.
//!
//! A detector that knew the noise alone would fire on every error of the surrogate. Spec §8,
//! "model error included".

use statrs::distribution::{Continuous, ContinuousCDF, Normal};

use super::blocks::ResidualBlock;

/// Largest autocorrelation that is still told from an error of the whole block.
const AUTOCORRELATION_MAX: f64 = 0.9;

/// Variance components of the residuals of one variable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Components {
    /// Mean residual over all blocks: what the surrogate misses everywhere.
    pub bias: f64,
    /// Standard deviation between blocks beyond what noise explains.
    pub model_error_std: f64,
    /// Standard deviation of one point around its block.
    pub noise_std: f64,
    /// (1 + φ)/(1 − φ): how much faster a mean of autocorrelated noise wanders than one of white
    /// noise.
    pub long_run_factor: f64,
    /// Factor on a block mean's distance from the bias: noise taken out, trimming undone.
    pub mean_shrink: f64,
    /// Standard deviation of the block means around the bias, trimming undone.
    pub mean_std: f64,
}

impl Components {
    /// Root mean square of one residual, the error of the surrogate included.
    #[must_use]
    pub fn sigma(&self) -> f64 {
        let squares = [self.bias, self.model_error_std, self.noise_std].map(|x| x * x);
        squares.iter().sum::<f64>().sqrt()
    }
}

/// Estimates the components; `None` below two blocks or without a degree of freedom in any.
///
/// # Formula
/// s² = ΣΣ(r − mᵦ)² / Σ(nᵦ − g), φ from the pooled lag-one products, g = (1 + φ)/(1 − φ);
/// τ² = max(0, k²·var(mᵦ) − s²·g/n̄), k = the factor that undoes a symmetric trimming of a normal
///
/// # Shapes
/// `dropped`: the share of blocks, the most extreme, that `blocks` lacks.
pub(super) fn of(blocks: &[&ResidualBlock], dropped: f64) -> Option<Components> {
    if blocks.len() < 2 {
        return None;
    }
    let count = blocks.len() as f64;
    let means: Vec<f64> = blocks.iter().map(|b| b.mean()).collect();
    let bias = means.iter().sum::<f64>() / count;
    let between = means.iter().map(|m| (m - bias) * (m - bias)).sum::<f64>() / (count - 1.0);
    let (mut squares, mut products, mut points) = (0.0, 0.0, 0.0);
    for (block, mean) in blocks.iter().zip(&means) {
        let centred = || block.residuals().iter().map(|r| r - mean);
        squares += centred().map(|e| e * e).sum::<f64>();
        products += centred()
            .zip(centred().skip(1))
            .map(|(a, b)| a * b)
            .sum::<f64>();
        points += block.residuals().len() as f64;
    }
    let long_run_factor = long_run_factor(products / squares);
    let degrees = (points - count * long_run_factor).max(points * 0.25);
    let noise = squares / degrees;
    let untrim = untrimming_factor(dropped);
    let spread = untrim * untrim * between;
    let of_noise = noise * long_run_factor * count / points;
    let model_error = (spread - of_noise).max(0.0);
    let shrink = if between > 0.0 {
        (model_error / between).sqrt()
    } else {
        0.0
    };
    Some(Components {
        bias,
        model_error_std: model_error.sqrt(),
        noise_std: noise.sqrt(),
        long_run_factor,
        mean_shrink: shrink,
        mean_std: spread.sqrt(),
    })
}

fn long_run_factor(autocorrelation: f64) -> f64 {
    let phi = if autocorrelation.is_finite() {
        autocorrelation.clamp(0.0, AUTOCORRELATION_MAX)
    } else {
        0.0
    };
    (1.0 + phi) / (1.0 - phi)
}

/// Standard deviation of a normal over that of the same without its most extreme share.
///
/// # Formula
/// 1/√(1 − 2zφ(z)/(1 − f)) with z the quantile of 1 − f/2
fn untrimming_factor(dropped: f64) -> f64 {
    if dropped <= 0.0 || dropped >= 0.5 {
        return 1.0;
    }
    let normal = Normal::standard();
    let z = normal.inverse_cdf(1.0 - dropped / 2.0);
    let variance = 1.0 - 2.0 * z * normal.pdf(z) / (1.0 - dropped);
    1.0 / variance.max(0.25).sqrt()
}
