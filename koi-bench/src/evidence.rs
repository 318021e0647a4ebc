//! `koi bench evidence`: what a row of evidence costs, in memory and stored, beside the bare machine.
//!
//! The product's own code judges, moves beliefs, tests invariance, writes and reads; the floors
//! ([`floors`]) do the same arithmetic and the same amount of storing with nothing around it, in the
//! same run. Not whether verdicts are right: that is `koi bench learning`.

mod contrasts;
mod floors;
mod memory;
mod stored;
mod world;

use clap::Args;
use koi_core::validation::UpdateTable;
use serde::Serialize;

use crate::Global;
use crate::report::{Bound, Report, Table, number};
use contrasts::Contrasts;
use memory::{Round, middle};
use stored::Stored;
use world::World;

const MAX_MEMORY_RATIO: f64 = 4.0;
const MAX_EDGE_RATIO: f64 = 4.0;
const MAX_STORED_RATIO: f64 = 2.5;
const MAX_REPLAY_S: f64 = 60.0;
const REPLAYED: u64 = 1_000_000;
const MAX_GROWTH: f64 = 1.05;

/// Options of `koi bench evidence`.
#[derive(Debug, Args)]
pub(crate) struct EvidenceArgs {
    /// Evidence rows.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    rows: u32,
    /// Rows of one tick of the stored part.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    per_tick: u32,
    /// Environments.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(3..=1_000))]
    environments: u32,
    /// Rounds in memory; medians are shown.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=1_000))]
    rounds: u32,
    /// Leave the database out.
    #[arg(long)]
    memory_only: bool,
}

#[derive(Debug, Serialize)]
struct Line {
    what: &'static str,
    us_per_row: Option<f64>,
    ratio: Option<f64>,
    floor: &'static str,
}

/// Runs the bench.
pub(crate) fn run(args: &EvidenceArgs, global: &Global) -> anyhow::Result<Report> {
    let world = World::new(args.environments as usize, global.seed)?;
    let table =
        UpdateTable::embedded().map_err(|e| anyhow::anyhow!("the update table is wrong: {e:?}"))?;
    let n = args.rows as usize;
    let rounds = memory::rounds(&world, &table, (n, args.rounds), global.seed);
    let stored = if args.memory_only {
        None
    } else {
        let per_tick = args.per_tick as usize;
        Some(stored::run(&world, &table, n, per_tick)?)
    };
    let contrasts = contrasts::measure(&world, global.seed)?;
    let mut lines = memory_lines(&rounds, n);
    lines.push(contrast_line(contrasts, &rounds, n));
    lines.extend(stored.iter().flat_map(|s| stored_lines(s, n)));
    Ok(Report {
        bench: "evidence",
        notes: notes(args, (&world, contrasts), stored.as_ref()),
        table: shown(&lines),
        data: serde_json::to_value(&lines)?,
        bounds: bounds(&rounds, stored.as_ref()),
    })
}

fn memory_lines(rounds: &[Round], n: usize) -> Vec<Line> {
    let rows = n as f64;
    let of_row = |what, of: fn(&Round) -> f64| Line {
        what,
        us_per_row: middle(rounds, of).map(|s| 1e6 * s / rows),
        ratio: middle(rounds, |r| of(r) / r.floor),
        floor: "F9",
    };
    let of_edge = |what, of: fn(&Round) -> f64| Line {
        what,
        us_per_row: middle(rounds, of).map(|s| 1e6 * s),
        ratio: middle(rounds, |r| of(r) / r.floor_per_edge),
        floor: "F10",
    };
    vec![
        of_row("floor F9", |r| r.floor),
        of_row("residuals and CUSUM alone", |r| r.arithmetic),
        of_row("row: verdicts and quadrants", |r| r.judge),
        of_row("running sums", |r| r.sums),
        of_row("fan-out to belief events", |r| r.fan_out),
        of_row("beliefs moved", |r| r.apply),
        of_row("a row in memory", Round::rows),
        of_edge("floor F10, an edge", |r| r.floor_per_edge),
        of_edge("invariance, an edge and tick", |r| r.icp_per_edge),
    ]
}

/// What contrasts add to a row, beside the floor of a row.
fn contrast_line(found: Contrasts, rounds: &[Round], n: usize) -> Line {
    let of_row = found.seconds / found.n_rows.max(1) as f64;
    let floor = middle(rounds, |r| r.floor / n as f64);
    Line {
        what: "contrasts, apart",
        us_per_row: Some(1e6 * of_row),
        ratio: floor.map(|f| of_row / f),
        floor: "F9",
    }
}

fn stored_lines(stored: &Stored, n: usize) -> Vec<Line> {
    let line = |what, seconds: Option<f64>| Line {
        what,
        us_per_row: seconds.map(|s| 1e6 * s / n as f64),
        ratio: seconds.zip(stored.floor_s).map(|(s, floor)| s / floor),
        floor: "F8",
    };
    vec![
        line("floor F8", stored.floor_s),
        line("stored: judge and fan out", Some(stored.judge_s)),
        line("stored: evidence written", Some(stored.write_evidence_s)),
        line("stored: beliefs written", Some(stored.write_beliefs_s)),
        line("stored: read for plan and loop", Some(stored.read_s)),
        line("a row with reading and writing", Some(stored.total_s)),
        line("replay of the belief log", Some(stored.replay_s)),
    ]
}

fn bounds(rounds: &[Round], stored: Option<&Stored>) -> Vec<Bound> {
    let mut bounds = vec![
        Bound::at_most(
            "a row in memory, predictions given".to_owned(),
            middle(rounds, |r| r.rows() / r.floor),
            MAX_MEMORY_RATIO,
            "× F9",
        ),
        Bound::at_most(
            "invariance of an edge".to_owned(),
            middle(rounds, |r| r.icp_per_edge / r.floor_per_edge),
            MAX_EDGE_RATIO,
            "× F10",
        ),
    ];
    let Some(stored) = stored else {
        return bounds;
    };
    bounds.push(Bound::at_most(
        "a row with reading and writing".to_owned(),
        stored.floor_s.map(|floor| stored.total_s / floor),
        MAX_STORED_RATIO,
        "× F8",
    ));
    let per_million = stored.replay_s * REPLAYED as f64 / stored.n_applications.max(1) as f64;
    let is_enough = stored.n_applications >= REPLAYED;
    bounds.push(Bound::at_most(
        "1,000,000 applications replayed".to_owned(),
        is_enough.then_some(per_million),
        MAX_REPLAY_S,
        "s",
    ));
    bounds.push(Bound::at_most(
        "sums of the replay that are not exact".to_owned(),
        Some(f64::from(u8::from(!stored.is_exact))),
        0.0,
        "",
    ));
    bounds.push(Bound::at_most(
        "a tick over ten times the old rows".to_owned(),
        stored.growth(),
        MAX_GROWTH,
        "×",
    ));
    bounds
}

fn notes(
    args: &EvidenceArgs,
    (world, contrasts): (&World, Contrasts),
    stored: Option<&Stored>,
) -> Vec<String> {
    let build = if cfg!(debug_assertions) {
        "; not a release build, for which the bounds hold"
    } else {
        ""
    };
    let mut notes = vec![
        format!(
            "{} rows of {} variables × {} points, {} mechanisms with {} edges, {} environments; medians of {} rounds, processor time, floors in turn{build}",
            args.rows,
            world::VARIABLES,
            world::POINTS,
            world::MECHANISMS,
            world.n_edges,
            args.environments,
            args.rounds,
        ),
        format!(
            "predictions are given; contrasts make their own and stand apart: {} of {} rows",
            contrasts.n_contrasts, contrasts.n_rows
        ),
    ];
    if let Some(stored) = stored {
        notes.push(format!(
            "stored: {} rows a tick in a private Postgres without fsync, floor and store alike; a row's document has {} bytes; F8 is copied by psql before and after",
            args.per_tick, stored.row_bytes
        ));
        notes.push(format!("{} applications replayed", stored.n_applications));
    }
    notes
}

fn shown(lines: &[Line]) -> Table {
    let mut table = Table::new(&["WHAT", "µs", "×", "FLOOR"]);
    for line in lines {
        table.row([
            line.what.to_owned(),
            number(line.us_per_row, 2),
            number(line.ratio, 2),
            line.floor.to_owned(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_in_memory_has_every_line_and_judges_both_bounds() {
        let world = World::new(4, 1).unwrap();
        let table = UpdateTable::embedded().unwrap();
        let rounds = memory::rounds(&world, &table, (1_000, 3), 1);
        let lines = memory_lines(&rounds, 1_000);
        assert!(
            lines
                .iter()
                .all(|l| l.us_per_row.is_some_and(|us| us > 0.0))
        );
        assert!((lines[0].ratio.unwrap() - 1.0).abs() < 1e-12);
        assert!(bounds(&rounds, None).iter().all(|b| b.met.is_some()));
    }

    #[test]
    fn growth_compares_ticks_of_one_and_ten_tenths() {
        let mut stored = Stored {
            ticks_ms: (0..100).map(|t| if t < 90 { 10.0 } else { 10.4 }).collect(),
            ..Stored::default()
        };
        assert!((stored.growth().unwrap() - 1.04).abs() < 1e-9);
        stored.ticks_ms.truncate(30);
        assert_eq!(stored.growth(), None, "too few to tell");
    }
}
