//! Limits with their residuals made ready: one sort, then every candidate's breach probability by
//! bisection and without an allocation.
//!
//! Not the bounds themselves, which [`super`] states; these are their arithmetic on a sorted set.
//! White paper V1, Risk: Distributionally Robust Prediction; spec §7.

use super::{DroInput, LimitAtRisk, ObjectiveLimit, SloRisk, chance_radius, topped_up, union};
use crate::params::{BreachBound, Params};
use crate::validation::residual::sample_std;
use crate::variables::OutcomeValues;

/// Residuals of one objective, topped up and sorted, with their running sums.
#[derive(Debug, Clone, PartialEq)]
pub struct ResidualSet {
    sorted: Vec<f64>,
    /// Sum of the k smallest, by k.
    sums: Vec<f64>,
    radius: f64,
    std: f64,
}

impl ResidualSet {
    /// The set of these residuals under a radius ε.
    #[must_use]
    pub fn of(residuals: &[f64], radius: f64, minimum: u32) -> Self {
        let mut sorted = topped_up(residuals, radius, minimum);
        let std = sample_std(&sorted).unwrap_or(0.0);
        sorted.sort_by(f64::total_cmp);
        let mut sums = Vec::with_capacity(sorted.len() + 1);
        let mut sum = 0.0;
        sums.push(sum);
        for residual in &sorted {
            sum += residual;
            sums.push(sum);
        }
        Self {
            sorted,
            sums,
            radius,
            std,
        }
    }

    /// Share of residuals past a line, plus ε.
    ///
    /// # Formula
    /// min(1, P_emp + ε)
    #[must_use]
    pub fn additive(&self, line: f64, is_floor: bool) -> f64 {
        let n = self.sorted.len();
        let crossed = if is_floor {
            self.sorted.partition_point(|r| *r < line)
        } else {
            n - self.sorted.partition_point(|r| *r <= line)
        };
        (crossed as f64 / n as f64 + self.radius).min(1.0)
    }

    /// The worst case over the Wasserstein-1 ball of radius ε σ̂.
    ///
    /// # Formula
    /// (p + k + (n ε σ̂ − S_k) / d_{k+1}) / n: p residuals lie past the line, S_k is the distance of
    /// the k nearest others to it, and k the most that the budget n ε σ̂ carries across
    #[must_use]
    pub fn wasserstein(&self, line: f64, is_floor: bool) -> f64 {
        let n = self.sorted.len();
        // Past a ceiling lie the largest, past a floor the smallest residuals.
        let split = if is_floor {
            self.sorted.partition_point(|r| *r <= line)
        } else {
            self.sorted.partition_point(|r| *r < line)
        };
        let (past, others) = if is_floor {
            (split, n - split)
        } else {
            (n - split, split)
        };
        let sum = |k: usize| self.sums.get(k).copied().unwrap_or(0.0);
        let distance = |k: usize| {
            if is_floor {
                sum(split + k) - sum(split) - k as f64 * line
            } else {
                k as f64 * line - (sum(split) - sum(split - k))
            }
        };
        let budget = n as f64 * self.radius * self.std;
        let (mut carried, mut too_many) = (0, others + 1);
        while carried + 1 < too_many {
            let middle = carried.midpoint(too_many);
            if distance(middle) <= budget {
                carried = middle;
            } else {
                too_many = middle;
            }
        }
        let part = if carried < others {
            let next = distance(carried + 1) - distance(carried);
            ((budget - distance(carried)) / next).clamp(0.0, 1.0)
        } else {
            0.0
        };
        (((past + carried) as f64 + part) / n as f64).min(1.0)
    }
}

/// A limit with the residuals of similar predictions.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedLimit {
    limit: ObjectiveLimit,
    residuals: ResidualSet,
}

impl PreparedLimit {
    /// The limit under radius ε, which shrinks with the number of residuals.
    #[must_use]
    pub fn of(limit: ObjectiveLimit, residuals: &[f64], radius: f64, params: &Params) -> Self {
        let n_finite = residuals.iter().filter(|r| r.is_finite()).count();
        let radius = chance_radius(radius, n_finite, params);
        Self {
            limit,
            residuals: ResidualSet::of(residuals, radius, params.dro_residuals_min),
        }
    }

    /// Probability that the limit breaks; an outcome that is unbounded or was not predicted is a
    /// certain breach: a promise nobody can predict is not kept.
    #[must_use]
    pub fn breach(&self, predicted: Option<f64>, params: &Params) -> f64 {
        let Some(predicted) = predicted.filter(|y| y.is_finite()) else {
            return 1.0;
        };
        let ObjectiveLimit { outcome, limit } = self.limit;
        let input = DroInput::of(outcome, predicted, &[], 0.0);
        let line = (limit - predicted) / input.unit;
        match params.breach_bound {
            BreachBound::Wasserstein => self.residuals.wasserstein(line, outcome.is_maximised()),
            BreachBound::Additive => self.residuals.additive(line, outcome.is_maximised()),
        }
    }
}

/// All limits of one job where residuals of one kind speak about it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PreparedLimits(Vec<PreparedLimit>);

impl PreparedLimits {
    /// The limits, in the order given.
    #[must_use]
    pub fn of(limits: &[LimitAtRisk<'_>], radius: f64, params: &Params) -> Self {
        let prepared =
            |l: &LimitAtRisk<'_>| PreparedLimit::of(l.limit, l.residuals, radius, params);
        Self(limits.iter().map(prepared).collect())
    }

    fn each<'a>(
        &'a self,
        outcomes: &'a OutcomeValues,
        params: &'a Params,
    ) -> impl Iterator<Item = (ObjectiveLimit, f64)> + 'a {
        self.0.iter().map(|prepared| {
            let predicted = outcomes.get(prepared.limit.outcome);
            (prepared.limit, prepared.breach(predicted, params))
        })
    }

    /// Probability that any limit breaks. Allocates nothing.
    #[must_use]
    pub fn any(&self, outcomes: &OutcomeValues, params: &Params) -> f64 {
        union(self.each(outcomes, params).map(|(_, p)| p))
    }

    /// The same with the probability of every limit.
    #[must_use]
    pub fn risk(&self, outcomes: &OutcomeValues, params: &Params) -> SloRisk {
        let by_limit: Vec<_> = self.each(outcomes, params).collect();
        SloRisk {
            any: union(by_limit.iter().map(|l| l.1)),
            by_limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Residual by residual, nearest first, as the bound is stated.
    fn one_by_one(residuals: &[f64], radius: f64, line: f64, is_floor: bool) -> f64 {
        let n = residuals.len() as f64;
        let gap = |r: &f64| if is_floor { r - line } else { line - r };
        let mut distances: Vec<f64> = residuals.iter().map(|r| gap(r).max(0.0)).collect();
        distances.sort_by(f64::total_cmp);
        let mut budget = n * radius * sample_std(residuals).unwrap();
        let mut carried = 0.0;
        for distance in distances {
            if distance > budget {
                carried += budget / distance;
                break;
            }
            budget -= distance;
            carried += 1.0;
        }
        (carried / n).min(1.0)
    }

    #[test]
    fn bisection_gives_what_carrying_one_by_one_gives() {
        let mut rng = Rng::from_seed(3);
        let mut between = 0;
        for round in 0..2_000 {
            let n = 2 + rng.below(120);
            let residuals: Vec<f64> = (0..n).map(|_| 2.0 * rng.unit() - 1.0).collect();
            let (line, radius) = (3.0 * rng.unit() - 1.5, 0.5 * rng.unit());
            let is_floor = round % 2 == 0;
            let set = ResidualSet::of(&residuals, radius, 2);
            let expected = one_by_one(&residuals, radius, line, is_floor);
            let got = set.wasserstein(line, is_floor);
            assert!((got - expected).abs() < 1e-9, "{got} {expected}");
            between += usize::from(expected > 0.0 && expected < 1.0);
        }
        assert!(between > 500, "{between}");
    }

    #[test]
    fn a_residual_on_the_line_is_carried_for_nothing() {
        let set = ResidualSet::of(&[0.0, 1.0], 0.0, 2);
        assert!((set.wasserstein(1.0, false) - 0.5).abs() < 1e-12);
        assert!((set.wasserstein(0.0, true) - 0.5).abs() < 1e-12);
        assert!(set.additive(1.0, false).abs() < 1e-12);
    }
}
