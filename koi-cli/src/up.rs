//! `koi up`: a whole dev cluster in one process tree, and `koi down`.
//!
//! The supervisor starts a private Postgres, the server, one agent per host of the fleet file and the
//! load generator, restarts what dies, and on the way out proves that nothing is left. It decides
//! nothing about jobs. Spec §18.3.

pub mod binaries;
mod cluster;
mod detach;
mod events;
mod files;
mod jobs;
mod live_view;
mod plan;
mod ports;
mod process;
mod shutdown;
mod startup;
mod state;
mod supervise;

use std::sync::Arc;

use crate::args::{Global, UpArgs};
use crate::failure::{ExitCode, Failure};
use crate::output::print;
use crate::paths::DataDir;
use crate::up::cluster::{Cluster, take_lock};
use crate::up::state::UpState;

/// Runs `koi up` until it is interrupted, or with `--detach` until jobs run.
///
/// # Errors
/// When a step of the start fails, another `koi up` runs on the same data directory, or processes are
/// left at the end.
pub async fn run(global: &Global, args: UpArgs) -> anyhow::Result<()> {
    let data = DataDir::resolve(global.data_dir.as_deref());
    if own_database().is_none() {
        files::check_socket_path(&data)?;
    }
    if args.detach && !args.in_background {
        return detach::run(&data, &args).await;
    }
    let plan = plan::Plan::read(&args)?;
    let cluster = Arc::new(Cluster::open(data)?);
    let started = tokio::select! {
        started = startup::run(Arc::clone(&cluster), &plan, &args) => started,
        () = interrupted() => Err(Failure::new(ExitCode::Failed, "interrupted while starting").into()),
    };
    if started.is_ok() {
        live_view::until(&cluster, interrupted()).await;
    }
    cluster.events.plain();
    let stopped = shutdown::supervised(&cluster).await;
    started.and(stopped)
}

/// The database that the environment names; an empty variable names none.
fn own_database() -> Option<String> {
    let url = std::env::var("KOI_DATABASE_URL").ok();
    url.filter(|url| !url.trim().is_empty())
}

/// Stops the cluster of the data directory, whether its supervisor lives or not.
///
/// # Errors
/// When processes are left, with their list.
pub async fn down(global: &Global) -> anyhow::Result<()> {
    let data = DataDir::resolve(global.data_dir.as_deref());
    let Some(state) = state_of_running(&data).await? else {
        return print(&format!("nothing runs in {}", data.path().display()));
    };
    shutdown::from_outside(&data, &state).await?;
    print("everything is stopped")
}

/// How long a supervisor may take from its lock to its first note of itself.
const FIRST_NOTE: std::time::Duration = std::time::Duration::from_secs(5);

/// The state, also of a supervisor that has only just begun.
async fn state_of_running(data: &DataDir) -> anyhow::Result<Option<UpState>> {
    let deadline = tokio::time::Instant::now() + FIRST_NOTE;
    loop {
        let state = UpState::read(data)?;
        let is_free = state.is_none() && (!data.path().exists() || take_lock(data).is_ok());
        if state.is_some() || is_free || tokio::time::Instant::now() >= deadline {
            return Ok(state);
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// SIGINT or SIGTERM.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let mut waits = tokio::task::JoinSet::new();
    for kind in kinds {
        // Without a handler the default action ends the process, which is what was asked for.
        if let Ok(mut stream) = signal(kind) {
            waits.spawn(async move { stream.recv().await });
        }
    }
    waits.join_next().await;
}
