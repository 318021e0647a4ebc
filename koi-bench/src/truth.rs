//! `koi bench truth`: the uncorrected surrogate against the hidden truth of the simulated engine.
//!
//! A simulated truth that the surrogate hits exactly would test nothing, one that it does not rank
//! would make planning hopeless: the goal is a band for both figures, per environment. What a planner
//! ranks is the configurations of one job under its one load, so the correlation is taken within job
//! and load, and the median over them is judged; that over everything is judged beside it, and is
//! higher because small and large models lie far apart. The surrogate is told the very lengths that
//! were drawn.

mod run;
#[cfg(test)]
mod samples;
pub(crate) mod scenario;
mod simulate;

use std::collections::BTreeMap;

use clap::Args;
use serde::Serialize;

use crate::Global;
use crate::Usage;
use crate::report::{Bound, Report, Table, number, percent};
use crate::statistics::{median, relative_errors, spearman};
use run::Sample;

/// Goal of the median absolute relative error.
const ERROR_BAND: (f64, f64) = (0.15, 0.50);
/// Goal of the rank correlation.
const RANK_BAND: (f64, f64) = (0.70, 0.95);

/// Options of `koi bench truth`.
#[derive(Debug, Args)]
pub(crate) struct TruthArgs {
    /// Least requests per run; four times as many measure the capacity.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(20..=100_000))]
    requests: u32,
    /// Jobs per environment, drawn by seed from six models and four mixes.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=24))]
    jobs: u32,
    /// Rate as a share of the median true capacity of a job's configurations; may be repeated
    /// [default: 0.3 0.7].
    #[arg(long = "load", value_name = "SHARE")]
    loads: Vec<f64>,
    /// Only GPU types of this name; may be repeated.
    #[arg(long = "gpu", value_name = "TYPE")]
    gpus: Vec<String>,
    /// Only models whose name has this in it; may be repeated.
    #[arg(long = "model", value_name = "TEXT")]
    models: Vec<String>,
    /// Threads [default: one per processor].
    #[arg(long)]
    threads: Option<usize>,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Quantity {
    /// Mean time per output token.
    TpotMean,
    /// Mean time to first token.
    TtftMean,
    /// Generated tokens per second of a full engine.
    Throughput,
}

impl Quantity {
    const fn title(self) -> &'static str {
        match self {
            Self::TpotMean => "mean TPOT",
            Self::TtftMean => "mean TTFT",
            Self::Throughput => "max tokens/s",
        }
    }
}

/// One line of the result.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Line {
    environment: String,
    quantity: Quantity,
    n: usize,
    /// The surrogate gave no number (it takes the engine for saturated).
    n_absent: usize,
    median_relative_error: Option<f64>,
    /// Groups of one job and load with enough configurations.
    n_groups: usize,
    /// Median over groups of the rank correlation.
    spearman: Option<f64>,
    /// Rank correlation over all of them.
    spearman_pooled: Option<f64>,
    /// Median of predicted over true.
    median_ratio: Option<f64>,
}

/// Runs the bench.
pub(crate) fn run(args: &TruthArgs, global: &Global) -> anyhow::Result<Report> {
    let loads = if args.loads.is_empty() {
        vec![0.3, 0.7]
    } else {
        args.loads.clone()
    };
    if !loads.iter().all(|l| *l > 0.0 && *l < 1.0) {
        let why = "--load must lie between 0 and 1, both excluded";
        return Err(Usage(why.to_owned()).into());
    }
    let mut models = scenario::models()?;
    models.retain(|m| args.models.is_empty() || args.models.iter().any(|t| m.name.contains(t)));
    let mut cases = scenario::cases(&models, args.jobs as usize, global.seed)?;
    cases.retain(|case| {
        let wanted = |gpu: &str| args.gpus.iter().any(|g| g.eq_ignore_ascii_case(gpu));
        args.gpus.is_empty() || case.scenarios.iter().any(|s| wanted(&s.gpu.id))
    });
    if cases.is_empty() {
        let why = "--model and --gpu leave no job: `koi model list` and `koi catalog show gpus` have the names";
        return Err(Usage(why.to_owned()).into());
    }
    let outcome = run::all(&cases, args.requests as usize, &loads, args.threads)?;
    let lines = lines(&outcome.samples);
    let n_capacities = lines.iter().filter(|l| l.quantity == Quantity::Throughput);
    let n_capacities: usize = n_capacities.map(|l| l.n).sum();
    let notes = vec![
        format!(
            "{} jobs in all, {} configurations: {} run, {} do not fit; fit differs for {} of them",
            cases.len(),
            cases.iter().map(|c| c.scenarios.len()).sum::<usize>(),
            outcome.n_run,
            outcome.n_unfit,
            outcome.n_fit_differs
        ),
        format!(
            "at least {} requests per run, Poisson, at {loads:?} of a job's median true capacity, seed {}; {} runs gave no figure",
            args.requests, global.seed, outcome.n_unmeasured
        ),
        format!(
            "tokens/s come from {n_capacities} engines that are kept full; {} more are left out because the arrivals set the figure",
            outcome.n_starved
        ),
    ];
    Ok(Report {
        bench: "truth",
        notes,
        table: table(&lines),
        data: serde_json::to_value(&lines)?,
        bounds: bounds(&lines),
    })
}

fn lines(samples: &[Sample]) -> Vec<Line> {
    let mut groups: BTreeMap<(&str, Quantity), Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        let key = (sample.environment, sample.quantity);
        groups.entry(key).or_default().push(sample);
    }
    groups
        .into_iter()
        .map(|((environment, quantity), samples)| {
            let pairs: Vec<(f64, f64)> = samples
                .iter()
                .filter_map(|s| Some((s.predicted?, s.truth)))
                .collect();
            let groups = within_groups(&samples);
            let ratios: Vec<f64> = pairs.iter().map(|(p, t)| p / t).collect();
            Line {
                environment: environment.to_owned(),
                quantity,
                n: pairs.len(),
                n_absent: samples.len() - pairs.len(),
                median_relative_error: median(&relative_errors(&pairs)),
                n_groups: groups.len(),
                spearman: median(&groups),
                spearman_pooled: spearman(&pairs),
                median_ratio: median(&ratios),
            }
        })
        .collect()
}

/// Rank correlation of every job and load with enough configurations.
fn within_groups(samples: &[&Sample]) -> Vec<f64> {
    let mut groups: BTreeMap<(usize, usize), Vec<(f64, f64)>> = BTreeMap::new();
    for s in samples {
        let pair = s.predicted.map(|p| (p, s.truth));
        groups.entry(s.group).or_default().extend(pair);
    }
    groups
        .into_values()
        .filter(|pairs| pairs.len() >= scenario::MIN_CONFIGURATIONS)
        .filter_map(|pairs| spearman(&pairs))
        .collect()
}

fn table(lines: &[Line]) -> Table {
    let mut table = Table::new(&[
        "ENVIRONMENT",
        "QUANTITY",
        "N",
        "ABSENT",
        "MEDIAN APE",
        "SPEARMAN",
        "GROUPS",
        "POOLED",
        "PREDICTED/TRUE",
    ]);
    for line in lines {
        table.row([
            line.environment.clone(),
            line.quantity.title().to_owned(),
            line.n.to_string(),
            line.n_absent.to_string(),
            percent(line.median_relative_error),
            number(line.spearman, 3),
            line.n_groups.to_string(),
            number(line.spearman_pooled, 3),
            number(line.median_ratio, 2),
        ]);
    }
    table
}

fn bounds(lines: &[Line]) -> Vec<Bound> {
    let name = |line: &Line, what: &str| {
        format!("{what} of {}, {}", line.quantity.title(), line.environment)
    };
    lines
        .iter()
        .flat_map(|line| {
            [
                Bound::within(
                    name(line, "median APE"),
                    line.median_relative_error,
                    ERROR_BAND,
                ),
                Bound::within(name(line, "Spearman"), line.spearman, RANK_BAND),
                Bound::within(
                    name(line, "pooled Spearman"),
                    line.spearman_pooled,
                    RANK_BAND,
                ),
            ]
        })
        .collect()
}
