//! The server as a state machine: `step(now, input) → effects`.
//!
//! The shell decodes messages, performs effects and feeds results back. One write is in flight at
//! a time; commands wait in a bounded queue behind it, observations never wait. Spec §18.1.

mod commands;
mod hosts;
mod learning;
mod mechanisms;
mod messages;
mod planning;
mod prices;
mod publishing;
mod sieve;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::catalog::Catalog;
use crate::catalog::price::PriceBook;
use crate::ids::{Epoch, JobId};
use crate::rollout::{
    EndpointSet, Live, RolloutParams, desired::desired_set, reconcile::reconcile,
};
use crate::store::{Change, ServerState, StoreTx, TxKind};
use crate::time::UtcMicros;

use sieve::{Part, Sieve};

pub use learning::Learned;
pub use messages::{Command, CommitFailure, Effect, Input, Refusal, Reply, Ticket};
pub use planning::PlanToCommit;

/// Most commands that may wait behind the write in flight; more are told to come back.
pub const MAX_QUEUED_COMMANDS: usize = 1024;

/// Pause after a write of its own failed; the look that follows sees the newest state.
const RETRY_SECONDS: i64 = 1;
/// Versions of endpoint sets per epoch: they grow over restarts of the server.
const ENDPOINT_VERSIONS: i64 = 1_000_000_000;

/// What the machine needs to know of its settings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerSettings {
    /// Pace of roll-outs.
    pub rollout: RolloutParams,
    /// List prices with the operator's overlay; the feed is in the state.
    pub prices: PriceBook,
}

struct InFlight {
    tx: StoreTx,
    answer: Option<(Ticket, Reply)>,
    /// Parts of a write of the machine's own.
    parts: BTreeSet<Part>,
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
    /// Jobs that are over and whose empty set was published for the last time.
    retired: BTreeSet<JobId>,
    /// Version of the newest endpoint set of any job: a name may pass from one job to another.
    endpoint_version: i64,
    /// Set after a failed write: the database answers again at the next success.
    database_error: Option<String>,
    /// After a failed write of its own, the machine tries the next one no earlier than this.
    rest_until: Option<UtcMicros>,
    /// Rows of its own that the database refused.
    sieve: Sieve,
    /// Another server leads: nothing is written any more.
    stepped_down: bool,
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
        state.reprice(&settings.prices);
        Self {
            state,
            live: Live::default(),
            catalog,
            settings,
            in_flight: None,
            queue: VecDeque::new(),
            published: BTreeMap::new(),
            retired: BTreeSet::new(),
            endpoint_version: epoch.0.saturating_mul(ENDPOINT_VERSIONS),
            database_error: None,
            rest_until: None,
            sieve: Sieve::default(),
            stepped_down: false,
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
        self.live.started_at.get_or_insert(now);
        match input {
            Input::Command(ticket, command) => self.enqueue(ticket, command, &mut effects),
            Input::Hello(host, observed) => self.live.hello(host, now, observed),
            Input::Observed(host, observed) => self.live.observed(&host, now, observed),
            Input::Heard(host) => self.live.heard(&host, now),
            Input::Gone(host) => self.live.gone(&host),
            Input::SloTallies(tallies) => self.live.slo = tallies,
            Input::Timer => {}
            Input::Committed => self.committed(&mut effects),
            Input::CommitFailed(failure) => self.commit_failed(now, failure, &mut effects),
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
        let Some(InFlight { tx, answer, parts }) = self.in_flight.take() else {
            return;
        };
        self.database_error = None;
        if answer.is_none() {
            self.sieve.written(&parts);
        }
        // The database has accepted it on the same rules; a refusal here is a broken invariant.
        self.state
            .apply(&tx)
            .expect("invariant: what the store committed, the state accepts");
        self.reprice(&tx.changes);
        if let Some((ticket, reply)) = answer {
            effects.push(Effect::Reply(ticket, Ok(reply)));
        }
    }

    /// Prices of hosts follow what was written.
    fn reprice(&mut self, changes: &[Change]) {
        let is_priced = |c: &Change| matches!(c, Change::Prices(_) | Change::PricesRemoved(_));
        if changes.iter().any(is_priced) {
            self.state.reprice(&self.settings.prices);
            return;
        }
        for change in changes {
            if let Change::Host(host) = change {
                self.state
                    .reprice_host(&host.facts.host, &self.settings.prices);
            }
        }
    }

    /// List prices with the operator's overlay, for readers.
    #[must_use]
    pub fn base_prices(&self) -> &PriceBook {
        &self.settings.prices
    }

    fn commit_failed(&mut self, now: UtcMicros, failure: CommitFailure, effects: &mut Vec<Effect>) {
        let Some(InFlight { answer, parts, .. }) = self.in_flight.take() else {
            return;
        };
        let refusal = match failure {
            CommitFailure::Fenced => {
                effects.push(Effect::StepDown);
                self.stepped_down = true;
                Refusal::Unavailable("another server leads".to_owned())
            }
            CommitFailure::Conflict(what) => Refusal::Conflict(what),
            CommitFailure::Unavailable(why) => {
                self.database_error = Some(why.clone());
                Refusal::Unavailable(format!("the database is away: {why}"))
            }
        };
        match answer {
            Some((ticket, _)) => effects.push(Effect::Reply(ticket, Err(refusal))),
            None if matches!(refusal, Refusal::Conflict(_)) && self.sieve.refused(now, parts) => {}
            None => self.rest_until = Some(now.plus_seconds(RETRY_SECONDS)),
        }
    }

    /// Starts the next write: commands in order, then whatever reconciliation asks for.
    fn start_next(&mut self, now: UtcMicros, effects: &mut Vec<Effect>) {
        while self.in_flight.is_none() {
            let Some((ticket, command)) = self.queue.pop_front() else {
                break;
            };
            if self.stepped_down {
                let refusal = Refusal::Unavailable("another server leads".to_owned());
                effects.push(Effect::Reply(ticket, Err(refusal)));
                continue;
            }
            match self.decide(now, command) {
                Ok(Decision {
                    tx: Some(tx),
                    reply,
                }) => {
                    self.begin(tx, Some((ticket, reply)), BTreeSet::new(), effects);
                }
                Ok(Decision { tx: None, reply }) => effects.push(Effect::Reply(ticket, Ok(reply))),
                Err(refusal) => effects.push(Effect::Reply(ticket, Err(refusal))),
            }
        }
        let rests = self.rest_until.is_some_and(|until| now < until);
        if self.in_flight.is_none() && !self.stepped_down && !rests {
            self.rest_until = None;
            if let Some((tx, parts)) = self.own_write(now) {
                self.begin(tx, None, parts, effects);
            }
        }
    }

    /// What the state and the agents' words ask to be written, if anything.
    fn own_write(&mut self, now: UtcMicros) -> Option<(StoreTx, BTreeSet<Part>)> {
        if let Some((host, tx)) = self.lift_over_agents(now) {
            return Some((tx, BTreeSet::from([Part::Host(host)])));
        }
        let changes = reconcile(&self.state, &self.live, &self.settings.rollout, now).changes;
        let (changes, parts) = self.sieve.pass(now, &self.state, changes);
        (!changes.is_empty()).then(|| (self.tx(now, TxKind::RolloutsAdvanced, changes), parts))
    }

    fn begin(
        &mut self,
        tx: StoreTx,
        answer: Option<(Ticket, Reply)>,
        parts: BTreeSet<Part>,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::Commit(Box::new(tx.clone())));
        self.in_flight = Some(InFlight { tx, answer, parts });
    }

    fn tx(&self, now: UtcMicros, kind: TxKind, changes: Vec<Change>) -> StoreTx {
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
}

/// What a command leads to.
struct Decision {
    tx: Option<StoreTx>,
    reply: Reply,
}
