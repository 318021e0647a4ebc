//! What the server remembers, and the only way it changes.
//!
//! [`ServerState`] is the decision state: a fold of [`StoreTx`] values. Postgres interprets the
//! same values durably (`koi-server/src/store`), the simulator's store in memory; one conformance
//! suite holds both to [`ServerState::apply`]. Nothing here waits or touches a database. Spec §18.1.

mod holders;
mod prices;
pub mod records;
mod state;
mod undo;

#[cfg(test)]
mod tests;

pub use records::{
    AuditRecord, Endpoint, JobRecord, JobState, PlanRecord, ReplicaPhase, ReplicaRecord,
    ReplicaRole, RequestRecord, Rollout, RolloutKind,
};
pub use state::{BeliefMove, ServerState, TxRefusal};

use serde::{Deserialize, Serialize};

use crate::catalog::price::{PriceFilter, PricedRow};
use crate::causal::BeliefEvent;
use crate::host::HostRecord;
use crate::ids::{Epoch, JobId, PlanSeq, ReplicaId, TickId};
use crate::lifecycle::MechanismRecord;
use crate::slow_loop::{SlowState, SlowTick};
use crate::tick::{Phase, TickRecord};
use crate::time::UtcMicros;
use crate::validation::EvidenceRow;
use crate::validation::contrast::ContrastUpdate;
use crate::validation::meta::CalibrationRecord;

/// Which decision a transaction carries. For the audit trail, metrics and crash points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TxKind {
    /// A job was accepted.
    JobSubmitted,
    /// A job is to end.
    JobCancelled,
    /// An agent stated or changed its facts.
    HostSeen,
    /// An operator cordoned, drained or released a host.
    HostPolicy,
    /// A price feed brought prices.
    PricesUpdated,
    /// An operator took prices out of the feed.
    PricesRemoved,
    /// A mechanism was proposed.
    MechanismProposed,
    /// S0.
    TickOpened,
    /// The tick moved to its next phase and wrote nothing else.
    TickAdvanced,
    /// S2: evidence rows together with the phase.
    EvidenceWritten,
    /// S3: belief events and slow state together with the phase.
    LearningApplied,
    /// S6: plan, ladders, reservations and desired sets together with the phase.
    PlanCommitted,
    /// S7.
    TickClosed,
    /// Agents reported changes of replicas.
    ReplicasObserved,
    /// Roll-outs moved on.
    RolloutsAdvanced,
}

impl TxKind {
    /// Every kind, for metrics and tests.
    pub const ALL: [Self; 15] = [
        Self::JobSubmitted,
        Self::JobCancelled,
        Self::HostSeen,
        Self::HostPolicy,
        Self::PricesUpdated,
        Self::PricesRemoved,
        Self::MechanismProposed,
        Self::TickOpened,
        Self::TickAdvanced,
        Self::EvidenceWritten,
        Self::LearningApplied,
        Self::PlanCommitted,
        Self::TickClosed,
        Self::ReplicasObserved,
        Self::RolloutsAdvanced,
    ];

    /// The name stored and shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::JobSubmitted => "job_submitted",
            Self::JobCancelled => "job_cancelled",
            Self::HostSeen => "host_seen",
            Self::HostPolicy => "host_policy",
            Self::PricesUpdated => "prices_updated",
            Self::PricesRemoved => "prices_removed",
            Self::MechanismProposed => "mechanism_proposed",
            Self::TickOpened => "tick_opened",
            Self::TickAdvanced => "tick_advanced",
            Self::EvidenceWritten => "evidence_written",
            Self::LearningApplied => "learning_applied",
            Self::PlanCommitted => "plan_committed",
            Self::TickClosed => "tick_closed",
            Self::ReplicasObserved => "replicas_observed",
            Self::RolloutsAdvanced => "rollouts_advanced",
        }
    }
}

/// A condition on the state the transaction commits on (compare-and-set).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// The newest plan is this one.
    PlanSeq(PlanSeq),
    /// This tick is the newest and stands in this phase.
    TickPhase(TickId, Phase),
    /// This tick is the newest and not closed.
    TickOpen(TickId),
    /// The job's row has this version; 0 means that there is no such job.
    JobVersion(JobId, i64),
}

/// One row-level change. Records are written whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Inserts or replaces a job; its version must be one more than the stored one.
    Job(Box<JobRecord>),
    /// Inserts or replaces a host.
    Host(Box<HostRecord>),
    /// Inserts or replaces a replica and, with it, the reservation of its devices.
    Replica(Box<ReplicaRecord>),
    /// Ends a replica after proof of exit: its devices are free again.
    ReplicaReleased(ReplicaId),
    /// Inserts or replaces a tick.
    Tick(Box<TickRecord>),
    /// Appends a plan.
    Plan(Box<PlanRecord>),
    /// Appends evidence rows; a row that exists is left as it is.
    Evidence(Vec<EvidenceRow>),
    /// Appends belief events.
    BeliefEvents(Vec<BeliefEvent>),
    /// Writes deployments and sums of contrasts, each whole.
    Contrasts(Box<ContrastUpdate>),
    /// Appends a calibration of the detector; the newest counts.
    Calibration(Box<CalibrationRecord>),
    /// Replaces the slow loop's state.
    Slow(Box<SlowState>),
    /// Appends a tick of the slow loop to its history.
    SlowTick(Box<SlowTick>),
    /// Inserts or replaces a mechanism beside the catalog's seeds.
    Mechanism(Box<MechanismRecord>),
    /// Inserts or replaces prices of the feed.
    Prices(Vec<PricedRow>),
    /// Takes prices out of the feed.
    PricesRemoved(PriceFilter),
    /// Remembers the answer to an idempotency key.
    Request(Box<RequestRecord>),
    /// Appends an audit line.
    Audit(Box<AuditRecord>),
}

/// One atomic write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoreTx {
    /// Which decision it carries.
    pub kind: TxKind,
    /// Fencing token of the writer; a lower one than the stored is refused.
    pub epoch: Epoch,
    /// When it was decided.
    pub at: UtcMicros,
    /// Conditions.
    pub expects: Vec<Expect>,
    /// Changes, in order.
    pub changes: Vec<Change>,
}
