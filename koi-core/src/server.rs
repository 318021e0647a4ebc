//! The server as a state machine: `step(now, input) → effects`.
//!
//! The shell decodes messages, performs effects and feeds results back. One write is in flight at
//! a time; commands wait in a bounded queue behind it, observations never wait. Spec §18.1.

mod commands;
mod learning;
mod planning;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use crate::catalog::Catalog;
use crate::host::HostFacts;
use crate::ids::{Epoch, HostId, JobId, TickId};
use crate::job::JobSpec;
use crate::rollout::endpoints::endpoints_of;
use crate::rollout::{
    DesiredSet, DesiredVersion, EndpointSet, Live, ObservedState, RolloutParams, SloTally,
    desired::desired_set, reconcile::reconcile,
};
use crate::snapshot::Snapshot;
use crate::store::{RequestRecord, ServerState, StoreTx, TxKind};
use crate::tick::{Phase, TickCause, TickRecord};
use crate::time::UtcMicros;
use crate::violation::FieldViolation;

pub use learning::Learned;
pub use planning::PlanToCommit;

/// Most commands that may wait behind the write in flight; more are told to come back.
pub const MAX_QUEUED_COMMANDS: usize = 1024;

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
        /// Who, why, and the idempotency key.
        request: RequestRecord,
    },
    /// S0.
    OpenTick {
        /// Why now.
        cause: TickCause,
        /// Seed of the tick.
        seed: u64,
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
    SloTallies(BTreeMap<(JobId, crate::ids::Generation), SloTally>),
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

/// What the machine needs to know of its settings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerSettings {
    /// Pace of roll-outs.
    pub rollout: RolloutParams,
}

struct InFlight {
    tx: StoreTx,
    answer: Option<(Ticket, Reply)>,
}

/// The server's decisions. Holds no handle to anything outside.
pub struct ServerMachine {
    state: ServerState,
    live: Live,
    catalog: &'static Catalog,
    settings: ServerSettings,
    in_flight: Option<InFlight>,
    queue: VecDeque<(Ticket, Command)>,
    published: BTreeMap<JobId, EndpointSet>,
    /// Set after a failed write: the database answers again at the next success.
    database_error: Option<String>,
}

impl ServerMachine {
    /// A machine over the loaded state, writing under `epoch`.
    #[must_use]
    pub fn new(
        mut state: ServerState,
        epoch: Epoch,
        catalog: &'static Catalog,
        settings: ServerSettings,
    ) -> Self {
        state.epoch = epoch;
        Self {
            state,
            live: Live::default(),
            catalog,
            settings,
            in_flight: None,
            queue: VecDeque::new(),
            published: BTreeMap::new(),
            database_error: None,
        }
    }

    /// The stored state, for readers.
    #[must_use]
    pub fn state(&self) -> &ServerState {
        &self.state
    }

    /// What agents last said, for readers.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Endpoints as last published.
    #[must_use]
    pub fn published(&self) -> &BTreeMap<JobId, EndpointSet> {
        &self.published
    }

    /// Why the last write failed, until one succeeds.
    #[must_use]
    pub fn database_error(&self) -> Option<&str> {
        self.database_error.as_deref()
    }

    /// One step.
    pub fn step(&mut self, now: UtcMicros, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Command(ticket, command) => self.enqueue(ticket, command, &mut effects),
            Input::Hello(host, observed) => self.live.hello(host, now, observed),
            Input::Observed(host, observed) => self.live.observed(&host, now, observed),
            Input::Heard(host) => self.live.heard(&host, now),
            Input::Gone(host) => self.live.gone(&host),
            Input::SloTallies(tallies) => self.live.slo = tallies,
            Input::Timer => {}
            Input::Committed => self.committed(&mut effects),
            Input::CommitFailed(failure) => self.commit_failed(failure, &mut effects),
        }
        self.start_next(now, &mut effects);
        self.outputs(&mut effects);
        effects
    }

    fn enqueue(&mut self, ticket: Ticket, command: Command, effects: &mut Vec<Effect>) {
        if self.queue.len() >= MAX_QUEUED_COMMANDS {
            effects.push(Effect::Reply(ticket, Err(Refusal::Overloaded)));
        } else {
            self.queue.push_back((ticket, command));
        }
    }

    fn committed(&mut self, effects: &mut Vec<Effect>) {
        let Some(InFlight { tx, answer }) = self.in_flight.take() else {
            return;
        };
        self.database_error = None;
        // The database has accepted it on the same rules; a refusal here is a broken invariant.
        self.state
            .apply(&tx)
            .expect("invariant: what the store committed, the state accepts");
        if let Some((ticket, reply)) = answer {
            effects.push(Effect::Reply(ticket, Ok(reply)));
        }
    }

    fn commit_failed(&mut self, failure: CommitFailure, effects: &mut Vec<Effect>) {
        let Some(InFlight { answer, .. }) = self.in_flight.take() else {
            return;
        };
        let refusal = match failure {
            CommitFailure::Fenced => {
                effects.push(Effect::StepDown);
                Refusal::Unavailable("another server leads".to_owned())
            }
            CommitFailure::Conflict(what) => Refusal::Conflict(what),
            CommitFailure::Unavailable(why) => {
                self.database_error = Some(why.clone());
                Refusal::Unavailable(format!("the database is away: {why}"))
            }
        };
        if let Some((ticket, _)) = answer {
            effects.push(Effect::Reply(ticket, Err(refusal)));
        }
    }

    /// Starts the next write: commands in order, then whatever reconciliation asks for.
    fn start_next(&mut self, now: UtcMicros, effects: &mut Vec<Effect>) {
        while self.in_flight.is_none() {
            let Some((ticket, command)) = self.queue.pop_front() else {
                break;
            };
            match self.decide(now, command) {
                Ok(Decision {
                    tx: Some(tx),
                    reply,
                }) => {
                    self.begin(tx, Some((ticket, reply)), effects);
                }
                Ok(Decision { tx: None, reply }) => effects.push(Effect::Reply(ticket, Ok(reply))),
                Err(refusal) => effects.push(Effect::Reply(ticket, Err(refusal))),
            }
        }
        if self.in_flight.is_none() {
            let changes = reconcile(&self.state, &self.live, &self.settings.rollout, now).changes;
            if !changes.is_empty() {
                let tx = self.tx(now, TxKind::RolloutsAdvanced, changes);
                self.begin(tx, None, effects);
            }
        }
    }

    fn begin(&mut self, tx: StoreTx, answer: Option<(Ticket, Reply)>, effects: &mut Vec<Effect>) {
        effects.push(Effect::Commit(Box::new(tx.clone())));
        self.in_flight = Some(InFlight { tx, answer });
    }

    fn tx(&self, now: UtcMicros, kind: TxKind, changes: Vec<crate::store::Change>) -> StoreTx {
        StoreTx {
            kind,
            epoch: self.state.epoch,
            at: now,
            expects: Vec::new(),
            changes,
        }
    }

    /// Pushes and publications that are due; derived from state, so nothing can be forgotten.
    fn outputs(&mut self, effects: &mut Vec<Effect>) {
        self.push_desired(effects);
        self.publish(effects);
    }

    fn push_desired(&mut self, effects: &mut Vec<Effect>) {
        for (host, live) in &mut self.live.hosts {
            let Some(record) = self.state.hosts.get(host) else {
                continue;
            };
            if live.connected && live.pushed != Some(record.generation) {
                live.pushed = Some(record.generation);
                let set = desired_set(&self.state, host, self.catalog, &self.settings.rollout);
                effects.push(Effect::PushDesired(host.clone(), Box::new(set)));
            }
        }
    }

    fn publish(&mut self, effects: &mut Vec<Effect>) {
        for (id, job) in &self.state.jobs {
            let endpoints = endpoints_of(&self.state, &self.live, *id);
            let before = self.published.get(id);
            let twin = self.state.job_named(job.spec.name.as_str());
            // The set of a name belongs to the live job of that name, not to one that is over.
            let is_anothers = twin.is_some_and(|t| t.id != *id);
            if is_anothers || before.is_some_and(|b| b.endpoints == endpoints) {
                continue;
            }
            let set = EndpointSet {
                job: job.spec.name.as_str().to_owned(),
                version: before.map_or(1, |b| b.version + 1),
                served_model_name: job.spec.model.id.clone(),
                endpoints,
            };
            self.published.insert(*id, set.clone());
            effects.push(Effect::Publish(set));
        }
        let gone: Vec<JobId> = self
            .published
            .keys()
            .filter(|id| !self.state.jobs.contains_key(id))
            .copied()
            .collect();
        for id in gone {
            if let Some(mut set) = self.published.remove(&id)
                && !set.endpoints.is_empty()
            {
                set.endpoints.clear();
                set.version += 1;
                effects.push(Effect::Publish(set));
            }
        }
    }
}

/// What a command leads to.
struct Decision {
    tx: Option<StoreTx>,
    reply: Reply,
}
