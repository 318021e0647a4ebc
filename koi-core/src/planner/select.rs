//! The joint choice: one option per job so that Σ gain is largest within every capacity row and
//! the swap budget. Knows nothing of jobs, GPUs or hosts; those become rows in `packing`.
//!
//! Prices by Lagrangian relaxation give a proven bound and, with local search, a first answer;
//! branch and bound over the same prices proves it where the instance is small enough. Every
//! limit is a count, never a clock, so equal inputs give equal answers. Spec §10.3.

mod exact;
mod local;
mod prices;
#[cfg(test)]
mod tests;

use thiserror::Error;

/// Product of option counts up to which the exact search is never cut off.
const EXACT_PRODUCT_MAX: f64 = 1e6;
/// Nodes of the exact search on larger instances: about 50 ms.
const EXACT_NODES_MAX: u64 = 200_000;
/// Jobs up to which the exact search is tried; it recurses once per job.
const EXACT_JOBS_MAX: usize = 400;
/// Two plans whose values differ by less are equal.
pub(super) const VALUE_TOLERANCE: f64 = 1e-9;

/// One way to serve one job.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// What it adds to Σ.
    pub gain: f64,
    /// `(row, amount)` it takes, rows strictly ascending, amounts positive.
    pub uses: Vec<(usize, u64)>,
    /// What it takes of the swap budget.
    pub n_swaps: u32,
}

/// One choice per job, within the rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// What each row offers.
    pub capacity: Vec<u64>,
    /// Voluntary swaps allowed.
    pub swap_budget: u32,
    /// Choices by job; the first one leaves the job as it is.
    pub jobs: Vec<Vec<Choice>>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// Index of the chosen option by job.
    pub picks: Vec<usize>,
    /// Σ gain of the picks.
    pub value: f64,
    /// No plan is worth more than this.
    pub bound: f64,
    /// True when the picks are proven best.
    pub is_optimal: bool,
    /// Opportunity cost of one more unit, by row.
    pub prices: Vec<f64>,
    /// Opportunity cost of one more swap.
    pub swap_price: f64,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SelectError {
    /// A job has no choice at all.
    #[error("job {0} of the problem has no choice")]
    NoChoice(usize),
    /// A choice is malformed.
    #[error("choice {choice} of job {job} names an unknown row or has a gain that is not finite")]
    BadChoice {
        /// Position of the job.
        job: usize,
        /// Position of the choice.
        choice: usize,
    },
    /// No combination within the rows was found.
    #[error("no combination of choices within the capacity was found")]
    Infeasible,
}

/// The problem with the swap budget as its last row and without dominated choices.
pub(super) struct Instance {
    pub(super) capacity: Vec<u64>,
    /// Choices by job.
    pub(super) jobs: Vec<Vec<Candidate>>,
}

/// A choice that may be picked.
pub(super) struct Candidate {
    /// Position in the job's list.
    pub(super) index: usize,
    pub(super) gain: f64,
    pub(super) uses: Vec<(usize, u64)>,
}

/// True when what is left of every row suffices.
pub(super) fn fits(left: &[u64], uses: &[(usize, u64)]) -> bool {
    uses.iter().all(|(row, amount)| left[*row] >= *amount)
}

pub(super) fn take(left: &mut [u64], uses: &[(usize, u64)]) {
    for (row, amount) in uses {
        left[*row] -= amount;
    }
}

pub(super) fn give(left: &mut [u64], uses: &[(usize, u64)]) {
    for (row, amount) in uses {
        left[*row] += amount;
    }
}

fn dominates(a: &Candidate, b: &Candidate) -> bool {
    let no_worse = a.gain >= b.gain
        && a.uses
            .iter()
            .all(|(row, n)| b.uses.iter().any(|(r, m)| r == row && m >= n));
    no_worse && (a.index < b.index || a.gain > b.gain || a.uses != b.uses)
}

impl Instance {
    fn new(problem: &Problem) -> Result<Self, SelectError> {
        let swap_row = problem.capacity.len();
        let mut capacity = problem.capacity.clone();
        capacity.push(u64::from(problem.swap_budget));
        let mut jobs = Vec::with_capacity(problem.jobs.len());
        for (j, choices) in problem.jobs.iter().enumerate() {
            if choices.is_empty() {
                return Err(SelectError::NoChoice(j));
            }
            let mut candidates = Vec::with_capacity(choices.len());
            for (index, choice) in choices.iter().enumerate() {
                if !choice.gain.is_finite() || choice.uses.iter().any(|(r, _)| *r >= swap_row) {
                    return Err(SelectError::BadChoice {
                        job: j,
                        choice: index,
                    });
                }
                let mut uses = choice.uses.clone();
                if choice.n_swaps > 0 {
                    uses.push((swap_row, u64::from(choice.n_swaps)));
                }
                candidates.push(Candidate {
                    index,
                    gain: choice.gain,
                    uses,
                });
            }
            candidates.retain(|c| fits(&capacity, &c.uses));
            let dominated: Vec<bool> = candidates
                .iter()
                .map(|b| {
                    candidates
                        .iter()
                        .any(|a| a.index != b.index && dominates(a, b))
                })
                .collect();
            let mut keep = dominated.iter().map(|d| !d);
            candidates.retain(|_| keep.next().unwrap_or(true));
            if candidates.is_empty() {
                return Err(SelectError::Infeasible);
            }
            jobs.push(candidates);
        }
        Ok(Self { capacity, jobs })
    }

    /// Σ gain, summed in job order.
    pub(super) fn value(&self, picks: &[usize]) -> f64 {
        self.jobs
            .iter()
            .zip(picks)
            .map(|(job, p)| job[*p].gain)
            .sum()
    }

    fn exact_nodes_max(&self) -> u64 {
        let product: f64 = self.jobs.iter().map(|j| j.len() as f64).product();
        if self.jobs.len() > EXACT_JOBS_MAX {
            0
        } else if product <= EXACT_PRODUCT_MAX {
            u64::MAX
        } else {
            EXACT_NODES_MAX
        }
    }
}

/// Chooses one option per job.
///
/// # Formula
/// max Σ_j gain(j, o_j) subject to Σ_j use(j, o_j, r) ≤ capacity(r) for every row r and
/// Σ_j swaps(j, o_j) ≤ swap budget.
///
/// # Errors
/// [`SelectError`] for malformed problems and for those in which nothing fits.
///
/// # Source
/// White paper V1, The Cluster Objective; spec §10.3.
pub fn select(problem: &Problem, seed: u64) -> Result<Selection, SelectError> {
    let instance = Instance::new(problem)?;
    let priced = prices::relax(&instance);
    let start = local::search(&instance, &priced, seed);
    let nodes_max = instance.exact_nodes_max();
    let outcome = exact::search(&instance, &priced, start, nodes_max);
    let picks = outcome.picks.ok_or(SelectError::Infeasible)?;
    let value = instance.value(&picks);
    let mut row_prices = priced.prices;
    let swap_price = row_prices.pop().unwrap_or(0.0);
    Ok(Selection {
        picks: picks
            .iter()
            .zip(&instance.jobs)
            .map(|(p, job)| job[*p].index)
            .collect(),
        value,
        bound: if outcome.is_closed {
            value
        } else {
            priced.bound.max(value)
        },
        is_optimal: outcome.is_closed,
        prices: row_prices,
        swap_price,
    })
}
