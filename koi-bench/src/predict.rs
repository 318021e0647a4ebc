//! `koi bench predict`: one prediction with every V, Y and interval, beside the bare machine, and the
//! time from a cold process to its first answer.
//!
//! Floor F2 is the arithmetic of a table-and-queue predictor and nothing around it
//! ([`crate::floor`]). Both run in turn in one process. Not accuracy: that is `koi bench surrogate`;
//! not a whole search: that is `koi bench space`.

mod candidates;

use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use koi_core::surrogate::measured_row::{Question, RowAnswer};
use koi_core::surrogate::neighbours::{HeardPoint, NeighbourVoice, Spot};
use koi_core::surrogate::points::MAX_PLANNED_POINTS;
use koi_core::surrogate::residual::Quantity;
use koi_core::surrogate::situation::FEATURES;
use koi_core::surrogate::stack::Calibration;
use koi_core::surrogate::{Answer, EngineProfile, Ground};
use serde::Serialize;

use crate::Global;
use crate::allocations::counted;
use crate::floor::Floor;
use crate::report::{Bound, Report, Table, number};
use crate::statistics::{median, quantile};
use candidates::Candidate;

const MAX_MEDIAN_RATIO: f64 = 8.0;
const MAX_P99_RATIO: f64 = 16.0;
const MAX_COLD_S: f64 = 1.0;

/// Options of `koi bench predict`.
#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    /// Different candidates.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    candidates: u32,
    /// Rounds over all of them; medians are shown.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(3..=1000))]
    rounds: u32,
}

#[derive(Debug, Serialize)]
struct Line {
    what: &'static str,
    n: usize,
    median_ns: Option<f64>,
    p99_ns: Option<f64>,
    ratio_to_floor: Option<f64>,
    p99_ratio_to_floor: Option<f64>,
}

/// Runs the bench.
pub(crate) fn run(args: &PredictArgs, global: &Global) -> anyhow::Result<Report> {
    let candidates = candidates::drawn(args.candidates as usize, global.seed)?;
    let floor = Floor::new(global.seed);
    let near = crowd();
    let mut times: [Vec<f64>; 4] = Default::default();
    for round in 0..=args.rounds {
        let measured = [
            timed(candidates.len(), |i| floor.predict(i as u64)),
            timed(candidates.len(), |i| analytic(&candidates[i])),
            timed(candidates.len(), |i| stacked(&candidates[i])),
            timed(candidates.len(), |i| planned(&candidates[i], &near)),
        ];
        // The first round only warms up.
        if round > 0 {
            for (all, one) in times.iter_mut().zip(measured) {
                all.extend(one);
            }
        }
    }
    let allocations = allocations_each(&candidates, &near);
    let cold = cold_start_s()?;
    let [floor, analytic, stacked, planned] = times;
    let base = median(&floor);
    let lines = [
        line("floor F2", &floor, base),
        line("analytic: every V and Y", &analytic, base),
        line("stack: means, p99, intervals", &stacked, base),
        line("planned: V, Y, members, intervals", &planned, base),
    ];
    let bounds = bounds(&lines, allocations, cold);
    Ok(Report {
        bench: "predict",
        notes: notes(candidates.len(), args.rounds),
        table: table(&lines),
        data: serde_json::to_value(&lines)?,
        bounds,
    })
}

/// What a prediction may cost.
fn bounds(lines: &[Line; 4], allocations: Option<usize>, cold: Option<f64>) -> Vec<Bound> {
    let whole = |of: fn(&Line) -> Option<f64>| Some(of(&lines[1])? + of(&lines[2])?);
    vec![
        Bound::at_most(
            "V, Y and intervals, median".to_owned(),
            whole(|l| l.ratio_to_floor),
            MAX_MEDIAN_RATIO,
            "× F2",
        ),
        Bound::at_most(
            "V, Y and intervals, p99".to_owned(),
            whole(|l| l.p99_ratio_to_floor),
            MAX_P99_RATIO,
            "× F2",
        ),
        Bound::at_most(
            "as planned, median".to_owned(),
            lines[3].ratio_to_floor,
            MAX_MEDIAN_RATIO,
            "× F2",
        ),
        Bound::at_most(
            "as planned, p99".to_owned(),
            lines[3].p99_ratio_to_floor,
            MAX_P99_RATIO,
            "× F2",
        ),
        Bound::at_most(
            "allocations of a warm prediction, most".to_owned(),
            allocations.map(|n| n as f64),
            0.0,
            "",
        ),
        Bound::at_most(
            "cold process to first answer".to_owned(),
            cold,
            MAX_COLD_S,
            "s",
        ),
    ]
}

fn notes(n: usize, rounds: u32) -> Vec<String> {
    let build = if cfg!(debug_assertions) {
        "; not a release build, for which the bounds hold"
    } else {
        ""
    };
    vec![
        format!(
            "{n} candidates over models, GPU types, splits and loads, {rounds} rounds in turn, wall time of each call, one thread{build}"
        ),
        "the first two parts evaluate the same operating point anew; a bound holds for their sum"
            .to_owned(),
        format!(
            "as planned: one evaluation with {MAX_PLANNED_POINTS} neighbours and as many own points"
        ),
        "bounds on p99 are against the floor's median".to_owned(),
    ]
}

/// The most allocations that one prediction with everything needs once all tables are read.
fn allocations_each(candidates: &[Candidate], near: &[HeardPoint]) -> Option<usize> {
    let all = |c: &Candidate| analytic(c) + stacked(c) + planned(c, near);
    let each = |candidate| counted(|| all(candidate)).1;
    candidates.iter().map(|c| each(c).allocations).max()
}

/// Nanoseconds of each call.
fn timed(n: usize, call: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut times = Vec::with_capacity(n);
    for i in 0..n {
        let begun = Instant::now();
        black_box(call(black_box(i)));
        times.push(begun.elapsed().as_nanos() as f64);
    }
    times
}

fn analytic(candidate: &Candidate) -> f64 {
    let profile = EngineProfile::embedded(candidate.question.generation);
    match candidate.question.predict(candidate.gpu, profile) {
        Answer::Prediction(p) => p.capacity_rps,
        Answer::DoesNotFit(_) | Answer::Unsupported(_) => 0.0,
    }
}

fn stacked(candidate: &Candidate) -> f64 {
    let generation = candidate.question.generation;
    let profile = EngineProfile::embedded(generation);
    match candidate.question.ask(candidate.gpu, profile) {
        RowAnswer::Prediction(row) => {
            let silent = |_| NeighbourVoice::default();
            let stack = Calibration::embedded().stack(&row, &candidate.gpu.id, generation, silent);
            stack.tpot_mean_ms.map_or(0.0, |s| s.hi80)
        }
        RowAnswer::DoesNotFit(_) | RowAnswer::Unsupported(_) => 0.0,
    }
}

/// As many measured points as a planner listens to, at loads of every kind.
fn crowd() -> Vec<HeardPoint> {
    let at = |i: usize| {
        let mut situation = [0.0; FEATURES.len()];
        let step = i as f64 / MAX_PLANNED_POINTS as f64;
        for value in situation.iter_mut().take(5) {
            *value = 7.0 * step;
        }
        HeardPoint {
            spot: Spot::of(&situation),
            log_errors: [Some(0.2 - 0.4 * step), Some(0.1), Some(-0.1)],
            weight: 1.0,
        }
    };
    (0..MAX_PLANNED_POINTS).map(at).collect()
}

/// The way of a planner: neighbours and own deployments heard, everything kept.
fn planned(candidate: &Candidate, near: &[HeardPoint]) -> f64 {
    let ground = Ground::of(candidate.gpu, near);
    let told = candidate.question.planned(candidate.gpu, &ground);
    told.map_or(0.0, |told| {
        let told = told.with_own(near, &Question::slo());
        told.prediction.tpot_mean_ms.unwrap_or(0.0) + told.members.of(Quantity::Tpot).high
    })
}

fn line(what: &'static str, ns: &[f64], floor: Option<f64>) -> Line {
    let (middle, p99) = (median(ns), quantile(ns, 0.99));
    let against = |x: Option<f64>| Some(x? / floor?);
    Line {
        what,
        n: ns.len(),
        median_ns: middle,
        p99_ns: p99,
        ratio_to_floor: against(middle),
        p99_ratio_to_floor: against(p99),
    }
}

fn table(lines: &[Line]) -> Table {
    let mut table = Table::new(&["WHAT", "CALLS", "MEDIAN ns", "P99 ns", "× F2", "P99 × F2"]);
    for line in lines {
        table.row([
            line.what.to_owned(),
            line.n.to_string(),
            number(line.median_ns, 0),
            number(line.p99_ns, 0),
            number(line.ratio_to_floor, 2),
            number(line.p99_ratio_to_floor, 2),
        ]);
    }
    table
}

/// Seconds of `koi predict` as a process of its own, median of five.
fn cold_start_s() -> anyhow::Result<Option<f64>> {
    let me = std::env::current_exe().context("find this program")?;
    let koi: PathBuf = me.with_file_name("koi");
    if !koi.is_file() {
        return Ok(None);
    }
    let args = ["predict", "llama-3.1-70b", "--gpu", "H100", "--tp", "4"];
    let mut seconds = Vec::new();
    for _ in 0..5 {
        let begun = Instant::now();
        let status = Command::new(&koi)
            .args(args)
            .stdout(Stdio::null())
            .status()
            .with_context(|| koi.display().to_string())?;
        anyhow::ensure!(status.success(), "koi predict ended with {status}");
        seconds.push(begun.elapsed().as_secs_f64());
    }
    Ok(median(&seconds))
}
