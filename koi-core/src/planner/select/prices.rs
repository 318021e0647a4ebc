//! Lagrangian prices of the capacity rows by projected subgradient steps: the opportunity cost of
//! each row, and an upper bound on every plan. Spec §10.3.

use super::{Candidate, Instance};

/// Steps of the subgradient method; more than enough where the exact search follows.
const STEPS: usize = 200;
/// Steps without a better bound before the step size is halved.
const PATIENCE: usize = 10;

/// Prices and the bound they prove.
pub(super) struct Priced {
    /// Price of one unit, by row; never negative.
    pub(super) prices: Vec<f64>,
    /// No plan is worth more.
    pub(super) bound: f64,
}

/// Gain after paying for what is used.
pub(super) fn reduced_gain(candidate: &Candidate, prices: &[f64]) -> f64 {
    candidate.gain
        - candidate
            .uses
            .iter()
            .map(|(row, n)| prices[*row] * *n as f64)
            .sum::<f64>()
}

/// Best candidate of a job at these prices: position and reduced gain.
fn best_at(job: &[Candidate], prices: &[f64]) -> (usize, f64) {
    let mut best = (0, f64::NEG_INFINITY);
    for (position, candidate) in job.iter().enumerate() {
        let reduced = reduced_gain(candidate, prices);
        if reduced > best.1 {
            best = (position, reduced);
        }
    }
    best
}

/// L(λ) and its subgradient capacity − use.
fn evaluate(instance: &Instance, prices: &[f64]) -> (f64, Vec<f64>) {
    let mut slack: Vec<f64> = instance.capacity.iter().map(|c| *c as f64).collect();
    let mut value: f64 = slack.iter().zip(prices).map(|(c, p)| c * p).sum();
    for job in &instance.jobs {
        let (position, reduced) = best_at(job, prices);
        value += reduced;
        for (row, n) in &job[position].uses {
            slack[*row] -= *n as f64;
        }
    }
    (value, slack)
}

/// Minimises L over non-negative prices.
///
/// # Formula
/// L(λ) = Σ_r λ_r·capacity_r + Σ_j max_o (gain − Σ_r λ_r·use); every λ ≥ 0 bounds every plan.
pub(super) fn relax(instance: &Instance) -> Priced {
    let mut prices = vec![0.0; instance.capacity.len()];
    let mut best = Priced {
        prices: prices.clone(),
        bound: f64::INFINITY,
    };
    let floor: f64 = instance.jobs.iter().map(|job| lowest_gain(job)).sum();
    let mut step = 1.0;
    let mut stale = 0;
    for _ in 0..STEPS {
        let (value, slack) = evaluate(instance, &prices);
        if value < best.bound - 1e-9 {
            best = Priced {
                prices: prices.clone(),
                bound: value,
            };
            stale = 0;
        } else {
            stale += 1;
            if stale > PATIENCE {
                step *= 0.5;
                stale = 0;
                prices.clone_from(&best.prices);
                continue;
            }
        }
        let norm: f64 = slack
            .iter()
            .zip(&prices)
            .filter(|(s, p)| **s < 0.0 || **p > 0.0)
            .map(|(s, _)| s * s)
            .sum();
        if norm <= 0.0 {
            break;
        }
        let length = step * (value - floor).max(1e-9) / norm * 0.5;
        for (price, s) in prices.iter_mut().zip(&slack) {
            *price = (*price - length * s).max(0.0);
        }
    }
    best
}

fn lowest_gain(job: &[Candidate]) -> f64 {
    job.iter().map(|c| c.gain).fold(f64::INFINITY, f64::min)
}
