//! The task that owns the [`ServerMachine`]: feeds it, performs its effects, answers callers.
//!
//! It makes no decisions. One write is in flight at a time; messages keep flowing while it is.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use koi_core::ids::Epoch;
use koi_core::rollout::EndpointSet;
use koi_core::server::{
    Command, CommitFailure, Effect, Input, Refusal, Reply, ServerMachine, Ticket,
};
use koi_core::store::{Change, StoreTx, TxRefusal};
use koi_core::time::UtcMicros;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::agents::registry::Registry;
use crate::endpoints::EndpointBoard;
use crate::observability::{Metric, causes};
use crate::store::{Outcome, Store, StoreError, TxKey};

/// Messages that may wait for the loop.
const MAILBOX: usize = 4096;

/// How often time passes for the machine.
const TIMER: Duration = Duration::from_millis(200);

/// Pause before the next write after the database could not be reached.
const AWAY_PAUSE: Duration = Duration::from_millis(500);

/// Rows of a failed write that are named in the log.
const ROWS_SHOWN: usize = 4;

type Query = Box<dyn FnOnce(&ServerMachine) + Send>;

enum Message {
    Command(Command, oneshot::Sender<Result<Reply, Refusal>>),
    Input(Input),
    Query(Query),
}

/// A handle for everybody who talks to the machine.
#[derive(Clone)]
pub struct Core {
    mailbox: mpsc::Sender<Message>,
}

/// What the loop works with.
pub struct CoreParts {
    /// The decisions.
    pub machine: ServerMachine,
    /// The database.
    pub store: Store,
    /// Streams of connected agents.
    pub registry: Arc<Registry>,
    /// Endpoint files and watchers.
    pub endpoints: Arc<EndpointBoard>,
    /// Told which server leads instead.
    pub lead: Lead,
    /// Told when another server leads.
    pub shutdown: CancellationToken,
}

/// Another server has taken the lead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "another server leads this database: it has epoch {leader}, this one had epoch {ours}; run one \
     server per database"
)]
pub struct LeadLost {
    /// Epoch of the other server.
    pub leader: Epoch,
    /// Epoch under which this one has led.
    pub ours: Epoch,
}

/// Whether this server still leads.
#[derive(Debug, Clone, Default)]
pub struct Lead(Arc<OnceLock<LeadLost>>);

impl Lead {
    fn lost(&self, lost: LeadLost) {
        // The first that took over is the reason for the end.
        drop(self.0.set(lost));
    }

    /// Says which server leads when it is another one.
    ///
    /// # Errors
    /// [`LeadLost`] once another server leads.
    pub fn kept(&self) -> Result<(), LeadLost> {
        self.0.get().cloned().map_or(Ok(()), Err)
    }
}

/// The wall clock, in the unit of the core.
#[must_use]
pub fn utc_now() -> UtcMicros {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    UtcMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

impl Core {
    /// Starts the loop; it ends when `shutdown` is cancelled.
    #[must_use]
    pub fn spawn(parts: CoreParts) -> (Self, tokio::task::JoinHandle<()>) {
        let (mailbox, inbox) = mpsc::channel(MAILBOX);
        let task = tokio::spawn(Loop::new(parts, inbox).run());
        (Self { mailbox }, task)
    }

    /// Asks for something and waits for the answer.
    ///
    /// # Errors
    /// The machine's [`Refusal`], or `Unavailable` while the server stops.
    pub async fn command(&self, command: Command) -> Result<Reply, Refusal> {
        let (answer, wait) = oneshot::channel();
        let stopping = || Refusal::Unavailable("the server is stopping".to_owned());
        self.mailbox
            .send(Message::Command(command, answer))
            .await
            .map_err(|_| stopping())?;
        wait.await.map_err(|_| stopping())?
    }

    /// Tells the machine something that needs no answer.
    pub async fn tell(&self, input: Input) {
        if self.mailbox.send(Message::Input(input)).await.is_err() {
            tracing::debug!("the core loop has ended");
        }
    }

    /// Reads from the machine's state.
    ///
    /// # Errors
    /// `Unavailable` while the server stops.
    pub async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&ServerMachine) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (answer, wait) = oneshot::channel();
        let stopping = || Refusal::Unavailable("the server is stopping".to_owned());
        let query: Query = Box::new(move |machine| {
            // A caller that went away does not need the answer.
            drop(answer.send(question(machine)));
        });
        self.mailbox
            .send(Message::Query(query))
            .await
            .map_err(|_| stopping())?;
        wait.await.map_err(|_| stopping())
    }
}

type Commit = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

struct Loop {
    parts: CoreParts,
    inbox: mpsc::Receiver<Message>,
    callers: BTreeMap<Ticket, oneshot::Sender<Result<Reply, Refusal>>>,
    next_ticket: u64,
    commit: Option<Commit>,
}

impl Loop {
    fn new(parts: CoreParts, inbox: mpsc::Receiver<Message>) -> Self {
        Self {
            parts,
            inbox,
            callers: BTreeMap::new(),
            next_ticket: 0,
            commit: None,
        }
    }

    async fn run(mut self) {
        let mut timer = tokio::time::interval(TIMER);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let shutdown = self.parts.shutdown.clone();
        loop {
            let input = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                result = committed(&mut self.commit) => Some(self.commit_result(result)),
                message = self.inbox.recv() => match message {
                    Some(message) => self.receive(message),
                    None => break,
                },
                _ = timer.tick() => Some(Input::Timer),
            };
            if let Some(input) = input {
                for effect in self.parts.machine.step(utc_now(), input) {
                    self.perform(effect);
                }
            }
        }
        // A write that has begun is let through: its outcome must not be unknown.
        if let Some(commit) = self.commit.take()
            && let Err(error) = commit.await
        {
            tracing::warn!(%error, "the last write before stopping failed");
        }
    }

    fn receive(&mut self, message: Message) -> Option<Input> {
        match message {
            Message::Command(command, answer) => {
                self.next_ticket += 1;
                let ticket = Ticket(self.next_ticket);
                self.callers.insert(ticket, answer);
                Some(Input::Command(ticket, command))
            }
            Message::Input(input) => Some(input),
            Message::Query(query) => {
                query(&self.parts.machine);
                None
            }
        }
    }

    fn commit_result(&mut self, result: Result<(), StoreError>) -> Input {
        self.commit = None;
        match result {
            Ok(()) => Input::Committed,
            Err(error) => {
                if let StoreError::Refused(TxRefusal::Fenced { offered, stored }) = &error {
                    let (leader, ours) = (*stored, *offered);
                    self.parts.lead.lost(LeadLost { leader, ours });
                }
                Input::CommitFailed(failure(&error))
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Commit(tx) => self.commit = Some(self.begin(tx)),
            Effect::Reply(ticket, result) => {
                if let Some(answer) = self.callers.remove(&ticket) {
                    // A caller that went away does not need the answer.
                    drop(answer.send(result));
                }
            }
            Effect::PushDesired(host, set) => self.parts.registry.push(&host, *set),
            Effect::Publish(set) => self.publish(set),
            Effect::StepDown => {
                let why = self.parts.lead.kept().err().map(|lost| lost.to_string());
                tracing::error!(why, "stepping down");
                self.parts.shutdown.cancel();
            }
        }
    }

    fn begin(&self, tx: Box<StoreTx>) -> Commit {
        let store = self.parts.store.clone();
        let shutdown = self.parts.shutdown.clone();
        Box::pin(async move {
            let started = std::time::Instant::now();
            let result = commit_for_sure(&store, &tx, &shutdown).await;
            Metric::StoreCommitSeconds.observe(
                started.elapsed().as_secs_f64(),
                Some(("kind", tx.kind.name())),
            );
            if let Err(error) = &result {
                let (error, kind) = (causes(error), tx.kind.name());
                tracing::warn!(error, kind, rows = rows_of(&tx), "a write failed");
            }
            if result.as_ref().is_err_and(StoreError::is_transient) {
                tokio::time::sleep(AWAY_PAUSE).await;
            }
            result
        })
    }

    fn publish(&self, set: EndpointSet) {
        tracing::info!(
            job = set.job,
            endpoints = set.endpoints.len(),
            "endpoints changed"
        );
        let is_over = self.parts.machine.state().job_named(&set.job).is_none();
        if is_over && set.endpoints.is_empty() {
            self.parts.endpoints.retire(set);
        } else {
            self.parts.endpoints.publish(set);
        }
    }
}

/// The rows of a write by name, the first few of them.
fn rows_of(tx: &StoreTx) -> String {
    let name = |change: &Change| match change {
        Change::Job(job) => format!("job {}", job.spec.name),
        Change::Host(host) => format!("node {}", host.facts.host),
        Change::Replica(replica) => format!("replica {}", replica.id),
        Change::ReplicaReleased(id) => format!("release of {id}"),
        Change::Tick(_) => "tick".to_owned(),
        Change::Plan(_) => "plan".to_owned(),
        Change::Evidence(_) => "evidence".to_owned(),
        Change::BeliefEvents(_) => "belief events".to_owned(),
        Change::Slow(_) => "slow state".to_owned(),
        Change::Contrasts(_) => "contrasts".to_owned(),
        Change::Calibration(_) => "calibration".to_owned(),
        Change::SlowTick(_) => "slow history".to_owned(),
        Change::Mechanism(record) => format!("mechanism {}", record.id),
        Change::Prices(rows) => format!("{} prices", rows.len()),
        Change::PricesRemoved(filter) => format!("removal of prices {filter}"),
        Change::Request(_) => "request".to_owned(),
        Change::Audit(_) => "audit".to_owned(),
    };
    let shown: Vec<String> = tx.changes.iter().take(ROWS_SHOWN).map(name).collect();
    let more = tx.changes.len().saturating_sub(ROWS_SHOWN);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{}{more}", shown.join(", "))
}

/// Commits until it is known whether it happened. A commit whose answer was lost is asked for again
/// under its key: memory and database must not drift apart.
async fn commit_for_sure(
    store: &Store,
    tx: &StoreTx,
    shutdown: &CancellationToken,
) -> Result<(), StoreError> {
    let key = TxKey::fresh();
    loop {
        match store.commit_with_key(key, tx).await {
            Err(error) if error.outcome() == Outcome::Unknown && !shutdown.is_cancelled() => {
                tracing::warn!(%error, "the outcome of a write is not known: asking again");
                tokio::time::sleep(AWAY_PAUSE).await;
            }
            known => return known,
        }
    }
}

/// The outcome of the write in flight; pending forever when there is none.
async fn committed(commit: &mut Option<Commit>) -> Result<(), StoreError> {
    match commit {
        Some(commit) => commit.await,
        None => std::future::pending().await,
    }
}

fn failure(error: &StoreError) -> CommitFailure {
    if error.is_fenced() {
        CommitFailure::Fenced
    } else if error.is_transient() {
        CommitFailure::Unavailable(error.to_string())
    } else {
        CommitFailure::Conflict(error.to_string())
    }
}
