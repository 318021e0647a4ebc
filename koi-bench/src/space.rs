//! `koi bench space`: a wide search for one job, every candidate predicted, checked and scored by the
//! planner's own code, beside the bare machine's floors for predicting (F2) and scoring (F3).
//!
//! A search goes the whole way, from a snapshot to the best ladder in full; candidates that were
//! refused cost time and are not counted. Floors and searches run in turn, on one thread and on
//! several. Not the quality of what is found: that is for plans to show.

mod search;
mod world;

use std::time::Instant;

use anyhow::ensure;
use clap::Args;
use koi_core::catalog::Catalog;
use koi_core::causal::CausalModel;
use koi_core::ids::JobId;
use koi_core::params::Params;
use koi_core::planner::PlanningContext;
use koi_core::planner::enumerate::label;
use koi_core::planner::space::{Axes, Found, Refusal};
use koi_core::snapshot::Snapshot;
use serde::Serialize;

use crate::Global;
use crate::allocations::{Asked, counted};
use crate::floor::Floor;
use crate::report::{Bound, Report, Table, number};
use crate::statistics::median;
use search::Question;
use world::{Size, world};

const MAX_RATIO: f64 = 4.0;
const MIN_SPEED_UP_SHARE: f64 = 0.9;
const MAX_GROWTH: f64 = 1.2;
const MAX_MEMORY_MIB: f64 = 64.0;
/// Environments and evidence rows of a fleet; ten times as many in the larger ones.
const ENVIRONMENTS: usize = 24;
const HISTORY: usize = 400;
const GROWTH: usize = 10;

/// Options of `koi bench space`.
#[derive(Debug, Args)]
pub(crate) struct SpaceArgs {
    /// Candidates that must come out scored, at least.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=5_000_000))]
    candidates: u64,
    /// Threads beside one.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Rounds; medians are shown.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(3..=1000))]
    rounds: u32,
}

/// One kind of run.
#[derive(Debug, Serialize)]
struct Line {
    what: String,
    threads: u32,
    n_candidates: u64,
    n_scored: u64,
    n_predictions: u64,
    median_ms: Option<f64>,
    ns_each: Option<f64>,
    ratio_to_floors: Option<f64>,
}

/// Milliseconds by round of everything that runs in turn.
#[derive(Default)]
struct Times {
    floor: Vec<f64>,
    floor_threads: Vec<f64>,
    search: Vec<f64>,
    search_threads: Vec<f64>,
    more_history: Vec<f64>,
    more_environments: Vec<f64>,
}

#[derive(Serialize)]
struct Data<'a> {
    lines: &'a [Line],
    refused: Vec<(Refusal, u64)>,
    n_meeting: u64,
    best: Option<String>,
}

/// Runs the bench.
pub(crate) fn run(args: &SpaceArgs, global: &Global) -> anyhow::Result<Report> {
    let causal = CausalModel::embedded(Catalog::embedded())
        .map_err(|problems| anyhow::anyhow!("the embedded causal model: {problems:?}"))?;
    let context = PlanningContext {
        catalog: Catalog::embedded(),
        causal: &causal,
        params: &Params::default(),
    };
    let size = Size {
        environments: ENVIRONMENTS,
        history: HISTORY,
    };
    let seen = Size {
        history: GROWTH * HISTORY,
        ..size
    };
    let spread = Size {
        environments: GROWTH * ENVIRONMENTS,
        ..size
    };
    let (plain, seen, spread) = (
        world(size, global.seed)?,
        world(seen, global.seed)?,
        world(spread, global.seed)?,
    );
    let axes = axes_for(args.candidates, (&plain, &context))?;
    let questions = [&plain, &seen, &spread].map(|world| Question::of(world, &context, &axes));
    let measured = Measured::of(args, global.seed, &questions)?;
    let lines = measured.lines(args.threads);
    let data = Data {
        lines: &lines,
        refused: Refusal::ALL
            .map(|r| (r, measured.found[0].n_refused(r)))
            .to_vec(),
        n_meeting: measured.found[0].n_meeting,
        best: measured.best.clone(),
    };
    Ok(Report {
        bench: "space",
        notes: measured.notes(args),
        table: table(&lines),
        data: serde_json::to_value(&data)?,
        bounds: measured.bounds(args.threads),
    })
}

/// The coarsest axes that give so many scored candidates.
fn axes_for<'a>(
    wanted: u64,
    (plain, context): (&'a (Snapshot, JobId), &'a PlanningContext<'a>),
) -> anyhow::Result<Axes> {
    let mut n_scored = 0;
    for fineness in 1..=40 {
        let axes = axes(fineness);
        n_scored = Question::of(plain, context, &axes).answer(1)?.0.n_scored;
        if n_scored >= wanted {
            return Ok(axes);
        }
    }
    anyhow::bail!("only {n_scored} candidates of the finest space run")
}

/// Splits and replicas as planners try them, batching ever finer.
fn axes(fineness: u32) -> Axes {
    let steps = |from: f64, to: f64| -> Vec<u32> {
        let n = 2 + fineness;
        let at = |i: u32| from * (to / from).powf(f64::from(i) / f64::from(n - 1));
        // Kernels want multiples of eight.
        (0..n).map(|i| (at(i) as u32).next_multiple_of(8)).collect()
    };
    Axes {
        max_num_seqs: steps(16.0, 1024.0),
        max_num_batched_tokens: steps(2048.0, 32_768.0),
        gpu_memory_utilization: vec![0.85, 0.9],
        block_size: vec![16],
        replicas_max: 8,
        ..Axes::wide()
    }
}

/// Everything that came out.
struct Measured {
    times: Times,
    found: [Found; 3],
    best: Option<String>,
    /// Allocations of looking at all candidates beyond those of looking at none.
    growing: usize,
    /// What a whole search asks of the heap.
    whole: Asked,
}

impl Measured {
    fn of(args: &SpaceArgs, seed: u64, questions: &[Question<'_>; 3]) -> anyhow::Result<Self> {
        let [plain, seen, spread] = questions;
        let (first, whole) = counted(|| plain.answer(1));
        let (found, best) = first?;
        let growing = plain.with_space(|space| {
            let (_, empty) = counted(|| space.evaluate(0..0));
            let (_, whole) = counted(|| space.evaluate(0..u64::MAX));
            Ok(whole.allocations.saturating_sub(empty.allocations))
        })?;
        let (on_threads, _) = plain.answer(args.threads)?;
        ensure!(on_threads == found, "the result depends on the threads");
        let found = [found, seen.answer(1)?.0, spread.answer(1)?.0];
        let floor = Floor::new(seed);
        let mut times = Times::default();
        for _ in 0..args.rounds {
            let n = found[0].n_scored;
            times.floor.push(ms(|| floor.run(n, 1)));
            times.search.push(searched(plain, 1)?);
            times.floor_threads.push(ms(|| floor.run(n, args.threads)));
            times.search_threads.push(searched(plain, args.threads)?);
            times.more_history.push(searched(seen, 1)?);
            times.more_environments.push(searched(spread, 1)?);
        }
        Ok(Self {
            times,
            found,
            best: best.map(|option| label(&option.ladder)),
            growing,
            whole,
        })
    }

    fn lines(&self, threads: u32) -> Vec<Line> {
        let [plain, seen, spread] = &self.found;
        let t = &self.times;
        let floors = Found {
            n_candidates: plain.n_scored,
            n_scored: plain.n_scored,
            ..Found::default()
        };
        let floor_each = each_ns(&t.floor, plain.n_scored);
        let line = |what: &str, threads, found: &Found, times: &[f64]| {
            let ns_each = each_ns(times, found.n_scored);
            Line {
                what: what.to_owned(),
                threads,
                n_candidates: found.n_candidates,
                n_scored: found.n_scored,
                n_predictions: found.n_predictions,
                median_ms: median(times),
                ns_each,
                ratio_to_floors: ns_each.zip(floor_each).map(|(a, b)| a / b),
            }
        };
        vec![
            line("floors F2 + F3", 1, &floors, &t.floor),
            line("search", 1, plain, &t.search),
            line("floors F2 + F3", threads, &floors, &t.floor_threads),
            line("search", threads, plain, &t.search_threads),
            line("search, 10 × history", 1, seen, &t.more_history),
            line("search, 10 × environments", 1, spread, &t.more_environments),
        ]
    }

    fn bounds(&self, threads: u32) -> Vec<Bound> {
        let t = &self.times;
        let [plain, seen, spread] = &self.found;
        let ratio = |a: &[f64], b: &[f64]| median(&quotients(a, b));
        let speed_up = ratio(&t.search, &t.search_threads);
        let of_floor = ratio(&t.floor, &t.floor_threads);
        let growth = |times: &[f64], found: &Found| {
            let more = found.n_scored as f64 / plain.n_scored as f64;
            ratio(times, &t.search).map(|r| r / more)
        };
        let mib = self.whole.bytes as f64 / f64::from(1 << 20);
        let each = Bound::at_most;
        vec![
            each(
                "a candidate on one thread".to_owned(),
                ratio(&t.search, &t.floor),
                MAX_RATIO,
                "× (F2 + F3)",
            ),
            Bound::at_least(
                format!("speed-up on {threads} threads over the floors' own"),
                speed_up.zip(of_floor).map(|(a, b)| a / b),
                MIN_SPEED_UP_SHARE,
                "×",
            ),
            each(
                "10 × history, a candidate".to_owned(),
                growth(&t.more_history, seen),
                MAX_GROWTH,
                "×",
            ),
            each(
                "10 × environments, a candidate".to_owned(),
                growth(&t.more_environments, spread),
                MAX_GROWTH,
                "×",
            ),
            each(
                "allocations that come with candidates".to_owned(),
                Some(self.growing as f64),
                0.0,
                "",
            ),
            each(
                "memory asked for by a whole search".to_owned(),
                Some(mib),
                MAX_MEMORY_MIB,
                "MiB",
            ),
        ]
    }

    fn notes(&self, args: &SpaceArgs) -> Vec<String> {
        let build = if cfg!(debug_assertions) {
            "; not a release build, for which the bounds hold"
        } else {
            ""
        };
        let [plain, ..] = &self.found;
        let refused: Vec<String> = Refusal::ALL
            .iter()
            .map(|r| format!("{} {r:?}", plain.n_refused(*r)))
            .collect();
        vec![
            format!(
                "{} rounds in turn, wall time of whole searches, snapshot to ladder{build}",
                args.rounds
            ),
            format!(
                "{ENVIRONMENTS} environments of 12 device types, {HISTORY} evidence rows; places of one device type share predictions"
            ),
            format!("refused: {}", refused.join(", ")),
            format!(
                "{} meet the limits; best: {}",
                plain.n_meeting,
                self.best.as_deref().unwrap_or("none")
            ),
            "ratios are medians of each round's; refused candidates cost time and are not counted"
                .to_owned(),
        ]
    }
}

fn searched(question: &Question<'_>, threads: u32) -> anyhow::Result<f64> {
    let begun = Instant::now();
    std::hint::black_box(question.answer(threads)?);
    Ok(1000.0 * begun.elapsed().as_secs_f64())
}

fn ms(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    1000.0 * begun.elapsed().as_secs_f64()
}

fn each_ns(ms: &[f64], n: u64) -> Option<f64> {
    median(ms).filter(|_| n > 0).map(|ms| 1e6 * ms / n as f64)
}

fn quotients(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a / b).collect()
}

fn table(lines: &[Line]) -> Table {
    let mut table = Table::new(&[
        "WHAT",
        "THREADS",
        "CANDIDATES",
        "SCORED",
        "PREDICTIONS",
        "MEDIAN ms",
        "ns EACH",
        "× FLOORS",
    ]);
    for l in lines {
        table.row([
            l.what.clone(),
            l.threads.to_string(),
            l.n_candidates.to_string(),
            l.n_scored.to_string(),
            l.n_predictions.to_string(),
            number(l.median_ms, 1),
            number(l.ns_each, 0),
            number(l.ratio_to_floors, 2),
        ]);
    }
    table
}
