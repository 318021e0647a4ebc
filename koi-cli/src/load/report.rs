//! `koi load report`: the newest whole minutes of every job, through the engine's buckets and raw.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::args::ReportArgs;
use super::minutes::{self, MINUTE_US, Minute};
use super::summary::{Quantiles, Span};
use crate::failure::{ExitCode, Failure};
use crate::output::{Format, Grid, emit, now_us, number};

/// Results of one job over a span.
#[derive(Debug, Serialize)]
struct JobReport {
    job: String,
    /// Minutes with results.
    n_minutes: usize,
    from_us: i64,
    to_us: i64,
    #[serde(flatten)]
    span: Span,
    #[serde(skip)]
    total: Minute,
}

pub(super) fn run(format: Format, folder: &Path, args: &ReportArgs) -> anyhow::Result<()> {
    let reports = collect(folder, args, now_us())?;
    if reports.is_empty() && is_writing(folder, args.job.as_deref()) {
        let wait_s = (MINUTE_US - now_us().rem_euclid(MINUTE_US)) / 1_000_000 + 2;
        let message = format!("no whole minute of results yet; come back in {wait_s} s");
        return emit(format, &reports, || message);
    }
    if reports.is_empty() {
        let message = format!(
            "no whole minute of results in {}; is `koi load` running?",
            folder.display()
        );
        return Err(Failure::new(ExitCode::NotFound, message).into());
    }
    emit(format, &reports, || text(&reports))
}

/// Time in which a running load writes its summary at least once.
const SUMMARY_AGE: Duration = Duration::from_secs(10);

/// True when a load has just written the summary of this job, or of any.
fn is_writing(folder: &Path, job: Option<&str>) -> bool {
    let is_summary = |path: &Path| {
        let name = path.file_stem().and_then(|s| s.to_str());
        path.extension().is_some_and(|e| e == "json") && job.is_none_or(|j| name == Some(j))
    };
    let is_young = |path: &Path| {
        let written = std::fs::metadata(path).and_then(|m| m.modified());
        written.is_ok_and(|at| at.elapsed().map_or(true, |age| age < SUMMARY_AGE))
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut paths = entries.filter_map(Result::ok).map(|e| e.path());
    paths.any(|p| is_summary(&p) && is_young(&p))
}

fn collect(folder: &Path, args: &ReportArgs, now: i64) -> anyhow::Result<Vec<JobReport>> {
    let mut jobs: Vec<String> = std::fs::read_dir(folder)
        .map(|entries| {
            entries
                .filter_map(Result::ok)
                .filter(|e| e.path().is_dir())
                .filter_map(|e| e.file_name().into_string().ok())
                .collect()
        })
        .unwrap_or_default();
    jobs.sort();
    jobs.retain(|j| args.job.as_ref().is_none_or(|asked| asked == j));
    let mut reports = vec![];
    for job in jobs {
        let minutes = minutes::newest(&folder.join(&job), args.minutes, now)?;
        let (Some(first), Some(last)) = (minutes.first(), minutes.last()) else {
            continue;
        };
        let (from_us, to_us) = (first.start_us, last.start_us + MINUTE_US);
        let mut total = Minute::default();
        minutes.iter().for_each(|m| total.add(m));
        let span = Span::from(&total);
        reports.push(JobReport {
            job,
            n_minutes: minutes.len(),
            from_us,
            to_us,
            span,
            total,
        });
    }
    Ok(reports)
}

/// Raw over bucketed, as a signed percentage.
fn difference(q: &Quantiles) -> String {
    match (q.p99_ms, q.raw_p99_ms) {
        (Some(buckets), Some(raw)) if raw > 0.0 => {
            format!("{:+.1}%", 100.0 * (buckets - raw) / raw)
        }
        _ => "-".to_owned(),
    }
}

fn text(reports: &[JobReport]) -> String {
    let mut grid = Grid::new(&[
        "JOB", "MIN", "SENT", "DONE", "FAILED", "RETRIED", "req/s", "TTFT p50", "p99", "raw p99",
        "diff", "TPOT p50", "p99", "raw p99", "diff",
    ]);
    for r in reports {
        let (ttft, tpot, seconds) = (&r.span.ttft, &r.span.tpot, r.n_minutes as f64 * 60.0);
        grid.row([
            r.job.clone(),
            r.n_minutes.to_string(),
            r.total.sent.to_string(),
            r.total.finished.to_string(),
            r.total.n_failed().to_string(),
            r.total.retried.to_string(),
            number(Some(r.total.sent as f64 / seconds), 2),
            number(ttft.p50_ms, 1),
            number(ttft.p99_ms, 1),
            number(ttft.raw_p99_ms, 1),
            difference(ttft),
            number(tpot.p50_ms, 2),
            number(tpot.p99_ms, 2),
            number(tpot.raw_p99_ms, 2),
            difference(tpot),
        ]);
    }
    let table = grid
        .numbers(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14])
        .text();
    let kinds: Vec<String> = reports
        .iter()
        .filter(|r| r.total.n_failed() > 0)
        .map(|r| {
            let kinds: Vec<String> = r
                .total
                .failed
                .iter()
                .map(|(kind, n)| format!("{kind} {n}"))
                .collect();
            format!("failed of {}: {}", r.job, kinds.join(", "))
        })
        .collect();
    let note =
        "milliseconds; p50 and p99 through the engine's bucket edges, raw p99 of the samples";
    std::iter::once(table)
        .chain(kinds)
        .chain([note.to_owned()])
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_minute_of_a_running_load_is_no_failure() {
        let dir = std::env::temp_dir().join(format!("koi-report-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("chat")).unwrap();
        let report = |job: Option<&str>| {
            let args = ReportArgs {
                minutes: 5,
                job: job.map(str::to_owned),
                from: None,
            };
            run(Format::Json, &dir, &args)
        };
        assert!(report(None).is_err(), "nobody writes");
        let summary = dir.join("chat.json");
        std::fs::write(&summary, "{}").unwrap();
        report(None).unwrap();
        report(Some("chat")).unwrap();
        assert!(report(Some("rag")).is_err(), "another job");
        let long_ago = std::time::SystemTime::now() - 2 * SUMMARY_AGE;
        let file = std::fs::File::options().write(true).open(&summary).unwrap();
        file.set_modified(long_ago).unwrap();
        assert!(report(None).is_err(), "the load has ended");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
