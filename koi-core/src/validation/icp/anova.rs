//! One-way analysis of variance, over raw groups and over their running moments.
//!
//! Welford (1962) for the moments, Chan, Golub and LeVeque (1983) for merging them.

use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use crate::validation::residual::median;

/// Count, mean and squared deviations of a group, without its members.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Moments {
    /// Members.
    pub n: u64,
    /// Their mean; 0 when there are none.
    pub mean: f64,
    /// Σ(x − mean)²
    pub squares: f64,
}

impl Moments {
    /// Counts one more member; what is not finite is left out.
    pub fn push(&mut self, x: f64) {
        if !x.is_finite() {
            return;
        }
        self.n += 1;
        let from_old = x - self.mean;
        self.mean += from_old / self.n as f64;
        self.squares += from_old * (x - self.mean);
    }

    /// Both groups as one.
    #[must_use]
    pub fn merged(&self, other: &Self) -> Self {
        let n = self.n + other.n;
        if n == 0 {
            return Self::default();
        }
        let (a, b) = (self.n as f64, other.n as f64);
        let apart = other.mean - self.mean;
        Self {
            n,
            mean: self.mean + apart * b / (a + b),
            squares: self.squares + other.squares + apart * apart * a * b / (a + b),
        }
    }

    /// Sample standard deviation with n − 1; `None` below two members.
    #[must_use]
    pub fn std(&self) -> Option<f64> {
        (self.n >= 2).then(|| (self.squares.max(0.0) / (self.n - 1) as f64).sqrt())
    }
}

impl FromIterator<f64> for Moments {
    /// In two passes, so that a long way from zero costs no digits.
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() {
            return Self::default();
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Self {
            n: values.len() as u64,
            mean,
            squares: values.iter().map(|x| (x - mean) * (x - mean)).sum(),
        }
    }
}

/// A one-way layout: how far the groups' means lie apart, and how far their members do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layout {
    /// Members of all groups.
    pub n: u64,
    /// Groups.
    pub groups: u32,
    /// Mean of all members.
    pub grand_mean: f64,
    /// Σ nₖ(mₖ − m)²
    pub between: f64,
    /// Σ Σ (x − mₖ)²
    pub within: f64,
}

impl Layout {
    /// `None` with fewer than two groups, an empty one, or no member to spare.
    #[must_use]
    pub fn of(groups: &[Moments]) -> Option<Self> {
        let k = u32::try_from(groups.len()).ok()?;
        let n: u64 = groups.iter().map(|g| g.n).sum();
        if k < 2 || n <= u64::from(k) || groups.iter().any(|g| g.n == 0) {
            return None;
        }
        let sum: f64 = groups.iter().map(|g| g.n as f64 * g.mean).sum();
        let grand_mean = sum / n as f64;
        let (mut between, mut within) = (0.0, 0.0);
        for group in groups {
            let from_grand = group.mean - grand_mean;
            between += group.n as f64 * from_grand * from_grand;
            within += group.squares.max(0.0);
        }
        Some(Self {
            n,
            groups: k,
            grand_mean,
            between,
            within,
        })
    }

    /// Degrees of freedom within the groups.
    #[must_use]
    pub fn within_degrees(&self) -> f64 {
        (self.n - u64::from(self.groups)) as f64
    }

    /// Pooled standard deviation within the groups.
    #[must_use]
    pub fn within_std(&self) -> f64 {
        (self.within / self.within_degrees()).sqrt()
    }

    /// Probability of an F at least this large when all groups share one mean; `None` when no
    /// spread or values that are not finite leave it undefined.
    ///
    /// # Formula
    /// F = (Σ nₖ(mₖ − m)² / (K − 1)) / (ΣΣ(x − mₖ)² / (N − K))
    #[must_use]
    pub fn p_value(&self) -> Option<f64> {
        let (df_between, df_within) = (f64::from(self.groups - 1), self.within_degrees());
        let f = (self.between / df_between) / (self.within / df_within);
        let distribution = FisherSnedecor::new(df_between, df_within).ok()?;
        f.is_finite().then(|| distribution.sf(f))
    }
}

/// One-way analysis of variance over raw groups; `None` when fewer than two groups, no spread, or
/// values that are not finite leave it undefined.
#[must_use]
pub fn anova_p_value(groups: &[&[f64]]) -> Option<f64> {
    let moments: Vec<Moments> = groups.iter().map(|g| g.iter().copied().collect()).collect();
    Layout::of(&moments)?.p_value()
}

/// The Brown–Forsythe test for equal spread: analysis of variance over distances from each group's
/// median.
#[must_use]
pub fn brown_forsythe_p_value(groups: &[&[f64]]) -> Option<f64> {
    let distances: Option<Vec<Moments>> = groups
        .iter()
        .map(|g| median(g).map(|m| g.iter().map(|x| (x - m).abs()).collect()))
        .collect();
    Layout::of(&distances?)?.p_value()
}
