//! A good feasible answer: greedy at the prices, then seeded local search by single moves and by
//! moves that push one other job aside. Bounded by a count of trials. Spec §10.3.

use super::prices::{Priced, reduced_gain};
use super::{Instance, VALUE_TOLERANCE, fits, give, take};
use crate::rng::Rng;

/// Moves tried in all: about 20 ms.
const TRIALS_MAX: usize = 400_000;
/// Rounds over all jobs; the search usually stops on its own after three.
const ROUNDS_MAX: usize = 24;

/// A feasible assignment in the making.
struct Assignment<'a> {
    instance: &'a Instance,
    picks: Vec<usize>,
    left: Vec<u64>,
    n_trials: usize,
}

/// Best assignment found; `None` when none was.
pub(super) fn search(instance: &Instance, priced: &Priced, seed: u64) -> Option<Vec<usize>> {
    let mut assignment = greedy(instance, priced)?;
    let mut rng = Rng::stream(seed, "select/local");
    let mut order: Vec<usize> = (0..instance.jobs.len()).collect();
    for _ in 0..ROUNDS_MAX {
        rng.shuffle(&mut order);
        let mut improved = false;
        for job in &order {
            improved |= assignment.improve(*job) || assignment.push_aside(*job);
        }
        if !improved || assignment.n_trials > TRIALS_MAX {
            break;
        }
    }
    Some(assignment.picks)
}

/// Starts from the least demanding choices and upgrades jobs in the order of what they would gain.
fn greedy<'a>(instance: &'a Instance, priced: &Priced) -> Option<Assignment<'a>> {
    let mut picks = Vec::with_capacity(instance.jobs.len());
    let mut left = instance.capacity.clone();
    for job in &instance.jobs {
        let (position, lightest) = job
            .iter()
            .enumerate()
            .min_by_key(|(_, c)| c.uses.iter().map(|u| u.1).sum::<u64>())?;
        if !fits(&left, &lightest.uses) {
            return None;
        }
        take(&mut left, &lightest.uses);
        picks.push(position);
    }
    let mut upgrades: Vec<(f64, usize, usize)> = Vec::new();
    for (j, job) in instance.jobs.iter().enumerate() {
        let base = reduced_gain(&job[picks[j]], &priced.prices);
        for (position, candidate) in job.iter().enumerate() {
            upgrades.push((reduced_gain(candidate, &priced.prices) - base, j, position));
        }
    }
    upgrades.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    let mut assignment = Assignment {
        instance,
        picks,
        left,
        n_trials: 0,
    };
    let mut settled = vec![false; instance.jobs.len()];
    for (_, j, position) in upgrades {
        if !settled[j] && assignment.try_move(j, position) {
            settled[j] = true;
        }
    }
    Some(assignment)
}

impl Assignment<'_> {
    fn gain(&self, job: usize, position: usize) -> f64 {
        self.instance.jobs[job][position].gain
    }

    /// Moves a job if the new choice fits.
    fn try_move(&mut self, job: usize, position: usize) -> bool {
        self.n_trials += 1;
        let candidates = &self.instance.jobs[job];
        let old = self.picks[job];
        give(&mut self.left, &candidates[old].uses);
        if fits(&self.left, &candidates[position].uses) {
            take(&mut self.left, &candidates[position].uses);
            self.picks[job] = position;
            return true;
        }
        take(&mut self.left, &candidates[old].uses);
        false
    }

    /// Moves a job to the best choice that fits and is worth more.
    fn improve(&mut self, job: usize) -> bool {
        let now = self.gain(job, self.picks[job]);
        let mut better: Vec<usize> = (0..self.instance.jobs[job].len())
            .filter(|p| self.gain(job, *p) > now + VALUE_TOLERANCE)
            .collect();
        better.sort_by(|a, b| {
            self.gain(job, *b)
                .total_cmp(&self.gain(job, *a))
                .then(a.cmp(b))
        });
        better
            .into_iter()
            .any(|position| self.try_move(job, position))
    }

    /// Moves a job to a better choice by moving one other job to a worse one, if the sum grows.
    fn push_aside(&mut self, job: usize) -> bool {
        let old = self.picks[job];
        for position in 0..self.instance.jobs[job].len() {
            let rise = self.gain(job, position) - self.gain(job, old);
            if rise <= VALUE_TOLERANCE {
                continue;
            }
            for other in 0..self.instance.jobs.len() {
                if self.n_trials > TRIALS_MAX {
                    return false;
                }
                if other != job && self.push(job, position, other, rise) {
                    return true;
                }
            }
        }
        false
    }

    fn push(&mut self, job: usize, position: usize, other: usize, rise: f64) -> bool {
        let other_old = self.picks[other];
        for other_position in 0..self.instance.jobs[other].len() {
            let fall = self.gain(other, other_old) - self.gain(other, other_position);
            if other_position == other_old || fall >= rise - VALUE_TOLERANCE {
                continue;
            }
            if self.try_move(other, other_position) {
                if self.try_move(job, position) {
                    return true;
                }
                let restored = self.try_move(other, other_old);
                assert!(restored, "a move that was just made can be taken back");
            }
        }
        false
    }
}
