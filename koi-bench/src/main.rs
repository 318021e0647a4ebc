//! `koi-bench`: measurements of Koi against its stated bounds. `koi bench X` runs it.
//!
//! It may import everything and nothing imports it. Each bench prints what it measured, the bound
//! and whether it was met; `--check` turns a missed bound into exit code 1. Spec §18.11.

mod agreement;
mod allocations;
mod cluster;
mod evidence;
mod floor;
mod idle;
mod kills;
mod koi;
mod learning;
mod parse;
mod plan;
mod predict;
mod report;
mod slo;
mod space;
mod statistics;
mod surrogate;
mod truth;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use koi_core::build::BUILD_ID;

use report::{Format, Report};

/// Measures Koi against its stated bounds.
#[derive(Debug, Parser)]
#[command(name = "koi-bench", version = BUILD_ID)]
struct Cli {
    /// Print the build id and end.
    #[arg(long)]
    build_id: bool,
    /// Options of every bench.
    #[command(flatten)]
    global: Global,
    /// What to measure.
    #[command(subcommand)]
    bench: Option<Bench>,
}

/// Options of every bench.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Seed of everything random.
    #[arg(long, global = true, default_value_t = 1)]
    seed: u64,
    /// Form of the output.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORM"
    )]
    output: Format,
    /// Exit with 1 when a bound is missed, or when none could be judged.
    #[arg(long, global = true)]
    check: bool,
    /// Folder of the dev cluster to measure [default: that of koi].
    #[arg(long, global = true, env = "KOI_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// List the benches.
    #[command(after_help = "Example:\n  koi bench list")]
    List,
    /// The uncorrected surrogate against the hidden truth of the simulated engine.
    #[command(after_help = "Example:\n  koi bench truth --requests 200 --check")]
    Truth(truth::TruthArgs),
    /// Time and memory of planning and checking a plan.
    #[command(after_help = "Example:\n  koi bench plan --size 3x6 --size 50x20")]
    Plan(plan::PlanArgs),
    /// Reading an engine's metrics page, beside the bare machine and another parser.
    #[command(after_help = "Example:\n  koi bench parse --rounds 9 --check")]
    Parse(parse::ParseArgs),
    /// Time of one prediction beside the bare machine.
    #[command(after_help = "Example:\n  koi bench predict --candidates 2000 --check")]
    Predict(predict::PredictArgs),
    /// A wide search for one job: every candidate predicted, checked and scored.
    #[command(after_help = "Example:\n  koi bench space --candidates 100000 --threads 2 --check")]
    Space(space::SpaceArgs),
    /// Evidence judged, learned from, stored and replayed, beside the bare machine.
    #[command(after_help = "Example:\n  koi bench evidence --rows 100000 --check")]
    Evidence(evidence::EvidenceArgs),
    /// Memory and processor time of a running cluster at rest.
    #[command(after_help = "Example:\n  koi bench idle --data-dir /tmp/koi --seconds 120")]
    Idle(idle::IdleArgs),
    /// The load generator's stopwatch against the server's percentiles.
    #[command(after_help = "Example:\n  koi bench agreement --data-dir /tmp/koi --minutes 10")]
    Agreement(agreement::AgreementArgs),
    /// Share of judged windows inside the SLO, per running job.
    #[command(after_help = "Example:\n  koi bench slo --data-dir /tmp/koi --minutes 10")]
    Slo(slo::SloArgs),
    /// The surrogate stack against measured points, whole models or GPU types left out.
    #[command(after_help = "Example:\n  koi bench surrogate --cv gpu")]
    Surrogate(surrogate::SurrogateArgs),
    /// Can Koi tell true mechanisms from false ones? A seeded study over a hidden truth.
    #[command(after_help = "Example:\n  koi bench learning --seeds 3 --svg /tmp/beliefs.svg")]
    Learning(learning::LearningArgs),
    /// Kill every part of a cluster of its own under load, and change it by plan.
    #[command(after_help = "Example:\n  koi bench kills --repeats 3 --fleet demo")]
    Kills(kills::KillsArgs),
}

const LIST: &str = "\
truth      the uncorrected surrogate against the simulated engine's truth, per environment
predict    time of one prediction beside the bare machine
space      a wide search for one job: every candidate predicted, checked and scored
plan       time and memory of planning and checking a plan
parse      reading an engine's metrics page, against the bare machine and another parser
evidence   evidence judged, learned from, stored and replayed, beside the bare machine
idle       memory and processor time of a running cluster at rest
agreement  the load generator's stopwatch against the server's percentiles
surrogate  the surrogate stack against measured points, whole models or GPU types left out
slo        share of judged windows inside the SLO, per running job
learning   can Koi tell true mechanisms from false ones? a seeded study over a hidden truth
kills      what clients notice when parts of a cluster are killed or changed by plan";

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(code) => code,
        Err(error) => {
            report::complain(&format!("koi-bench: {error:#}"));
            let is_usage = error.downcast_ref::<Usage>().is_some();
            ExitCode::from(if is_usage { 2 } else { 1 })
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    if cli.build_id {
        report::say(BUILD_ID)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(bench) = &cli.bench else {
        report::complain("name a bench:");
        report::say(LIST)?;
        return Ok(ExitCode::from(2));
    };
    if let Bench::Kills(args) = bench {
        kills::run(args, cli.global.output == Format::Json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(report) = measure(bench, &cli.global)? else {
        report::say(&list(cli.global.output)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    report.emit(cli.global.output)?;
    let missed = cli.global.check && !report.is_met();
    Ok(ExitCode::from(u8::from(missed)))
}

/// A flag or a file that was refused: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The benches, for people or as a document.
fn list(format: Format) -> anyhow::Result<String> {
    let Format::Json = format else {
        return Ok(LIST.to_owned());
    };
    let rows = LIST.lines().filter_map(|line| {
        let (name, measures) = line.split_once(' ')?;
        Some(serde_json::json!({ "name": name, "measures": measures.trim() }))
    });
    let rows: Vec<serde_json::Value> = rows.collect();
    Ok(serde_json::to_string_pretty(&rows)?)
}

fn measure(bench: &Bench, global: &Global) -> anyhow::Result<Option<Report>> {
    Ok(Some(match bench {
        Bench::List | Bench::Kills(_) => return Ok(None),
        Bench::Truth(args) => truth::run(args, global)?,
        Bench::Plan(args) => plan::run(args, global)?,
        Bench::Parse(args) => parse::run(args, global)?,
        Bench::Predict(args) => predict::run(args, global)?,
        Bench::Space(args) => space::run(args, global)?,
        Bench::Evidence(args) => evidence::run(args, global)?,
        Bench::Idle(args) => idle::run(args, global)?,
        Bench::Agreement(args) => agreement::run(args, global)?,
        Bench::Slo(args) => slo::run(args, global)?,
        Bench::Learning(args) => learning::run(args, global)?,
        Bench::Surrogate(args) => surrogate::run(args, global)?,
    }))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_bench_is_listed_and_has_an_example_that_parses() {
        for bench in Cli::command().get_subcommands() {
            let name = bench.get_name();
            let help = bench.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let (_, example) = help.split_once("Example:\n  koi bench ").unwrap();
            let words = std::iter::once("koi-bench").chain(example.split_whitespace());
            Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(name == "list" || LIST.contains(name), "{name}");
        }
    }
}
