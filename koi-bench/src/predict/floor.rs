//! Floor F2: what the arithmetic of one candidate costs with nothing around it.

use koi_sim::rng::SimRng;

/// Operators of a step.
const OPERATORS: usize = 12;
/// Points per axis of a table.
const POINTS: usize = 20;
/// Batch of the queue, and its states.
const BATCH: usize = 64;
const STATES: usize = 704;

/// Tables of measured operators.
pub(super) struct Floor {
    tables: Vec<[[f32; POINTS]; POINTS]>,
}

impl Floor {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = SimRng::new(seed);
        let mut table = || {
            let mut grid = [[0.0; POINTS]; POINTS];
            for value in grid.iter_mut().flatten() {
                *value = rng.uniform() as f32;
            }
            grid
        };
        Self {
            tables: (0..OPERATORS).map(|_| table()).collect(),
        }
    }

    /// Three steps and the queue of a candidate.
    pub(super) fn candidate(&self, k: u64) -> f64 {
        let batch = 1.0 + (k % 128) as f64;
        let context = 512.0 + (k % 977) as f64 * 3.0;
        let steps: f64 = (0..3)
            .flat_map(|step| self.tables.iter().map(move |t| (step, t)))
            .map(|(step, table)| at(table, batch + f64::from(step), context))
            .sum();
        steps + queue(1.0 + batch / 64.0, 0.01, 0.4)
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
    fn grid_points_are_their_own_values() {
        let floor = Floor::new(1);
        let table = &floor.tables[0];
        assert!((at(table, 4.0, 8.0) - f64::from(table[2][3])).abs() < 1e-12);
    }
}
