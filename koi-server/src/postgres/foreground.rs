//! `koi-server postgres`: the private cluster as a process of its own under a supervisor.

use tokio::signal::unix::{SignalKind, signal};

use super::{PostgresError, PrivateCluster, RunningPostgres, Settings};

/// Initialises the cluster if needed, runs it, and ends it on SIGTERM, SIGINT or the death of the
/// thread that started this process. `on_ready` gets the connection URL.
///
/// # Errors
/// [`PostgresError`]; [`PostgresError::Died`] when the server ended although nobody asked, so that
/// the supervisor starts it again.
pub async fn run_foreground(
    settings: Settings,
    on_ready: impl FnOnce(&str),
) -> Result<(), PostgresError> {
    let listen = |kind| signal(kind).map_err(PostgresError::io("listen for", "signals"));
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut child = listen(SignalKind::child())?;
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .map_err(|e| PostgresError::io("watch", "the parent process")(e.into()))?;
    let mut server = blocking(move || PrivateCluster::prepare(&settings)?.spawn()).await?;
    on_ready(&server.url());
    loop {
        tokio::select! {
            _ = terminate.recv() => return blocking(move || server.stop()).await,
            _ = interrupt.recv() => return blocking(move || server.stop()).await,
            _ = child.recv() => {}
        }
        if let Some(error) = death(&mut server)? {
            return Err(error);
        }
    }
}

fn death(server: &mut RunningPostgres) -> Result<Option<PostgresError>, PostgresError> {
    let status = server.exit_status()?;
    Ok(status.map(|s| PostgresError::Died {
        status: s.to_string(),
        tail: server.log_tail(),
    }))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PostgresError> + Send + 'static,
) -> Result<T, PostgresError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| {
        PostgresError::io("run", "a blocking task")(std::io::Error::other(e.to_string()))
    })?
}
