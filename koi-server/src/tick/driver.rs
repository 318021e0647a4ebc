//! When ticks run: on a monotonic schedule, on request, and once when the database came back.
//! Boundaries that were missed are skipped, never run in a burst.

use std::time::Duration;

use koi_core::store::RequestRecord;
use koi_core::tick::{TickCause, TickRecord};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::run::{TickError, TickParts, run_tick};
use crate::observability::Metric;

/// Requests for a tick that may wait.
const REQUESTS: usize = 64;
/// How often the database is asked whether it answers, and an owed tick tried again.
const DATABASE_POLL: Duration = Duration::from_secs(2);
/// A database that takes longer for nothing is as good as away.
const PING_LIMIT: Duration = Duration::from_secs(3);
/// Longest wait for known agents before the first tick of a start.
const AGENTS_GRACE: Duration = Duration::from_secs(8);

/// Who asks, and where the answer goes.
type Asked = (
    RequestRecord,
    oneshot::Sender<Result<TickRecord, TickError>>,
);

/// Asks for ticks.
#[derive(Clone)]
pub struct TickHandle {
    requests: mpsc::Sender<Asked>,
    started: Instant,
    interval: Duration,
}

impl TickHandle {
    /// Runs a tick now and waits for its end. The request is remembered with it.
    ///
    /// # Errors
    /// Why it could not be opened or closed.
    pub async fn run_now(&self, request: RequestRecord) -> Result<TickRecord, TickError> {
        let (answer, wait) = oneshot::channel();
        self.requests
            .send((request, answer))
            .await
            .map_err(|_| TickError::Stopping)?;
        wait.await.map_err(|_| TickError::Stopping)?
    }

    /// Time until the next boundary.
    #[must_use]
    pub fn to_next(&self) -> Duration {
        let elapsed = self.started.elapsed().as_secs_f64();
        let interval = self.interval.as_secs_f64();
        Duration::from_secs_f64(interval - elapsed % interval)
    }

    /// Time between boundaries.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.interval
    }
}

/// Starts the driver; it ends when `shutdown` is cancelled.
#[must_use]
pub fn spawn(
    parts: TickParts,
    interval: Duration,
    shutdown: CancellationToken,
) -> (TickHandle, tokio::task::JoinHandle<()>) {
    let (requests, inbox) = mpsc::channel(REQUESTS);
    let handle = TickHandle {
        requests,
        started: Instant::now(),
        interval,
    };
    let driver = Driver {
        parts,
        interval,
        inbox,
        owed: true,
        database_started_at_us: None,
        shutdown,
    };
    let started = handle.started;
    (handle, tokio::spawn(driver.run(started)))
}

struct Driver {
    parts: TickParts,
    interval: Duration,
    inbox: mpsc::Receiver<Asked>,
    /// A tick that the start owes, or that is due once the database is back from having been away:
    /// what was lost or decided meanwhile shall not wait for the next boundary.
    owed: bool,
    /// When the database was started, as last seen.
    database_started_at_us: Option<i64>,
    shutdown: CancellationToken,
}

impl Driver {
    async fn run(mut self, started: Instant) {
        self.wait_for_agents().await;
        let mut boundaries = tokio::time::interval_at(started + self.interval, self.interval);
        boundaries.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut looks = tokio::time::interval(DATABASE_POLL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let shutdown = self.shutdown.clone();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                asked = self.inbox.recv() => match asked {
                    Some((request, answer)) => {
                        let ran = self.tick(TickCause::Operator, Some(request)).await;
                        // A caller that went away does not need the answer.
                        drop(answer.send(ran));
                    }
                    None => return,
                },
                due = boundaries.tick() => {
                    Metric::TickLagSeconds.observe(due.elapsed().as_secs_f64(), None);
                    self.tick_and_log(TickCause::Schedule).await;
                }
                _ = looks.tick() => self.look_at_database().await,
            }
        }
    }

    /// A tick that sees no agent would place nothing, or replace what serves: give the known ones
    /// a moment to say hello.
    async fn wait_for_agents(&self) {
        let all_heard = async {
            loop {
                let heard = self.parts.core.read(|m| {
                    let known = m.state().hosts.keys();
                    known.clone().all(|host| m.live().hosts.contains_key(host)) && known.len() > 0
                });
                if heard.await.unwrap_or(true) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::select! {
            () = self.shutdown.cancelled() => {}
            _ = tokio::time::timeout(AGENTS_GRACE, all_heard) => {}
        }
    }

    async fn look_at_database(&mut self) {
        let asked = self.parts.store.database_started_at_us();
        let Ok(Ok(started_at_us)) = tokio::time::timeout(PING_LIMIT, asked).await else {
            self.owed = true;
            return;
        };
        // A connection waits for a database that restarts: an answer alone does not tell.
        let before = self.database_started_at_us.replace(started_at_us);
        if self.owed || before.is_some_and(|before| before != started_at_us) {
            self.tick_and_log(TickCause::Recovery).await;
        }
    }

    async fn tick_and_log(&mut self, cause: TickCause) {
        if let Err(error) = self.tick(cause, None).await {
            tracing::warn!(%error, "a tick could not run");
        }
    }

    /// Runs a tick as a task of its own, so that a panic is a failed tick and not a dead server.
    async fn tick(
        &mut self,
        cause: TickCause,
        request: Option<RequestRecord>,
    ) -> Result<TickRecord, TickError> {
        let limit = self.interval.mul_f64(0.8).min(Duration::from_secs(240));
        let task = tokio::spawn(run_tick(self.parts.clone(), (cause, request), limit));
        let result = match task.await {
            Ok(result) => result,
            Err(join) => Err(TickError::Panicked(join.to_string())),
        };
        self.owed = matches!(&result, Err(TickError::Unavailable(_)));
        let outcome = match &result {
            Ok(tick) if tick.failure.is_none() => "planned",
            Ok(_) => "keep_all",
            Err(_) => "not_run",
        };
        Metric::TicksTotal.count(1, Some(("outcome", outcome)));
        result
    }
}
