//! Puts the agent together: settings, devices, adopted engines, host loop, session; and takes it
//! apart. Engines outlive it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use koi_core::agent::{AgentMachine, AgentParams, LocalReplica};
use koi_core::gpu::GpuFacts;
use koi_core::host::{EngineInstall, HostFacts};
use koi_core::job::EngineName;
use koi_core::rollout::DesiredSet;
use tokio_util::sync::CancellationToken;

use crate::config::{AgentConfig, ProbeKind};
use crate::engine::EngineSettings;
use crate::engine::sim::SimSettings;
use crate::engine::version::VersionCache;
use crate::engine::vllm::{VllmProgram, VllmSettings};
use crate::gpu::GpuProbe;
use crate::gpu::cpu::CpuProbe;
use crate::gpu::isolated::Pace;
use crate::gpu::nvml;
use crate::gpu::sim::SimProbe;
use crate::host::{Host, HostParts};
use crate::launcher::Launcher;
use crate::models::ModelFolders;
use crate::observability;
use crate::ports::PortLedger;
use crate::session::Session;
use crate::spool::{Spool, SpoolLimits};
use crate::state_lock::StateLock;
use crate::supervise::adoption::{Adopted, adopt_all, noted};
use crate::supervise::binaries::find_binary;
use crate::supervise::{ReplicaProcess, Supervision, new_nonce};
use crate::telemetry::TelemetrySink;

/// Longest wait for an engine's `--version`; importing vLLM may take a minute.
const VERSION_LIMIT: Duration = Duration::from_secs(120);
/// Longest wait for engines to stop.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Seconds between TERM and KILL when every engine is to stop.
const STOP_GRACE_S: u32 = 10;

/// Runs the agent until SIGTERM or Ctrl-C; engines go on.
///
/// # Errors
/// Whatever keeps it from starting, with what to do about it.
pub async fn run(config_path: &Path) -> anyhow::Result<()> {
    let config = AgentConfig::load(config_path).context("load settings")?;
    let telemetry = observability::start("koi-agent", config.otlp_endpoint.as_deref())?;
    let shutdown = CancellationToken::new();
    stop_on_signal(shutdown.clone())?;
    std::fs::create_dir_all(&config.state_dir).context("make the state folder")?;
    let _lock = StateLock::take(&config.state_dir).await?;
    let launcher = Arc::new(launcher(&config).await?);
    let adopted = adopt(&launcher).await?;
    let desired_file = config.state_dir.join("desired.json");
    let gpus = launcher.gpus().facts().context("look at the devices")?;
    let machine = machine(&desired_file, &gpus, &adopted);
    let agent_boot = new_nonce()?;
    let spool = Spool::open(
        &config.state_dir.join("spool"),
        &agent_boot,
        SpoolLimits::default(),
    )?;
    let sink = TelemetrySink::new(spool);
    let facts = facts(&config, gpus, &launcher)?;
    let (host, events, observed) = Host::new(
        HostParts {
            machine,
            launcher,
            sink: sink.clone(),
            desired_file,
            shutdown: shutdown.clone(),
        },
        adopted,
    );
    let session = Session {
        server: config.server.clone(),
        ca_file: config.ca_file.clone(),
        token: std::fs::read_to_string(&config.token_file)
            .with_context(|| format!("read the token {}", config.token_file.display()))?
            .trim()
            .to_owned(),
        facts,
        agent_boot,
        events,
        observed,
        sink,
        shutdown: shutdown.clone(),
    };
    let (metrics_address, metrics) = telemetry
        .serve_metrics(config.metrics_listen, shutdown.clone())
        .await?;
    tracing::info!(host_id = %config.host, %metrics_address, "agent runs");
    let session = tokio::spawn(session.run());
    host.run().await;
    for task in [session, metrics] {
        if let Err(error) = task.await {
            tracing::error!(%error, "a task ended badly");
        }
    }
    telemetry.flush();
    Ok(())
}

/// Stops every engine of this host and returns when nothing is left of them.
///
/// # Errors
/// When some of them are left after the limit.
pub async fn stop_engines(config_path: &Path) -> anyhow::Result<()> {
    let config = AgentConfig::load(config_path).context("load settings")?;
    let launcher = launcher_without_engines(&config)?;
    let running = adopt(&launcher).await?;
    for process in &running {
        process
            .stop(STOP_GRACE_S)
            .await
            .with_context(|| format!("stop {}", process.meta.replica_id))?;
    }
    let all = async {
        for process in &running {
            launcher
                .prove_exit(&process.meta.replica_id, Some(process))
                .await;
        }
    };
    tokio::time::timeout(STOP_LIMIT, all)
        .await
        .context("some engines are still there; look at the state folder")?;
    Ok(())
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
        tracing::info!("stopping; engines go on");
        shutdown.cancel();
    });
    Ok(())
}

fn probe(config: &AgentConfig) -> anyhow::Result<Box<dyn GpuProbe>> {
    Ok(match config.gpu.probe {
        ProbeKind::Nvml => Box::new(nvml::start(Pace::default())?),
        ProbeKind::Sim => {
            let folder = config
                .gpu
                .sim_dir
                .as_deref()
                .context("gpu.sim_dir is needed")?;
            Box::new(SimProbe::open(folder)?)
        }
        ProbeKind::Cpu => Box::new(CpuProbe::open(&config.host)?),
    })
}

fn engine_settings(config: &AgentConfig) -> anyhow::Result<EngineSettings> {
    let engines = &config.engines;
    let program = match (&engines.vllm_command, &engines.vllm_python) {
        (Some(path), _) => Some(VllmProgram::Command(path.clone())),
        (None, Some(path)) => Some(VllmProgram::Python(path.clone())),
        (None, None) => None,
    };
    let sim = engines.sim.then(|| {
        Ok::<_, anyhow::Error>(SimSettings {
            program: find_binary("koi-engine-sim")?,
            gpu_dir: config
                .gpu
                .sim_dir
                .clone()
                .context("gpu.sim_dir is needed for engines.sim")?,
        })
    });
    Ok(EngineSettings {
        vllm: program.map(|program| VllmSettings {
            program,
            hf_home: None,
            cache_dir: None,
            cpu_kv_cache_gib: engines.vllm_cpu_kv_cache_gib,
            load_format: engines.vllm_load_format,
        }),
        sim: sim.transpose()?,
    })
}

fn launcher_without_engines(config: &AgentConfig) -> anyhow::Result<Launcher> {
    let [first, last] = config.port_range;
    let ledger = config.state_dir.join("ports.json");
    Ok(Launcher {
        supervision: Supervision {
            state_root: config.state_dir.join("replicas"),
            shim: find_binary("koi-shim")?,
            cluster_id: std::env::var("KOI_CLUSTER_ID").ok(),
        },
        engines: EngineSettings::default(),
        versions: BTreeMap::new(),
        models: ModelFolders {
            root: config.models.root.clone(),
            brought: config.state_dir.join("models"),
        },
        address: config.advertise_address.to_string(),
        gpus: probe(config)?,
        ports: Mutex::new(PortLedger::open(
            &ledger,
            first..=last,
            config.advertise_address,
        )),
        turn: tokio::sync::Mutex::new(()),
    })
}

/// The launcher with every engine that this host really has. One that does not answer is left out
/// and said aloud: the host can still serve the others.
async fn launcher(config: &AgentConfig) -> anyhow::Result<Launcher> {
    let mut launcher = launcher_without_engines(config)?;
    launcher.engines = engine_settings(config)?;
    let cache = VersionCache::default();
    if let Some(sim) = &launcher.engines.sim {
        let version = cache
            .of(&sim.program, &["--version"], VERSION_LIMIT)
            .await?;
        launcher.versions.insert(EngineName::Sim, version);
    }
    if let Some(vllm) = &launcher.engines.vllm {
        match cache.of_vllm(&vllm.program, VERSION_LIMIT).await {
            Ok(version) => drop(launcher.versions.insert(EngineName::Vllm, version)),
            Err(error) => tracing::error!(%error, "vLLM is configured and does not answer"),
        }
    }
    Ok(launcher)
}

/// Takes over what runs, with its ports. Folders that say nothing usable are reported and left alone.
///
/// # Errors
/// When the folder of all replicas cannot be listed.
pub async fn adopt(launcher: &Launcher) -> anyhow::Result<Vec<ReplicaProcess>> {
    let (mut running, mut unsure) = (Vec::new(), Vec::new());
    for outcome in adopt_all(&launcher.supervision)
        .await
        .context("look for running engines")?
    {
        match outcome.found {
            Adopted::Running(process) | Adopted::Reshimmed(process) => running.push(*process),
            Adopted::Ended(meta, _) | Adopted::OtherBoot(meta) => launcher.forget(&meta.replica_id),
            Adopted::Unserved(process, why) => {
                running.extend(unserved(launcher, *process, &why).await?);
            }
            Adopted::Unusable(why) => {
                tracing::error!(folder = %outcome.state_dir.display(), why, "left alone");
                unsure.extend(noted(&outcome.state_dir));
            }
        }
    }
    launcher.stop_orphans(None).await;
    launcher.rebuild_ports(&running, &unsure);
    Ok(running)
}

/// An engine without a shim is kept as long as it lives: it serves, and its worker goes on trying
/// to give it one. Of a dead one, what is left is removed.
async fn unserved(
    launcher: &Launcher,
    process: ReplicaProcess,
    why: &str,
) -> anyhow::Result<Option<ReplicaProcess>> {
    let id = process.meta.replica_id.clone();
    if !process.has_ended()? {
        tracing::warn!(replica = %id, why, "it runs and no shim serves it");
        return Ok(Some(process));
    }
    tracing::warn!(replica = %id, why, "it has ended unseen");
    if let Err(error) = process.clear_away().await {
        tracing::error!(replica = %id, %error, "what it left behind stays");
    }
    launcher.forget(&id);
    Ok(None)
}

fn machine(desired_file: &Path, gpus: &[GpuFacts], adopted: &[ReplicaProcess]) -> AgentMachine {
    let cached: DesiredSet = koi_shim::files::read_json(desired_file)
        .ok()
        .flatten()
        .unwrap_or_default();
    let replicas = adopted.iter().map(|p| {
        let label = |name: &str| p.meta.labels.get(name).cloned().unwrap_or_default();
        let args = label("engine_args").lines().map(str::to_owned).collect();
        LocalReplica::adopted(
            p.meta.replica_id.clone(),
            p.meta.port,
            label("engine_version"),
            args,
        )
    });
    let uuids = gpus.iter().map(|g| g.uuid.clone()).collect();
    AgentMachine::new(AgentParams::default(), uuids, cached, replicas.collect())
}

fn facts(
    config: &AgentConfig,
    gpus: Vec<GpuFacts>,
    launcher: &Launcher,
) -> anyhow::Result<HostFacts> {
    let engines = launcher
        .versions
        .iter()
        .map(|(engine, version)| EngineInstall {
            engine: *engine,
            version: version.clone(),
        });
    let facts = HostFacts {
        host: config.host.clone(),
        environment: config.environment.parse()?,
        instance_type: config.instance_type.clone(),
        gpus,
        nvlink: config.nvlink,
        price: config.price(),
        address: config.advertise_address.to_string(),
        boot_id: koi_shim::process::boot_id()?,
        build_id: koi_core::build::BUILD_ID.to_owned(),
        engines: engines.collect(),
        simulated: config.gpu.probe == ProbeKind::Sim,
    };
    facts.check().map_err(|problems| {
        let lines = problems
            .iter()
            .map(|p| format!("{}: {}", p.field, p.message));
        anyhow::anyhow!(
            "this host's facts are wrong: {}",
            lines.collect::<Vec<_>>().join("; ")
        )
    })
}
