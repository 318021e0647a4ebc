//! Stops a cluster in order and proves that nothing is left: load, agents, engines, server, Postgres,
//! then everything that still names the cluster in its environment.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::JoinSet;

use super::binaries;
use super::cluster::Cluster;
use super::files::clear_endpoints;
use super::process::{Process, command_line, of_cluster, wait_gone};
use super::state::{Role, UpState};
use super::supervise::{in_cluster, into_log, log_of, reap};
use crate::failure::{ExitCode, Failure};
use crate::output::{escape, print};
use crate::paths::DataDir;

/// How long a supervisor may take to stop everything.
const SUPERVISOR_LIMIT: Duration = Duration::from_secs(150);
/// How long the engines of one host may take to stop, drained and proven gone.
const ENGINES_LIMIT: Duration = Duration::from_secs(60);
/// How long a swept process may take after SIGTERM.
const SWEEP_LIMIT: Duration = Duration::from_secs(3);

/// Stops the cluster that this process supervises.
pub(super) async fn supervised(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.stopping.cancel();
    let state = cluster.state();
    let left = stop_all(&cluster.data, &state, &|line| cluster.events.say(line)).await;
    cluster.join().await;
    // Shims and engines ended after the last regular look.
    reap(cluster);
    finish(&cluster.data, &left)
}

/// Stops a cluster from another process.
pub(super) async fn from_outside(data: &DataDir, state: &UpState) -> anyhow::Result<()> {
    let say = |line: &str| {
        print(&escape(line)).ok();
    };
    if state.supervisor.signal(Signal::TERM) {
        say(&format!(
            "stopping: asked the supervisor (pid {})",
            state.supervisor.pid
        ));
        if wait_gone(&[state.supervisor], SUPERVISOR_LIMIT)
            .await
            .is_empty()
        {
            let mut left = vec![];
            for state in state.chain() {
                left.extend(sweep(&state.cluster_id, &say).await);
            }
            return finish(data, &left);
        }
        say("the supervisor does not end; going on without it");
        state.supervisor.signal(Signal::KILL);
    }
    // The newest list of children: the supervisor may have restarted some since.
    let newest = UpState::read(data)?.unwrap_or_else(|| state.clone());
    let left = stop_all(data, &newest, &say).await;
    finish(data, &left)
}

fn finish(data: &DataDir, left: &[Process]) -> anyhow::Result<()> {
    if left.is_empty() {
        clear_endpoints(data)?;
        return UpState::remove(data);
    }
    let list: Vec<String> = left
        .iter()
        .map(|p| format!("  {} {}", p.pid, command_line(p.pid)))
        .collect();
    let message = format!("{} processes are left:", left.len());
    Err(Failure {
        code: ExitCode::Failed,
        message,
        violations: list
            .into_iter()
            .map(|message| koi_core::violation::FieldViolation {
                field: String::new(),
                message,
            })
            .collect(),
    }
    .into())
}

/// Stops what a state and the earlier ones in it name; returns what could not be stopped.
pub(super) async fn stop_all(data: &DataDir, state: &UpState, say: &dyn Fn(&str)) -> Vec<Process> {
    let mut left = vec![];
    for state in state.chain() {
        left.extend(stop_one(data, state, say).await);
    }
    left
}

/// Stops what one supervisor started, in order.
async fn stop_one(data: &DataDir, state: &UpState, say: &dyn Fn(&str)) -> Vec<Process> {
    stop_role(state, Role::Load, Duration::from_secs(5), say).await;
    stop_role(state, Role::Agent, Duration::from_secs(10), say).await;
    stop_engines(data, state, say).await;
    stop_role(state, Role::Server, Duration::from_secs(15), say).await;
    stop_role(state, Role::Postgres, Duration::from_secs(30), say).await;
    sweep(&state.cluster_id, say).await
}

async fn stop_role(state: &UpState, role: Role, limit: Duration, say: &dyn Fn(&str)) {
    let running: Vec<Process> = state
        .of_role(role)
        .into_iter()
        .filter(|p| p.signal(Signal::TERM))
        .collect();
    if running.is_empty() {
        return;
    }
    let started = tokio::time::Instant::now();
    let stuck = wait_gone(&running, limit).await;
    for process in &stuck {
        process.signal(Signal::KILL);
    }
    let how = if stuck.is_empty() {
        "stopped"
    } else {
        "killed"
    };
    let name = format!("{role:?}").to_lowercase();
    say(&format!(
        "stopping: {} × {name} {how} in {:.1} s",
        running.len(),
        started.elapsed().as_secs_f64()
    ));
}

/// Runs `koi-agent --stop-engines` for every host at once.
async fn stop_engines(data: &DataDir, state: &UpState, say: &dyn Fn(&str)) {
    if state.agent_settings.is_empty() {
        return;
    }
    let program = match binaries::find("koi-agent") {
        Ok(program) => program,
        Err(e) => return say(&format!("stopping: engines are left to the sweep: {e:#}")),
    };
    let started = tokio::time::Instant::now();
    let mut runs = JoinSet::new();
    for settings in state.agent_settings.iter().filter(|s| s.exists()) {
        let host = settings
            .parent()
            .and_then(Path::file_name)
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut command = tokio::process::Command::new(&program);
        command
            .arg("--config")
            .arg(settings)
            .arg("--stop-engines")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        in_cluster(&mut command, &state.cluster_id);
        if let Err(e) = into_log(&mut command, &log_of(&data.logs(), &format!("stop-{host}"))) {
            say(&format!("stopping: {e:#}"));
        }
        runs.spawn(async move {
            (
                host,
                tokio::time::timeout(ENGINES_LIMIT, command.status()).await,
            )
        });
    }
    let n_hosts = runs.len();
    while let Some(run) = runs.join_next().await {
        let problem = match run {
            Ok((_, Ok(Ok(status)))) if status.success() => continue,
            Ok((host, Ok(Ok(status)))) => {
                format!("engines of {host}: koi-agent ended with {status}")
            }
            Ok((host, Ok(Err(e)))) => format!("engines of {host}: {e}"),
            Ok((host, Err(_))) => format!(
                "engines of {host}: not stopped within {} s",
                ENGINES_LIMIT.as_secs()
            ),
            Err(e) => e.to_string(),
        };
        say(&format!("stopping: {problem}; the sweep goes on"));
    }
    say(&format!(
        "stopping: engines of {n_hosts} hosts in {:.1} s",
        started.elapsed().as_secs_f64()
    ));
}

/// Ends whatever still belongs to the cluster; returns what does not end.
async fn sweep(cluster_id: &str, say: &dyn Fn(&str)) -> Vec<Process> {
    let mut left = of_cluster(cluster_id);
    for signal in [Signal::TERM, Signal::KILL] {
        if left.is_empty() {
            return left;
        }
        for process in &left {
            say(&format!(
                "stopping: left over: {} {}",
                process.pid,
                command_line(process.pid)
            ));
            process.signal(signal);
        }
        wait_gone(&left, SWEEP_LIMIT).await;
        // A process that was about to be forked is seen by the second look.
        left = of_cluster(cluster_id);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::super::state::Child;
    use super::*;
    use crate::up::process::CLUSTER_ID_VARIABLE;

    fn sleeper(id: &str) -> (std::process::Child, Process) {
        let child = std::process::Command::new("sleep")
            .arg("300")
            .env(CLUSTER_ID_VARIABLE, id)
            .spawn()
            .unwrap();
        let process = Process::of(child.id()).unwrap();
        (child, process)
    }

    #[tokio::test]
    async fn a_cluster_without_its_supervisor_is_stopped_and_swept() {
        let dir = std::env::temp_dir().join(format!("koi-shutdown-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let data = DataDir::resolve(Some(&dir));
        let id = format!("down{}", std::process::id());
        let (mut server, server_process) = sleeper(&id);
        let (mut engine, _) = sleeper(&id);
        let (mut foreign, foreign_process) = sleeper("another-cluster");
        let state = UpState {
            cluster_id: id.clone(),
            supervisor: Process {
                pid: 1,
                start_time_ticks: u64::MAX,
            },
            children: vec![Child {
                name: "server".into(),
                role: Role::Server,
                process: server_process,
            }],
            agent_settings: vec![],
            server: String::new(),
            stage: String::new(),
            is_started: true,
            earlier: None,
        };
        state.write(&data).unwrap();
        // Let both become `sleep`, whose environment can be read.
        tokio::time::sleep(Duration::from_millis(200)).await;
        from_outside(&data, &state).await.unwrap();
        assert!(server.try_wait().unwrap().is_some() && engine.try_wait().unwrap().is_some());
        assert!(foreign_process.is_alive(), "another cluster is left alone");
        assert_eq!(UpState::read(&data).unwrap(), None);
        foreign.kill().unwrap();
        foreign.wait().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
