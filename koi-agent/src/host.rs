//! The agent's own loop: owns the [`AgentMachine`], performs its effects, and tells the session
//! what is to be seen. Every effect that takes time is a task that answers with an event.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use koi_core::agent::{AgentEffect, AgentInput, AgentMachine};
use koi_core::gpu::GpuReading;
use koi_core::ids::ReplicaId;
use koi_core::rollout::{DesiredReplica, DesiredSet, ObservedState, ReplicaMode};
use koi_core::time::UtcMicros;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::launcher::{Launched, Launcher};
use crate::observability::Metric;
use crate::supervise::ReplicaProcess;
use crate::telemetry::TelemetrySink;
use crate::worker::{self, Worker};

/// Events that may wait for the loop.
const MAILBOX: usize = 1024;
/// How often time passes for the machine.
const TIMER: Duration = Duration::from_millis(250);
/// How often devices are read for the server's eyes.
const GPU_REPORT: Duration = Duration::from_secs(5);

/// What happened outside the machine.
#[derive(Debug)]
pub enum Event {
    /// For the machine as it is.
    Input(AgentInput),
    /// A launch went through.
    Launched(Box<Launched>),
    /// A new shim watches an engine that went on running.
    Reshimmed(Box<ReplicaProcess>),
}

/// Everything the loop works with.
pub struct HostParts {
    /// Decisions.
    pub machine: AgentMachine,
    /// Starts, stops and proves.
    pub launcher: Arc<Launcher>,
    /// Where windows go.
    pub sink: TelemetrySink,
    /// File of the newest desired set.
    pub desired_file: PathBuf,
    /// The agent stops; replicas do not.
    pub shutdown: CancellationToken,
}

/// The loop.
pub struct Host {
    parts: HostParts,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Event>,
    processes: BTreeMap<ReplicaId, ReplicaProcess>,
    workers: BTreeMap<ReplicaId, Worker>,
    observed: watch::Sender<ObservedState>,
    tasks: TaskTracker,
}

/// The wall clock, in the unit of the core.
#[must_use]
pub fn utc_now() -> UtcMicros {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    UtcMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

impl Host {
    /// A loop over adopted processes; `observed` is what sessions send.
    #[must_use]
    pub fn new(
        parts: HostParts,
        adopted: Vec<ReplicaProcess>,
    ) -> (Self, mpsc::Sender<Event>, watch::Receiver<ObservedState>) {
        let (events, inbox) = mpsc::channel(MAILBOX);
        let state = ObservedState {
            applied: parts.machine.highest(),
            replicas: parts.machine.observed(),
            ..ObservedState::default()
        };
        let (observed, receiver) = watch::channel(state);
        let mut host = Self {
            parts,
            events: events.clone(),
            inbox,
            processes: BTreeMap::new(),
            workers: BTreeMap::new(),
            observed,
            tasks: TaskTracker::new(),
        };
        for process in adopted {
            let (id, has_served) = (process.meta.replica_id.clone(), process.has_served());
            host.attend(process);
            if has_served {
                host.step(AgentInput::Ready(id));
            }
        }
        (host, events, receiver)
    }

    /// Runs until shutdown; engines go on.
    pub async fn run(mut self) {
        let mut timer = tokio::time::interval(TIMER);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut gpus = tokio::time::interval(GPU_REPORT);
        gpus.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let shutdown = self.parts.shutdown.clone();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                event = self.inbox.recv() => match event {
                    Some(event) => self.handle(event),
                    None => break,
                },
                _ = timer.tick() => self.step(AgentInput::Timer),
                _ = gpus.tick() => self.report(),
            }
        }
        for worker in self.workers.values() {
            worker.stop();
        }
        self.tasks.close();
        // Tasks that outlast this belong to engines; they are taken up again by the next start.
        drop(tokio::time::timeout(Duration::from_secs(2), self.tasks.wait()).await);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Input(input) => {
                self.count(&input);
                self.step(input);
            }
            Event::Launched(launched) => {
                let Launched {
                    process,
                    engine_version,
                    engine_args,
                } = *launched;
                let (id, port) = (process.meta.replica_id.clone(), process.meta.port);
                self.attend(process);
                Metric::LaunchesTotal.count(1, Some(("outcome", "launched")));
                self.step(AgentInput::Launched {
                    id,
                    port,
                    engine_version,
                    engine_args,
                });
            }
            Event::Reshimmed(process) => {
                self.processes
                    .insert(process.meta.replica_id.clone(), *process);
            }
        }
    }

    /// Counts launches that failed and engines that ended although they were to serve.
    fn count(&self, input: &AgentInput) {
        match input {
            AgentInput::LaunchFailed { .. } => {
                Metric::LaunchesTotal.count(1, Some(("outcome", "failed")));
            }
            AgentInput::Exited { id, .. } if self.is_to_serve(id) => {
                Metric::EngineExitsTotal.count(1, None);
            }
            _ => {}
        }
    }

    fn is_to_serve(&self, id: &ReplicaId) -> bool {
        let want = self.parts.machine.wanted(id);
        want.is_some_and(|want| want.mode == ReplicaMode::Serve)
    }

    /// Watches, probes and scrapes a process from now on.
    fn attend(&mut self, process: ReplicaProcess) {
        let id = process.meta.replica_id.clone();
        let ready = Arc::new(AtomicBool::new(process.has_served()));
        let worker = worker::spawn(worker::Parts {
            process: process.clone(),
            launcher: self.parts.launcher.clone(),
            events: self.events.clone(),
            sink: self.parts.sink.clone(),
            tasks: self.tasks.clone(),
            ready,
        });
        if let Some(old) = self.workers.insert(id.clone(), worker) {
            old.stop();
        }
        self.processes.insert(id, process);
    }

    fn step(&mut self, input: AgentInput) {
        let effects = self.parts.machine.step(utc_now(), input);
        for effect in effects {
            self.perform(effect);
        }
        for replica in self.parts.machine.replicas() {
            if let Some(worker) = self.workers.get(&replica.id) {
                worker.set_draining(replica.is_draining());
            }
        }
    }

    fn perform(&mut self, effect: AgentEffect) {
        match effect {
            AgentEffect::Persist(set) => self.persist(&set),
            AgentEffect::Launch(want) => self.launch(*want),
            AgentEffect::Terminate { id, grace_s } => self.terminate(id, grace_s),
            AgentEffect::ProveExit(id) => self.prove_exit(id),
            AgentEffect::Forget(id) => {
                if let Some(worker) = self.workers.remove(&id) {
                    worker.stop();
                }
                self.processes.remove(&id);
                self.parts.launcher.forget(&id);
            }
            AgentEffect::Report => self.report(),
        }
    }

    /// The newest desired set survives a restart of the agent. A full disk must not stop serving:
    /// the set is followed all the same, and a restart then waits for the server's word.
    fn persist(&self, set: &DesiredSet) {
        if let Err(error) = koi_shim::files::write_json(&self.parts.desired_file, set) {
            tracing::error!(%error, "the desired set could not be made durable");
        }
    }

    fn launch(&self, want: DesiredReplica) {
        let (launcher, events) = (self.parts.launcher.clone(), self.events.clone());
        self.tasks.spawn(async move {
            let id = want.id.clone();
            tracing::info!(replica = %id, "launching");
            let event = match launcher.launch(&want).await {
                Ok(launched) => Event::Launched(Box::new(launched)),
                Err(failure) => {
                    tracing::warn!(replica = %id, reason = failure.reason, "launch failed");
                    let (reason, fatal) = (failure.reason, failure.fatal);
                    Event::Input(AgentInput::LaunchFailed { id, reason, fatal })
                }
            };
            send(&events, event).await;
        });
    }

    fn terminate(&self, id: ReplicaId, grace_s: u32) {
        let Some(process) = self.processes.get(&id).cloned() else {
            return;
        };
        tracing::info!(replica = %id, grace_s, "stopping");
        self.tasks.spawn(async move {
            if let Err(error) = process.stop(grace_s).await {
                tracing::warn!(replica = %id, %error, "it could not be stopped");
            }
        });
    }

    fn prove_exit(&mut self, id: ReplicaId) {
        let (launcher, events) = (self.parts.launcher.clone(), self.events.clone());
        let process = self.processes.get(&id).cloned();
        if let Some(worker) = self.workers.get(&id) {
            worker.set_draining(false);
        }
        self.tasks.spawn(async move {
            launcher.prove_exit(&id, process.as_ref()).await;
            send(&events, Event::Input(AgentInput::ExitProven(id))).await;
        });
    }

    fn report(&self) {
        let machine = &self.parts.machine;
        let state = ObservedState {
            applied: machine.highest(),
            replicas: machine.observed(),
            gpus: self.gpus(),
            refusal: machine.refusal().map(str::to_owned),
        };
        self.observed.send_replace(state);
    }

    fn gpus(&self) -> Vec<GpuReading> {
        match self.parts.launcher.gpus().read() {
            Ok(look) => look.readings,
            Err(error) => {
                tracing::debug!(%error, "the devices could not be read");
                Vec::new()
            }
        }
    }
}

/// Sends an event; a loop that has ended needs none.
pub(crate) async fn send(events: &mpsc::Sender<Event>, event: Event) {
    if events.send(event).await.is_err() {
        tracing::debug!("the host loop has ended");
    }
}
