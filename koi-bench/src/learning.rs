//! `koi bench learning`: can Koi tell true mechanisms from false ones?
//!
//! A seeded fleet runs over a hidden truth (`koi_sim::world`: step times of the simulated engine, a queue
//! of its own, weather, drift, places that differ). Its windows go through the real S1 (`Observatory`),
//! S2 (`judge`) and S3 (`slow_update`, store included); the planner is a stand-in under the real swap
//! budget and probe allowance. True claims come from the catalog and are those whose edges the finite
//! differences of the truth confirm; false ones are drawn from the closed world by seed. Nothing tells
//! S1–S4 which is which. Spec §8; white paper V1, Closing the Loop.

mod bars;
mod claims;
mod course;
mod fleet;
mod hidden;
mod knobs;
mod physics;
mod planner;
mod probe;
mod record;
mod remarks;
mod seeds;
mod slow;
mod svg;
mod table;
mod world;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use crate::Global;
use crate::report::Report;
use course::Rule;

/// Options of `koi bench learning`.
#[derive(Debug, Args)]
pub(crate) struct LearningArgs {
    /// Worlds, from the global seed on.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=200))]
    seeds: u32,
    /// Ticks of each.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=2000))]
    ticks: u32,
    /// Jobs of the fleet.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(6..=96))]
    jobs: u32,
    /// Places of the fleet.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(3..=8))]
    environments: u32,
    /// Rules that are run; may be repeated [default: all].
    #[arg(long = "rule", value_enum)]
    rules: Vec<Rule>,
    /// Threads [default: one per processor].
    #[arg(long)]
    threads: Option<usize>,
    /// Print every claim of every seed and what the finite differences say.
    #[arg(long)]
    claims: bool,
    /// After the ticks a new engine version generates tokens 30 % slower: is it noticed, do beliefs
    /// recover?
    #[arg(long)]
    regime_change: bool,
    /// Loads and lengths do not drift: does the loop converge, by every bullet of Assumption 2?
    #[arg(long)]
    stationary: bool,
    /// Write the curves of the beliefs here.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Runs the study.
pub(crate) fn run(args: &LearningArgs, global: &Global) -> anyhow::Result<Report> {
    let outcomes = seeds::all(args, global.seed)?;
    if let Some(path) = &args.svg {
        let picture = svg::picture(&outcomes, args.ticks as usize);
        std::fs::write(path, picture).with_context(|| format!("write {}", path.display()))?;
    }
    table::report(args, global, &outcomes)
}
