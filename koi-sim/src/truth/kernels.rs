//! What no formula of widths tells: how well the chosen kernels suit the shapes of one engine.

use super::TruthInput;
use crate::rng::{SimRng, digest};

/// How well the kernels that a library picks suit the shapes of one engine: some tile sizes fill the
/// device, others leave a wave half empty, and no formula of widths says which. One factor for every
/// octave of tokens in a step, fixed by the device and by the matrices.
#[derive(Debug, Clone)]
pub(super) struct KernelLuck([f64; OCTAVES]);

/// Octaves of tokens in a step, from 1 to 32,768.
const OCTAVES: usize = 16;
/// Spread of the logarithm of a factor, about what is left of the errors of good predictors.
const KERNEL_SPREAD: f64 = 0.24;

impl KernelLuck {
    pub(super) fn of(input: &TruthInput<'_>) -> Self {
        let (model, cut) = (input.model, input.cut);
        let name = format!(
            "{}/{}/{}/{}/{}/{:?}",
            input.gpu_type,
            model.hidden_size,
            model.layers,
            cut.tensor,
            cut.pipeline,
            input.precision
        );
        let mut rng = SimRng::new(digest(name.as_bytes()));
        Self(std::array::from_fn(|_| {
            (KERNEL_SPREAD * rng.normal().clamp(-1.8, 1.8)).exp()
        }))
    }

    /// The same everywhere: what the tables say by themselves.
    #[cfg(test)]
    pub(super) fn even() -> Self {
        Self([1.0; OCTAVES])
    }

    /// The factor at so many tokens, between those of the octaves around.
    pub(super) fn factor(&self, tokens: f64) -> f64 {
        let octave = tokens.max(1.0).log2().min((OCTAVES - 1) as f64);
        let below = (octave as usize).min(OCTAVES - 2);
        let share = octave - below as f64;
        self.0[below] * (1.0 - share) + self.0[below + 1] * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_bounded_and_have_no_jumps() {
        let luck = KernelLuck(std::array::from_fn(|i| 1.0 + 0.1 * (i % 3) as f64));
        for tokens in [0.0, 1.0, 3.0, 500.0, 1e9] {
            assert!((1.0..=1.2).contains(&luck.factor(tokens)), "{tokens}");
        }
        let step = luck.factor(1024.0) - luck.factor(1024.1);
        assert!(step.abs() < 1e-4);
        assert!((luck.factor(2.0) - 1.1).abs() < 1e-12);
    }
}
