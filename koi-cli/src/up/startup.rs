//! The start, step by step, each with a line. What can be wrong with the input was found before
//! (`plan.rs`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use koi_core::violation::FieldViolation;
use koi_proto::v1;
use tokio::time::Instant;

use super::cluster::Cluster;
use super::plan::Plan;
use super::state::{Role, UpState};
use super::supervise::{ChildSpec, adopt_orphans, keep, log_of, tail};
use super::{binaries, files, jobs, own_database, ports, shutdown};
use crate::args::UpArgs;
use crate::client::{Client, Target};
use crate::failure::{ExitCode, Failure};
use crate::secrets::read_token;

/// Steps of a start.
const N_STEPS: u32 = 8;
/// How long server and agents may take.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// A child that ended so often during the start will not come up.
const HOPELESS_EXITS: u32 = 4;
/// A wait this long is explained, and again after as long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between looks.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// Says a step and how long it took.
pub(super) struct Steps<'a> {
    cluster: &'a Cluster,
    n: u32,
    started: Instant,
}

impl Steps<'_> {
    /// A step is over.
    pub(super) fn done(&mut self, what: &str) {
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

    /// Seconds since the step before.
    pub(super) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
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
    if let Some(earlier) = cluster.state().earlier {
        clear(&cluster, &earlier).await?;
    }
    let written = write_files(&cluster, plan, args)?;
    steps.done(&format!(
        "{} hosts of {} in {}",
        plan.fleet.hosts.len(),
        plan.fleet_path.display(),
        cluster.data.path().display()
    ));
    adopt_orphans(&cluster);
    let client = start_server(&cluster, &written, &programs, &mut steps).await?;
    start_agents(&cluster, &client, &written, &programs).await?;
    steps.done(&format!("{} agents connected", written.agents.len()));
    jobs::submit(&cluster, &client, &plan.jobs, &mut steps).await?;
    jobs::start_load(&cluster, plan, &programs.koi, &mut steps)?;
    jobs::wait_running(&cluster, &client, plan, args.wait_s, &mut steps).await;
    cluster.update(|state| state.is_started = true);
    Ok(())
}

fn config(path: &Path) -> [OsString; 2] {
    ["--config".into(), path.into()]
}

/// Starts database and server and waits until both answer.
async fn start_server(
    cluster: &Arc<Cluster>,
    written: &files::Written,
    programs: &Programs,
    steps: &mut Steps<'_>,
) -> anyhow::Result<Client> {
    if own_database().is_some() {
        steps.done("database of KOI_DATABASE_URL");
    } else {
        keep(cluster, postgres(cluster, programs));
        steps.done("private Postgres started");
    }
    let mut args = vec!["serve".into()];
    args.extend(config(&written.server));
    let program = programs.server.clone();
    keep(
        cluster,
        ChildSpec {
            name: "server".into(),
            role: Role::Server,
            program,
            args,
        },
    );
    let client = client(cluster)?;
    let children = ["postgres", "server"];
    wait_for(cluster, &client, "the server", &children, |s| s.database_ok).await?;
    steps.done(&format!(
        "server and database ready at {}",
        cluster.state().server
    ));
    Ok(client)
}

/// Starts an agent per host and waits until the server has heard from all.
async fn start_agents(
    cluster: &Arc<Cluster>,
    client: &Client,
    written: &files::Written,
    programs: &Programs,
) -> anyhow::Result<()> {
    let mut names = vec![];
    for (host, path) in &written.agents {
        let name = format!("agent-{host}");
        names.push(name.clone());
        let (program, args) = (programs.agent.clone(), config(path).to_vec());
        keep(
            cluster,
            ChildSpec {
                name,
                role: Role::Agent,
                program,
                args,
            },
        );
    }
    let n_hosts = written.agents.len() as u32;
    let children: Vec<&str> = names.iter().map(String::as_str).chain(["server"]).collect();
    wait_for(cluster, client, "the agents", &children, |s| {
        s.n_nodes_alive >= n_hosts
    })
    .await
}

async fn clear(cluster: &Cluster, leftover: &UpState) -> anyhow::Result<()> {
    cluster
        .events
        .say("a supervisor was killed here; stopping what it left");
    let left = shutdown::stop_all(&cluster.data, leftover, &|line| cluster.events.say(line)).await;
    if left.is_empty() {
        cluster.update(|state| state.earlier = None);
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
    let port = ports::server(args.listen)?;
    let listen = port.address;
    let input = files::Input {
        data: &cluster.data,
        fleet: &plan.fleet,
        listen,
        tick_interval_s: args.tick_interval.as_secs(),
        database_url: own_database().unwrap_or_else(|| files::private_database(&cluster.data)),
    };
    let mut written = files::write(&input)?;
    cluster.hold(port, std::mem::take(&mut written.ranges));
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
    let mut silent_until = Instant::now() + PATIENCE;
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
            .find(|name| cluster.is_hopeless(name) || cluster.n_exits(name) >= HOPELESS_EXITS);
        if hopeless.is_none() && Instant::now() < deadline {
            if Instant::now() > silent_until {
                silent_until = Instant::now() + PATIENCE;
                let log = log_of(&cluster.data.logs(), children.last().unwrap_or(&"server"));
                let line = format!(
                    "      still waiting for {what}: {problem}; see {}",
                    log.display()
                );
                cluster.events.say(&line);
            }
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
