//! `koi-bench kills`: what a client notices when a part of a running cluster is killed with SIGKILL or
//! changed by plan, at 20 requests per second and more.
//!
//! It starts a cluster of its own with `koi up` on simulated devices, and looks at it only from outside.
//! It is no fault injection into the code and no simulation. Reliability rows A, B, D and E.

mod cluster;
mod inputs;
mod process;
mod report;
mod scenarios;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use cluster::{Cluster, Counts};
pub(crate) use inputs::Fleet;
use inputs::{BUSY, Inputs};
pub(crate) use report::Row;
use report::{Outcome, table};
pub(crate) use scenarios::Scenario;

/// After a scenario: requests that it hurt have failed by then, and the counts are written.
const SETTLE: Duration = Duration::from_secs(3);

/// Options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct KillsArgs {
    /// How often everything is done.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeats: u32,
    /// Fleet.
    #[arg(long, value_enum, default_value = "demo")]
    pub(crate) fleet: Fleet,
    /// Only these; may be repeated.
    #[arg(long, value_enum)]
    pub(crate) only: Vec<Scenario>,
    /// Least load under which the figures count, in requests per second.
    #[arg(long, default_value_t = 20.0)]
    pub(crate) min_rate_rps: f64,
}

/// Runs the measurement and prints it.
///
/// # Errors
/// When the cluster does not start, or anything is not as promised.
pub(crate) fn run(args: &KillsArgs, json: bool) -> anyhow::Result<()> {
    let folder = std::env::temp_dir().join(format!("koi-kills-{}", std::process::id()));
    let inputs = Inputs::write(&folder, args.fleet)?;
    let cluster = Cluster::start(&koi()?, folder, inputs)?;
    let rows = measure(&cluster, args);
    drop(cluster);
    let rows = rows?;
    let mut text = if json {
        serde_json::to_string_pretty(&rows)?
    } else {
        table(&rows)
    };
    text.push('\n');
    std::io::stdout().write_all(text.as_bytes())?;
    let n_missed = rows.iter().filter(|r| !r.problems.is_empty()).count();
    if n_missed > 0 {
        bail!("{n_missed} of {} are not as promised", rows.len());
    }
    Ok(())
}

/// The command line beside this executable, or in `KOI_BIN_DIR`.
fn koi() -> anyhow::Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let beside = exe.parent().map(Path::to_path_buf);
    let asked = std::env::var_os("KOI_BIN_DIR").map(PathBuf::from);
    let found = [beside, asked].into_iter().flatten().map(|d| d.join("koi"));
    found
        .into_iter()
        .find(|p| p.is_file())
        .context("koi is not beside koi-bench; build it with `cargo build --release`")
}

fn measure(cluster: &Cluster, args: &KillsArgs) -> anyhow::Result<Vec<Row>> {
    let wanted = |s: &Scenario| args.only.is_empty() || args.only.contains(s);
    let mut rows = Vec::new();
    check_rate(cluster, args.min_rate_rps)?;
    for scenario in Scenario::ALL.into_iter().filter(wanted) {
        let mut outcomes = Vec::new();
        for run in 1..=args.repeats {
            scenarios::calm(cluster)?;
            let outcome = one(cluster, scenario)?;
            say(&format!(
                "{} {run}/{}: {} failed, {} retried, {}",
                scenario.name(),
                args.repeats,
                outcome.failed,
                outcome.retried,
                outcome.times()
            ));
            outcomes.push(outcome);
        }
        rows.push(Row::of(scenario, &outcomes));
    }
    Ok(rows)
}

/// Refuses to measure under less load than was promised.
fn check_rate(cluster: &Cluster, min_rate_rps: f64) -> anyhow::Result<()> {
    const SPAN: Duration = Duration::from_secs(5);
    scenarios::calm(cluster)?;
    // The load generator looks for endpoints, sends, and writes once a second.
    std::thread::sleep(Duration::from_secs(3));
    let (before, begun) = (cluster.counts(BUSY)?, Instant::now());
    std::thread::sleep(SPAN);
    let n = cluster.counts(BUSY)?.sent - before.sent;
    let rate = n as f64 / begun.elapsed().as_secs_f64();
    say(&format!("{BUSY} gets {rate:.1} requests per second"));
    // The counts are up to a second old, at either end.
    if rate < min_rate_rps * 0.75 {
        bail!("{BUSY} gets {rate:.1} requests per second, {min_rate_rps} are needed");
    }
    Ok(())
}

fn one(cluster: &Cluster, scenario: Scenario) -> anyhow::Result<Outcome> {
    let before = cluster.counts(BUSY)?;
    let result = scenario.run(cluster);
    std::thread::sleep(SETTLE);
    let after = cluster.counts(BUSY)?;
    let gain = |of: fn(&Counts) -> u64| of(&after).saturating_sub(of(&before));
    Ok(Outcome {
        sent: gain(|c| c.sent),
        failed: gain(|c| c.failed),
        retried: gain(|c| c.retried),
        in_flight: before.in_flight,
        result: result.map_err(|e| format!("{e:#}")),
    })
}

/// Progress, beside the results.
fn say(line: &str) {
    // A closed standard error is no reason to leave a cluster behind.
    writeln!(std::io::stderr(), "{line}").ok();
}
