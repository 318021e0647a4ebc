//! `koi load`: replays a trace against the ready endpoints of running jobs and times every answer.
//!
//! Not a gateway: it retries an unanswered request once and counts that it did. Its stopwatch goes
//! through the engine's bucket edges and the same quantile rule, so that its percentiles can be held
//! against the server's. Spec §18.16.

pub mod args;
mod buckets;
mod drive;
mod endpoints;
mod minutes;
mod prompt;
mod report;
mod request;
mod rng;
pub mod settings;
mod sse;
mod summary;
pub(crate) mod trace;

#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use tokio_util::sync::CancellationToken;

use crate::args::Global;
use crate::failure::{ExitCode, Failure};
use crate::load::args::{LoadArgs, LoadCommand};
use crate::load::drive::Drive;
use crate::output::complain;
use crate::paths::DataDir;

/// Runs `koi load`, or `koi load report`.
///
/// # Errors
/// When the settings or a trace cannot be read, there are no endpoints, another load writes to the same
/// folder, or no report can be made.
pub async fn run(global: &Global, args: LoadArgs) -> anyhow::Result<()> {
    let data = DataDir::resolve(global.data_dir.as_deref());
    if let Some(LoadCommand::Report(report)) = &args.command {
        let folder = report.from.clone().unwrap_or_else(|| data.load());
        return report::run(global.output, &folder, report);
    }
    let jobs = settings::resolve(&args)?;
    let endpoints = args
        .endpoints_dir
        .clone()
        .unwrap_or_else(|| data.endpoints());
    if !endpoints.is_dir() {
        let message = format!(
            "{} is not a folder of endpoint files; start a cluster with `koi up`, or name its folder with --endpoints-dir",
            endpoints.display()
        );
        return Err(Failure::new(ExitCode::NotFound, message).into());
    }
    let out = args.out.clone().unwrap_or_else(|| data.load());
    let _held = claim(&out)?;
    let drives: Vec<Arc<Drive>> = jobs
        .into_iter()
        .map(|job| Drive::new(job, &endpoints, &out).map(Arc::new))
        .collect::<Result<_, _>>()?;
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    for drive in &drives {
        Arc::clone(drive).start(&mut tasks, &stop);
    }
    complain(&format!("sending; results in {}", out.display()));
    let deadline = args
        .seconds
        .map(|s| std::time::Duration::from_secs(u64::from(s)));
    wait(deadline).await?;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    sum_up(&drives, deadline.is_some())
}

/// Says what every job was sent. A timed run that sent nothing has failed.
fn sum_up(drives: &[Arc<Drive>], is_timed: bool) -> anyhow::Result<()> {
    let totals: Vec<(String, u64)> = drives.iter().map(|d| d.totals()).collect();
    for (line, _) in &totals {
        complain(line);
    }
    if is_timed && totals.iter().all(|(_, sent)| *sent == 0) {
        let message = "nothing was sent: no endpoint was ready";
        return Err(Failure::new(ExitCode::Unavailable, message).into());
    }
    Ok(())
}

/// Makes the folder for results and takes it: two loads would add up to one in its files. The system
/// lets go of it with the process.
fn claim(out: &Path) -> anyhow::Result<OwnedFd> {
    std::fs::create_dir_all(out).with_context(|| format!("make {}", out.display()))?;
    let path = out.join("load.lock");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = open(&path, flags, Mode::from_raw_mode(0o600))
        .with_context(|| format!("open {}", path.display()))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let message = format!(
            "another koi load writes its results to {}; name another folder with --out",
            out.display()
        );
        return Err(Failure::new(ExitCode::Conflict, message).into());
    }
    Ok(file)
}

/// Until the time is over, or somebody interrupts.
async fn wait(limit: Option<std::time::Duration>) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let over = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = over => {}
    }
    Ok(())
}
