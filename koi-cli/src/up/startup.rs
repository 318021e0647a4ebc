//! The start, step by step, each with a line. What can be wrong with the input was found before
//! (`plan.rs`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use koi_core::violation::FieldViolation;
use koi_proto::v1;
use tokio::time::Instant;

use super::cluster::Cluster;
use super::plan::Plan;
use super::state::{Role, UpState};
use super::supervise::{ChildSpec, adopt_orphans, keep, log_of, tail};
use super::{binaries, files, ports, shutdown};
use crate::args::UpArgs;
use crate::client::{Client, Target, idempotency_key};
use crate::commands::{Submission, list_all_jobs, submit_spec};
use crate::failure::{ExitCode, Failure};
use crate::job_file::JobFile;
use crate::load::settings;
use crate::secrets::{read_token, write_whole};

/// Steps of a start.
const N_STEPS: u32 = 8;
/// How long server and agents may take.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// A child that ended so often during the start will not come up.
const HOPELESS_EXITS: u32 = 4;
/// Time between looks.
const LOOK: Duration = Duration::from_millis(200);

/// Says a step and how long it took.
struct Steps<'a> {
    cluster: &'a Cluster,
    n: u32,
    started: Instant,
}

impl Steps<'_> {
    fn done(&mut self, what: &str) {
        self.n += 1;
        let line = format!("[{}/{N_STEPS}] {what} ({:.1} s)", self.n, self.started.elapsed().as_secs_f64());
        self.cluster.events.say(&line);
        self.cluster.update(|state| state.stage = what.to_owned());
        self.started = Instant::now();
    }
}

/// Executables of a cluster.
struct Programs {
    server: PathBuf,
    agent: PathBuf,
    koi: PathBuf,
}

async fn programs() -> anyhow::Result<Programs> {
    let server = binaries::find_same_build("koi-server").await?;
    let agent = binaries::find_same_build("koi-agent").await?;
    // Not started here, but an agent that misses them would fail later and less clearly.
    for name in ["koi-shim", "koi-engine-sim"] {
        binaries::find_same_build(name).await?;
    }
    Ok(Programs { server, agent, koi: std::env::current_exe()? })
}

/// Runs every step.
pub(super) async fn run(cluster: Arc<Cluster>, plan: &Plan, args: &UpArgs) -> anyhow::Result<()> {
    if args.in_background {
        // Already a session leader where a shell made it one.
        rustix::process::setsid().ok();
    }
    let mut steps = Steps { cluster: &cluster, n: 0, started: Instant::now() };
    let programs = programs().await?;
    steps.done("binaries of one build");
    if let Some(leftover) = &cluster.leftover {
        clear(&cluster, leftover).await?;
    }
    let written = write_files(&cluster, plan, args)?;
    steps.done(&format!("{} hosts of {} in {}", plan.fleet.hosts.len(), plan.fleet_path.display(), cluster.data.path().display()));
    adopt_orphans(&cluster);
    let has_own_database = std::env::var_os("KOI_DATABASE_URL").is_some();
    if !has_own_database {
        keep(&cluster, postgres(&cluster, &programs));
    }
    steps.done(if has_own_database { "database of KOI_DATABASE_URL" } else { "private Postgres started" });
    let config = |path: &PathBuf| ["--config".into(), path.clone().into_os_string()];
    let mut args_of_server = vec!["serve".into()];
    args_of_server.extend(config(&written.server));
    keep(&cluster, ChildSpec { name: "server".into(), role: Role::Server, program: programs.server.clone(), args: args_of_server });
    let client = client(&cluster)?;
    wait_for(&cluster, &client, "the server", &["postgres", "server"], |s| s.database_ok).await?;
    steps.done(&format!("server and database ready at {}", cluster.state().server));
    for (host, path) in &written.agents {
        let name = format!("agent-{host}");
        keep(&cluster, ChildSpec { name, role: Role::Agent, program: programs.agent.clone(), args: config(path).to_vec() });
    }
    let n_hosts = written.agents.len() as u32;
    let names: Vec<String> = written.agents.iter().map(|(host, _)| format!("agent-{host}")).collect();
    let mut watched: Vec<&str> = names.iter().map(String::as_str).collect();
    watched.push("server");
    wait_for(&cluster, &client, "the agents", &watched, |s| s.n_nodes_alive >= n_hosts).await?;
    steps.done(&format!("{n_hosts} agents connected"));
    submit(&cluster, &client, &plan.jobs, &mut steps).await?;
    start_load(&cluster, plan, &programs, &mut steps)?;
    wait_running(&cluster, &client, plan, args, &mut steps).await;
    cluster.update(|state| state.is_started = true);
    Ok(())
}

async fn clear(cluster: &Cluster, leftover: &UpState) -> anyhow::Result<()> {
    cluster.events.say("a supervisor was killed here; stopping what it left");
    let left = shutdown::stop_all(&cluster.data, leftover, &|line| cluster.events.say(line)).await;
    if left.is_empty() {
        return Ok(());
    }
    let pids: Vec<String> = left.iter().map(|p| p.pid.to_string()).collect();
    Err(Failure::new(ExitCode::Conflict, format!("processes of an earlier run do not end: {}", pids.join(", "))).into())
}

fn write_files(cluster: &Cluster, plan: &Plan, args: &UpArgs) -> anyhow::Result<files::Written> {
    let listen = ports::server(args.listen)?;
    let input = files::Input {
        data: &cluster.data,
        fleet: &plan.fleet,
        listen,
        tick_interval_s: args.tick_interval.as_secs(),
        database_url: std::env::var("KOI_DATABASE_URL").unwrap_or_else(|_| files::private_database(&cluster.data)),
    };
    let written = files::write(&input)?;
    let settings: Vec<PathBuf> = written.agents.iter().map(|(_, path)| path.clone()).collect();
    cluster.update(|state| {
        state.agent_settings = settings;
        state.server = format!("http://{listen}");
    });
    Ok(written)
}

fn postgres(cluster: &Cluster, programs: &Programs) -> ChildSpec {
    let folder = cluster.data.path().as_os_str().to_owned();
    ChildSpec {
        name: "postgres".into(),
        role: Role::Postgres,
        program: programs.server.clone(),
        args: vec!["postgres".into(), "--data-dir".into(), folder],
    }
}

/// A client of this cluster's server, whatever the environment names.
pub(super) fn client(cluster: &Cluster) -> anyhow::Result<Client> {
    let target = Target {
        server: cluster.state().server,
        token: Some(read_token(&cluster.data.join("token"))?),
        ca: None,
        timeout: Duration::from_secs(10),
    };
    Client::lazy(&target)
}

/// Waits until the server's status is as wanted; gives up early when a child cannot come up.
async fn wait_for(
    cluster: &Cluster,
    client: &Client,
    what: &str,
    children: &[&str],
    wanted: impl Fn(&v1::GetStatusReply) -> bool,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let reply = client.admin().get_status(v1::GetStatusRequest {}).await;
        let problem = match reply.map(tonic::Response::into_inner) {
            Ok(status) if wanted(&status) => return Ok(()),
            Ok(status) => format!(
                "{} of {} nodes alive, database {}",
                status.n_nodes_alive,
                status.n_nodes,
                if status.database_ok { "ok" } else { &status.database_error }
            ),
            Err(status) => status.message().to_owned(),
        };
        let hopeless = children.iter().find(|name| cluster.n_exits(name) >= HOPELESS_EXITS);
        if hopeless.is_none() && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        let name = hopeless.or(children.last()).copied().unwrap_or("server");
        let log = log_of(&cluster.data.logs(), name);
        let message = format!("{what} did not come up: {problem}; the last lines of {}:", log.display());
        let violations = tail(&log, 12)
            .lines()
            .map(|line| FieldViolation { field: String::new(), message: line.to_owned() })
            .collect();
        return Err(Failure { code: ExitCode::Failed, message, violations }.into());
    }
}

async fn submit(cluster: &Cluster, client: &Client, jobs: &[JobFile], steps: &mut Steps<'_>) -> anyhow::Result<()> {
    let (mut accepted, mut kept) = (vec![], vec![]);
    for job in jobs {
        let name = job.spec.name.to_string();
        match submit_spec(client, job, idempotency_key()).await? {
            Submission::Accepted(_) => accepted.push(name),
            Submission::Exists => kept.push(name),
        }
    }
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let kept = if kept.is_empty() { String::new() } else { format!("; already there: {}", list(&kept)) };
    steps.done(&format!("jobs submitted: {}{kept}", list(&accepted)));
    if !jobs.is_empty() {
        // Jobs need not wait for the next tick; where a tick runs already, it will see them or the next.
        let request = v1::RunTickRequest { idempotency_key: idempotency_key() };
        if let Err(status) = client.ticks().run_tick(request).await {
            cluster.events.say(&format!("no tick was forced ({}); the next one plans the jobs", status.message()));
        }
    }
    Ok(())
}

fn start_load(cluster: &Arc<Cluster>, plan: &Plan, programs: &Programs, steps: &mut Steps<'_>) -> anyhow::Result<()> {
    if plan.load.is_empty() {
        steps.done("no load");
        return Ok(());
    }
    let config = cluster.data.join("load.toml");
    write_whole(&config, settings::text(&plan.load)?.as_bytes(), 0o600)?;
    let mut args = vec!["load".into(), "--config".into(), config.into_os_string()];
    args.extend(["--endpoints-dir".into(), cluster.data.endpoints().into_os_string()]);
    args.extend(["--out".into(), cluster.data.load().into_os_string()]);
    keep(cluster, ChildSpec { name: "load".into(), role: Role::Load, program: programs.koi.clone(), args });
    let names: Vec<&str> = plan.load.iter().map(|l| l.name.as_str()).collect();
    steps.done(&format!("load generator for {}", names.join(", ")));
    Ok(())
}

/// Waits for running jobs, saying which run; a job that waits is news, not a failure.
async fn wait_running(cluster: &Cluster, client: &Client, plan: &Plan, args: &UpArgs, steps: &mut Steps<'_>) {
    let deadline = Instant::now() + Duration::from_secs(u64::from(args.wait_s));
    let mut waiting: Vec<String> = plan.jobs.iter().map(|j| j.spec.name.to_string()).collect();
    let mut reasons = String::new();
    while !waiting.is_empty() && Instant::now() < deadline {
        let jobs = list_all_jobs(client, false).await.unwrap_or_default();
        let name = |j: &v1::Job| j.spec.as_ref().map(|s| s.name.clone()).unwrap_or_default();
        let is_ready = |j: &v1::Job| j.replicas.iter().any(|r| r.phase == "ready");
        for job in jobs.iter().filter(|j| is_ready(j) && waiting.contains(&name(j))) {
            cluster.events.say(&format!("      {} runs after {:.1} s", name(job), steps.started.elapsed().as_secs_f64()));
        }
        waiting.retain(|w| !jobs.iter().any(|j| is_ready(j) && name(j) == *w));
        let reason = |w: &String| {
            let job = jobs.iter().find(|j| name(j) == *w);
            let why = job.map_or_else(|| "unknown".to_owned(), |j| format!("{} {} {}", j.state, j.state_reason, j.note));
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
