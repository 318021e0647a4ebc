//! `koi bench space`: a wide search for one job, every candidate predicted, checked and scored by the
//! planner's own code, beside the bare machine's floors for predicting (F2) and scoring (F3).
//!
//! A search goes the whole way, from a snapshot to the best ladder in full; candidates that were
//! refused cost time and are not counted. Floors and searches run in turn, on one thread and on
//! several. Not the quality of what is found: that is for plans to show.

mod measured;
mod search;
mod world;

use clap::Args;
use koi_core::catalog::Catalog;
use koi_core::causal::CausalModel;
use koi_core::ids::JobId;
use koi_core::params::Params;
use koi_core::planner::PlanningContext;
use koi_core::planner::space::{Axes, Refusal};
use koi_core::snapshot::Snapshot;
use serde::Serialize;

use crate::Global;
use crate::report::{Report, Table, number};
use measured::{Line, Measured};
use search::Question;
use world::{Size, world};

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
    let points = world::points()?;
    let context = PlanningContext {
        catalog: Catalog::embedded(),
        causal: &causal,
        params: &Params::default(),
        points: &points,
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

#[cfg(test)]
mod tests {
    use koi_core::surrogate::points::MeasuredPoints;

    use super::*;

    #[test]
    fn finer_axes_are_larger_and_hold_what_engines_take() {
        let (coarse, fine) = (axes(1), axes(5));
        assert!(coarse.max_num_seqs.len() < fine.max_num_seqs.len());
        for axes in [coarse, fine] {
            assert!(axes.max_num_seqs.iter().all(|n| n % 8 == 0));
            assert_eq!(axes.max_num_batched_tokens.last(), Some(&32_768));
        }
    }

    #[test]
    fn a_small_fleet_is_searched_alike_on_any_number_of_threads() {
        let causal = CausalModel::embedded(Catalog::embedded()).unwrap();
        let params = Params::default();
        let context = PlanningContext {
            catalog: Catalog::embedded(),
            causal: &causal,
            params: &params,
            points: MeasuredPoints::none(),
        };
        let size = Size {
            environments: 3,
            history: 60,
        };
        let world = world(size, 1).unwrap();
        let axes = Axes {
            replicas_max: 3,
            gpu_memory_utilization: vec![0.9],
            ..axes(1)
        };
        let question = Question::of(&world, &context, &axes);
        let (one, best) = question.answer(1).unwrap();
        assert_eq!(question.answer(2).unwrap().0, one);
        assert_eq!(question.answer(5).unwrap().0, one);
        assert!(one.n_scored > 500, "{one:?}");
        assert!(best.unwrap().meets);
    }
}
