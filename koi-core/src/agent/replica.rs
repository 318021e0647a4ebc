//! One replica on its host: stages, starts and back-off.

use super::{AgentParams, phase_of};
use crate::ids::ReplicaId;
use crate::rollout::ObservedReplica;
use crate::time::UtcMicros;

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
            stage: Stage::Launching {
                since: UtcMicros(i64::MAX),
            },
            port: Some(port),
            n_starts: 1,
            engine_version,
            engine_args: args,
            ..Self::pending(id, UtcMicros(0))
        }
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
        self.n_starts += 1;
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
        if matches!(self.stage, Stage::Launching { .. }) {
            self.stage = Stage::Launching { since: now };
        }
        self.port = Some(port);
        self.engine_version = engine_version;
        self.engine_args = engine_args;
    }

    pub(super) fn launch_failed(
        &mut self,
        now: UtcMicros,
        reason: String,
        fatal: bool,
        params: &AgentParams,
    ) {
        self.note(reason);
        if fatal {
            self.stage = Stage::Failed
        } else {
            self.back_off(now, params)
        }
    }

    pub(super) fn ready(&mut self, _now: UtcMicros) {
        if matches!(self.stage, Stage::Launching { .. }) {
            self.stage = Stage::Ready;
            self.reason.clear();
        }
    }

    /// The process is gone: expected while stopping, a crash otherwise.
    pub(super) fn exited(&mut self, reason: String) {
        match self.stage {
            Stage::Stopping | Stage::Draining { .. } => self.stage = Stage::Stopping,
            Stage::Launching { .. } | Stage::Ready => {
                self.note(reason);
                self.stage = Stage::Proving { give_up: false };
            }
            Stage::Pending { .. }
            | Stage::Proving { .. }
            | Stage::Backoff { .. }
            | Stage::Failed
            | Stage::Stopped => {}
        }
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
