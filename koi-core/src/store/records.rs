//! The rows of the server's memory as values.

use serde::{Deserialize, Serialize};

use crate::ids::{Generation, HostId, JobId, PlanSeq, ReplicaId, TickId};
use crate::job::JobSpec;
use crate::ladder::CommittedLadder;
use crate::plan::{Considered, PlanAction, PlanTally};
use crate::time::UtcMicros;

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum JobState {
    /// Accepted, nothing runs.
    Waiting,
    /// A ladder is committed: serving, or on its way to.
    Running,
    /// Preempted by the root planner.
    Paused,
    /// Its first ladder could not be started.
    LaunchFailed {
        /// Why, with the first failure's words.
        reason: String,
    },
    /// Over.
    Finished {
        /// Cancelled, finished, dead letter.
        reason: String,
    },
}

impl JobState {
    /// Name for tables.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::LaunchFailed { .. } => "launch_failed",
            Self::Finished { .. } => "finished",
        }
    }

    /// True when the job is over.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        matches!(self, Self::Finished { .. })
    }
}

/// How a new generation comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutKind {
    /// Nothing served before.
    Place,
    /// New replicas beside the old ones, judged, then the old ones drained.
    Canary,
    /// Old replicas go before the new ones come; only for jobs that allow a gap.
    Recreate,
}

/// A generation on its way in. Two generations are authorised only inside one of these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    /// How.
    pub kind: RolloutKind,
    /// The new ladder.
    pub target: CommittedLadder,
    /// When every new replica had answered with a real token.
    pub ready_at: Option<UtcMicros>,
    /// Not ready until then: reverted.
    pub deadline: UtcMicros,
    /// Why the planner wanted it.
    pub reason: String,
}

/// A job as the server keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Identity.
    pub id: JobId,
    /// What was asked.
    pub spec: JobSpec,
    /// Where it stands.
    pub state: JobState,
    /// When it was accepted.
    pub submitted_at: UtcMicros,
    /// Highest generation ever given out for this job.
    pub last_generation: Generation,
    /// Ladder that serves.
    pub active: Option<CommittedLadder>,
    /// Generation on its way in.
    pub rollout: Option<Rollout>,
    /// What the last plan says to people: why it waits, or that it is at risk.
    pub note: Option<String>,
    /// Ticks spent waiting.
    pub ticks_waited: u32,
    /// Generated tokens counted so far, for batch budgets.
    pub tokens_done: u64,
    /// Roll-outs that failed since the last success.
    pub recent_failures: u32,
    /// Grows by one with every write.
    pub version: i64,
}

/// What the server wants of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "role")]
pub enum ReplicaRole {
    /// Run and serve.
    Serve,
    /// Still runs, no longer published; clients get 3 s to notice.
    Withdrawn {
        /// When it was taken from the endpoints.
        since: UtcMicros,
    },
    /// Finish what is in flight, then stop.
    Drain {
        /// When draining began.
        since: UtcMicros,
    },
}

/// What the agent last said of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum ReplicaPhase {
    /// Not serving yet, or again.
    Launching,
    /// A real token came back.
    Ready,
    /// The agent gave up on it.
    Failed {
        /// First failure's words.
        reason: String,
    },
}

/// Where a replica can be reached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Endpoint {
    /// IP address.
    pub address: String,
    /// Port.
    pub port: u16,
}

/// A replica as the server keeps it. While the row exists its devices are reserved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplicaRecord {
    /// Identity.
    pub id: ReplicaId,
    /// Owner.
    pub job: JobId,
    /// Host.
    pub host: HostId,
    /// Devices, in shard order.
    pub gpu_uuids: Vec<String>,
    /// What the server wants.
    pub role: ReplicaRole,
    /// What the agent last said.
    pub phase: ReplicaPhase,
    /// Where it answers, once it is ready.
    pub endpoint: Option<Endpoint>,
    /// When the plan reserved it.
    pub reserved_at: UtcMicros,
    /// When it first was ready.
    pub ready_at: Option<UtcMicros>,
    /// Engine starts the agent has counted.
    pub n_starts: u32,
}

/// A plan as stored: whole, so that it can be shown and replayed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// Position in the chain.
    pub seq: PlanSeq,
    /// The plan it follows.
    pub parent: PlanSeq,
    /// The tick that made it.
    pub tick: TickId,
    /// When.
    pub created_at: UtcMicros,
    /// Cluster-wide reasoning.
    pub rationale: String,
    /// One action per visible job.
    pub actions: Vec<PlanAction>,
    /// Options not chosen.
    pub considered: Vec<Considered>,
    /// Σ gain.
    pub objective: f64,
    /// Dual bound, when proven.
    pub bound: Option<f64>,
    /// Stable hash of the snapshot it was made from.
    pub snapshot_hash: String,
    /// Seed of the search.
    pub seed: u64,
    /// What it changed by choice.
    #[serde(default)]
    pub tally: PlanTally,
}

/// The remembered answer to an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Who asked.
    pub identity: String,
    /// The client's key.
    pub key: String,
    /// Hash of what was asked; another body under the same key is a conflict.
    pub payload_hash: String,
    /// Identity of the object the first request made or changed.
    pub object: String,
}

/// One line of the audit trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Who.
    pub actor: String,
    /// What was done.
    pub action: String,
    /// To what.
    pub object: String,
    /// Why, as the caller put it.
    pub reason: String,
}
