//! The engine's thread: steps in real time, one frame of tokens per step, nothing at all when idle.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use koi_core::time::UtcMicros;
use koi_sim::engine::{EngineSim, Request, Step};

use super::meter::Meter;
use super::{Input, send};
use crate::clock::wall_clock;
use crate::frame::{FromCore, ReadyFacts, Submit, ToCore};
use crate::log::{Speaker, log};

/// A step may start where the last one should have ended, if that is not longer ago than this:
/// a late timer must not slow the engine down, a stopped machine must not make it race.
const LARGEST_CATCH_UP_MICROS: i64 = 50_000;
/// Longest plausible way from the API process to here.
const LARGEST_TRANSIT_MICROS: i64 = 60_000_000;

/// Wall time that never goes back: anchored once, then monotonic.
struct Clock {
    began: Instant,
    began_utc: UtcMicros,
}

impl Clock {
    fn now(&self) -> UtcMicros {
        UtcMicros(self.began_utc.0 + self.began.elapsed().as_micros() as i64)
    }
}

/// Whether the engine goes on.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Mode {
    Serving,
    /// Ends when nothing is left.
    Draining,
    /// The parent died: only memory is held, until a signal comes.
    Orphaned,
    Ended,
}

/// The engine with its connection.
pub(crate) struct Runner {
    engine: EngineSim,
    socket: UnixStream,
    meter: Arc<Meter>,
    clock: Clock,
    mode: Mode,
}

impl Runner {
    pub(crate) fn new(engine: EngineSim, socket: UnixStream, meter: Arc<Meter>) -> Self {
        let clock = Clock {
            began: Instant::now(),
            began_utc: wall_clock(),
        };
        Self {
            engine,
            socket,
            meter,
            clock,
            mode: Mode::Serving,
        }
    }

    /// Runs until a drain is over or a signal ends an orphan.
    pub(crate) fn run(mut self, facts: &ReadyFacts, inputs: &Receiver<Input>) {
        send(&mut self.socket, &FromCore::Ready(facts.clone()));
        let mut next_start = self.clock.now();
        loop {
            self.take_waiting(inputs);
            match self.engine.begin_step(next_start) {
                Some(step) => next_start = self.pass(step, inputs),
                None if self.is_over() => return,
                None => {
                    match inputs.recv() {
                        Ok(input) => self.take(input),
                        Err(_) => return,
                    }
                    next_start = self.clock.now();
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        match self.mode {
            Mode::Draining => self.engine.n_unfinished() == 0,
            Mode::Ended => true,
            Mode::Serving | Mode::Orphaned => false,
        }
    }

    /// Lets a step's time pass while requests come in; when the next one may start.
    fn pass(&mut self, step: Step, inputs: &Receiver<Input>) -> UtcMicros {
        loop {
            let left = step.ends.0 - self.clock.now().0;
            if left <= 0 {
                break;
            }
            match inputs.recv_timeout(Duration::from_micros(left as u64)) {
                Ok(input) => self.take(input),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => self.mode = Mode::Ended,
            }
            if self.mode == Mode::Ended {
                break;
            }
        }
        let now = self.clock.now();
        let events = self.engine.finish_step(now);
        self.meter.record(&step.cost);
        if !events.is_empty() {
            send(&mut self.socket, &FromCore::Tokens(events));
        }
        if now.0 - step.ends.0 < LARGEST_CATCH_UP_MICROS {
            step.ends
        } else {
            now
        }
    }

    fn take_waiting(&mut self, inputs: &Receiver<Input>) {
        loop {
            match inputs.try_recv() {
                Ok(input) => self.take(input),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.mode = Mode::Ended;
                    return;
                }
            }
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Message(ToCore::Submit(submit)) => self.submit(*submit),
            Input::Message(ToCore::Cancel(id)) => drop(self.engine.cancel(id)),
            Input::Message(ToCore::ReadMetrics) => {
                let metrics = Box::new(self.engine.metrics());
                send(&mut self.socket, &FromCore::Metrics(metrics));
            }
            Input::Message(ToCore::Drain) => self.mode = Mode::Draining,
            Input::ParentGone if self.mode == Mode::Draining => self.mode = Mode::Ended,
            Input::ParentGone => {
                let message =
                    "the API server is gone; the engine keeps its memory until it is ended";
                log(Speaker::EngineCore, "ERROR", message);
                self.mode = Mode::Orphaned;
                self.engine.cancel_all();
            }
            Input::Terminate if self.mode == Mode::Orphaned => self.mode = Mode::Ended,
            Input::Terminate => self.mode = Mode::Draining,
        }
    }

    fn submit(&mut self, submit: Submit) {
        let now = self.clock.now();
        let transit = (wall_clock().0 - submit.arrival_micros).clamp(0, LARGEST_TRANSIT_MICROS);
        let id = submit.id;
        let request = Request {
            id,
            arrival: UtcMicros(now.0 - transit),
            prompt: submit.prompt,
            max_tokens: submit.max_tokens,
            natural_end: submit.natural_end,
            answer_seed: submit.answer_seed,
        };
        if let Err(error) = self.engine.submit(now, request) {
            log(
                Speaker::EngineCore,
                "ERROR",
                &format!("request {id} is refused: {error}"),
            );
            send(&mut self.socket, &FromCore::Rejected(id));
        }
    }
}
