//! What a shim writes down and says: identity, exit, status, and the lines of the control socket.

use koi_core::ids::ReplicaId;
use koi_core::time::UtcMicros;
use serde::{Deserialize, Serialize};

/// A process that cannot be confused with another one of the same boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessRef {
    /// Process id.
    pub pid: u32,
    /// Field 22 of `/proc/<pid>/stat`.
    pub start_ticks: u64,
}

/// `identity.json`: who supervises and who is supervised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Format of this file.
    pub format: u32,
    /// The replica.
    pub replica_id: ReplicaId,
    /// Mark of the launch.
    pub nonce: String,
    /// Boot in which all pids of this record are meant.
    pub boot_id: String,
    /// The shim that serves now.
    pub shim: ProcessRef,
    /// The shim that started the engine: leader of the engine's session.
    pub session: ProcessRef,
    /// The engine's first process.
    pub engine: ProcessRef,
    /// The engine's process group.
    pub pgid: u32,
    /// When the engine was started.
    pub started_at: UtcMicros,
    /// How often a dead shim was replaced.
    pub adoptions: u32,
}

/// Who asked for the end of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopRequest {
    /// Nobody: it ended by itself or was killed from outside.
    None,
    /// A stop with grace.
    Terminate,
    /// A stop with grace whose grace ran out.
    Escalated,
    /// An immediate kill.
    Kill,
}

/// `exit.json`: how the engine ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// Format of this file.
    pub format: u32,
    /// The replica.
    pub replica_id: ReplicaId,
    /// Mark of the launch.
    pub nonce: String,
    /// Boot in which it ran.
    pub boot_id: String,
    /// The engine's first process; absent when it never started.
    pub engine: Option<ProcessRef>,
    /// Exit code; absent after a signal or when an adopting shim could not see it.
    pub code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// Why the engine could not be started at all.
    pub spawn_error: Option<String>,
    /// Who asked.
    pub requested: StopRequest,
    /// When the first process ended.
    pub exited_at: UtcMicros,
    /// When nothing of its tree was left; absent while that is not so.
    pub group_gone_at: Option<UtcMicros>,
    /// Processes of its tree that had to be killed after the first one had ended.
    pub leftovers_killed: u32,
}

/// Where a shim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShimPhase {
    /// The engine runs.
    Running,
    /// TERM or KILL was sent; the engine's first process still lives.
    Stopping,
    /// The first process ended; the rest of the tree is being removed.
    Sweeping,
}

/// A process of the engine's tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The process.
    #[serde(flatten)]
    pub process: ProcessRef,
    /// Its parent.
    pub ppid: u32,
    /// Name as the kernel keeps it, at most 15 bytes.
    pub name: String,
}

/// A long-lived member that is gone while the first process still runs, e.g. a dead engine core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostMember {
    /// The process.
    #[serde(flatten)]
    pub member: Member,
    /// When its absence was seen.
    pub seen_at: UtcMicros,
}

/// Answer to `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimStatus {
    /// Who is who.
    pub identity: Identity,
    /// Where the shim is.
    pub phase: ShimPhase,
    /// The engine's tree as last seen, its first process included.
    pub members: Vec<Member>,
    /// Long-lived members that are gone, newest last, at most 16.
    pub lost: Vec<LostMember>,
    /// Size of the current log file in bytes.
    pub log_bytes: u64,
    /// How often the log was turned over.
    pub log_rotations: u32,
    /// How the first process ended, once it has.
    pub exit: Option<ExitRecord>,
}

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Operation {
    /// Is somebody there?
    Ping,
    /// [`ShimStatus`].
    Status,
    /// TERM to the engine's first process, KILL to the tree after the grace.
    Term {
        /// Seconds until KILL; the specification's grace when absent.
        grace_s: Option<u32>,
    },
    /// KILL to the whole tree.
    Kill,
    /// Keep the connection: a line follows when a long-lived member is lost and when the first
    /// process ends, end of stream when the shim does.
    Watch,
}

/// One line to the shim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What is asked.
    #[serde(flatten)]
    pub operation: Operation,
    /// Mark of the launch; a request with another one is refused.
    pub nonce: String,
}

/// One line from the shim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// Done.
    Ok,
    /// Answer to `status`.
    Status(Box<ShimStatus>),
    /// A long-lived member is gone while the first process runs (to watchers).
    Lost(Box<LostMember>),
    /// The first process ended (to watchers).
    Exited(Box<ExitRecord>),
    /// Refused.
    Error {
        /// Why.
        message: String,
    },
}
