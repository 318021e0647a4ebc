//! From committed plans to running replicas: the pure half of the executor.
//!
//! Desired sets, endpoints and every step of a roll-out are computed from the stored state and
//! from what agents last observed. Nothing is remembered elsewhere, so a server that restarts
//! goes on where the old one stopped. Tested together with both machines, in `server/tests`.
//! Spec §14; reliability contract, rows H1, H2, H5, H11.

pub mod desired;
pub mod endpoints;
pub mod live;
pub mod reconcile;

use serde::{Deserialize, Serialize};

pub use desired::{DesiredReplica, DesiredSet, DesiredVersion, ReplicaMode};
pub use endpoints::{EndpointSet, PublishedEndpoint};
pub use live::{Live, ObservedPhase, ObservedReplica, ObservedState, SloTally};

/// How roll-outs are paced. All spans in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RolloutParams {
    /// New and old run side by side for so long before the new one is judged.
    pub canary_window_s: u32,
    /// From unpublishing an endpoint to draining it, so that clients notice.
    pub withdraw_s: u32,
    /// Longest wait for requests in flight before an engine is stopped.
    pub drain_grace_s: u32,
    /// Longest wait for a launched replica's first token.
    pub start_deadline_s: u32,
}

impl Default for RolloutParams {
    fn default() -> Self {
        Self {
            canary_window_s: 300,
            withdraw_s: 3,
            drain_grace_s: 120,
            start_deadline_s: 1200,
        }
    }
}
