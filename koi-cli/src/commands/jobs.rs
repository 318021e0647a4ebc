//! `koi jobs` and `koi cancel`.

use koi_proto::v1;

use super::Context;
use super::values::{against, ladder, named};
use crate::client::{Client, idempotency_key};
use crate::output::{Grid, age, emit, number};

/// Pages read at most, so that a broken server cannot keep the command busy for ever.
const MAX_PAGES: usize = 100;
const PAGE_SIZE: u32 = 500;

/// Every job, page by page.
///
/// # Errors
/// A [`crate::failure::Failure`].
pub async fn list_all(client: &Client, include_finished: bool) -> anyhow::Result<Vec<v1::Job>> {
    let (mut jobs, mut token) = (vec![], String::new());
    for _ in 0..MAX_PAGES {
        let page = Some(v1::PageRequest {
            size: PAGE_SIZE,
            token,
        });
        let request = v1::ListJobsRequest {
            page,
            include_finished,
        };
        let reply = client.answer(client.jobs().list_jobs(request).await)?;
        jobs.extend(reply.jobs);
        token = reply.page.unwrap_or_default().next_token;
        if token.is_empty() {
            break;
        }
    }
    Ok(jobs)
}

pub(super) async fn run(context: &Context, all: bool) -> anyhow::Result<()> {
    let jobs = list_all(&context.client, all).await?;
    emit(context.format, &jobs, || {
        if jobs.is_empty() {
            return "no jobs; submit one with `koi submit configs/jobs/chat.yaml`".to_owned();
        }
        job_grid(&jobs)
    })
}

/// The table of jobs.
#[must_use]
pub fn job_grid(jobs: &[v1::Job]) -> String {
    let mut grid = Grid::new(&[
        "JOB",
        "CLASS",
        "STATE",
        "READY",
        "LADDER",
        "TTFT p99 ms",
        "TPOT p99 ms",
        "IN SLO",
        "tok/s",
        "USD/h",
        "AGE",
        "NOTE",
    ]);
    for job in jobs {
        grid.row(row(job));
    }
    grid.numbers(&[3, 5, 6, 7, 8, 9, 10]).text()
}

fn row(job: &v1::Job) -> [String; 12] {
    let spec = job.spec.clone().unwrap_or_default();
    let slo = spec.slo.unwrap_or_default();
    let measured = job.measured.clone().unwrap_or_default();
    let outcome = |name| named(&measured.outcomes, name);
    let active = job.active.as_ref();
    let ready = job
        .replicas
        .iter()
        .filter(|r| r.phase == "ready" && r.role == "serve")
        .count();
    let wanted = active
        .and_then(|a| a.ladder.as_ref())
        .map_or(0, |l| l.ranks.iter().map(|r| r.n_replicas).sum());
    [
        spec.name,
        spec.class,
        job.state.clone(),
        format!("{ready}/{wanted}"),
        ladder(active.and_then(|a| a.ladder.as_ref())),
        against(outcome("p99_ttft_ms"), slo.p99_ttft_ms, 0),
        against(outcome("p99_tpot_ms"), slo.p99_tpot_ms, 1),
        inside(&measured),
        number(outcome("throughput_tokens_per_sec"), 0),
        number(active.and_then(|a| a.usd_per_hour), 2),
        age(job.submitted_at_us),
        note(job),
    ]
}

/// Windows inside the SLO over windows judged.
pub(super) fn inside(measured: &v1::Measured) -> String {
    match measured.n_windows_judged {
        0 => "-".to_owned(),
        n => format!(
            "{:.0}% of {n}",
            100.0 * f64::from(measured.n_windows_inside) / f64::from(n)
        ),
    }
}

fn note(job: &v1::Job) -> String {
    let rollout = job.rollout.as_ref().map(|r| {
        format!(
            "{} {}",
            r.kind,
            ladder(r.target.as_ref().and_then(|t| t.ladder.as_ref()))
        )
    });
    let is_down = |r: &&v1::Replica| r.phase != "ready" && !r.failure.is_empty();
    let failure = job.replicas.iter().find(is_down);
    let parts = [
        failure.map_or_else(String::new, |r| format!("{}: {}", r.replica_id, r.failure)),
        rollout.unwrap_or_default(),
        job.state_reason.clone(),
        job.note.clone(),
    ];
    let text = parts
        .into_iter()
        .filter(|p| !p.is_empty())
        .collect::<Vec<_>>()
        .join("; ");
    let cut: String = text.chars().take(70).collect();
    if cut.len() < text.len() {
        format!("{cut}…")
    } else {
        text
    }
}

pub(super) async fn cancel(context: &Context, job: &str, reason: &str) -> anyhow::Result<()> {
    let request = v1::CancelJobRequest {
        idempotency_key: idempotency_key(),
        job: job.to_owned(),
        reason: reason.to_owned(),
    };
    let reply = context
        .client
        .answer(context.client.jobs().cancel_job(request).await)?;
    emit(context.format, &reply, || {
        format!(
            "cancelled {}; replicas that it still has are drained",
            reply.job_id
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_without_measurements_shows_dashes() {
        let spec = v1::JobSpec {
            name: "chat\u{1b}[2J".into(),
            slo: Some(v1::SloSpec {
                p99_ttft_ms: Some(2000.0),
                ..Default::default()
            }),
            ..Default::default()
        };
        let job = v1::Job {
            spec: Some(spec),
            state: "waiting".into(),
            ..Default::default()
        };
        let text = job_grid(&[job]);
        assert!(text.contains("-/2000") && text.contains("0/0"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
