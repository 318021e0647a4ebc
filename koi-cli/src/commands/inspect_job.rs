//! `koi inspect job`.

use koi_proto::v1;

use super::Context;
use super::jobs::inside;
use super::values::{ladder_lines, pairs, short, sigma_terms};
use crate::args::InspectArgs;
use crate::output::{Grid, age, emit, escape, number};

pub(super) async fn run(context: &Context, name: &str, args: &InspectArgs) -> anyhow::Result<()> {
    let request = v1::GetJobRequest {
        job: name.to_owned(),
        over_seconds: args.over.map_or(0, |t| t.as_secs() as u32),
        until_us: args.until_us.unwrap_or(0),
    };
    let reply = context
        .client
        .answer(context.client.jobs().get_job(request).await)?;
    let job = reply.job.unwrap_or_default();
    emit(context.format, &job, || text(&job))
}

/// Everything known about a job, as lines.
pub(super) fn text(job: &v1::Job) -> String {
    let mut out = head(job);
    if let Some(active) = &job.active {
        out.push(format!(
            "ladder     generation {}, {} USD/h",
            active.generation,
            number(active.usd_per_hour, 2)
        ));
        out.push(ladder_lines(active.ladder.as_ref(), "  "));
        out.extend(
            active
                .sigma
                .as_ref()
                .map(|s| format!("  {}", sigma_terms(s))),
        );
        out.push(format!("  predicted  {}", pairs(&active.outcomes)));
        for (i, p) in active.rank_predictions.iter().enumerate() {
            let saturated = if p.saturated { ", saturated" } else { "" };
            out.push(format!(
                "  rank {i}     limited by {}{saturated}; capacity {} req/s a replica",
                p.limited_by,
                short(p.capacity_rps)
            ));
        }
    }
    if let Some(r) = &job.rollout {
        out.push(format!("rollout    {}: {}", r.kind, r.reason));
        out.push(ladder_lines(
            r.target.as_ref().and_then(|t| t.ladder.as_ref()),
            "  ",
        ));
    }
    out.extend(job.measured.as_ref().map(measured));
    let mut text = out
        .iter()
        .flat_map(|block| block.lines())
        .map(escape)
        .collect::<Vec<_>>()
        .join("\n");
    if !job.replicas.is_empty() {
        text.push_str("\n\n");
        text.push_str(&replicas(&job.replicas));
    }
    text
}

fn head(job: &v1::Job) -> Vec<String> {
    let spec = job.spec.clone().unwrap_or_default();
    let model = spec.model.unwrap_or_default();
    let slo = spec.slo.unwrap_or_default();
    let workload = spec.workload.unwrap_or_default();
    let lengths = |l: Option<&v1::LengthStats>| number(l.and_then(|l| l.mean), 0);
    let promise = if spec.class == "batch" {
        let budget = slo
            .total_token_budget
            .map_or_else(|| "-".to_owned(), |n| n.to_string());
        let left = slo
            .deadline_at_us
            .map(|at| (at - crate::output::now_us()) as f64 / 3.6e9);
        format!("{budget} tokens, {} h left", number(left, 2))
    } else {
        format!(
            "p99 TTFT {} ms, p99 TPOT {} ms",
            number(slo.p99_ttft_ms, 0),
            number(slo.p99_tpot_ms, 0)
        )
    };
    let reason = if job.state_reason.is_empty() {
        String::new()
    } else {
        format!(" ({})", job.state_reason)
    };
    let mut out = vec![
        format!("job        {} ({})", spec.name, job.job_id),
        format!(
            "state      {}{reason}, submitted {} ago, waited {} ticks",
            job.state,
            age(job.submitted_at_us),
            job.ticks_waited
        ),
        format!(
            "model      {} on {}",
            model.id,
            if spec.engine.is_empty() {
                "-"
            } else {
                &spec.engine
            }
        ),
        format!(
            "workload   {} req/s {}, prompts {} tokens, answers {} tokens",
            number(workload.arrival_rate_rps, 2),
            workload.arrival_pattern,
            lengths(workload.isl.as_ref()),
            lengths(workload.osl.as_ref())
        ),
        format!("promise    {}: {promise}", spec.class),
    ];
    if !job.note.is_empty() {
        out.push(format!("note       {}", job.note));
    }
    out
}

fn measured(m: &v1::Measured) -> String {
    let span = crate::output::span((m.to_us - m.from_us) as f64 / 1e6);
    let means = if m.mean_based.is_empty() {
        String::new()
    } else {
        format!(
            "\n  means, for want of requests: {}",
            m.mean_based.join(", ")
        )
    };
    format!(
        "measured   {} requests over {span}, inside the SLO {}\n  {}\n  {}{means}",
        m.n_requests,
        inside(m),
        pairs(&m.outcomes),
        pairs(&m.mediators)
    )
}

fn replicas(replicas: &[v1::Replica]) -> String {
    let mut grid = Grid::new(&[
        "REPLICA", "HOST", "GPUS", "ROLE", "PHASE", "ENDPOINT", "STARTS", "FAILURE",
    ]);
    for r in replicas {
        let endpoint = r
            .endpoint
            .as_ref()
            .map_or_else(|| "-".to_owned(), |e| format!("{}:{}", e.address, e.port));
        grid.row([
            r.replica_id.clone(),
            r.host.clone(),
            r.gpu_uuids.join(","),
            r.role.clone(),
            r.phase.clone(),
            endpoint,
            r.n_starts.to_string(),
            r.failure.clone(),
        ]);
    }
    grid.text()
}
