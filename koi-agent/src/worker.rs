//! One running engine: watched through its shim and by the kernel, asked for a first token, then
//! scraped and knocked at.

mod knock;
mod watch;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use koi_core::agent::AgentInput;
use koi_core::telemetry::engine_metrics::{EnginePage, is_wanted};
use koi_core::telemetry::metrics_text::parse_selected;
use koi_core::telemetry::series::{CounterSeries, GaugeSeries};
use koi_core::telemetry::window::{Reading, WindowBuilder};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::host::{Event, send, utc_now};
use crate::launcher::Launcher;
use crate::observability::Metric;
use crate::probe::probe_token;
use crate::probe::progress::{ProbeResult, Progress, ProgressSample, Silence, judge};
use crate::scrape::scrape;
use crate::supervise::ReplicaProcess;
use crate::telemetry::TelemetrySink;

/// Between asks for a first token.
const TOKEN_PAUSE: Duration = Duration::from_millis(300);
/// Longest wait for one token.
const TOKEN_LIMIT: Duration = Duration::from_secs(30);
/// Between scrapes.
const SCRAPE_EVERY: Duration = Duration::from_secs(5);
/// Between scrapes while the end of its requests is waited for.
const DRAIN_SCRAPE_EVERY: Duration = Duration::from_millis(300);
/// Work waits and no step is made for so long: ask for a token, and if none comes, it hangs.
const STALL_AFTER: Duration = Duration::from_secs(60);
/// Progress samples kept.
const MAX_SAMPLES: usize = 64;

/// What a worker works with.
#[derive(Clone)]
pub struct Parts {
    /// The engine.
    pub process: ReplicaProcess,
    /// Devices and supervision.
    pub launcher: Arc<Launcher>,
    /// The host's loop.
    pub events: mpsc::Sender<Event>,
    /// Where windows go.
    pub sink: TelemetrySink,
    /// Tasks of the agent.
    pub tasks: TaskTracker,
    /// True once a token came back: until then processes of its tree come and go.
    pub ready: Arc<AtomicBool>,
}

/// A handle on the tasks of one engine.
pub struct Worker {
    cancel: CancellationToken,
    draining: Arc<AtomicBool>,
    hurry: Arc<Notify>,
}

impl Worker {
    /// Ends the tasks; the engine goes on.
    pub fn stop(&self) {
        self.cancel.cancel();
    }

    /// While draining, requests in flight are looked at often.
    pub fn set_draining(&self, draining: bool) {
        if self.draining.swap(draining, Ordering::Relaxed) != draining && draining {
            self.hurry.notify_one();
        }
    }
}

/// Starts the tasks.
#[must_use]
pub fn spawn(parts: Parts) -> Worker {
    let worker = Worker {
        cancel: CancellationToken::new(),
        draining: Arc::new(AtomicBool::new(false)),
        hurry: Arc::new(Notify::new()),
    };
    let (watcher, cancel) = (parts.clone(), worker.cancel.clone());
    parts.tasks.spawn(async move {
        tokio::select! {
            () = cancel.cancelled() => {}
            () = watch::watch(watcher) => {}
        }
    });
    let (knocker, cancel) = (parts.clone(), worker.cancel.clone());
    parts.tasks.spawn(async move {
        tokio::select! {
            () = cancel.cancelled() => {}
            () = knock::knock(knocker) => {}
        }
    });
    let looker = Looker {
        draining: worker.draining.clone(),
        hurry: worker.hurry.clone(),
        samples: VecDeque::new(),
        probe: None,
        silence: Silence::default(),
        started: Instant::now(),
        parts: parts.clone(),
    };
    let cancel = worker.cancel.clone();
    parts.tasks.spawn(async move {
        tokio::select! {
            () = cancel.cancelled() => {}
            () = looker.run() => {}
        }
    });
    worker
}

struct Looker {
    parts: Parts,
    draining: Arc<AtomicBool>,
    hurry: Arc<Notify>,
    samples: VecDeque<ProgressSample>,
    probe: Option<ProbeResult>,
    silence: Silence,
    started: Instant,
}

impl Looker {
    async fn run(mut self) {
        let meta = &self.parts.process.meta;
        let Ok(ip) = meta.host.parse() else { return };
        let address = SocketAddr::new(ip, meta.port);
        let id = meta.replica_id.clone();
        // One that has served before is judged by its progress, like any other that serves.
        if !self.parts.ready.load(Ordering::Relaxed) {
            self.first_token(address).await;
        }
        let mut windows = WindowBuilder::new(id, meta.served_model_name.clone());
        loop {
            self.look(address, &mut windows).await;
            let pause = if self.draining.load(Ordering::Relaxed) {
                DRAIN_SCRAPE_EVERY
            } else {
                SCRAPE_EVERY
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.hurry.notified() => {}
            }
        }
    }

    async fn first_token(&self, address: SocketAddr) {
        let process = &self.parts.process;
        let meta = &process.meta;
        while probe_token(address, &meta.served_model_name, TOKEN_LIMIT)
            .await
            .is_err()
        {
            tokio::time::sleep(TOKEN_PAUSE).await;
        }
        self.parts.ready.store(true, Ordering::Relaxed);
        if let Err(error) = process.note_served() {
            tracing::warn!(replica = %meta.replica_id, %error, "not noted that it serves");
        }
        let ready = AgentInput::Ready(meta.replica_id.clone());
        send(&self.parts.events, Event::Input(ready)).await;
    }

    async fn look(&mut self, address: SocketAddr, windows: &mut WindowBuilder) {
        let page = match scrape(address).await {
            Ok(text) => {
                Metric::ScrapesTotal.count(1, Some(("outcome", "read")));
                EnginePage::from_page(&parse_selected(text.as_bytes(), is_wanted))
            }
            Err(error) => {
                Metric::ScrapesTotal.count(1, Some(("outcome", "failed")));
                tracing::debug!(replica = %self.parts.process.meta.replica_id, %error, "no metrics");
                windows.push_failure();
                self.silent(address).await;
                return;
            }
        };
        self.silence.broken();
        self.progress(address, &page).await;
        let reading = Reading {
            at: utc_now(),
            monotonic_micros: u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX),
            page,
            gpus: self.gpus(),
        };
        if let Some(window) = windows.push(&reading) {
            self.parts.sink.push(window, windows.edges());
        }
    }

    fn gpus(&self) -> Vec<koi_core::gpu::GpuReading> {
        let Ok(look) = self.parts.launcher.gpus().read() else {
            return Vec::new();
        };
        let own = &self.parts.process.meta.gpu_uuids;
        look.readings
            .into_iter()
            .filter(|r| own.contains(&r.uuid))
            .collect()
    }

    async fn progress(&mut self, address: SocketAddr, page: &EnginePage) {
        let meta = self.parts.process.meta.clone();
        let sum = |pick: &dyn Fn(&koi_core::telemetry::sample::EngineSample) -> Option<f64>| {
            let values: Vec<f64> = page
                .of_model(&meta.served_model_name)
                .filter_map(|(_, e)| pick(e))
                .collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>())
        };
        let gauge = |series| sum(&move |e| e.gauges.get(&series).copied());
        let requests = gauge(GaugeSeries::RunningRequests)
            .zip(gauge(GaugeSeries::WaitingRequests))
            .map(|(running, waiting)| running + waiting);
        let steps = sum(&|e| {
            e.counters
                .get(&CounterSeries::Iterations)
                .map(|n| *n as f64)
        });
        if let (true, Some(n)) = (self.draining.load(Ordering::Relaxed), requests) {
            let in_flight = AgentInput::InFlight(meta.replica_id.clone(), n.round() as u64);
            send(&self.parts.events, Event::Input(in_flight)).await;
        }
        let now = self.started.elapsed();
        if self.samples.len() == MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(ProgressSample {
            at: now,
            n_requests: requests,
            n_steps: steps,
        });
        match judge(self.samples.make_contiguous(), self.probe, now, STALL_AFTER) {
            Progress::Suspect => {
                let ok = probe_token(address, &meta.served_model_name, TOKEN_LIMIT)
                    .await
                    .is_ok();
                self.probe = Some(ProbeResult {
                    at: self.started.elapsed(),
                    ok,
                });
            }
            Progress::Hung => self.hung("work waits, no engine step").await,
            Progress::Healthy | Progress::Unknown => {}
        }
    }

    /// No metrics came. An engine that is stopped as a whole shows none for ever: after a while only a
    /// token tells it from one that is busy.
    async fn silent(&mut self, address: SocketAddr) {
        if !self.silence.goes_on(self.started.elapsed(), STALL_AFTER) {
            return;
        }
        let name = self.parts.process.meta.served_model_name.clone();
        let ok = probe_token(address, &name, TOKEN_LIMIT).await.is_ok();
        if self.silence.probed(ok) {
            self.hung("no metrics, no token").await;
        }
    }

    async fn hung(&self, why: &str) {
        let id = self.parts.process.meta.replica_id.clone();
        tracing::warn!(replica = %id, why, "hung");
        send(&self.parts.events, Event::Input(AgentInput::Hung(id))).await;
    }
}
