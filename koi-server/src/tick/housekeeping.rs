//! Between ticks: judged windows for canaries every second, old partitions once an hour.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use koi_core::server::Input;
use koi_core::tick::observatory::Observatory;
use koi_core::time::UtcMicros;
use tokio_util::sync::CancellationToken;

use super::run::lock;
use crate::core_loop::{Core, utc_now};
use crate::store::Store;

/// How often canaries' tallies are brought up to date.
const TALLY_EVERY: Duration = Duration::from_secs(1);
/// How often old telemetry is dropped.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// Keys of transactions are of use only while their outcome can be unknown.
const TX_KEYS_SECONDS: i64 = 86_400;

/// Starts the task; it ends when `shutdown` is cancelled.
#[must_use]
pub fn spawn(
    core: Core,
    store: Store,
    observatory: Arc<Mutex<Observatory>>,
    retention_days: u32,
    shutdown: CancellationToken,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut tally = tokio::time::interval(TALLY_EVERY);
        let mut sweep = tokio::time::interval(SWEEP_EVERY);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = tally.tick() => {
                    let tallies = lock(&observatory).tallies_since(UtcMicros(0));
                    core.tell(Input::SloTallies(tallies)).await;
                }
                _ = sweep.tick() => sweep_once(&store, retention_days).await,
            }
        }
    })
}

async fn sweep_once(store: &Store, retention_days: u32) {
    if let Err(error) = store.partitions_ahead(utc_now()).await {
        tracing::warn!(%error, "no partition was made for tomorrow's telemetry");
    }
    let oldest = utc_now().plus_seconds(-86_400 * i64::from(retention_days));
    if let Err(error) = store.drop_partitions_before(oldest).await {
        tracing::warn!(%error, "old telemetry was not dropped");
    }
    let keys = utc_now().plus_seconds(-TX_KEYS_SECONDS);
    if let Err(error) = store.forget_keys_before(keys.0).await {
        tracing::warn!(%error, "old transaction keys were not dropped");
    }
}
