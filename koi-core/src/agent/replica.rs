//! One replica on its host: stages, starts and back-off.

use super::AgentParams;
use crate::ids::ReplicaId;
use crate::rollout::{ObservedPhase, ObservedReplica};
use crate::time::UtcMicros;

/// Start of the wait for the first token of a replica that was found running, until the first step
/// says what time it is.
const ADOPTED: UtcMicros = UtcMicros(i64::MAX);

/// Where a replica stands on its host.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Stage {
    /// To be launched.
    Pending {
        /// Not before then.
        not_before: UtcMicros,
    },
    /// Launched, no token yet.
    Launching {
        /// Since when.
        since: UtcMicros,
    },
    /// Serving.
    Ready,
    /// To go; waits for its requests.
    Draining {
        /// Since when.
        since: UtcMicros,
        /// False when it never served.
        wait: bool,
    },
    /// Asked to stop.
    Stopping,
    /// Gone; what is left of it is being looked for.
    Proving {
        /// True when it is not to come back.
        give_up: bool,
    },
    /// Waits for its next start.
    Backoff {
        /// Until then.
        until: UtcMicros,
    },
    /// Given up; nothing is left of it.
    Failed,
    /// Stopped as wanted; nothing is left of it.
    Stopped,
}

/// A replica as the agent keeps it.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalReplica {
    /// Identity.
    pub id: ReplicaId,
    pub(super) stage: Stage,
    pub(super) in_flight: Option<u64>,
    /// True from asking for a launch to its answer: until then nobody knows what there is to stop,
    /// and whatever is heard belongs to an earlier life.
    pub(super) launch_pending: bool,
    /// Devices it was given; `None` when it was found running and nobody knows.
    pub(super) gpu_uuids: Option<Vec<String>>,
    /// Port it listens on.
    pub port: Option<u16>,
    /// First failure's words of the current run of failures.
    reason: String,
    starts: Vec<UtcMicros>,
    n_starts: u32,
    engine_version: String,
    engine_args: Vec<String>,
}

impl LocalReplica {
    pub(super) fn pending(id: ReplicaId, now: UtcMicros) -> Self {
        Self {
            id,
            stage: Stage::Pending { not_before: now },
            in_flight: None,
            launch_pending: false,
            gpu_uuids: None,
            port: None,
            reason: String::new(),
            starts: Vec::new(),
            n_starts: 0,
            engine_version: String::new(),
            engine_args: Vec::new(),
        }
    }

    /// A replica that was found running when the agent started.
    #[must_use]
    pub fn adopted(id: ReplicaId, port: u16, engine_version: String, args: Vec<String>) -> Self {
        Self {
            stage: Stage::Launching { since: ADOPTED },
            port: Some(port),
            n_starts: 1,
            engine_version,
            engine_args: args,
            ..Self::pending(id, UtcMicros(0))
        }
    }

    /// From now on a replica that was found running is waited for like any other.
    pub(super) fn wait_from(&mut self, now: UtcMicros) {
        if self.stage == (Stage::Launching { since: ADOPTED }) {
            self.stage = Stage::Launching { since: now };
        }
    }

    /// True while a process of it may hold one of these devices.
    pub(super) fn may_hold(&self, gpu_uuids: &[String]) -> bool {
        let gone = match self.stage {
            Stage::Pending { .. } | Stage::Backoff { .. } | Stage::Failed | Stage::Stopped => true,
            Stage::Launching { .. }
            | Stage::Ready
            | Stage::Draining { .. }
            | Stage::Stopping
            | Stage::Proving { .. } => false,
        };
        let own = self.gpu_uuids.as_ref();
        !gone && own.is_none_or(|own| own.iter().any(|uuid| gpu_uuids.contains(uuid)))
    }

    /// True while an engine process is expected to exist.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(
            self.stage,
            Stage::Launching { .. } | Stage::Ready | Stage::Draining { .. } | Stage::Stopping
        )
    }

    /// True while the shell should ask for a first token.
    #[must_use]
    pub fn awaits_token(&self) -> bool {
        matches!(self.stage, Stage::Launching { .. }) && self.port.is_some()
    }

    /// True while it serves.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Ready)
    }

    /// True while its requests in flight matter for stopping it.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        matches!(self.stage, Stage::Draining { .. })
    }

    pub(super) fn observed(&self) -> ObservedReplica {
        ObservedReplica {
            id: self.id.clone(),
            phase: phase_of(&self.stage),
            reason: self.reason.clone(),
            port: self.port.filter(|_| self.is_running()),
            n_starts: self.n_starts,
            exit_proven: matches!(self.stage, Stage::Stopped | Stage::Failed),
            engine_version: self.engine_version.clone(),
            engine_args: self.engine_args.clone(),
        }
    }

    pub(super) fn starting(&mut self, now: UtcMicros, params: &AgentParams) {
        let window = f64::from(params.starts_window_s);
        self.starts.retain(|at| now.seconds_since(*at) < window);
        self.starts.push(now);
        self.n_starts = self.n_starts.saturating_add(1);
        self.launch_pending = true;
        self.port = None;
        self.in_flight = None;
        self.stage = Stage::Launching { since: now };
    }

    pub(super) fn launched(
        &mut self,
        now: UtcMicros,
        port: u16,
        engine_version: String,
        engine_args: Vec<String>,
    ) {
        self.launch_pending = false;
        if matches!(self.stage, Stage::Launching { .. }) {
            self.stage = Stage::Launching { since: now };
        }
        self.port = Some(port);
        self.engine_version = engine_version;
        self.engine_args = engine_args;
    }

    /// No process came up. What it may have left is looked for before the next start.
    pub(super) fn launch_failed(&mut self, reason: String, fatal: bool) {
        self.launch_pending = false;
        match self.stage {
            Stage::Launching { .. } => {
                self.note(reason);
                self.stage = Stage::Proving { give_up: fatal };
            }
            Stage::Draining { .. } => self.stage = Stage::Stopping,
            Stage::Pending { .. }
            | Stage::Ready
            | Stage::Stopping
            | Stage::Proving { .. }
            | Stage::Backoff { .. }
            | Stage::Failed
            | Stage::Stopped => {}
        }
    }

    pub(super) fn ready(&mut self) {
        if matches!(self.stage, Stage::Launching { .. }) && !self.launch_pending {
            self.stage = Stage::Ready;
            self.reason.clear();
        }
    }

    /// The process is gone: expected while stopping, a crash otherwise. True when that was news
    /// and what is left has to be looked for.
    pub(super) fn exited(&mut self, reason: String) -> bool {
        if self.launch_pending {
            return false;
        }
        match self.stage {
            Stage::Draining { .. } => self.stage = Stage::Stopping,
            Stage::Launching { .. } | Stage::Ready => {
                self.note(reason);
                self.stage = Stage::Proving { give_up: false };
            }
            Stage::Pending { .. }
            | Stage::Stopping
            | Stage::Proving { .. }
            | Stage::Backoff { .. }
            | Stage::Failed
            | Stage::Stopped => return false,
        }
        true
    }

    pub(super) fn give_up(&mut self, reason: &str) {
        self.note(reason.to_owned());
        self.stage = Stage::Proving { give_up: true };
    }

    /// Nothing is left of it.
    pub(super) fn exit_proven(&mut self, now: UtcMicros, params: &AgentParams) {
        match self.stage {
            Stage::Stopping => self.stage = Stage::Stopped,
            Stage::Proving { give_up: true } => self.stage = Stage::Failed,
            Stage::Proving { give_up: false } => self.back_off(now, params),
            Stage::Pending { .. }
            | Stage::Launching { .. }
            | Stage::Ready
            | Stage::Draining { .. }
            | Stage::Backoff { .. }
            | Stage::Failed
            | Stage::Stopped => {}
        }
    }

    /// First failure's words are kept until it serves again: later ones are often consequences.
    fn note(&mut self, reason: String) {
        if self.reason.is_empty() {
            self.reason = reason.chars().take(2000).collect();
        }
    }

    fn back_off(&mut self, now: UtcMicros, params: &AgentParams) {
        let window = f64::from(params.starts_window_s);
        self.starts.retain(|at| now.seconds_since(*at) < window);
        let recent = self.starts.len();
        if recent >= params.max_starts as usize {
            self.stage = Stage::Failed;
            return;
        }
        let doublings = u32::try_from(recent.saturating_sub(2)).unwrap_or(0).min(16);
        let wait = match recent {
            0 | 1 => params.first_backoff_s,
            _ => params
                .backoff_s
                .saturating_mul(1 << doublings)
                .min(params.max_backoff_s),
        };
        self.stage = Stage::Backoff {
            until: now.plus_seconds(i64::from(wait)),
        };
    }
}

/// Phase the server sees for a stage.
const fn phase_of(stage: &Stage) -> ObservedPhase {
    match stage {
        Stage::Pending { .. } | Stage::Launching { .. } => ObservedPhase::Launching,
        Stage::Ready => ObservedPhase::Ready,
        Stage::Draining { .. } | Stage::Stopping => ObservedPhase::Draining,
        Stage::Proving { give_up: false } | Stage::Backoff { .. } => ObservedPhase::Backoff,
        Stage::Proving { give_up: true } | Stage::Failed => ObservedPhase::Failed,
        Stage::Stopped => ObservedPhase::Stopped,
    }
}
