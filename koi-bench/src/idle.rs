//! `koi bench idle`: memory and processor time of a running cluster at rest.
//!
//! The bounds hold for a release build, five minutes after its jobs run, without requests. Anonymous
//! memory is what a process cannot give back; the largest of the readings counts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use crate::Global;
use crate::cluster::{self, Member, Reading, Role};
use crate::report::{Bound, Report, Table, number, percent};

const MIB: f64 = 1_048_576.0;
const MAX_SERVER_MIB: f64 = 150.0;
const MAX_AGENT_MIB: f64 = 20.0;
const MAX_CPU_PERCENT: f64 = 1.0;
/// Memory is read this often.
const READ_EVERY: Duration = Duration::from_secs(5);

/// Options of `koi bench idle`.
#[derive(Debug, Args)]
pub(crate) struct IdleArgs {
    /// Seconds over which processor time is counted.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
}

/// What one process held and burnt.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    member: Member,
    rss_anon_mib: Option<f64>,
    cpu_fraction: Option<f64>,
}

/// Runs the bench.
pub(crate) fn run(args: &IdleArgs, global: &Global) -> anyhow::Result<Report> {
    let members = cluster::members(global)?;
    let lines = watch(members, Duration::from_secs(u64::from(args.seconds)));
    let server = lines.iter().find(|l| l.member.role == Role::Server);
    let executable = server.map(|l| l.member.executable.display().to_string());
    let executable = executable.unwrap_or_default();
    let release = if executable.contains("/release/") {
        ""
    } else {
        "; not a release build, for which the bounds hold"
    };
    let notes = vec![
        format!("over {} s; server {executable}{release}", args.seconds),
        "CPU is a share of one core; a process that ended meanwhile has none".to_owned(),
    ];
    Ok(Report {
        bench: "idle",
        notes,
        table: table(&lines),
        data: serde_json::to_value(&lines)?,
        bounds: lines.iter().flat_map(bounds).collect(),
    })
}

fn watch(members: Vec<Member>, span: Duration) -> Vec<Line> {
    let start = Instant::now();
    let first: Vec<Option<Reading>> = members.iter().map(Member::reading).collect();
    let mut last = first.clone();
    let mut most: Vec<Option<u64>> = rss(&first);
    while let Some(left) = span.checked_sub(start.elapsed()).filter(|l| !l.is_zero()) {
        std::thread::sleep(left.min(READ_EVERY));
        last = members.iter().map(Member::reading).collect();
        for (most, now) in most.iter_mut().zip(rss(&last)) {
            *most = (*most).max(now);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let burnt = first.into_iter().zip(last).map(|(first, last)| {
        let (first, last) = first.zip(last)?;
        Some((last.cpu_seconds - first.cpu_seconds) / seconds)
    });
    let mut lines: Vec<Line> = members
        .into_iter()
        .zip(most)
        .zip(burnt)
        .map(|((member, most), cpu_fraction)| Line {
            member,
            rss_anon_mib: most.map(|bytes| bytes as f64 / MIB),
            cpu_fraction,
        })
        .collect();
    lines.sort_by(|a, b| key(&a.member).cmp(&key(&b.member)));
    lines
}

fn rss(readings: &[Option<Reading>]) -> Vec<Option<u64>> {
    let bytes = readings.iter().map(|r| r.map(|r| r.rss_anon_bytes));
    bytes.collect()
}

fn key(member: &Member) -> (Role, &str, u32) {
    (member.role, &member.label, member.pid)
}

/// Server and agents one by one, the others summed up.
fn table(lines: &[Line]) -> Table {
    let mut table = Table::new(&["PROCESS", "N", "RSS ANON MiB", "CPU"]);
    let (bounded, others): (Vec<&Line>, Vec<&Line>) = lines
        .iter()
        .partition(|l| matches!(l.member.role, Role::Server | Role::Agent));
    for line in bounded {
        table.row([
            name(&line.member),
            "1".to_owned(),
            number(line.rss_anon_mib, 1),
            percent(line.cpu_fraction),
        ]);
    }
    let mut sums: BTreeMap<Role, (usize, f64, f64)> = BTreeMap::new();
    for line in others {
        let sum = sums.entry(line.member.role).or_default();
        sum.0 += 1;
        sum.1 += line.rss_anon_mib.unwrap_or(0.0);
        sum.2 += line.cpu_fraction.unwrap_or(0.0);
    }
    for (role, (n, mib, cpu)) in sums {
        table.row([
            format!("{}, all", role.name()),
            n.to_string(),
            number(Some(mib), 1),
            percent(Some(cpu)),
        ]);
    }
    table
}

fn name(member: &Member) -> String {
    match member.role {
        Role::Agent => format!("agent {}", member.label),
        role => role.name().to_owned(),
    }
}

fn bounds(line: &Line) -> Vec<Bound> {
    let most = match line.member.role {
        Role::Server => MAX_SERVER_MIB,
        Role::Agent => MAX_AGENT_MIB,
        _ => return Vec::new(),
    };
    let name = name(&line.member);
    let cpu = line.cpu_fraction.map(|c| 100.0 * c);
    vec![
        Bound::at_most(
            format!("{name}: anonymous memory"),
            line.rss_anon_mib,
            most,
            "MiB",
        ),
        Bound::at_most(format!("{name}: CPU"), cpu, MAX_CPU_PERCENT, "%"),
    ]
}
