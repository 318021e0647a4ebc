//! The start, step by step, each with a line: everything that can be wrong with the input is found
//! before the first process starts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use koi_core::job::JobClass;
use koi_core::time::UtcMicros;
use koi_core::violation::{FieldViolation, Violations};
use koi_proto::v1;
use tokio::time::Instant;

use super::cluster::Cluster;
use super::state::{Role, UpState};
use super::supervise::{ChildSpec, adopt_orphans, keep, log_of, tail};
use super::{binaries, files, ports, shutdown};
use crate::args::UpArgs;
use crate::client::{Client, Target, idempotency_key};
use crate::commands::{Submission, list_all_jobs, submit_spec};
use crate::failure::{ExitCode, Failure};
use crate::fleet::{self, Fleet};
use crate::job_file::{self, Changes, JobFile};
use crate::load::settings::{self, JobLoad, Pace};
use crate::output::now_us;
use crate::paths::shipped;
use crate::secrets::{read_token, write_whole};

/// Steps of a start.
const N_STEPS: u32 = 8;
/// How long server and agents may take.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// A child that ended so often during the start will not come up.
const HOPELESS_EXITS: u32 = 4;
/// Time between looks.
const LOOK: Duration = Duration::from_millis(200);

/// Everything that a start needs, read and checked.
pub(super) struct Plan {
    fleet: Fleet,
    fleet_path: PathBuf,
    jobs: Vec<JobFile>,
    load: Vec<JobLoad>,
}

impl Plan {
    /// Reads fleet, jobs and load settings; every problem of every file is reported.
    pub(super) fn read(args: &UpArgs) -> anyhow::Result<Self> {
        let fleet_path = args
            .fleet
            .clone()
            .unwrap_or_else(|| shipped("fleets/demo.toml"));
        let mut bad = Violations::default();
        let fleet = gather("", fleet::read(&fleet_path), &mut bad)?;
        let jobs = if args.no_jobs {
            vec![]
        } else {
            read_jobs(args, &mut bad)?
        };
        let load = if args.no_load || args.no_jobs {
            vec![]
        } else {
            read_load(args, &jobs, &mut bad)?
        };
        match (fleet, bad.is_empty()) {
            (Some(fleet), true) => Ok(Self {
                fleet,
                fleet_path,
                jobs,
                load,
            }),
            _ => Err(Failure::invalid("koi up", bad.into_vec()).into()),
        }
    }
}

/// Takes refused input apart into its problems; other errors end the start.
fn gather<T>(
    prefix: &str,
    result: anyhow::Result<T>,
    bad: &mut Violations,
) -> anyhow::Result<Option<T>> {
    match result.map_err(|e| e.downcast::<Failure>()) {
        Ok(value) => Ok(Some(value)),
        Err(Ok(failure)) if failure.code == ExitCode::Invalid && !failure.violations.is_empty() => {
            let file = failure.message.split(": ").next().unwrap_or_default();
            let file = if prefix.is_empty() { file } else { prefix };
            let rename = |v: FieldViolation| FieldViolation {
                field: format!("{file}: {}", v.field),
                ..v
            };
            for v in failure.violations.into_iter().map(rename) {
                bad.add(v.field, v.message);
            }
            Ok(None)
        }
        Err(Ok(failure)) => Err(failure.into()),
        Err(Err(error)) => Err(error),
    }
}

fn read_jobs(args: &UpArgs, bad: &mut Violations) -> anyhow::Result<Vec<JobFile>> {
    let folder = args.jobs.clone().unwrap_or_else(|| shipped("jobs"));
    let entries = std::fs::read_dir(&folder).map_err(|e| {
        Failure::new(
            ExitCode::NotFound,
            format!("job files: {}: {e}", folder.display()),
        )
    })?;
    let is_job = |p: &PathBuf| {
        p.extension()
            .is_some_and(|e| e == "yaml" || e == "yml" || e == "json")
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|e| e.path())
        .filter(is_job)
        .collect();
    paths.sort();
    let mut jobs = vec![];
    for path in paths {
        let read = job_file::read(&path, &Changes::default(), UtcMicros(now_us()));
        jobs.extend(gather("", read, bad)?);
    }
    Ok(jobs)
}

/// The load settings, with the traces that the options replace.
fn read_load(
    args: &UpArgs,
    jobs: &[JobFile],
    bad: &mut Violations,
) -> anyhow::Result<Vec<JobLoad>> {
    let path = args
        .load
        .clone()
        .unwrap_or_else(|| shipped("traces/load.toml"));
    let Some(mut load) = gather("", settings::read(&path), bad)? else {
        return Ok(vec![]);
    };
    load.retain(|l| jobs.iter().any(|j| j.spec.name == l.name));
    for option in &args.trace {
        if let Err(problem) = replace_trace(option, jobs, &mut load) {
            bad.add("--trace", problem);
        }
    }
    for entry in load.iter().filter(|l| !l.trace.is_file()) {
        bad.add(
            "trace",
            format!("{} for {} is not a file", entry.trace.display(), entry.name),
        );
    }
    Ok(load)
}

/// Applies `JOB=FILE` or `FILE`; a replaced trace is played at the rate that the job states.
fn replace_trace(option: &str, jobs: &[JobFile], load: &mut Vec<JobLoad>) -> Result<(), String> {
    let (names, trace) = if option.contains('=') {
        let (name, file) = settings::parse_job(option)?;
        if !jobs.iter().any(|j| j.spec.name == name) {
            return Err(format!("{name} is not one of the jobs to submit"));
        }
        (vec![name], file)
    } else {
        let online = jobs
            .iter()
            .filter(|j| j.spec.class == JobClass::Online)
            .map(|j| j.spec.name.clone());
        (online.collect(), PathBuf::from(option))
    };
    for name in names {
        let rate = jobs
            .iter()
            .find(|j| j.spec.name == name)
            .map(|j| j.spec.workload.arrival_rate_rps);
        let pace = match rate {
            Some(rate_rps) if rate_rps > 0.0 => Pace::Rate { rate_rps },
            Some(_) | None => Pace::Recorded { speed: 1.0 },
        };
        match load.iter_mut().find(|l| l.name == name) {
            Some(entry) => entry.trace.clone_from(&trace),
            None => load.push(JobLoad {
                name,
                trace: trace.clone(),
                pace,
                session_affinity: false,
                vocabulary: 30_000,
                max_context_tokens: None,
            }),
        }
    }
    Ok(())
}

/// Says a step and how long it took.
struct Steps<'a> {
    cluster: &'a Cluster,
    n: u32,
    started: Instant,
}

impl Steps<'_> {
    fn done(&mut self, what: &str) {
        self.n += 1;
        let line = format!(
            "[{}/{N_STEPS}] {what} ({:.1} s)",
            self.n,
            self.started.elapsed().as_secs_f64()
        );
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
    Ok(Programs {
        server,
        agent,
        koi: std::env::current_exe()?,
    })
}

/// Runs every step.
pub(super) async fn run(cluster: Arc<Cluster>, plan: &Plan, args: &UpArgs) -> anyhow::Result<()> {
    if args.in_background {
        // Already a session leader where a shell made it one.
        rustix::process::setsid().ok();
    }
    let mut steps = Steps {
        cluster: &cluster,
        n: 0,
        started: Instant::now(),
    };
    let programs = programs().await?;
    steps.done("binaries of one build");
    if let Some(leftover) = &cluster.leftover {
        clear(&cluster, leftover).await?;
    }
    let written = write_files(&cluster, plan, args)?;
    steps.done(&format!(
        "{} hosts of {} in {}",
        plan.fleet.hosts.len(),
        plan.fleet_path.display(),
        cluster.data.path().display()
    ));
    adopt_orphans(&cluster);
    let has_own_database = std::env::var_os("KOI_DATABASE_URL").is_some();
    if !has_own_database {
        keep(&cluster, postgres(&cluster, &programs));
    }
    steps.done(if has_own_database {
        "database of KOI_DATABASE_URL"
    } else {
        "private Postgres started"
    });
    let config = |path: &PathBuf| ["--config".into(), path.clone().into_os_string()];
    let mut args_of_server = vec!["serve".into()];
    args_of_server.extend(config(&written.server));
    keep(
        &cluster,
        ChildSpec {
            name: "server".into(),
            role: Role::Server,
            program: programs.server.clone(),
            args: args_of_server,
        },
    );
    let client = client(&cluster)?;
    wait_for(
        &cluster,
        &client,
        "the server",
        &["postgres", "server"],
        |s| s.database_ok,
    )
    .await?;
    steps.done(&format!(
        "server and database ready at {}",
        cluster.state().server
    ));
    for (host, path) in &written.agents {
        let name = format!("agent-{host}");
        keep(
            &cluster,
            ChildSpec {
                name,
                role: Role::Agent,
                program: programs.agent.clone(),
                args: config(path).to_vec(),
            },
        );
    }
    let n_hosts = written.agents.len() as u32;
    let names: Vec<String> = written
        .agents
        .iter()
        .map(|(host, _)| format!("agent-{host}"))
        .collect();
    let mut watched: Vec<&str> = names.iter().map(String::as_str).collect();
    watched.push("server");
    wait_for(&cluster, &client, "the agents", &watched, |s| {
        s.n_nodes_alive >= n_hosts
    })
    .await?;
    steps.done(&format!("{n_hosts} agents connected"));
    submit(&cluster, &client, &plan.jobs, &mut steps).await?;
    start_load(&cluster, plan, &programs, &mut steps)?;
    wait_running(&cluster, &client, plan, args, &mut steps).await;
    cluster.update(|state| state.is_started = true);
    Ok(())
}

async fn clear(cluster: &Cluster, leftover: &UpState) -> anyhow::Result<()> {
    cluster
        .events
        .say("a supervisor was killed here; stopping what it left");
    let left = shutdown::stop_all(&cluster.data, leftover, &|line| cluster.events.say(line)).await;
    if left.is_empty() {
        return Ok(());
    }
    let pids: Vec<String> = left.iter().map(|p| p.pid.to_string()).collect();
    Err(Failure::new(
        ExitCode::Conflict,
        format!(
            "processes of an earlier run do not end: {}",
            pids.join(", ")
        ),
    )
    .into())
}

fn write_files(cluster: &Cluster, plan: &Plan, args: &UpArgs) -> anyhow::Result<files::Written> {
    let listen = ports::server(args.listen)?;
    let input = files::Input {
        data: &cluster.data,
        fleet: &plan.fleet,
        listen,
        tick_interval_s: args.tick_interval.as_secs(),
        database_url: std::env::var("KOI_DATABASE_URL")
            .unwrap_or_else(|_| files::private_database(&cluster.data)),
    };
    let written = files::write(&input)?;
    let settings: Vec<PathBuf> = written
        .agents
        .iter()
        .map(|(_, path)| path.clone())
        .collect();
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
                if status.database_ok {
                    "ok"
                } else {
                    &status.database_error
                }
            ),
            Err(status) => status.message().to_owned(),
        };
        let hopeless = children
            .iter()
            .find(|name| cluster.n_exits(name) >= HOPELESS_EXITS);
        if hopeless.is_none() && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        let name = hopeless.or(children.last()).copied().unwrap_or("server");
        let log = log_of(&cluster.data.logs(), name);
        let message = format!(
            "{what} did not come up: {problem}; the last lines of {}:",
            log.display()
        );
        let violations = tail(&log, 12)
            .lines()
            .map(|line| FieldViolation {
                field: String::new(),
                message: line.to_owned(),
            })
            .collect();
        return Err(Failure {
            code: ExitCode::Failed,
            message,
            violations,
        }
        .into());
    }
}

async fn submit(
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

fn start_load(
    cluster: &Arc<Cluster>,
    plan: &Plan,
    programs: &Programs,
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
            program: programs.koi.clone(),
            args,
        },
    );
    let names: Vec<&str> = plan.load.iter().map(|l| l.name.as_str()).collect();
    steps.done(&format!("load generator for {}", names.join(", ")));
    Ok(())
}

/// Waits for running jobs, saying which run; a job that waits is news, not a failure.
async fn wait_running(
    cluster: &Cluster,
    client: &Client,
    plan: &Plan,
    args: &UpArgs,
    steps: &mut Steps<'_>,
) {
    let deadline = Instant::now() + Duration::from_secs(u64::from(args.wait_s));
    let mut waiting: Vec<String> = plan.jobs.iter().map(|j| j.spec.name.to_string()).collect();
    let mut reasons = String::new();
    while !waiting.is_empty() && Instant::now() < deadline {
        let jobs = list_all_jobs(client, false).await.unwrap_or_default();
        let name = |j: &v1::Job| j.spec.as_ref().map(|s| s.name.clone()).unwrap_or_default();
        let is_ready = |j: &v1::Job| j.replicas.iter().any(|r| r.phase == "ready");
        for job in jobs
            .iter()
            .filter(|j| is_ready(j) && waiting.contains(&name(j)))
        {
            cluster.events.say(&format!(
                "      {} runs after {:.1} s",
                name(job),
                steps.started.elapsed().as_secs_f64()
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

    fn args(trace: &[&str]) -> UpArgs {
        let configs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
        UpArgs {
            fleet: Some(configs.join("fleets/demo.toml")),
            jobs: Some(configs.join("jobs")),
            load: Some(configs.join("traces/load.toml")),
            trace: trace.iter().map(|t| (*t).to_owned()).collect(),
            no_load: false,
            no_jobs: false,
            detach: false,
            wait_s: 1,
            tick_interval: Duration::from_secs(30),
            listen: None,
            in_background: false,
        }
    }

    #[test]
    fn the_defaults_make_a_plan() {
        let plan = Plan::read(&args(&[])).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(
            (plan.fleet.hosts.len(), plan.jobs.len(), plan.load.len()),
            (6, 3, 3)
        );
    }

    #[test]
    fn traces_are_replaced_for_one_job_or_for_all_online_ones() {
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/traces/rag.csv");
        let plan =
            Plan::read(&args(&[&format!("chat={here}")])).unwrap_or_else(|e| panic!("{e:?}"));
        let of = |plan: &Plan, name: &str| {
            plan.load
                .iter()
                .find(|l| l.name.as_str() == name)
                .cloned()
                .unwrap()
        };
        assert_eq!(of(&plan, "chat").trace, PathBuf::from(here));
        assert_eq!(of(&plan, "chat").pace, Pace::Rate { rate_rps: 12.0 });
        let all = Plan::read(&args(&[here])).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(
            (of(&all, "chat").trace, of(&all, "rag").trace),
            (PathBuf::from(here), PathBuf::from(here))
        );
        assert!(
            of(&all, "batch-eval").trace.ends_with("batch-eval.csv"),
            "a batch has no arrival times"
        );
    }

    #[test]
    fn problems_of_all_inputs_come_together() {
        let error = Plan::read(&args(&["nosuchjob=x.csv", "chat=/no/such/file.csv"]))
            .err()
            .unwrap();
        let failure = error.downcast::<Failure>().unwrap();
        assert_eq!(
            (failure.code, failure.violations.len()),
            (ExitCode::Invalid, 2),
            "{failure:?}"
        );
    }
}
