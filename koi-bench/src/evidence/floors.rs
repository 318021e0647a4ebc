//! What the machine needs for as many rows with nothing around them: floors F8, F9 and F10.
//!
//! F9 judges a row: two-sided CUSUM on twelve variables of twenty residuals each, six beliefs moved,
//! twenty running cells. F10 tests an edge for equal means over two hundred environments from such
//! cells. F8 stores a row: thirty-six numbers with key and time, indexed, a thousand per commit, by
//! COPY. None knows a name, a mechanism or a document.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context as _;
use koi_sim::rng::SimRng;

/// Variables of a row and residuals of each.
const VARIABLES: usize = 12;
const POINTS: usize = 20;
/// Beliefs moved by a row, cells it counts in, and how many there are of each.
const MOVED: usize = 6;
const COUNTED: usize = 20;
const BELIEFS: usize = 600;
/// Edges and environments of the table of cells.
const EDGES: usize = 200;
const ENVIRONMENTS: usize = 200;
/// Rows whose residuals are kept.
const ROWS: usize = 20_000;
/// Samples that an environment needs to count.
const SAMPLES_MIN: u32 = 15;
/// Numbers of a stored row, and rows of a commit.
const NUMBERS: usize = 36;
const ROWS_PER_COMMIT: usize = 1_000;

/// A cell's count, mean and sum of squares around it.
type Cell = (u32, f32, f32);

/// Residuals, beliefs and cells.
pub(super) struct Floors {
    residuals: Vec<f32>,
    places: Vec<usize>,
    beliefs: Vec<(f32, f32)>,
    cells: Vec<Cell>,
}

impl Floors {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = SimRng::new(seed);
        let mut residual = || (rng.uniform() + rng.uniform() + rng.uniform() - 1.5) as f32;
        let residuals = (0..ROWS * VARIABLES * POINTS).map(|_| residual()).collect();
        let all = (EDGES * ENVIRONMENTS) as u64;
        let places = (0..ROWS * COUNTED).map(|_| rng.below(all) as usize);
        Self {
            residuals,
            places: places.collect(),
            beliefs: vec![(1.0, 1.0); BELIEFS],
            cells: vec![(0, 0.0, 0.0); EDGES * ENVIRONMENTS],
        }
    }

    /// F9 over so many rows.
    pub(super) fn judge(&mut self, n: usize) {
        for row in (0..n).map(|i| i % ROWS) {
            let own = &self.residuals[row * VARIABLES * POINTS..(row + 1) * VARIABLES * POINTS];
            let mut bits = 0_u32;
            for (v, stream) in own.chunks(POINTS).enumerate() {
                bits |= u32::from(fires(stream)) << v;
            }
            for m in 0..MOVED {
                let quadrant = (bits >> (m * 2)) & 3;
                let belief = &mut self.beliefs[(row * 7 + m * 101) % BELIEFS];
                belief.0 += f32::from(quadrant == 0);
                belief.1 += (quadrant & 1) as f32;
            }
            for e in 0..COUNTED {
                let cell = &mut self.cells[self.places[row * COUNTED + e]];
                count(cell, own[e * VARIABLES]);
            }
        }
        black_box((&self.beliefs, &self.cells));
    }

    /// F10 over every edge; how many there are.
    pub(super) fn test_edges(&self) -> usize {
        let ratios = self.cells.chunks(ENVIRONMENTS).map(f_ratio);
        black_box(ratios.sum::<f64>());
        EDGES
    }
}

fn fires(stream: &[f32]) -> bool {
    let (mut high, mut low, mut fired) = (0.0_f32, 0.0_f32, false);
    for x in stream {
        high = (high + x - 0.25).max(0.0);
        low = (low + x + 0.25).min(0.0);
        fired |= high > 2.0 || low < -2.0;
    }
    fired
}

fn count(cell: &mut Cell, x: f32) {
    cell.0 += 1;
    let d = x - cell.1;
    cell.1 += d / cell.0 as f32;
    cell.2 += d * (x - cell.1);
}

/// Mean square between environments over that within them.
fn f_ratio(cells: &[Cell]) -> f64 {
    let enough = || cells.iter().filter(|c| c.0 >= SAMPLES_MIN);
    let (mut n, mut within, mut sum, mut groups) = (0.0, 0.0, 0.0, 0.0);
    for (count, mean, squares) in enough() {
        n += f64::from(*count);
        within += f64::from(*squares);
        sum += f64::from(*count) * f64::from(*mean);
        groups += 1.0;
    }
    let grand = sum / f64::max(n, 1.0);
    let between: f64 = enough()
        .map(|c| f64::from(c.0) * (f64::from(c.1) - grand).powi(2))
        .sum();
    let mean_within = within / f64::max(n - groups, 1.0);
    between / f64::max(groups - 1.0, 1.0) / mean_within.max(1e-9)
}

/// F8: seconds in which `psql` copies so many rows into a table of the database at `url`; `None`
/// without `psql`.
pub(super) fn copy_seconds(url: &str, n: usize, table: &str) -> anyhow::Result<Option<f64>> {
    let make = format!(
        "CREATE TABLE {table} (rank_id bigint NOT NULL, at bigint NOT NULL, numbers float8[] NOT NULL);
         CREATE INDEX ON {table} (rank_id, at);"
    );
    if psql(url, &make)?.is_none() {
        return Ok(None);
    }
    let idle = psql(url, "SELECT 1;")?.unwrap_or(0.0);
    let copied = psql(url, &copy_script(n, table)?)?.unwrap_or(0.0);
    psql(url, &format!("DROP TABLE {table};"))?;
    Ok(Some((copied - idle).max(1e-6)))
}

fn copy_script(n: usize, table: &str) -> anyhow::Result<String> {
    let mut script = String::new();
    for first in (0..n).step_by(ROWS_PER_COMMIT) {
        writeln!(script, "COPY {table} FROM STDIN;")?;
        for row in first..(first + ROWS_PER_COMMIT).min(n) {
            write!(
                script,
                "{}\t{}\t{{",
                1_000 + row % 5_000,
                1_700_000_000 + row
            )?;
            for k in 0..NUMBERS {
                let comma = if k == 0 { "" } else { "," };
                write!(script, "{comma}{}", (row + k) as f64 * 0.5)?;
            }
            script.push_str("}\n");
        }
        script.push_str("\\.\n");
    }
    Ok(script)
}

/// Seconds of one run of `psql` over a script; `None` where there is none.
fn psql(url: &str, script: &str) -> anyhow::Result<Option<f64>> {
    let begun = Instant::now();
    let child = Command::new("psql")
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null", url])
        .stdin(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).context("start psql"),
    };
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes()).context("feed psql")?;
    }
    let status = child.wait().context("wait for psql")?;
    anyhow::ensure!(status.success(), "psql ended with {status}");
    Ok(Some(begun.elapsed().as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_drift_fires_and_noise_does_not() {
        assert!(fires(&[0.5; POINTS]) && fires(&[-0.5; POINTS]));
        assert!(!fires(&[0.2, -0.2, 0.2, -0.2]));
    }

    #[test]
    fn cells_hold_mean_and_scatter_and_their_ratio_is_that_of_an_anova() {
        let cell = |values: &[f32]| {
            let mut cell = (0, 0.0, 0.0);
            (0..8).for_each(|_| values.iter().for_each(|x| count(&mut cell, *x)));
            cell
        };
        let low = cell(&[0.0, 2.0]);
        assert_eq!((low.0, low.1), (16, 1.0));
        assert!((low.2 - 16.0).abs() < 1e-4);
        // Means 1 and 3 of 16 each: between 32 over one degree, within 32 over thirty.
        let ratio = f_ratio(&[low, cell(&[2.0, 4.0]), (3, 9.0, 9.0)]);
        assert!((ratio - 30.0).abs() < 1e-3, "{ratio}");
    }

    #[test]
    fn a_script_has_every_row_once() {
        let script = copy_script(2_500, "t").unwrap();
        assert_eq!(script.matches("COPY t").count(), 3);
        assert_eq!(script.lines().filter(|l| l.ends_with('}')).count(), 2_500);
    }
}
