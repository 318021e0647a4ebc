//! How wrong the surrogate is about changes: s₀ and noise of every claim, from stored blocks.
//!
//! Spec §8, Contrast.

use std::collections::BTreeMap;

use super::book::{ContrastBook, DeploymentRecord, EdgeSums};
use super::scale::is_by_ratio;
use super::verdict::EffectClaim;
use crate::causal::Edge;
use crate::validation::residual::{Variable, median};

/// Error of a change that is assumed before any was seen, where ratios count.
const PRIOR_LOG_ERROR: f64 = 0.1;
/// The same for fractions and margins.
const PRIOR_PLAIN_ERROR: f64 = 0.05;
/// Changes that the assumption weighs as much as.
const PRIOR_CHANGES: f64 = 5.0;
/// From the median absolute deviation to a standard deviation of normal errors.
const MAD_TO_STD: f64 = 1.482_602_218_505_602;

/// Error of the surrogate's predicted changes of one variable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangeError {
    /// Standard deviation of (observed change − predicted change) between two deployments.
    pub std: f64,
    /// Changes it was estimated from.
    pub n: u32,
}

impl ChangeError {
    /// What is assumed before any change was seen.
    #[must_use]
    pub const fn prior(variable: Variable) -> Self {
        let std = if is_by_ratio(variable) {
            PRIOR_LOG_ERROR
        } else {
            PRIOR_PLAIN_ERROR
        };
        Self { std, n: 0 }
    }

    /// From the errors of single changes.
    ///
    /// # Formula
    /// σ² = (5·prior² + m·(1.4826·median |e|)²)/(5 + m)
    fn of(variable: Variable, errors: &[f64]) -> Self {
        let prior = Self::prior(variable).std;
        let sizes: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
        let own = MAD_TO_STD * median(&sizes).unwrap_or(0.0);
        let m = errors.len() as f64;
        let variance = (PRIOR_CHANGES * prior * prior + m * own * own) / (PRIOR_CHANGES + m);
        Self {
            std: variance.sqrt(),
            n: u32::try_from(errors.len()).unwrap_or(u32::MAX),
        }
    }
}

/// Errors by variable; made once per tick.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChangeErrors(BTreeMap<Variable, ChangeError>);

impl ChangeErrors {
    /// From each deployment and the one before it of the same rank of the same job in the same
    /// environment.
    ///
    /// # Formula
    /// e = (ō_k − p̄_k) − (ō_l − p̄_l), both on the natural scale of contrasts, over whole lives
    #[must_use]
    pub fn of(book: &ContrastBook) -> Self {
        let mut errors: BTreeMap<Variable, Vec<f64>> = BTreeMap::new();
        let mut newest: BTreeMap<_, &DeploymentRecord> = BTreeMap::new();
        for record in book.deployments() {
            let id = record.subject.id;
            let place = (id.job, id.rank, &record.subject.environment);
            if let Some(before) = newest.insert(place, record) {
                for variable in record.life.total.variables.keys() {
                    let own = record.life.surrogate_error(*variable);
                    let other = before.life.surrogate_error(*variable);
                    if let Some((own, other)) = own.zip(other) {
                        errors.entry(*variable).or_default().push(own - other);
                    }
                }
            }
        }
        let of = |(v, e): (Variable, Vec<f64>)| (v, ChangeError::of(v, &e));
        Self(errors.into_iter().map(of).collect())
    }

    /// The error of one variable.
    #[must_use]
    pub fn get(&self, variable: Variable) -> ChangeError {
        let known = self.0.get(&variable).copied();
        known.unwrap_or(ChangeError::prior(variable))
    }

    /// What an edge claims in the light of these errors.
    ///
    /// # Formula
    /// noise = σ of the destination's change errors; s₀ = noise/(√(m + 1)·√(Σz²/n)): the part of
    /// the error that all m known changes may share, per unit of z. What differs from change to
    /// change is in the spread s² of the contrasts already.
    #[must_use]
    pub fn claim(&self, edge: &Edge, sums: &EdgeSums) -> Option<EffectClaim> {
        let destination = Variable::from_name(edge.ends.destination())?;
        let error = self.get(destination);
        let n = f64::from(sums.steps.n.max(1));
        let rms = if sums.steps.n > 0 && sums.steps.zz > 0.0 {
            (sums.steps.zz / n).sqrt()
        } else {
            1.0
        };
        Some(EffectClaim {
            sign: edge.sign,
            smallest_effect: edge.smallest_effect,
            surrogate_error: error.std / (f64::from(error.n) + 1.0).sqrt() / rms,
            noise: error.std,
        })
    }
}
