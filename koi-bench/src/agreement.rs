//! `koi bench agreement`: the load generator's stopwatch against the server's percentiles.
//!
//! Both go through the engine's bucket edges and the same quantile rule over the same whole minutes.
//! The raw stopwatch quantile is printed beside them: its distance is what buckets cost.

use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::Global;
use crate::koi::{Koi, Measured, now_us};
use crate::report::{Bound, Report, Table, number, percent};

/// Requests from which a 99th percentile is judged.
const MIN_REQUESTS: u64 = 1_000;
/// Largest relative difference.
const MAX_DIFFERENCE: f64 = 0.10;
/// Seconds after which the windows of a minute have reached the server: a window, a scrape, a send.
const SETTLE_SECONDS: i64 = 25;

/// Options of `koi bench agreement`.
#[derive(Debug, Args)]
pub(crate) struct AgreementArgs {
    /// Newest whole minutes.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=18))]
    minutes: u32,
}

/// The parts of `koi load report -o json` that are compared.
#[derive(Debug, Deserialize)]
struct Stopwatch {
    job: String,
    from_us: i64,
    to_us: i64,
    ttft: Quantiles,
    tpot: Quantiles,
}

#[derive(Debug, Deserialize)]
struct Quantiles {
    n: u64,
    p99_ms: Option<f64>,
    raw_p99_ms: Option<f64>,
}

/// One percentile, both ways.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Line {
    job: String,
    quantity: &'static str,
    seconds: i64,
    n_stopwatch: u64,
    n_server: u64,
    /// From the start of the first to the end of the last window that the server pooled.
    server_seconds: Option<f64>,
    stopwatch_ms: Option<f64>,
    server_ms: Option<f64>,
    raw_ms: Option<f64>,
    /// (server − stopwatch) / stopwatch, both through the buckets.
    difference: Option<f64>,
    /// (server − raw) / raw.
    raw_difference: Option<f64>,
}

/// Runs the bench.
pub(crate) fn run(args: &AgreementArgs, global: &Global) -> anyhow::Result<Report> {
    let koi = Koi::find(global)?;
    wait_for_whole_windows();
    let minutes = args.minutes.to_string();
    let words = ["load", "report", "--minutes", &minutes];
    let stopwatches: Vec<Stopwatch> = koi.ask(&words)?;
    let mut lines = Vec::new();
    for watch in &stopwatches {
        let seconds = (watch.to_us - watch.from_us) / 1_000_000;
        let job = koi.job_over(&watch.job, seconds, watch.to_us)?;
        if job.spec.class == "online" {
            lines.extend(compare(watch, job.measured.as_ref()));
        }
    }
    Ok(Report {
        bench: "agreement",
        notes: vec![
            format!(
                "p99 in milliseconds over the same whole minutes; judged from {MIN_REQUESTS} requests"
            ),
            machine_load(),
        ],
        table: table(&lines),
        data: serde_json::to_value(&lines)?,
        bounds: lines.iter().map(bound).collect(),
    })
}

/// A machine without free processors delays the stopwatch more than the engine, so it is said.
fn machine_load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<&str> = text.split_whitespace().take(3).collect();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "load average {} over 1, 5 and 15 minutes on {processors} processors",
        averages.join(", ")
    )
}

/// The newest whole minute ended when this one began; its windows must have arrived.
fn wait_for_whole_windows() {
    let into_minute = now_us().rem_euclid(60_000_000) / 1_000_000;
    let missing = u64::try_from(SETTLE_SECONDS - into_minute).unwrap_or(0);
    std::thread::sleep(Duration::from_secs(missing));
}

fn compare(watch: &Stopwatch, measured: Option<&Measured>) -> [Line; 2] {
    let seconds = (watch.to_us - watch.from_us) / 1_000_000;
    [
        ("TTFT", "p99_ttft_ms", &watch.ttft),
        ("TPOT", "p99_tpot_ms", &watch.tpot),
    ]
    .map(|(quantity, name, seen)| {
        let server_ms = measured.and_then(|m| m.percentile(name));
        let relative = |to: Option<f64>| {
            let (server, to) = server_ms.zip(to.filter(|t| *t > 0.0))?;
            Some((server - to) / to)
        };
        Line {
            job: watch.job.clone(),
            quantity,
            seconds,
            n_stopwatch: seen.n,
            n_server: measured.map_or(0, |m| m.n_requests),
            server_seconds: measured.map(|m| (m.to_us - m.from_us) as f64 / 1e6),
            stopwatch_ms: seen.p99_ms,
            server_ms,
            raw_ms: seen.raw_p99_ms,
            difference: relative(seen.p99_ms),
            raw_difference: relative(seen.raw_p99_ms),
        }
    })
}

fn table(lines: &[Line]) -> Table {
    let mut table = Table::new(&[
        "JOB",
        "P99 OF",
        "OVER",
        "N WATCH",
        "N SERVER",
        "STOPWATCH",
        "SERVER",
        "DIFF",
        "RAW",
        "RAW DIFF",
    ]);
    for l in lines {
        table.row([
            l.job.clone(),
            l.quantity.to_owned(),
            format!("{} s", l.seconds),
            l.n_stopwatch.to_string(),
            l.n_server.to_string(),
            number(l.stopwatch_ms, 2),
            number(l.server_ms, 2),
            percent(l.difference),
            number(l.raw_ms, 2),
            percent(l.raw_difference),
        ]);
    }
    table
}

fn bound(line: &Line) -> Bound {
    let enough = line.n_stopwatch.min(line.n_server) >= MIN_REQUESTS;
    let difference = line.difference.map(f64::abs);
    Bound {
        what: format!("{}: p99 {} agrees", line.job, line.quantity),
        bound: format!("≤ {}", percent(Some(MAX_DIFFERENCE))),
        measured: percent(difference),
        met: difference.filter(|_| enough).map(|d| d <= MAX_DIFFERENCE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(n: u64, server_ms: Option<f64>) -> Line {
        let seen = |p99| Quantiles {
            n,
            p99_ms: Some(p99),
            raw_p99_ms: Some(80.0),
        };
        let watch = Stopwatch {
            job: "chat".to_owned(),
            from_us: 0,
            to_us: 600_000_000,
            ttft: seen(100.0),
            tpot: seen(20.0),
        };
        let outcomes = serde_json::json!([{"name": "p99_ttft_ms", "value": server_ms}]);
        let measured: Measured = serde_json::from_value(serde_json::json!({
            "outcomes": outcomes, "mean_based": [], "n_requests": n, "from_us": 0, "to_us": 1,
            "n_windows_judged": 0, "n_windows_inside": 0,
        }))
        .unwrap();
        let [ttft, _] = compare(&watch, Some(&measured));
        ttft
    }

    #[test]
    fn differences_are_relative_and_judged_only_with_enough_requests() {
        let near = line(1_000, Some(92.0));
        assert_eq!(near.difference, Some(-0.08));
        assert!((near.raw_difference.unwrap() - 0.15).abs() < 1e-12);
        assert_eq!(bound(&near).met, Some(true));
        assert_eq!(bound(&line(1_000, Some(111.0))).met, Some(false));
        assert_eq!(bound(&line(999, Some(111.0))).met, None);
        assert_eq!(bound(&line(5_000, None)).met, None);
    }
}
