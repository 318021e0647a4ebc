//! Which database, and the wait for one that is still starting.

use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use crate::config::ServerConfig;
use crate::postgres::{PrivateCluster, RunningPostgres, Settings};
use crate::store::{Store, StoreOptions};

/// Longest wait for the database at start.
const DATABASE_WAIT: Duration = Duration::from_secs(60);
/// Pause between two tries to reach it.
const DATABASE_PAUSE: Duration = Duration::from_millis(500);

/// The configured database, else `KOI_DATABASE_URL`, else a private cluster of our own.
pub(super) async fn open_database(
    config: &ServerConfig,
) -> anyhow::Result<(String, Option<RunningPostgres>)> {
    // An empty variable is one that is not set; an empty setting is a mistake, and is told as one.
    let of_environment = std::env::var("KOI_DATABASE_URL").ok();
    let of_environment = of_environment.filter(|url| !url.trim().is_empty());
    if let Some(url) = config.database_url.clone().or(of_environment) {
        return Ok((url, None));
    }
    let settings = Settings::from_env(config.data_dir.clone());
    let started = tokio::task::spawn_blocking(move || PrivateCluster::prepare(&settings)?.spawn());
    let running = started.await?.context("start the private Postgres")?;
    Ok((running.url(), Some(running)))
}

/// Waits for a database that is still starting; `None` when the server is asked to stop meanwhile.
pub(super) async fn connect(
    url: &str,
    shutdown: &CancellationToken,
) -> anyhow::Result<Option<Store>> {
    let begun = std::time::Instant::now();
    loop {
        let tried = tokio::select! {
            tried = Store::connect(url, StoreOptions::default()) => tried,
            () = shutdown.cancelled() => return Ok(None),
        };
        match tried {
            Ok(store) => return Ok(Some(store)),
            Err(error) if error.is_transient() && begun.elapsed() < DATABASE_WAIT => {
                let error = anyhow::Error::from(error);
                tracing::info!(error = format!("{error:#}"), "waiting for the database");
                tokio::select! {
                    () = tokio::time::sleep(DATABASE_PAUSE) => {}
                    () = shutdown.cancelled() => return Ok(None),
                }
            }
            Err(error) => return Err(error).context("connect to the database"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_waits_for_its_database_obeys_a_stop() {
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            stop.cancel();
        });
        let nowhere = "postgres://koi@localhost/koi?host=/nowhere/koi-test";
        let waited = tokio::time::timeout(Duration::from_secs(10), connect(nowhere, &shutdown));
        let store = waited.await.expect("the wait ends").unwrap();
        assert!(store.is_none());
    }
}
