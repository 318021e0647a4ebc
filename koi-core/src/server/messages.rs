//! What goes in and what comes out.

use std::collections::BTreeMap;

use super::{Learned, PlanToCommit};
use crate::catalog::price::{PriceFilter, PriceUpdate};
use crate::host::HostFacts;
use crate::ids::{Generation, HostId, JobId, TickId};
use crate::job::JobSpec;
use crate::lifecycle::MechanismRecord;
use crate::rollout::{DesiredSet, DesiredVersion, EndpointSet, ObservedState, SloTally};
use crate::snapshot::Snapshot;
use crate::store::{RequestRecord, StoreTx};
use crate::tick::{Phase, TickCause, TickRecord};
use crate::violation::FieldViolation;

/// Names a caller who waits for an answer. Given out by the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What a caller asks for. Every command is answered exactly once.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Accept a validated job under a fresh id.
    SubmitJob {
        /// Fresh id.
        id: JobId,
        /// The job.
        spec: Box<JobSpec>,
        /// Idempotency key and payload hash.
        request: RequestRecord,
    },
    /// End a job, by id.
    CancelJob {
        /// Which.
        job: JobId,
        /// Why.
        reason: String,
        /// Idempotency key and payload hash.
        request: RequestRecord,
    },
    /// An agent connected.
    HostHello {
        /// Checked facts.
        facts: Box<HostFacts>,
        /// Highest version the agent has made durable.
        highest: DesiredVersion,
    },
    /// Cordon or drain a host, or take both back.
    HostPolicy {
        /// Which.
        host: HostId,
        /// No new work.
        cordoned: bool,
        /// What runs is to leave.
        draining: bool,
        /// Why, for the audit trail.
        reason: String,
        /// Who, and the idempotency key.
        request: RequestRecord,
    },
    /// Prices of a feed.
    UpdatePrices {
        /// Checked prices.
        update: Box<PriceUpdate>,
        /// Who, and the idempotency key.
        request: RequestRecord,
        /// The answer is kept for who asks again under the key, even when nothing changes.
        remember: bool,
    },
    /// Take prices out of the feed.
    RemovePrices {
        /// Which.
        filter: PriceFilter,
        /// Why, for the audit trail.
        reason: String,
        /// Who, and the idempotency key.
        request: RequestRecord,
    },
    /// Accept a proposed mechanism that passed the gate.
    ProposeMechanism {
        /// The proposal.
        record: Box<MechanismRecord>,
        /// Who, and the idempotency key.
        request: RequestRecord,
    },
    /// S0.
    OpenTick {
        /// Why now.
        cause: TickCause,
        /// Seed of the tick.
        seed: u64,
        /// Who, and the idempotency key, when somebody asked.
        request: Option<RequestRecord>,
    },
    /// S1 to S3: moves the phase and, with it, evidence or learning.
    AdvanceTick {
        /// Which tick.
        tick: TickId,
        /// Phase it is in.
        from: Phase,
        /// Phase it goes to.
        to: Phase,
        /// What the phase produced.
        learned: Box<Learned>,
    },
    /// S6.
    CommitPlan(Box<PlanToCommit>),
    /// S7.
    CloseTick {
        /// The record as it is to be kept.
        tick: Box<TickRecord>,
    },
}

/// What the machine is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A caller asks.
    Command(Ticket, Command),
    /// An agent's stream opened; follows the committed hello.
    Hello(HostId, ObservedState),
    /// An agent sent its observed state.
    Observed(HostId, ObservedState),
    /// An agent said anything else.
    Heard(HostId),
    /// An agent's stream ended.
    Gone(HostId),
    /// Judged windows of the generations that serve, counted since each was ready.
    SloTallies(BTreeMap<(JobId, Generation), SloTally>),
    /// Time has passed.
    Timer,
    /// The write in flight is durable.
    Committed,
    /// The write in flight did not happen.
    CommitFailed(CommitFailure),
}

/// Why a write did not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitFailure {
    /// Another server has taken over.
    Fenced,
    /// The database refused it for what it found.
    Conflict(String),
    /// The database could not be reached in time.
    Unavailable(String),
}

/// Why a command is not done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The input is wrong.
    #[error("{} field(s) are wrong", .0.len())]
    Invalid(Vec<FieldViolation>),
    /// There is no such object.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The state does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// Not now; nothing has happened.
    #[error("{0}; nothing was changed, try again")]
    Unavailable(String),
    /// Too much is waiting.
    #[error("too many requests wait; try again in a second")]
    Overloaded,
}

/// Answer to a command that was done.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// Identity of the object that was made or changed.
    Object(String),
    /// The frozen cluster of the tick that was opened.
    TickOpened(Box<Snapshot>),
    /// Done, nothing to say.
    Done,
}

/// What the shell has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Write; answer with `Committed` or `CommitFailed`.
    Commit(Box<StoreTx>),
    /// Answer a caller.
    Reply(Ticket, Result<Reply, Refusal>),
    /// Send a host its whole desired set.
    PushDesired(HostId, Box<DesiredSet>),
    /// Tell gateways.
    Publish(EndpointSet),
    /// Another server leads: stop writing and exit.
    StepDown,
}
