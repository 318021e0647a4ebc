//! Puts the server together: settings, database, core loop, ticks, listeners; and takes it apart.

mod incoming;
mod listen;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use koi_core::catalog::Catalog;
use koi_core::catalog::price::PriceBook;
use koi_core::causal::CausalModel;
use koi_core::params::Params;
use koi_core::rollout::RolloutParams;
use koi_core::server::{ServerMachine, ServerSettings};
use koi_core::tick::observatory::Observatory;
use koi_core::validation::UpdateTable;
use koi_core::violation::FieldViolation;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agents::registry::Registry;
use crate::agents::telemetry::MAX_AHEAD_SECONDS;
use crate::api::idempotency::Requests;
use crate::auth::{Identity, TokenTable};
use crate::config::ServerConfig;
use crate::core_loop::{Core, CoreParts, utc_now};
use crate::endpoints::{self, EndpointBoard};
use crate::observability;
use crate::postgres::{PrivateCluster, RunningPostgres, Settings, run_foreground};
use crate::store::{NewToken, Store, StoreOptions};
use crate::tick::driver::{self, TickHandle};
use crate::tick::run::{TickParts, World, lock};

/// Longest wait for the database at start.
const DATABASE_WAIT: Duration = Duration::from_secs(60);
/// Pause between two tries to reach it.
const DATABASE_PAUSE: Duration = Duration::from_millis(500);
/// Longest wait for streams and tasks to end at stop.
const STOP_WAIT: Duration = Duration::from_secs(15);
/// Telemetry this old is read back after a restart.
const LOOKBACK_SECONDS: i64 = 600;

/// Runs the private Postgres in the foreground until SIGTERM or Ctrl-C.
///
/// # Errors
/// When it cannot be started or stopped.
pub async fn postgres(data_dir: PathBuf) -> anyhow::Result<()> {
    let settings = Settings::from_env(data_dir);
    run_foreground(settings, |_| ())
        .await
        .context("run the private Postgres")
}

/// Runs the server until SIGTERM or Ctrl-C.
///
/// # Errors
/// Whatever keeps it from starting, with what to do about it.
pub async fn serve(config_path: &Path) -> anyhow::Result<()> {
    let config = ServerConfig::load(config_path).context("load settings")?;
    // Before the database is touched: a bad overlay is a wrong setting.
    let prices = config.prices().context("load the price overlay")?;
    let telemetry = observability::start("koi-server", config.otlp_endpoint.as_deref())?;
    let shutdown = CancellationToken::new();
    stop_on_signal(shutdown.clone())?;
    let (url, private) = open_database(&config).await?;
    let result = match connect(&url, &shutdown).await {
        Ok(Some(store)) => migrate_and_run((&config, prices), &telemetry, store, shutdown).await,
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    if let Some(private) = private {
        tokio::task::spawn_blocking(move || private.stop())
            .await?
            .context("stop Postgres")?;
    }
    telemetry.flush();
    result
}

fn stop_on_signal(shutdown: CancellationToken) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        shutdown.cancel();
    });
    Ok(())
}

/// The configured database, else `KOI_DATABASE_URL`, else a private cluster of our own.
async fn open_database(config: &ServerConfig) -> anyhow::Result<(String, Option<RunningPostgres>)> {
    let configured = config
        .database_url
        .clone()
        .or_else(|| std::env::var("KOI_DATABASE_URL").ok());
    if let Some(url) = configured {
        return Ok((url, None));
    }
    let settings = Settings::from_env(config.data_dir.clone());
    let started = tokio::task::spawn_blocking(move || PrivateCluster::prepare(&settings)?.spawn());
    let running = started.await?.context("start the private Postgres")?;
    Ok((running.url(), Some(running)))
}

/// Waits for a database that is still starting; `None` when the server is asked to stop meanwhile.
async fn connect(url: &str, shutdown: &CancellationToken) -> anyhow::Result<Option<Store>> {
    let begun = std::time::Instant::now();
    loop {
        let tried = tokio::select! {
            tried = Store::connect(url, StoreOptions::default()) => tried,
            () = shutdown.cancelled() => return Ok(None),
        };
        match tried {
            Ok(store) => return Ok(Some(store)),
            Err(error) if error.is_transient() && begun.elapsed() < DATABASE_WAIT => {
                tracing::info!(%error, "waiting for the database");
                tokio::select! {
                    () = tokio::time::sleep(DATABASE_PAUSE) => {}
                    () = shutdown.cancelled() => return Ok(None),
                }
            }
            Err(error) => return Err(error).context("connect to the database"),
        }
    }
}

async fn migrate_and_run(
    config: Settled<'_>,
    telemetry: &observability::Telemetry,
    store: Store,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    store.migrate().await.context("migrate the database")?;
    run(config, telemetry, store, shutdown).await
}

fn world() -> anyhow::Result<World> {
    let catalog = Catalog::embedded();
    let listed = |problems: Vec<FieldViolation>| {
        let lines: Vec<String> = problems
            .iter()
            .map(|p| format!("{}: {}", p.field, p.message))
            .collect();
        anyhow::anyhow!("the catalog is wrong: {}", lines.join("; "))
    };
    let causal = CausalModel::embedded(catalog).map_err(listed)?;
    let updates = UpdateTable::embedded().map_err(listed)?;
    Ok(World {
        catalog,
        causal: Arc::new(causal),
        updates: Arc::new(updates),
        params: Arc::new(Params::default()),
    })
}

struct Parts {
    core: Core,
    store: Store,
    requests: Requests,
    tokens: TokenTable,
    registry: Arc<Registry>,
    endpoints: Arc<EndpointBoard>,
    observatory: Arc<Mutex<Observatory>>,
    world: World,
    ticks: TickHandle,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// Settings, and the prices that they lead to.
type Settled<'a> = (&'a ServerConfig, PriceBook);

async fn run(
    (config, prices): Settled<'_>,
    telemetry: &observability::Telemetry,
    store: Store,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (parts, mut tasks) = assemble((config, prices), store, shutdown.clone()).await?;
    let (metrics_address, metrics_task) = telemetry
        .serve_metrics(config.metrics_listen, shutdown.clone())
        .await?;
    tasks.push(metrics_task);
    let result = listen::listen(config, &parts, metrics_address).await;
    shutdown.cancel();
    parts.tasks.close();
    let ends = async {
        parts.tasks.wait().await;
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task ended badly");
            }
        }
    };
    if tokio::time::timeout(STOP_WAIT, ends).await.is_err() {
        tracing::warn!("some tasks did not end in time");
    }
    parts.store.close().await;
    result
}

type Tasks = Vec<tokio::task::JoinHandle<()>>;

/// Takes the lead, loads the state and starts everything that runs without a listener.
async fn assemble(
    (config, prices): Settled<'_>,
    store: Store,
    shutdown: CancellationToken,
) -> anyhow::Result<(Parts, Tasks)> {
    let world = world()?;
    let tokens = TokenTable::load(&config.tokens_file(), &config.data_dir)
        .context("load who may connect")?;
    remember_tokens(&store, &tokens).await?;
    let epoch = store.acquire_epoch().await.context("take the lead")?;
    let mut loaded = store.load_state().await.context("load the state")?;
    loaded.state.reprice(&prices);
    for row in &loaded.quarantined {
        tracing::error!(
            table = row.table,
            key = row.key,
            problem = row.problem,
            "row left out"
        );
    }
    let endpoints = Arc::new(EndpointBoard::open(config.endpoints_dir())?);
    endpoints.sweep(|job| loaded.state.job_named(job).is_some());
    let registry = Arc::new(Registry::default());
    let settings = ServerSettings {
        rollout: rollout_params(config),
        prices,
    };
    let observatory = Arc::new(Mutex::new(Observatory::default()));
    look_back(&store, &loaded.state, &world, &observatory).await?;
    let (core, core_task) = Core::spawn(CoreParts {
        machine: ServerMachine::new(loaded.state, epoch, world.catalog, settings),
        store: store.clone(),
        registry: registry.clone(),
        endpoints: endpoints.clone(),
        shutdown: shutdown.clone(),
    });
    let tick_parts = TickParts {
        core: core.clone(),
        store: store.clone(),
        observatory: observatory.clone(),
        world: world.clone(),
    };
    let interval = Duration::from_secs(u64::from(config.tick_interval_s));
    let (ticks, tick_task) = driver::spawn(tick_parts, interval, shutdown.clone());
    let keeper = crate::tick::housekeeping::spawn(
        core.clone(),
        store.clone(),
        observatory.clone(),
        config.window_retention_days,
        shutdown.clone(),
    );
    let endpoint_keeper = endpoints::keep(endpoints.clone(), shutdown.clone());
    let tasks = TaskTracker::new();
    let parts = Parts {
        core,
        requests: Requests::new(store.clone()),
        store,
        tokens,
        registry,
        endpoints,
        observatory,
        world,
        ticks,
        tasks,
        shutdown,
    };
    Ok((parts, vec![core_task, tick_task, keeper, endpoint_keeper]))
}

fn rollout_params(config: &ServerConfig) -> RolloutParams {
    RolloutParams {
        canary_window_s: config.canary_window_s,
        drain_grace_s: config.drain_grace_s,
        ..RolloutParams::default()
    }
}

async fn remember_tokens(store: &Store, tokens: &TokenTable) -> anyhow::Result<()> {
    for (digest, identity) in tokens.entries() {
        let (role, host) = match identity {
            Identity::Operator { .. } => ("operator", None),
            Identity::Agent { host } => ("agent", Some(host.clone())),
        };
        let token = NewToken {
            hash: digest.to_vec(),
            role: role.to_owned(),
            identity: identity.name(),
            host,
            created_at: utc_now(),
        };
        store
            .token_insert(&token)
            .await
            .context("remember who may connect")?;
    }
    Ok(())
}

/// Reads back what agents showed lately, so that a restart does not blind the next ticks.
async fn look_back(
    store: &Store,
    state: &koi_core::store::ServerState,
    world: &World,
    observatory: &Mutex<Observatory>,
) -> anyhow::Result<()> {
    let since = utc_now().plus_seconds(-LOOKBACK_SECONDS);
    let stored = store
        .windows_since((since, utc_now()), u32::MAX)
        .await
        .context("read recent telemetry")?;
    let (mut windows, edges) = crate::agents::stored::restored(&stored);
    let latest = utc_now().plus_seconds(MAX_AHEAD_SECONDS);
    windows.retain(|w| w.end <= latest);
    let mut observatory = lock(observatory);
    observatory.add(state, world.catalog, &edges, windows);
    // Tokens of windows from before the newest tick are in the jobs' counts already.
    observatory.take_tokens();
    Ok(())
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
