//! The whole desired set of one host: the only thing the server ever tells an agent to do.

use serde::{Deserialize, Serialize};

use super::RolloutParams;
use crate::catalog::Catalog;
use crate::configuration::engine_args;
use crate::host::HostRecord;
use crate::ids::{Epoch, HostGeneration, HostId, PlanSeq, ReplicaId};
use crate::job::{EngineName, OnDisconnect};
use crate::ladder::CommittedLadder;
use crate::store::{JobRecord, ReplicaRecord, ReplicaRole, ServerState};

/// Version of a desired set. Compared in this order; agents refuse lower ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct DesiredVersion {
    /// Server's fencing token.
    pub epoch: Epoch,
    /// Newest plan.
    pub plan_seq: PlanSeq,
    /// Version of this host's set.
    pub host_generation: HostGeneration,
}

/// What is wanted of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaMode {
    /// Run.
    Serve,
    /// Finish what is in flight, stop, prove it.
    Drain,
}

/// One replica of a desired set, with everything needed to launch it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DesiredReplica {
    /// Identity.
    pub id: ReplicaId,
    /// What is wanted.
    pub mode: ReplicaMode,
    /// Engine family.
    pub engine: EngineName,
    /// Version the arguments were rendered for.
    pub engine_version: String,
    /// Arguments, one token each.
    pub engine_args: Vec<String>,
    /// Model id; also the served model name.
    pub model_id: String,
    /// The model's config.json.
    pub model_config_json: String,
    /// Devices, in shard order.
    pub gpu_uuids: Vec<String>,
    /// Longest wait for the first token.
    pub start_deadline_s: u32,
    /// Longest wait for requests in flight.
    pub drain_grace_s: u32,
    /// What to do when the server is away for long.
    pub on_disconnect: OnDisconnect,
}

/// The whole desired set of one host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DesiredSet {
    /// Version.
    pub version: DesiredVersion,
    /// Every replica the host is to have; what is not named is to go.
    pub replicas: Vec<DesiredReplica>,
}

/// The ladder a replica was made for, wherever it stands now.
#[must_use]
pub fn ladder_of<'a>(job: &'a JobRecord, replica: &ReplicaRecord) -> Option<&'a CommittedLadder> {
    let rollout = job.rollout.as_ref().map(|r| &r.target);
    [job.active.as_ref(), rollout]
        .into_iter()
        .flatten()
        .find(|l| l.generation == replica.id.generation)
}

/// Desired set of a host from the stored state.
///
/// A replica whose ladder is no longer known (its generation was replaced) is on its way out; it is
/// carried without arguments, and an agent launches nothing without them.
#[must_use]
pub fn desired_set(
    state: &ServerState,
    host: &HostId,
    catalog: &Catalog,
    params: &RolloutParams,
) -> DesiredSet {
    let Some(record) = state.hosts.get(host) else {
        return DesiredSet::default();
    };
    let version = DesiredVersion {
        epoch: state.epoch,
        plan_seq: state.plan_seq,
        host_generation: record.generation,
    };
    let replicas = state
        .replicas
        .values()
        .filter(|r| r.host == *host)
        .filter_map(|r| desired_replica(state, r, record, catalog, params))
        .collect();
    DesiredSet { version, replicas }
}

fn desired_replica(
    state: &ServerState,
    replica: &ReplicaRecord,
    host: &HostRecord,
    catalog: &Catalog,
    params: &RolloutParams,
) -> Option<DesiredReplica> {
    let job = state.jobs.get(&replica.job)?;
    let ladder = ladder_of(job, replica);
    let mode = match replica.role {
        // Its job was cancelled a moment ago: nothing new is started for it.
        ReplicaRole::Serve if ladder.is_none() => ReplicaMode::Drain,
        ReplicaRole::Serve | ReplicaRole::Withdrawn { .. } => ReplicaMode::Serve,
        ReplicaRole::Drain { .. } => ReplicaMode::Drain,
    };
    let engine_version = host
        .facts
        .engines
        .iter()
        .find(|e| e.engine == job.spec.engine)
        .map_or_else(String::new, |e| e.version.clone());
    let engine_args = ladder
        .and_then(|l| l.ladder.ranks.get(replica.id.rank as usize))
        .and_then(|rank| engine_args(catalog, &rank.configuration, &engine_version).ok())
        .unwrap_or_default();
    Some(DesiredReplica {
        id: replica.id.clone(),
        mode,
        engine: job.spec.engine,
        engine_version,
        engine_args,
        model_id: job.spec.model.id.clone(),
        model_config_json: job.spec.model.config_json.clone(),
        gpu_uuids: replica.gpu_uuids.clone(),
        start_deadline_s: params.start_deadline_s,
        drain_grace_s: params.drain_grace_s,
        on_disconnect: job.spec.on_disconnect,
    })
}
