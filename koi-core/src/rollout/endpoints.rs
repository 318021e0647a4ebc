//! Which replicas gateways may use, with weights by predicted capacity.

use serde::{Deserialize, Serialize};

use super::desired::ladder_of;
use super::live::{Live, ObservedPhase};
use crate::ids::{JobId, ReplicaId};
use crate::store::{JobRecord, ReplicaPhase, ReplicaRecord, ReplicaRole, ServerState};

/// One ready endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedEndpoint {
    /// Replica.
    pub replica_id: ReplicaId,
    /// IP address.
    pub address: String,
    /// Port.
    pub port: u16,
    /// Share of the job's predicted capacity; the set sums to 1.
    pub weight: f64,
}

/// Ready endpoints of a job; also the JSON file for gateways.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndpointSet {
    /// Job's name.
    pub job: String,
    /// Grows with every change of the set.
    pub version: i64,
    /// Name to put into requests.
    pub served_model_name: String,
    /// Endpoints in replica order.
    pub endpoints: Vec<PublishedEndpoint>,
}

/// Endpoints of one job; none once it is finished. The agent's newest word wins over the stored phase, so a dead engine
/// disappears even while the database is away; a silent host's replicas stay, presumed serving.
#[must_use]
pub fn endpoints_of(state: &ServerState, live: &Live, job: JobId) -> Vec<PublishedEndpoint> {
    let Some(record) = state.jobs.get(&job).filter(|j| !j.state.is_finished()) else {
        return Vec::new();
    };
    let ready: Vec<_> = state
        .replicas_of(job)
        .filter(|r| r.role == ReplicaRole::Serve)
        .filter_map(|r| ready_at(state, live, r).map(|at| (r, at, capacity(record, r))))
        .collect();
    let total: f64 = ready.iter().map(|(_, _, c)| c).sum();
    ready
        .iter()
        .map(|(replica, (address, port), capacity)| PublishedEndpoint {
            replica_id: replica.id.clone(),
            address: address.clone(),
            port: *port,
            weight: if total > 0.0 {
                capacity / total
            } else {
                1.0 / ready.len() as f64
            },
        })
        .collect()
}

fn ready_at(state: &ServerState, live: &Live, replica: &ReplicaRecord) -> Option<(String, u16)> {
    let host = state.hosts.get(&replica.host)?;
    if let Some(heard) = live.hosts.get(&replica.host) {
        let seen = heard.replicas.get(&replica.id)?;
        let port = seen.port.filter(|_| seen.phase == ObservedPhase::Ready)?;
        return Some((host.facts.address.clone(), port));
    }
    let endpoint = replica
        .endpoint
        .as_ref()
        .filter(|_| replica.phase == ReplicaPhase::Ready)?;
    Some((endpoint.address.clone(), endpoint.port))
}

/// Predicted requests per second of one replica; 1 when nothing was predicted.
fn capacity(job: &JobRecord, replica: &ReplicaRecord) -> f64 {
    ladder_of(job, replica)
        .and_then(|l| l.promise.ranks.get(replica.id.rank as usize))
        .map(|p| p.capacity_rps)
        .filter(|c| c.is_finite() && *c > 0.0)
        .unwrap_or(1.0)
}
