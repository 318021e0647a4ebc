//! The part of a start that concerns jobs: submit them, load them, wait until they run.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use koi_proto::v1;
use tokio::time::Instant;

use super::cluster::Cluster;
use super::plan::Plan;
use super::startup::{LOOK, Steps};
use super::state::Role;
use super::supervise::{ChildSpec, keep};
use crate::client::{Client, idempotency_key};
use crate::commands::{Submission, list_all_jobs, submit_spec};
use crate::job_file::{JobFile, read_text};
use crate::load::settings;
use crate::paths::DataDir;
use crate::secrets::write_whole;

/// Largest endpoint file that is looked at.
const MAX_ENDPOINT_FILE_BYTES: usize = 1 << 20;

/// Submits every job and asks for a tick.
pub(super) async fn submit(
    cluster: &Cluster,
    client: &Client,
    jobs: &[JobFile],
    steps: &mut Steps<'_>,
) -> anyhow::Result<()> {
    let (mut accepted, mut kept) = (vec![], vec![]);
    for job in jobs {
        let name = job.spec.name.to_string();
        match submit_spec(client, job, idempotency_key()).await? {
            Submission::Accepted(_) => accepted.push(name),
            Submission::Exists => kept.push(name),
        }
    }
    let list = |names: &[String]| {
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    let kept = if kept.is_empty() {
        String::new()
    } else {
        format!("; already there: {}", list(&kept))
    };
    steps.done(&format!("jobs submitted: {}{kept}", list(&accepted)));
    if !jobs.is_empty() {
        // Jobs need not wait for the next tick; where a tick runs already, it will see them or the next.
        let request = v1::RunTickRequest {
            idempotency_key: idempotency_key(),
        };
        if let Err(status) = client.ticks().run_tick(request).await {
            cluster.events.say(&format!(
                "no tick was forced ({}); the next one plans the jobs",
                status.message()
            ));
        }
    }
    Ok(())
}

/// Starts the load generator.
pub(super) fn start_load(
    cluster: &Arc<Cluster>,
    plan: &Plan,
    koi: &Path,
    steps: &mut Steps<'_>,
) -> anyhow::Result<()> {
    if plan.load.is_empty() {
        steps.done("no load");
        return Ok(());
    }
    let config = cluster.data.join("load.toml");
    write_whole(&config, settings::text(&plan.load)?.as_bytes(), 0o600)?;
    let mut args = vec!["load".into(), "--config".into(), config.into_os_string()];
    args.extend([
        "--endpoints-dir".into(),
        cluster.data.endpoints().into_os_string(),
    ]);
    args.extend(["--out".into(), cluster.data.load().into_os_string()]);
    keep(
        cluster,
        ChildSpec {
            name: "load".into(),
            role: Role::Load,
            program: koi.to_path_buf(),
            args,
        },
    );
    let names: Vec<&str> = plan.load.iter().map(|l| l.name.as_str()).collect();
    steps.done(&format!("load generator for {}", names.join(", ")));
    Ok(())
}

/// True when gateways see an endpoint of the job.
fn has_endpoint(data: &DataDir, job: &str) -> bool {
    let path = data.endpoints().join(format!("{job}.json"));
    let text = read_text(&path, MAX_ENDPOINT_FILE_BYTES).unwrap_or_default();
    let file: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    file["endpoints"]
        .as_array()
        .is_some_and(|list| !list.is_empty())
}

/// Waits for running jobs, saying which run; a job that waits is news, not a failure.
pub(super) async fn wait_running(
    cluster: &Cluster,
    client: &Client,
    plan: &Plan,
    wait_s: u32,
    steps: &mut Steps<'_>,
) {
    let deadline = Instant::now() + Duration::from_secs(u64::from(wait_s));
    let mut waiting: Vec<String> = plan.jobs.iter().map(|j| j.spec.name.to_string()).collect();
    let mut reasons = String::new();
    while !waiting.is_empty() && Instant::now() < deadline {
        let jobs = list_all_jobs(client, false).await.unwrap_or_default();
        let name = |j: &v1::Job| j.spec.as_ref().map(|s| s.name.clone()).unwrap_or_default();
        let is_ready = |j: &v1::Job| {
            let serves = |r: &v1::Replica| r.phase == "ready" && r.role == "serve";
            // What is stored may be an old word from before a restart; the endpoint file is not.
            j.replicas.iter().any(serves) && has_endpoint(&cluster.data, &name(j))
        };
        for job in jobs
            .iter()
            .filter(|j| is_ready(j) && waiting.contains(&name(j)))
        {
            cluster.events.say(&format!(
                "      {} runs after {:.1} s",
                name(job),
                steps.seconds()
            ));
        }
        waiting.retain(|w| !jobs.iter().any(|j| is_ready(j) && name(j) == *w));
        let reason = |w: &String| {
            let job = jobs.iter().find(|j| name(j) == *w);
            let why = job.map_or_else(
                || "unknown".to_owned(),
                |j| format!("{} {} {}", j.state, j.state_reason, j.note),
            );
            format!("{w} ({})", why.trim())
        };
        reasons = waiting.iter().map(reason).collect::<Vec<_>>().join("; ");
        tokio::time::sleep(LOOK * 2).await;
    }
    if waiting.is_empty() {
        steps.done(&format!("{} jobs run", plan.jobs.len()));
    } else {
        steps.done(&format!("still waiting: {reasons}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_runs_once_gateways_see_an_endpoint() {
        let dir = std::env::temp_dir().join(format!("koi-up-jobs-{}", std::process::id()));
        let data = DataDir::resolve(Some(&dir));
        std::fs::create_dir_all(data.endpoints()).unwrap();
        assert!(!has_endpoint(&data, "chat"));
        for (text, expected) in [
            (r#"{"endpoints": []}"#, false),
            ("{ half", false),
            (r#"{"endpoints": [{"port": 1}]}"#, true),
        ] {
            std::fs::write(data.endpoints().join("chat.json"), text).unwrap();
            assert_eq!(has_endpoint(&data, "chat"), expected, "{text}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
