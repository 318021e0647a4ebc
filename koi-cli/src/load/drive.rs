//! Drives one job: when to send, to whom, and what to write down.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::endpoints::{Endpoints, Known, POLL};
use super::minutes::{self, Minute, Minutes};
use super::request::{self, FailureKind, HttpClient, Timing};
use super::settings::{JobLoad, MAX_IN_FLIGHT, Pace};
use super::summary::{Span, Summary};
use super::trace::{self, Row, Trace};
use super::{prompt, rng::SplitMix};
use crate::output::{complain, now_us};

/// How far behind its times a trace may fall before the rest is moved.
const MAX_LAG: Duration = Duration::from_secs(5);
/// How long a request waits for an endpoint to become ready.
const ENDPOINT_WAIT: Duration = Duration::from_secs(1);
/// Pause after a failure in a closed loop, so that a dead engine does not mean a busy loop.
const FAILURE_PAUSE: Duration = Duration::from_millis(250);

/// The load on one job.
pub(super) struct Drive {
    job: JobLoad,
    trace: Trace,
    client: HttpClient,
    endpoints: Mutex<Endpoints>,
    minutes: Mutex<Minutes>,
    last_minute: Mutex<Option<Minute>>,
    in_flight: AtomicU32,
    /// Requests made so far, of both paces.
    next: AtomicU64,
    /// Next row of a closed loop.
    cursor: AtomicU64,
    seed: u64,
    started_at_us: i64,
    out: PathBuf,
}

/// A panic while the lock was held has left counters, not broken invariants.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drive {
    /// Reads the trace and prepares the folders.
    pub(super) fn new(job: JobLoad, endpoints: &Path, out: &Path) -> anyhow::Result<Self> {
        let trace = trace::read(&job.trace)?;
        let started_at_us = now_us();
        let minutes = Minutes::new(out.join(job.name.as_str()), started_at_us)?;
        Ok(Self {
            endpoints: Mutex::new(Endpoints::new(endpoints, job.name.as_str())),
            trace,
            client: request::client(),
            minutes: Mutex::new(minutes),
            last_minute: Mutex::new(None),
            in_flight: AtomicU32::new(0),
            next: AtomicU64::new(0),
            cursor: AtomicU64::new(0),
            // Unique parts of prompts differ between runs, so that no run finds another's cache.
            seed: SplitMix::new(started_at_us as u64).next(),
            started_at_us,
            out: out.to_path_buf(),
            job,
        })
    }

    /// Starts everything; the tasks end after `stop`.
    pub(super) fn start(self: Arc<Self>, tasks: &mut JoinSet<()>, stop: &CancellationToken) {
        tasks.spawn(Arc::clone(&self).follow_endpoints(stop.clone()));
        tasks.spawn(Arc::clone(&self).write_results(stop.clone()));
        let stop = stop.clone();
        match self.job.pace {
            Pace::Closed { concurrency } => {
                for _ in 0..concurrency {
                    tasks.spawn(Arc::clone(&self).closed_loop(stop.clone()));
                }
            }
            Pace::Recorded { speed } => {
                tasks.spawn(self.open_loop(speed, stop));
            }
            Pace::Rate { rate_rps } => {
                let speed = rate_rps / self.trace.rate_rps();
                tasks.spawn(self.open_loop(speed, stop));
            }
        }
    }

    async fn follow_endpoints(self: Arc<Self>, stop: CancellationToken) {
        let mut said = None;
        while pause(POLL, &stop).await {
            let news = {
                let mut endpoints = lock(&self.endpoints);
                endpoints.refresh();
                endpoints.in_words()
            };
            if said.as_ref() != Some(&news) {
                complain(&format!("{}: {news}", self.job.name));
                said = Some(news);
            }
        }
    }

    /// What was sent since the start, in words, and the number of requests.
    pub(super) fn totals(&self) -> (String, u64) {
        let minutes = lock(&self.minutes);
        let mut totals = minutes.closed.clone();
        totals.add(&minutes.open.counts());
        let line = format!(
            "{}: {} sent, {} done, {} failed, {} retried",
            self.job.name,
            totals.sent,
            totals.finished,
            totals.n_failed(),
            totals.retried
        );
        (line, totals.sent)
    }

    async fn write_results(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let goes_on = pause(Duration::from_secs(1), &stop).await;
            if let Err(e) = self.write(!goes_on) {
                complain(&format!("{}: results not written: {e:#}", self.job.name));
            }
            if !goes_on {
                return;
            }
        }
    }

    fn write(&self, ends: bool) -> anyhow::Result<()> {
        let (closed, folder) = {
            let mut minutes = lock(&self.minutes);
            (minutes.roll(now_us(), ends), minutes.folder())
        };
        if let Some(closed) = closed {
            minutes::store(&folder, &closed)?;
            *lock(&self.last_minute) = Some(closed);
        }
        self.summary().store(&self.out)
    }

    fn summary(&self) -> Summary {
        let (endpoints_version, n_endpoints) = match lock(&self.endpoints).known() {
            Known::NoFile => (None, 0),
            Known::Ready(file) => (Some(file.version), file.endpoints.len()),
        };
        let minutes = lock(&self.minutes);
        let mut totals = minutes.closed.clone();
        totals.add(&minutes.open.counts());
        Summary {
            job: self.job.name.to_string(),
            started_at_us: self.started_at_us,
            updated_at_us: now_us(),
            endpoints_version,
            n_endpoints,
            in_flight: self.in_flight.load(Ordering::Relaxed),
            totals: (&totals).into(),
            open_minute: Span::from(&minutes.open),
            last_minute: lock(&self.last_minute).as_ref().map(Span::from),
        }
    }

    fn is_any_ready(&self) -> bool {
        matches!(lock(&self.endpoints).known(), Known::Ready(file) if !file.endpoints.is_empty())
    }

    fn is_gone(&self) -> bool {
        matches!(lock(&self.endpoints).known(), Known::NoFile)
    }

    /// Sends at the trace's times from the moment an endpoint is ready.
    async fn open_loop(self: Arc<Self>, speed: f64, stop: CancellationToken) {
        let mut requests = JoinSet::new();
        let mut lap = 0_u32;
        while !self.is_any_ready() {
            if !pause(POLL, &stop).await {
                return;
            }
        }
        let mut start = Instant::now();
        loop {
            for row in &self.trace.rows {
                let at_s = (f64::from(lap) * self.trace.period_s() + row.at_s) / speed;
                let mut due = start + Duration::from_secs_f64(at_s);
                let lag = Instant::now().saturating_duration_since(due);
                if lag > MAX_LAG {
                    // The machine slept, or this process starved: the rest is moved, not sent at once.
                    start += lag;
                    due += lag;
                }
                tokio::select! {
                    () = tokio::time::sleep_until(due) => {}
                    () = stop.cancelled() => return,
                }
                while requests.try_join_next().is_some() {}
                self.dispatch(row, &mut requests);
            }
            lap = lap.saturating_add(1);
        }
    }

    fn dispatch(self: &Arc<Self>, row: &Row, requests: &mut JoinSet<()>) {
        // Without a file the job is over: nobody would send.
        if self.is_gone() {
            return;
        }
        if self.in_flight.load(Ordering::Relaxed) >= MAX_IN_FLIGHT {
            let mut minutes = lock(&self.minutes);
            minutes.open.sent += 1;
            minutes
                .open
                .finish(&Timing::failed(FailureKind::NotSent), 0);
            return;
        }
        let (drive, row) = (Arc::clone(self), row.clone());
        requests.spawn(async move {
            drive.one(&row).await;
        });
    }

    /// Sends the trace's requests one after the other as fast as they are answered.
    async fn closed_loop(self: Arc<Self>, stop: CancellationToken) {
        loop {
            if !self.is_any_ready() {
                if !pause(POLL, &stop).await {
                    return;
                }
                continue;
            }
            let index =
                self.cursor.fetch_add(1, Ordering::Relaxed) as usize % self.trace.rows.len();
            let row = self.trace.rows[index].clone();
            let fine = tokio::select! {
                fine = self.one(&row) => fine,
                () = stop.cancelled() => return,
            };
            if !fine && !pause(FAILURE_PAUSE, &stop).await {
                return;
            }
        }
    }

    /// Sends one request, a second time elsewhere when nobody answered; true when it was answered.
    async fn one(&self, row: &Row) -> bool {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let (row, shortened) = self.fitted(row);
        {
            let mut minutes = lock(&self.minutes);
            minutes.open.sent += 1;
            minutes.open.shortened += u64::from(shortened);
        }
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let _guard = InFlight(&self.in_flight);
        let ids = prompt::token_ids(
            &row,
            SplitMix::new(self.seed ^ n).next(),
            self.job.vocabulary,
        );
        let timing = self.tries(&row, &ids).await;
        lock(&self.minutes).open.finish(&timing, row.prompt_tokens);
        timing.failure.is_none()
    }

    async fn tries(&self, row: &Row, ids: &[u32]) -> Timing {
        let mut avoid: Option<String> = None;
        loop {
            let Some((endpoint, model)) = self.endpoint(row, avoid.as_deref()).await else {
                return Timing::failed(FailureKind::NoEndpoint);
            };
            let body = Bytes::from(prompt::body(&model, ids, row.generated_tokens));
            let timing = request::send(&self.client, &endpoint, body, row.generated_tokens).await;
            let again = avoid.is_none() && timing.failure.is_some_and(FailureKind::is_unanswered);
            if !again {
                return timing;
            }
            if !lock(&self.endpoints).has_other(&endpoint.replica_id) {
                return timing;
            }
            lock(&self.minutes).open.retried += 1;
            avoid = Some(endpoint.replica_id);
        }
    }

    async fn endpoint(
        &self,
        row: &Row,
        avoid: Option<&str>,
    ) -> Option<(super::endpoints::Endpoint, String)> {
        let session = row.session.filter(|_| self.job.session_affinity);
        let deadline = Instant::now() + ENDPOINT_WAIT;
        loop {
            let picked = lock(&self.endpoints).pick(session, avoid);
            if picked.is_some() || Instant::now() >= deadline {
                return picked;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The request cut to the context, the prompt first; true when something was cut.
    fn fitted(&self, row: &Row) -> (Row, bool) {
        let mut row = row.clone();
        let Some(max) = self.job.max_context_tokens else {
            return (row, false);
        };
        if row.prompt_tokens.saturating_add(row.generated_tokens) <= max {
            return (row, false);
        }
        row.generated_tokens = row.generated_tokens.min(max / 2).max(1);
        row.prompt_tokens = row.prompt_tokens.min(max - row.generated_tokens).max(1);
        (row, true)
    }
}

/// Counts a request out however it ends.
struct InFlight<'a>(&'a AtomicU32);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits; false when the run ends.
async fn pause(time: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        () = tokio::time::sleep(time) => true,
        () = stop.cancelled() => false,
    }
}
