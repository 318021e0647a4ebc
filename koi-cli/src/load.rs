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
mod trace;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::args::Global;
use crate::load::args::{LoadArgs, LoadCommand};
use crate::load::drive::Drive;
use crate::output::complain;
use crate::paths::DataDir;

/// Runs `koi load`, or `koi load report`.
///
/// # Errors
/// When the settings or a trace cannot be read, or no report can be made.
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
    let out = args.out.clone().unwrap_or_else(|| data.load());
    std::fs::create_dir_all(&out)?;
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    for job in jobs {
        let drive = Arc::new(Drive::new(job, &endpoints, &out)?);
        drive.start(&mut tasks, &stop);
    }
    complain(&format!("sending; results in {}", out.display()));
    let deadline = args
        .seconds
        .map(|s| std::time::Duration::from_secs(u64::from(s)));
    wait(deadline).await?;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    Ok(())
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
