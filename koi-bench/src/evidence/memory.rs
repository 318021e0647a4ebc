//! Evidence in memory, predictions given: stage by stage beside floors F9 and F10, in turn.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use koi_core::causal::{Belief, BeliefKey, add_events, fan_out};
use koi_core::ids::TickId;
use koi_core::validation::cusum::cusum;
use koi_core::validation::residual::{Variable, residual};
use koi_core::validation::{EvidenceRow, Statistics, UpdateTable};
use rustix::time::{ClockId, clock_gettime};

use super::floors::Floors;
use super::world::World;
use crate::statistics::median;

/// Rows of a tick.
const ROWS_PER_TICK: usize = 1_000;

/// Seconds of one round over all rows, by stage.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Round {
    pub(super) floor: f64,
    pub(super) floor_per_edge: f64,
    /// Residuals and CUSUM of every variable, and nothing else.
    pub(super) arithmetic: f64,
    /// The whole row: verdicts, quadrants, and what is stored of them.
    pub(super) judge: f64,
    /// Running sums that invariance is tested on.
    pub(super) sums: f64,
    /// Belief events of the rows.
    pub(super) fan_out: f64,
    /// Beliefs moved by them.
    pub(super) apply: f64,
    /// Invariance of every edge, once a tick.
    pub(super) icp_per_edge: f64,
}

impl Round {
    /// All that a row costs.
    pub(super) fn rows(&self) -> f64 {
        self.judge + self.sums + self.fan_out + self.apply
    }
}

/// Measures rounds over `n` rows; the first one warms up and is left out.
pub(super) fn rounds(
    world: &World,
    table: &UpdateTable,
    (n, rounds): (usize, u32),
    seed: u64,
) -> Vec<Round> {
    let mut floors = Floors::new(seed);
    let measured = (0..=rounds).map(|_| round(world, table, n, &mut floors));
    measured.skip(1).collect()
}

fn round(world: &World, table: &UpdateTable, n: usize, floors: &mut Floors) -> Round {
    let mut spent = Round::default();
    timed(&mut spent.floor, || floors.judge(n));
    let mut tested = 0;
    timed(&mut spent.floor_per_edge, || {
        (0..20).for_each(|_| tested += floors.test_edges());
    });
    spent.floor_per_edge /= tested as f64;
    let values: Vec<_> = (0..ROWS_PER_TICK).map(|i| world.pairs(i)).collect();
    timed(&mut spent.arithmetic, || {
        (0..n).for_each(|i| arithmetic(&values[i % values.len()]));
    });
    let mut statistics = Statistics {
        calibration: world.calibration.clone(),
        ..Statistics::default()
    };
    let mut beliefs: BTreeMap<BeliefKey, Belief> = world.model.seed_beliefs();
    let (mut n_ticks, n_edges) = (0, world.model.edges().count());
    for first in (0..n).step_by(ROWS_PER_TICK) {
        n_ticks += 1;
        let tick = TickId(n_ticks);
        let rows = first..(first + ROWS_PER_TICK).min(n);
        let mut judged: Vec<EvidenceRow> = Vec::with_capacity(rows.len());
        timed(&mut spent.judge, || {
            judged.extend(rows.map(|i| world.judge(i, tick)));
        });
        timed(&mut spent.sums, || {
            judged.iter().for_each(|row| statistics.recall(row));
            statistics.residuals.invariance.advance(tick, &world.params);
        });
        timed(&mut spent.icp_per_edge, || {
            black_box(statistics.residuals_by_edge(&world.model, &world.params));
        });
        let mut events = Vec::new();
        timed(&mut spent.fan_out, || {
            events = fan_out(&judged, &world.model, table, &world.params);
        });
        timed(&mut spent.apply, || add_events(&mut beliefs, &events));
    }
    black_box(&beliefs);
    spent.icp_per_edge /= (n_ticks as usize * n_edges) as f64;
    spent
}

fn arithmetic(row: &[(Variable, Vec<(f64, f64)>)]) {
    let mut residuals = [0.0; super::world::POINTS];
    for (variable, pairs) in row {
        for (r, (o, p)) in residuals.iter_mut().zip(pairs) {
            *r = residual(*variable, *o, *p);
        }
        black_box(cusum(&residuals, 0.02, 0.3));
    }
}

/// Adds the processor time of some work, so that a busy machine changes little.
fn timed(spent: &mut f64, work: impl FnOnce()) {
    let begun = processor_time();
    work();
    *spent += processor_time().saturating_sub(begun).as_secs_f64();
}

fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

/// The median over rounds of what each says.
pub(super) fn middle(rounds: &[Round], of: impl Fn(&Round) -> f64) -> Option<f64> {
    median(&rounds.iter().map(of).collect::<Vec<_>>())
}
