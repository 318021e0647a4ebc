//! Seeded dice of the simulator. Not for secrets, and not shared with the planner's.

/// A SplitMix64 stream: small, fast, the same on every machine.
#[derive(Debug, Clone)]
pub struct SimRng {
    state: u64,
}

const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Bijective 64-bit scrambling; the finaliser of SplitMix64.
#[must_use]
pub const fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A stable 64-bit digest of some bytes, the same on every machine.
#[must_use]
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    scramble(hash)
}

impl SimRng {
    /// A stream that depends on the seed alone.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        scramble(self.state)
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform integer in `0..bound`; 0 when the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Standard normal (Box and Muller, one of the pair).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// Gamma with this shape and scale 1 (Marsaglia and Tsang; boosted below shape 1).
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let boost = (1.0 - self.uniform()).powf(1.0 / shape);
            return self.gamma(shape + 1.0) * boost;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            let u = 1.0 - self.uniform();
            if v > 0.0 && u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let xs: Vec<f64> = (0..40_000).map(|_| draw()).collect();
        let mean = xs.iter().sum::<f64>() / xs.len() as f64;
        let variance = xs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / xs.len() as f64;
        (mean, variance)
    }

    #[test]
    fn distributions_have_their_moments() {
        let mut rng = SimRng::new(7);
        let check = |(mean, variance): (f64, f64), want_mean: f64, want_variance: f64| {
            assert!(
                (mean - want_mean).abs() < 0.03,
                "mean {mean}, want {want_mean}"
            );
            assert!(
                (variance - want_variance).abs() < 0.08,
                "{variance}, want {want_variance}"
            );
        };
        check(moments(|| rng.uniform()), 0.5, 1.0 / 12.0);
        check(moments(|| rng.normal()), 0.0, 1.0);
        check(moments(|| rng.exponential()), 1.0, 1.0);
        check(moments(|| rng.gamma(0.25)), 0.25, 0.25);
        check(moments(|| rng.gamma(2.0)), 2.0, 2.0);
    }

    #[test]
    fn same_seed_same_stream_and_bounds_hold() {
        let (mut a, mut b, mut c) = (SimRng::new(1), SimRng::new(1), SimRng::new(2));
        let xs: Vec<u64> = (0..64).map(|_| a.below(10)).collect();
        assert_eq!(xs, (0..64).map(|_| b.below(10)).collect::<Vec<_>>());
        assert_ne!(xs, (0..64).map(|_| c.below(10)).collect::<Vec<_>>());
        assert!(xs.iter().all(|x| *x < 10));
        assert_eq!(a.below(0), 0);
    }
}
