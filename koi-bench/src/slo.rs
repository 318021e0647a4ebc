//! `koi bench slo`: per running job, the share of judged windows inside its SLO.
//!
//! The first three minutes of a job's life are left out: its first engines start then.

use clap::Args;
use serde::Serialize;

use crate::Global;
use crate::koi::{Job, Koi, now_us};
use crate::report::{Bound, Report, Table, percent};

/// Seconds of a job's life that are not judged.
const SETTLING_SECONDS: i64 = 180;
/// Least share of judged windows inside the SLO.
const MIN_SHARE: f64 = 0.95;

/// Options of `koi bench slo`.
#[derive(Debug, Args)]
pub(crate) struct SloArgs {
    /// Newest minutes.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=20))]
    minutes: u32,
}

#[derive(Debug, Serialize)]
struct Line {
    job: String,
    class: String,
    state: String,
    seconds: i64,
    n_judged: u32,
    n_inside: u32,
    share: Option<f64>,
    note: String,
}

/// Runs the bench.
pub(crate) fn run(args: &SloArgs, global: &Global) -> anyhow::Result<Report> {
    let koi = Koi::find(global)?;
    let now = now_us();
    let lines = koi
        .jobs()?
        .into_iter()
        .map(|job| line(&koi, &job, args.minutes, now))
        .collect::<anyhow::Result<Vec<Line>>>()?;
    let mut table = Table::new(&["JOB", "CLASS", "STATE", "OVER", "JUDGED", "INSIDE", "SHARE"]);
    for l in &lines {
        table.row([
            l.job.clone(),
            l.class.clone(),
            l.state.clone(),
            format!("{} s", l.seconds),
            l.n_judged.to_string(),
            l.n_inside.to_string(),
            percent(l.share),
        ]);
    }
    let notes = lines.iter().filter(|l| !l.note.is_empty());
    Ok(Report {
        bench: "slo",
        notes: notes.map(|l| format!("{}: {}", l.job, l.note)).collect(),
        table,
        data: serde_json::to_value(&lines)?,
        bounds: lines.iter().map(bound).collect(),
    })
}

fn line(koi: &Koi, job: &Job, minutes: u32, now: i64) -> anyhow::Result<Line> {
    let settled_for = (now - job.submitted_at_us) / 1_000_000 - SETTLING_SECONDS;
    let seconds = settled_for.min(60 * i64::from(minutes)).max(0);
    let measured = if seconds > 0 {
        koi.job_over(&job.spec.name, seconds, now)?.measured
    } else {
        None
    };
    let count = measured.map_or((0, 0), |m| (m.n_windows_judged, m.n_windows_inside));
    Ok(Line {
        job: job.spec.name.clone(),
        class: job.spec.class.clone(),
        state: job.state.clone(),
        seconds,
        n_judged: count.0,
        n_inside: count.1,
        share: (count.0 > 0).then(|| f64::from(count.1) / f64::from(count.0)),
        note: job.note.clone(),
    })
}

fn bound(line: &Line) -> Bound {
    Bound {
        what: format!("{}: windows inside the SLO", line.job),
        bound: format!("≥ {}", percent(Some(MIN_SHARE))),
        measured: percent(line.share),
        // A job that does not run is not judged; its note says what limits it.
        met: line.share.map(|share| share >= MIN_SHARE),
    }
}
