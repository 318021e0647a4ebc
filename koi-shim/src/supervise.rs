//! The shim's loop: wait for a signal, the engine's end, a client or the next look; act; wait.
//!
//! Idle, it wakes once in a few seconds for the log and the tree and does nothing else.

mod sweep;
mod tree_watch;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, wait};

use crate::control::ControlSocket;
use crate::daemon::{ShimSignal, SignalFile};
use crate::error::ShimError;
use crate::files::{EXIT_FILE, FolderLock, write_json};
use crate::log_ring::LogRing;
use crate::process::now;
use crate::record::{
    ExitRecord, Identity, Operation, ProcessRef, Reply, Request, ShimPhase, ShimStatus, StopRequest,
};
use crate::spec::{FORMAT, ShimSpec};
use crate::supervise::sweep::Sweep;
use crate::supervise::tree_watch::TreeWatch;
use crate::tree::{OwnedTree, signal_exactly};

/// Between looks at a log that grows, and at one that does not.
const LOG_BUSY: Duration = Duration::from_secs(1);
const LOG_QUIET: Duration = Duration::from_secs(2);

/// The watched first process of the engine.
#[derive(Debug)]
pub(crate) struct EngineHandle {
    pub(crate) process: ProcessRef,
    handle: OwnedFd,
    is_child: bool,
}

impl EngineHandle {
    /// Opens a handle that becomes readable when exactly this process ends.
    pub(crate) fn open(process: ProcessRef, is_child: bool) -> Result<Self, ShimError> {
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| ShimError::NotOurs {
            pid: process.pid,
            why: "it is not a process id".to_owned(),
        })?;
        let handle =
            pidfd_open(pid, PidfdFlags::empty()).map_err(ShimError::system("pidfd_open"))?;
        Ok(Self {
            process,
            handle,
            is_child,
        })
    }
}

/// How the engine's first process ended, as far as it could be seen.
#[derive(Debug, Clone, Copy, Default)]
struct EndStatus {
    code: Option<i32>,
    signal: Option<i32>,
}

/// One supervised replica.
#[derive(Debug)]
pub(crate) struct Supervisor {
    state_dir: PathBuf,
    #[expect(dead_code, reason = "held for its lifetime")]
    lock: FolderLock,
    spec: ShimSpec,
    identity: Identity,
    signals: SignalFile,
    socket: ControlSocket,
    log: LogRing,
    next_log_look: Instant,
    engine: EngineHandle,
    end: Option<EndStatus>,
    requested: StopRequest,
    kill_at: Option<Instant>,
    watch: TreeWatch,
    sweep: Option<Sweep>,
    exit: Option<ExitRecord>,
}

impl Supervisor {
    /// Puts the parts together; nothing happens before [`Self::serve`].
    pub(crate) fn new(
        state_dir: &Path,
        lock: FolderLock,
        (spec, identity): (ShimSpec, Identity),
        (signals, socket, log): (SignalFile, ControlSocket, LogRing),
        engine: EngineHandle,
    ) -> Self {
        let watch = TreeWatch::new(OwnedTree::of(&identity), engine.process);
        Self {
            state_dir: state_dir.to_owned(),
            lock,
            spec,
            identity,
            signals,
            socket,
            log,
            next_log_look: Instant::now(),
            engine,
            end: None,
            requested: StopRequest::None,
            kill_at: None,
            watch,
            sweep: None,
            exit: None,
        }
    }

    /// Runs until nothing of the engine is left.
    pub(crate) fn serve(mut self) -> Result<(), ShimError> {
        loop {
            self.wait_for_something()?;
            for signal in self.signals.take() {
                if signal == ShimSignal::Terminate {
                    self.terminate(None);
                }
            }
            self.reap();
            self.note_engine_end()?;
            self.socket.accept();
            self.answer_clients();
            let at = Instant::now();
            self.tend_log(at);
            for lost in self.watch.look_if_due(at, self.exit.is_none()) {
                self.socket.announce(&Reply::Lost(Box::new(lost)));
            }
            self.escalate_if_due(at);
            if self.sweep_if_due(at)? {
                return Ok(());
            }
        }
    }

    fn wait_for_something(&mut self) -> Result<(), ShimError> {
        let due = [
            Some(self.next_log_look),
            self.kill_at,
            self.sweep.as_ref().map(Sweep::due),
        ];
        let due = due.into_iter().flatten().chain([self.watch.due()]).min();
        let wait = due.map_or(LOG_QUIET, |d| d.saturating_duration_since(Instant::now()));
        let timeout = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(60),
            // One more millisecond, so that the wait never ends just before the moment.
            tv_nsec: i64::from(wait.subsec_nanos()).min(998_999_999) + 1_000_000,
        };
        let mut files = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.socket.listener, PollFlags::IN),
        ];
        if self.exit.is_none() {
            files.push(PollFd::from_borrowed_fd(
                self.engine.handle.as_fd(),
                PollFlags::IN,
            ));
        }
        files.extend(
            self.socket
                .clients
                .iter()
                .map(|c| PollFd::new(&c.stream, PollFlags::IN)),
        );
        let n_others = files.len();
        files.extend(self.watch.handles().map(|h| PollFd::new(h, PollFlags::IN)));
        match poll(&mut files, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(ShimError::system("poll")(errno)),
        }
        if files[n_others..].iter().any(|f| !f.revents().is_empty()) {
            self.watch.hasten();
        }
        Ok(())
    }

    /// Takes in every dead child: the engine, and orphans of its tree that the kernel gave to us.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let is_engine =
                u32::try_from(pid.as_raw_nonzero().get()) == Ok(self.engine.process.pid);
            if is_engine && self.engine.is_child && self.end.is_none() {
                self.end = Some(EndStatus {
                    code: status.exit_status(),
                    signal: status.terminating_signal(),
                });
            }
        }
    }

    fn note_engine_end(&mut self) -> Result<(), ShimError> {
        if self.exit.is_some() {
            return Ok(());
        }
        if self.end.is_none() && !self.engine.is_child && self.handle_is_readable() {
            self.end = Some(EndStatus::default());
        }
        let Some(end) = self.end else { return Ok(()) };
        let record = ExitRecord {
            format: FORMAT,
            replica_id: self.spec.replica_id.clone(),
            nonce: self.spec.nonce.clone(),
            boot_id: self.identity.boot_id.clone(),
            engine: Some(self.engine.process),
            code: end.code,
            signal: end.signal,
            spawn_error: None,
            requested: self.requested,
            exited_at: now(),
            group_gone_at: None,
            leftovers_killed: 0,
        };
        let asked_to_end = self.requested == StopRequest::Terminate && end.signal.is_none();
        self.sweep = Some(Sweep::start(OwnedTree::of(&self.identity), asked_to_end));
        self.kill_at = None;
        self.socket
            .announce(&Reply::Exited(Box::new(record.clone())));
        self.exit = Some(record);
        self.store_exit()
    }

    fn handle_is_readable(&self) -> bool {
        let mut files = [PollFd::from_borrowed_fd(
            self.engine.handle.as_fd(),
            PollFlags::IN,
        )];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut files, Some(&at_once)).is_ok_and(|n| n > 0)
    }

    /// A full disk must not keep a shim from cleaning up, so only a vanished folder is an error.
    fn store_exit(&self) -> Result<(), ShimError> {
        let Some(record) = &self.exit else {
            return Ok(());
        };
        match write_json(&self.state_dir.join(EXIT_FILE), record) {
            Err(error) if self.sweep.is_none() => Err(error),
            _ => Ok(()),
        }
    }

    fn terminate(&mut self, grace_s: Option<u32>) {
        if self.exit.is_some() {
            return;
        }
        let grace = Duration::from_secs(u64::from(grace_s.unwrap_or(self.spec.grace_s).min(3600)));
        let at = Instant::now() + grace;
        if self.requested == StopRequest::None {
            self.requested = StopRequest::Terminate;
            // An engine that ended meanwhile is seen by its handle.
            let _sent = signal_exactly(self.engine.process, Signal::TERM);
        }
        self.kill_at = Some(self.kill_at.map_or(at, |before| before.min(at)));
    }

    fn kill(&mut self) {
        if self.exit.is_some() {
            return;
        }
        if self.requested == StopRequest::None {
            self.requested = StopRequest::Kill;
        }
        self.watch.kill_all();
        self.kill_at = Some(Instant::now() + Duration::from_millis(200));
    }

    fn escalate_if_due(&mut self, at: Instant) {
        if self.kill_at.is_some_and(|due| due <= at) && self.exit.is_none() {
            if self.requested == StopRequest::Terminate {
                self.requested = StopRequest::Escalated;
            }
            self.kill();
        }
    }

    fn sweep_if_due(&mut self, at: Instant) -> Result<bool, ShimError> {
        let Some(sweep) = &mut self.sweep else {
            return Ok(false);
        };
        if sweep.due() > at || !sweep.step(at) {
            return Ok(false);
        }
        let killed = sweep.killed();
        if let Some(exit) = &mut self.exit {
            exit.group_gone_at = Some(now());
            exit.leftovers_killed = killed;
        }
        self.sweep = None;
        self.store_exit()?;
        Ok(true)
    }

    fn tend_log(&mut self, at: Instant) {
        if at >= self.next_log_look {
            let grew = self.log.tend().unwrap_or(false);
            self.next_log_look = at + if grew { LOG_BUSY } else { LOG_QUIET };
        }
    }

    fn answer_clients(&mut self) {
        for i in 0..self.socket.clients.len() {
            let requests = self.socket.clients[i].requests();
            for request in requests {
                let reply = match request {
                    Ok(request) => self.answer(i, &request),
                    Err(message) => Reply::Error { message },
                };
                self.socket.clients[i].send(&reply);
            }
        }
        self.socket.drop_closed();
    }

    fn answer(&mut self, client: usize, request: &Request) -> Reply {
        if request.nonce != self.spec.nonce {
            return Reply::Error {
                message: "the nonce is not this launch's".to_owned(),
            };
        }
        match request.operation {
            Operation::Ping => Reply::Ok,
            Operation::Status => Reply::Status(Box::new(self.status())),
            Operation::Term { grace_s } => {
                self.terminate(grace_s);
                Reply::Ok
            }
            Operation::Kill => {
                self.kill();
                Reply::Ok
            }
            Operation::Watch => {
                self.socket.clients[client].watching = true;
                match &self.exit {
                    Some(record) => Reply::Exited(Box::new(record.clone())),
                    None => Reply::Ok,
                }
            }
        }
    }

    fn status(&self) -> ShimStatus {
        let phase = match (&self.exit, self.requested) {
            (Some(_), _) => ShimPhase::Sweeping,
            (None, StopRequest::None) => ShimPhase::Running,
            (None, _) => ShimPhase::Stopping,
        };
        ShimStatus {
            identity: self.identity.clone(),
            phase,
            members: self.watch.members().to_vec(),
            lost: self.watch.lost().to_vec(),
            log_bytes: self.log.bytes(),
            log_rotations: self.log.rotations(),
            exit: self.exit.clone(),
        }
    }
}
