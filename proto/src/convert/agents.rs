//! Agents' messages: facts, observations and desired sets.

use koi_core::gpu::{GpuFacts, GpuReading};
use koi_core::host::{EngineInstall, HostFacts, HostPrice};
use koi_core::ids::{Epoch, HostGeneration, PlanSeq};
use koi_core::job::{EngineName, OnDisconnect};
use koi_core::rollout::{
    DesiredReplica, DesiredSet, DesiredVersion, ObservedPhase, ObservedReplica, ObservedState,
    ReplicaMode,
};
use koi_core::violation::{FieldViolation, Violations};

use super::environment::{environment_from_wire, environment_to_wire};
use super::text::words;
use crate::v1;

/// Most replicas one agent may report.
const MAX_REPLICAS: usize = 256;
/// Most devices one agent may report readings of.
const MAX_READINGS: usize = 64;
/// Most characters of a reason.
const MAX_REASON: usize = 2000;
/// Most arguments of an engine, and most characters of each.
const MAX_ARGS: (usize, usize) = (200, 4096);
/// Most characters of the name of a device.
const MAX_NAME: usize = 80;

/// Domain to wire.
#[must_use]
pub fn version_to_wire(v: DesiredVersion) -> v1::DesiredVersion {
    v1::DesiredVersion {
        epoch: v.epoch.0,
        plan_seq: v.plan_seq.0,
        host_generation: v.host_generation.0,
    }
}

/// Wire to domain; an absent version is the lowest.
#[must_use]
pub fn version_from_wire(v: Option<&v1::DesiredVersion>) -> DesiredVersion {
    v.map_or_else(DesiredVersion::default, |v| DesiredVersion {
        epoch: Epoch(v.epoch),
        plan_seq: PlanSeq(v.plan_seq),
        host_generation: HostGeneration(v.host_generation),
    })
}

/// The engine family of this name.
#[must_use]
pub fn engine_from_wire(name: &str) -> Option<EngineName> {
    [EngineName::Vllm, EngineName::Sim]
        .into_iter()
        .find(|e| e.name() == name)
}

/// Domain to wire: `keep_serving` or `replace_after:SECONDS`.
#[must_use]
pub fn on_disconnect_to_wire(policy: OnDisconnect) -> String {
    match policy {
        OnDisconnect::KeepServing => "keep_serving".to_owned(),
        OnDisconnect::ReplaceAfter { seconds } => format!("replace_after:{seconds}"),
    }
}

/// Wire to domain; empty means the default.
#[must_use]
pub fn on_disconnect_from_wire(text: &str) -> Option<OnDisconnect> {
    if text.is_empty() || text == "keep_serving" {
        return Some(OnDisconnect::KeepServing);
    }
    let seconds = text.strip_prefix("replace_after:")?.parse().ok()?;
    Some(OnDisconnect::ReplaceAfter { seconds })
}

/// Domain to wire.
#[must_use]
pub fn facts_to_wire(facts: &HostFacts) -> v1::HostFacts {
    v1::HostFacts {
        host: facts.host.as_str().to_owned(),
        environment: Some(environment_to_wire(&facts.environment)),
        instance_type: facts.instance_type.clone(),
        gpus: facts.gpus.iter().map(gpu_to_wire).collect(),
        nvlink: facts.nvlink,
        price: facts.price.as_ref().map(|p| v1::HostPrice {
            usd_per_hour: p.usd_per_hour,
            source: p.source.clone(),
            date: p.date.clone(),
        }),
        address: facts.address.clone(),
        boot_id: facts.boot_id.clone(),
        build_id: facts.build_id.clone(),
        engines: facts.engines.iter().map(install_to_wire).collect(),
        simulated: facts.simulated,
    }
}

/// Domain to wire.
#[must_use]
pub fn install_to_wire(install: &EngineInstall) -> v1::EngineInstall {
    v1::EngineInstall {
        engine: install.engine.name().to_owned(),
        version: install.version.clone(),
    }
}

fn gpu_to_wire(gpu: &GpuFacts) -> v1::GpuFacts {
    v1::GpuFacts {
        uuid: gpu.uuid.clone(),
        index: gpu.index,
        name: gpu.name.clone(),
        memory_bytes: gpu.memory_bytes,
        power_limit_w: gpu.power_limit_w,
    }
}

/// Wire to domain, checked.
///
/// # Errors
/// Every field that is wrong.
pub fn facts_from_wire(facts: v1::HostFacts) -> Result<HostFacts, Vec<FieldViolation>> {
    let mut bad = Violations::default();
    let host = facts
        .host
        .parse()
        .map_err(|e| bad.add("host", format!("{e}")))
        .ok();
    let environment = match facts.environment.as_ref().map(environment_from_wire) {
        Some(Ok(environment)) => Some(environment),
        Some(Err(e)) => {
            bad.add("environment", e.to_string());
            None
        }
        None => {
            bad.add("environment", "is missing");
            None
        }
    };
    let engines = facts.engines.iter().take(8).filter_map(|e| {
        let engine = engine_from_wire(&e.engine)?;
        let version = e
            .version
            .chars()
            .filter(char::is_ascii_graphic)
            .take(64)
            .collect();
        Some(EngineInstall { engine, version })
    });
    let engines = engines.collect();
    let (Some(host), Some(environment)) = (host, environment) else {
        return Err(bad.into_vec());
    };
    HostFacts {
        host,
        environment,
        instance_type: facts.instance_type,
        gpus: facts.gpus.into_iter().map(gpu_from_wire).collect(),
        nvlink: facts.nvlink,
        price: facts.price.map(|p| HostPrice {
            usd_per_hour: p.usd_per_hour,
            source: words(&p.source, 200),
            date: words(&p.date, 40),
        }),
        address: facts.address,
        boot_id: facts.boot_id,
        build_id: facts.build_id,
        engines,
        simulated: facts.simulated,
    }
    .check()
}

fn gpu_from_wire(gpu: v1::GpuFacts) -> GpuFacts {
    GpuFacts {
        uuid: gpu.uuid,
        index: gpu.index,
        name: words(&gpu.name, MAX_NAME),
        memory_bytes: gpu.memory_bytes,
        power_limit_w: gpu.power_limit_w.filter(|w| w.is_finite() && *w > 0.0),
    }
}

/// Domain to wire.
#[must_use]
pub fn observed_to_wire(state: &ObservedState) -> v1::Observed {
    v1::Observed {
        applied: Some(version_to_wire(state.applied)),
        replicas: state.replicas.iter().map(replica_to_wire).collect(),
        gpus: state.gpus.iter().map(reading_to_wire).collect(),
        refusal: state.refusal.clone().unwrap_or_default(),
    }
}

fn replica_to_wire(replica: &ObservedReplica) -> v1::ObservedReplica {
    v1::ObservedReplica {
        replica_id: replica.id.to_string(),
        phase: replica.phase.name().to_owned(),
        reason: replica.reason.clone(),
        port: replica.port.map(u32::from),
        n_starts: replica.n_starts,
        exit_proven: replica.exit_proven,
        engine_version: replica.engine_version.clone(),
        engine_args: replica.engine_args.clone(),
    }
}

fn reading_to_wire(r: &GpuReading) -> v1::GpuReading {
    v1::GpuReading {
        uuid: r.uuid.clone(),
        memory_used_bytes: r.memory_used_bytes,
        utilization_fraction: r.utilization_fraction,
        power_w: r.power_w,
        energy_millijoules: r.energy_millijoules,
        temperature_c: r.temperature_c,
    }
}

/// Wire to domain. Replicas that cannot be understood are left out: their absence reads as
/// "not running", and the desired set brings them back or proves them gone.
#[must_use]
pub fn observed_from_wire(observed: v1::Observed) -> ObservedState {
    ObservedState {
        applied: version_from_wire(observed.applied.as_ref()),
        replicas: replicas_from_wire(observed.replicas),
        gpus: observed
            .gpus
            .into_iter()
            .take(MAX_READINGS)
            .map(reading_from_wire)
            .collect(),
        refusal: Some(words(&observed.refusal, MAX_REASON)).filter(|r| !r.is_empty()),
    }
}

/// Replicas of a hello or an observation.
#[must_use]
pub fn replicas_from_wire(replicas: Vec<v1::ObservedReplica>) -> Vec<ObservedReplica> {
    replicas
        .into_iter()
        .take(MAX_REPLICAS)
        .filter_map(replica_from_wire)
        .collect()
}

fn replica_from_wire(replica: v1::ObservedReplica) -> Option<ObservedReplica> {
    Some(ObservedReplica {
        id: replica.replica_id.parse().ok()?,
        phase: ObservedPhase::from_name(&replica.phase)?,
        reason: words(&replica.reason, MAX_REASON),
        port: replica
            .port
            .and_then(|p| u16::try_from(p).ok())
            .filter(|p| *p != 0),
        n_starts: replica.n_starts,
        exit_proven: replica.exit_proven,
        engine_version: words(&replica.engine_version, 64),
        engine_args: replica
            .engine_args
            .iter()
            .take(MAX_ARGS.0)
            .map(|arg| words(arg, MAX_ARGS.1))
            .collect(),
    })
}

fn reading_from_wire(r: v1::GpuReading) -> GpuReading {
    let finite = |x: Option<f64>| x.filter(|x| x.is_finite() && *x >= 0.0);
    GpuReading {
        uuid: words(&r.uuid, MAX_NAME),
        memory_used_bytes: r.memory_used_bytes,
        utilization_fraction: finite(r.utilization_fraction).filter(|x| *x <= 1.0),
        power_w: finite(r.power_w),
        energy_millijoules: r.energy_millijoules,
        temperature_c: r.temperature_c.filter(|x| x.is_finite()),
        ..GpuReading::default()
    }
}

/// Domain to wire.
#[must_use]
pub fn desired_to_wire(set: &DesiredSet) -> v1::DesiredSet {
    v1::DesiredSet {
        version: Some(version_to_wire(set.version)),
        replicas: set.replicas.iter().map(desired_replica_to_wire).collect(),
    }
}

fn desired_replica_to_wire(r: &DesiredReplica) -> v1::DesiredReplica {
    v1::DesiredReplica {
        replica_id: r.id.to_string(),
        mode: match r.mode {
            ReplicaMode::Serve => "serve".to_owned(),
            ReplicaMode::Drain => "drain".to_owned(),
        },
        engine: r.engine.name().to_owned(),
        engine_version: r.engine_version.clone(),
        engine_args: r.engine_args.clone(),
        model_id: r.model_id.clone(),
        model_config_json: r.model_config_json.clone(),
        gpu_uuids: r.gpu_uuids.clone(),
        start_deadline_s: r.start_deadline_s,
        drain_grace_s: r.drain_grace_s,
        on_disconnect: on_disconnect_to_wire(r.on_disconnect),
    }
}

/// Wire to domain.
///
/// # Errors
/// Every field that is wrong; the agent refuses the set whole then.
pub fn desired_from_wire(set: v1::DesiredSet) -> Result<DesiredSet, Vec<FieldViolation>> {
    let mut bad = Violations::default();
    let version = version_from_wire(set.version.as_ref());
    let mut replicas = Vec::with_capacity(set.replicas.len());
    for (i, replica) in set.replicas.into_iter().enumerate() {
        match desired_replica_from_wire(replica) {
            Ok(replica) => replicas.push(replica),
            Err(problems) => bad.extend(&format!("replicas[{i}]"), problems),
        }
    }
    bad.finish(DesiredSet { version, replicas })
}

fn desired_replica_from_wire(r: v1::DesiredReplica) -> Result<DesiredReplica, Vec<FieldViolation>> {
    let mut bad = Violations::default();
    let id = r
        .replica_id
        .parse()
        .map_err(|e| bad.add("replica_id", format!("{e}")))
        .ok();
    let mode = match r.mode.as_str() {
        "serve" => Some(ReplicaMode::Serve),
        "drain" => Some(ReplicaMode::Drain),
        other => {
            bad.add("mode", format!("{other:?} is neither serve nor drain"));
            None
        }
    };
    let engine = engine_from_wire(&r.engine);
    if engine.is_none() {
        bad.add(
            "engine",
            format!("{:?} is not an engine this agent knows", r.engine),
        );
    }
    let on_disconnect = on_disconnect_from_wire(&r.on_disconnect);
    if on_disconnect.is_none() {
        bad.add(
            "on_disconnect",
            format!("{:?} is not a policy", r.on_disconnect),
        );
    }
    let (Some(id), Some(mode), Some(engine), Some(on_disconnect)) =
        (id, mode, engine, on_disconnect)
    else {
        return Err(bad.into_vec());
    };
    bad.finish(DesiredReplica {
        id,
        mode,
        engine,
        engine_version: r.engine_version,
        engine_args: r.engine_args,
        model_id: r.model_id,
        model_config_json: r.model_config_json,
        gpu_uuids: r.gpu_uuids,
        start_deadline_s: r.start_deadline_s,
        drain_grace_s: r.drain_grace_s,
        on_disconnect,
    })
}

#[cfg(test)]
mod tests;
