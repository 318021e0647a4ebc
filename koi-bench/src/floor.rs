//! Floors of the machine: what the arithmetic of one candidate costs with nothing around it.
//!
//! F2 predicts: three steps of twelve operators looked up in log-bilinear tables, and a
//! load-dependent queue of 704 states. F3 scores: a max-norm over five objectives, the share of
//! sixty-four residuals beyond a limit for each, the variances of twenty-four beliefs. Neither knows
//! a model, a device or a job.

use std::hint::black_box;

use koi_sim::rng::SimRng;

/// Operators of a step.
const OPERATORS: usize = 12;
/// Points per axis of a table.
const POINTS: usize = 20;
/// Batch of the queue, and its states.
const BATCH: usize = 64;
const STATES: usize = 704;

/// Objectives, residuals of each, beliefs looked at, and beliefs there are.
const OBJECTIVES: usize = 5;
const RESIDUALS: usize = 64;
const EDGES: usize = 24;
const BELIEFS: usize = 4096;

/// Tables of measured operators, residuals and beliefs.
pub(crate) struct Floor {
    tables: Vec<[[f32; POINTS]; POINTS]>,
    residuals: [[f32; RESIDUALS]; OBJECTIVES],
    beliefs: Vec<(f32, f32)>,
}

impl Floor {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = SimRng::new(seed);
        let mut table = || {
            let mut grid = [[0.0; POINTS]; POINTS];
            for value in grid.iter_mut().flatten() {
                *value = rng.uniform() as f32;
            }
            grid
        };
        let tables = (0..OPERATORS).map(|_| table()).collect();
        let mut residuals = [[0.0; RESIDUALS]; OBJECTIVES];
        for value in residuals.iter_mut().flatten() {
            *value = rng.uniform() as f32 - 0.5;
        }
        let mut belief = || {
            let (up, down) = (rng.uniform() as f32, rng.uniform() as f32);
            (1.0 + 9.0 * up, 1.0 + 4.0 * down)
        };
        Self {
            tables,
            residuals,
            beliefs: (0..BELIEFS).map(|_| belief()).collect(),
        }
    }

    /// F2: three steps and the queue of a candidate.
    pub(crate) fn predict(&self, k: u64) -> f64 {
        let batch = 1.0 + (k % 128) as f64;
        let context = 512.0 + (k % 977) as f64 * 3.0;
        let steps: f64 = (0..3)
            .flat_map(|step| self.tables.iter().map(move |t| (step, t)))
            .map(|(step, table)| at(table, batch + f64::from(step), context))
            .sum();
        steps + queue(1.0 + batch / 64.0, 0.01, 0.4)
    }

    /// F3: gaps, exceedances and variances of a candidate.
    pub(crate) fn score(&self, k: u64) -> f64 {
        let (mut worst, mut sum, mut kept) = (0.0_f32, 0.0, 1.0);
        for (objective, residuals) in (1_u8..).zip(&self.residuals) {
            let value = 0.1 * f32::from(objective) + (k % 1000) as f32 * 1e-4;
            let gap = 0.2 * value;
            worst = worst.max(gap);
            sum += gap;
            let beyond = residuals.iter().filter(|r| value + **r > 0.45).count();
            kept *= 1.0 - beyond as f32 / RESIDUALS as f32;
        }
        let variance = |i: usize| {
            let (a, b) = self.beliefs[(k as usize * 31 + i * 157) % BELIEFS];
            let all = a + b;
            12.0 * a * b / (all * all * (all + 1.0))
        };
        let explore: f32 = (0..EDGES).map(variance).sum();
        f64::from(0.1 * explore - (worst + 1e-3 * sum) - (1.0 - kept))
    }

    /// Predicts and scores so many candidates, shared out over threads.
    pub(crate) fn run(&self, n: u64, threads: u32) {
        let part = |thread: u64| {
            let (from, to) = (
                n * thread / u64::from(threads),
                n * (thread + 1) / u64::from(threads),
            );
            let sum: f64 = (from..to).map(|k| self.predict(k) + self.score(k)).sum();
            black_box(sum);
        };
        std::thread::scope(|scope| {
            for thread in 1..u64::from(threads) {
                let part = &part;
                scope.spawn(move || part(thread));
            }
            part(0);
        });
    }
}

/// Bilinear on a logarithmic grid.
fn at(table: &[[f32; POINTS]; POINTS], x: f64, y: f64) -> f64 {
    let (x, y) = (x.log2().max(0.0), y.log2().max(0.0));
    let (i, j) = ((x as usize).min(POINTS - 2), (y as usize).min(POINTS - 2));
    let (a, b) = (x - i as f64, y - j as f64);
    let value = |i: usize, j: usize| f64::from(table[i][j]);
    let row = |i: usize| (1.0 - b) * value(i, j) + b * value(i, j + 1);
    (1.0 - a) * row(i) + a * row(i + 1)
}

/// Mean number in a birth-death queue whose service slows with the batch.
fn queue(alpha: f64, beta: f64, rate: f64) -> f64 {
    let service = |n: usize| n as f64 / (alpha + beta * n as f64);
    let full = service(BATCH);
    let (mut probability, mut sum, mut mean) = (1.0, 1.0, 0.0);
    for n in 1..=STATES {
        let out = if n <= BATCH { service(n) } else { full };
        probability *= rate / out;
        sum += probability;
        mean += n as f64 * probability;
    }
    mean / sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_of_an_idle_engine_is_nearly_empty() {
        // One server's worth of load at a thousandth: about the load itself.
        assert!((queue(1.0, 0.0, 1e-3) - 1e-3).abs() < 1e-5);
    }

    #[test]
    fn scores_depend_on_the_candidate() {
        let floor = Floor::new(1);
        assert!((floor.score(1) - floor.score(2)).abs() > 1e-6);
        assert!(floor.score(3).is_finite());
    }

    #[test]
    fn grid_points_are_their_own_values() {
        let floor = Floor::new(1);
        let table = &floor.tables[0];
        assert!((at(table, 4.0, 8.0) - f64::from(table[2][3])).abs() < 1e-12);
    }
}
