//! Puts the server together: settings, database, core loop, ticks, listeners; and takes it apart.

mod database;
mod doors;
mod incoming;
mod listen;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use koi_core::catalog::Catalog;
use koi_core::catalog::price::PriceBook;
use koi_core::causal::CausalModel;
use koi_core::ids::TickId;
use koi_core::params::Params;
use koi_core::rollout::RolloutParams;
use koi_core::server::{ServerMachine, ServerSettings};
use koi_core::store::ServerState;
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
use crate::core_loop::{Core, CoreParts, Lead, utc_now};
use crate::endpoints::{self, EndpointBoard};
use crate::observability;
use crate::postgres::{Settings, run_foreground};
use crate::pulse::Pulse;
use crate::store::{NewToken, Store};
use crate::tick::driver::{self, TickHandle};
use crate::tick::points::PointsBoard;
use crate::tick::run::{TickParts, World, lock};
use database::{connect, open_database};
use doors::{Doors, OpenDoors};

/// Longest wait for streams and tasks to end at stop.
const STOP_WAIT: Duration = Duration::from_secs(15);
/// Most evidence rows that are read back after a restart.
const MAX_RECALLED_ROWS: i64 = 50_000;
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
    let doors = Doors::take(&config)?;
    let (url, private) = open_database(&config).await?;
    let result = match connect(&url, &shutdown).await {
        Ok(Some(store)) => {
            let settled = Settled { config, prices };
            migrate_and_run(settled, (&telemetry, doors), store, shutdown).await
        }
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

async fn migrate_and_run(
    settled: Settled,
    (telemetry, doors): (&observability::Telemetry, Doors),
    store: Store,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let Settled { config, .. } = &settled;
    let tokens = TokenTable::load(&config.tokens_file(), &config.data_dir)
        .context("load who may connect")?;
    let endpoints = EndpointBoard::open(config.endpoints_dir())?;
    let ready = Ready {
        world: world(config)?,
        tokens,
        endpoints: Arc::new(endpoints),
    };
    let doors = doors.open()?;
    store.migrate().await.context("migrate the database")?;
    run(settled, ready, (telemetry, doors), store, shutdown).await
}

fn world(config: &ServerConfig) -> anyhow::Result<World> {
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
        params: Arc::new(Params {
            probe_usd_per_day: config.learning.probe_usd_per_day,
            tick_interval_seconds: config.tick_interval_s,
            ..Params::default()
        }),
    })
}

struct Parts {
    core: Core,
    lead: Lead,
    pulse: Pulse,
    store: Store,
    requests: Requests,
    tokens: TokenTable,
    registry: Arc<Registry>,
    endpoints: Arc<EndpointBoard>,
    observatory: Arc<Mutex<Observatory>>,
    world: World,
    points: Arc<PointsBoard>,
    ticks: TickHandle,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// Settings, and the prices that they lead to.
struct Settled {
    config: ServerConfig,
    prices: PriceBook,
}

/// What else has been found to be in order before the lead is taken.
struct Ready {
    world: World,
    tokens: TokenTable,
    endpoints: Arc<EndpointBoard>,
}

async fn run(
    settled: Settled,
    ready: Ready,
    (telemetry, doors): (&observability::Telemetry, OpenDoors),
    store: Store,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let metrics_address = doors.metrics.local_addr()?;
    let (parts, mut tasks) = assemble(&settled, ready, store, shutdown.clone()).await?;
    tasks.push(telemetry.serve_metrics(doors.metrics, shutdown.clone()));
    let door = (doors.server, doors.grpc);
    let result = listen::listen(&settled.config, &parts, door, metrics_address).await;
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
    result?;
    Ok(parts.lead.kept()?)
}

type Tasks = Vec<tokio::task::JoinHandle<()>>;

/// Takes the lead, loads the state and starts everything that runs without a listener. From here on
/// another server that leads is out: nothing that an operator may have got wrong comes later.
async fn assemble(
    Settled { config, prices }: &Settled,
    ready: Ready,
    store: Store,
    shutdown: CancellationToken,
) -> anyhow::Result<(Parts, Tasks)> {
    let Ready {
        world,
        tokens,
        endpoints,
    } = ready;
    remember_tokens(&store, &tokens).await?;
    let epoch = store.acquire_epoch().await.context("take the lead")?;
    tracing::info!(%epoch, "this server leads");
    let state = stored_state(&store, prices).await?;
    endpoints.sweep(|job| state.job_named(job).is_some());
    let settings = ServerSettings {
        rollout: rollout_params(config),
        prices: prices.clone(),
    };
    let resumed = remembered(&store, &state, &world.params).await?;
    let observatory = Arc::new(Mutex::new(resumed));
    look_back(&store, &state, &world, &observatory).await?;
    let (lead, registry) = (Lead::default(), Arc::<Registry>::default());
    let (core, core_task) = Core::spawn(CoreParts {
        machine: ServerMachine::new(state, epoch, world.catalog, settings),
        store: store.clone(),
        registry: registry.clone(),
        endpoints: endpoints.clone(),
        lead: lead.clone(),
        shutdown: shutdown.clone(),
    });
    let points = Arc::new(PointsBoard::default());
    let tick_parts = TickParts {
        core: core.clone(),
        store: store.clone(),
        observatory: observatory.clone(),
        world: world.clone(),
        points: points.clone(),
        recent: Arc::default(),
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
    let (pulse, pulse_task) = Pulse::start(store.clone(), shutdown.clone());
    let endpoint_keeper = endpoints::keep(endpoints.clone(), shutdown.clone());
    let tasks = TaskTracker::new();
    let parts = Parts {
        core,
        lead,
        pulse,
        requests: Requests::new(store.clone()),
        store,
        tokens,
        registry,
        endpoints,
        observatory,
        world,
        points,
        ticks,
        tasks,
        shutdown,
    };
    Ok((
        parts,
        vec![core_task, tick_task, keeper, pulse_task, endpoint_keeper],
    ))
}

/// What is stored, at these prices; rows that cannot be read are named in the log.
async fn stored_state(store: &Store, prices: &PriceBook) -> anyhow::Result<ServerState> {
    let mut loaded = store.load_state().await.context("load the state")?;
    loaded.state.reprice(prices);
    for row in &loaded.quarantined {
        tracing::error!(
            table = row.table,
            key = row.key,
            problem = row.problem,
            "row left out"
        );
    }
    Ok(loaded.state)
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

/// An observatory that goes on where the last server's stood: with its thresholds, and with the block
/// means of the rows that invariance is tested on.
async fn remembered(
    store: &Store,
    state: &ServerState,
    params: &Params,
) -> anyhow::Result<Observatory> {
    let newest = state.tick.as_ref().map_or(0, |t| t.id.0);
    let from = TickId(newest - i64::from(params.icp_window_ticks));
    let rows = store
        .evidence_readable_since(from, MAX_RECALLED_ROWS)
        .await
        .context("read recent evidence")?;
    Ok(Observatory::resume(&state.calibration, &rows))
}

/// Reads back what agents showed lately, so that a restart does not blind the next ticks.
async fn look_back(
    store: &Store,
    state: &ServerState,
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
