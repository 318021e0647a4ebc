//! `koi bench plan`: time and memory of planning and checking, for seeded clusters.
//!
//! Two rounds per cluster: *cold*, when every job waits, and *standing*, when the cold plan runs and
//! is looked at again, which is what nearly every tick does. Nothing is cached between runs.

pub(crate) mod world;

use std::time::Instant;

use clap::Args;
use koi_core::catalog::Catalog;
use koi_core::causal::CausalModel;
use koi_core::params::Params;
use koi_core::plan_check::{CheckedPlan, check};
use koi_core::planner::{PlanningContext, plan};
use koi_core::snapshot::Snapshot;
use koi_core::surrogate::points::MeasuredPoints;
use serde::Serialize;

use crate::Global;
use crate::cluster::field_kib;
use crate::report::{Report, Table, number};
use crate::statistics::{median, quantile};

/// Options of `koi bench plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Jobs × hosts; may be repeated [default: 3x6 20x6 50x20].
    #[arg(long = "size", value_parser = parse_size, value_name = "JOBSxHOSTS")]
    sizes: Vec<Size>,
    /// Runs per cluster and round.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
}

/// Jobs and hosts of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    jobs: u32,
    hosts: u32,
}

fn parse_size(text: &str) -> Result<Size, String> {
    let parsed = text
        .split_once('x')
        .and_then(|(jobs, hosts)| Some((jobs.parse().ok()?, hosts.parse().ok()?)));
    match parsed {
        Some((jobs @ 1..=1_000, hosts @ 1..=1_000)) => Ok(Size { jobs, hosts }),
        _ => Err("write JOBSxHOSTS such as 20x6, each from 1 to 1000".to_owned()),
    }
}

#[derive(Debug, Serialize)]
struct Line {
    n_jobs: u32,
    n_hosts: u32,
    round: &'static str,
    /// Jobs that the plan places or keeps.
    n_served: usize,
    median_ms: Option<f64>,
    p95_ms: Option<f64>,
    check_median_ms: Option<f64>,
    /// Most resident memory while planning, above that before.
    peak_growth_mib: Option<f64>,
}

/// Runs the bench.
pub(crate) fn run(args: &PlanArgs, global: &Global) -> anyhow::Result<Report> {
    let sizes = if args.sizes.is_empty() {
        ["3x6", "20x6", "50x20"]
            .into_iter()
            .map(parse_size)
            .collect::<Result<Vec<_>, _>>()
            .map_err(anyhow::Error::msg)?
    } else {
        args.sizes.clone()
    };
    let causal = CausalModel::embedded(Catalog::embedded())
        .map_err(|problems| anyhow::anyhow!("the embedded causal model: {problems:?}"))?;
    let context = PlanningContext {
        catalog: Catalog::embedded(),
        causal: &causal,
        params: &Params::default(),
        points: MeasuredPoints::none(),
    };
    let mut lines = Vec::new();
    for size in sizes {
        let mut snapshot = world::snapshot(size.jobs, size.hosts, global.seed)?;
        let (line, checked) = measure(&snapshot, &context, (size, "cold"), args.runs)?;
        lines.push(line);
        world::execute(&mut snapshot, &checked);
        let (line, _) = measure(&snapshot, &context, (size, "standing"), args.runs)?;
        lines.push(line);
    }
    Ok(Report {
        bench: "plan",
        notes: vec![format!(
            "{} runs each, seed {}, one thread; time is plan + check",
            args.runs, global.seed
        )],
        table: table(&lines),
        data: serde_json::to_value(&lines)?,
        bounds: Vec::new(),
    })
}

fn measure(
    snapshot: &Snapshot,
    context: &PlanningContext<'_>,
    (size, round): (Size, &'static str),
    runs: u32,
) -> anyhow::Result<(Line, CheckedPlan)> {
    // The first run is not timed: it brings code and data into the caches.
    reset_peak();
    let before = status_mib("VmRSS:");
    let checked = once(snapshot, context)?.2;
    let peak_growth_mib = before.zip(status_mib("VmHWM:")).map(|(b, p)| p - b);
    let mut whole = Vec::new();
    let mut checking = Vec::new();
    for _ in 0..runs {
        let (plan_ms, check_ms, _) = once(snapshot, context)?;
        whole.push(plan_ms + check_ms);
        checking.push(check_ms);
    }
    let served = |job| {
        checked
            .actions()
            .iter()
            .any(|a| a.job == job && !a.slots.is_empty())
    };
    let live = |job| snapshot.state.replicas_of(job).next().is_some();
    let jobs = snapshot.state.jobs.keys().copied();
    let line = Line {
        n_jobs: size.jobs,
        n_hosts: size.hosts,
        round,
        n_served: jobs.filter(|job| served(*job) || live(*job)).count(),
        median_ms: median(&whole),
        p95_ms: quantile(&whole, 0.95),
        check_median_ms: median(&checking),
        peak_growth_mib,
    };
    Ok((line, checked))
}

/// Milliseconds of planning and of checking, and the plan.
fn once(
    snapshot: &Snapshot,
    context: &PlanningContext<'_>,
) -> anyhow::Result<(f64, f64, CheckedPlan)> {
    let start = Instant::now();
    let draft = plan(snapshot, context);
    let planned = Instant::now();
    let checked = check(draft, snapshot, context).map_err(|violations| {
        anyhow::anyhow!("the planner's own plan fails the check: {violations:?}")
    })?;
    let (plan_time, check_time) = (planned - start, planned.elapsed());
    let ms = |t: std::time::Duration| 1000.0 * t.as_secs_f64();
    Ok((ms(plan_time), ms(check_time), checked))
}

/// Lets the kernel count the peak of resident memory anew; where it refuses, the peak is that of
/// the whole run.
fn reset_peak() {
    drop(std::fs::write("/proc/self/clear_refs", "5"));
}

fn status_mib(field: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(field_kib(&status, field)? as f64 / 1024.0)
}

fn table(lines: &[Line]) -> Table {
    let mut table = Table::new(&[
        "JOBS",
        "HOSTS",
        "ROUND",
        "SERVED",
        "MEDIAN ms",
        "P95 ms",
        "OF IT CHECK",
        "PEAK MiB",
    ]);
    for l in lines {
        table.row([
            l.n_jobs.to_string(),
            l.n_hosts.to_string(),
            l.round.to_owned(),
            l.n_served.to_string(),
            number(l.median_ms, 1),
            number(l.p95_ms, 1),
            number(l.check_median_ms, 1),
            number(l.peak_growth_mib, 1),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_bounded() {
        assert_eq!(parse_size("20x6"), Ok(Size { jobs: 20, hosts: 6 }));
        for wrong in ["20", "0x6", "20x", "x", "20x6x1", "2000x6", "-1x3"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
