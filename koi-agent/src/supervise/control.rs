//! Talking to a shim over its control socket: one line out, one line back, within a time limit.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use koi_shim::ShimError;
use koi_shim::control::socket_path;
use koi_shim::record::{ExitRecord, LostMember, Member, Operation, Reply, Request};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::supervise::exit_record;

/// Longest wait for a shim's answer. A shim answers in microseconds; the rest is a busy host.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// Longest answer in bytes.
const MAX_REPLY_BYTES: u64 = 1 << 20;

/// A shim could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens: the shim is dead or has finished.
    #[error("no shim serves {path}: {source}")]
    NotServed {
        /// State folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It took too long.
    #[error("the shim of {0} does not answer")]
    NoAnswer(PathBuf),
    /// It answered something else.
    #[error("the shim refused or answered unexpectedly: {0}")]
    Unexpected(String),
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] ShimError),
}

impl ControlError {
    pub(super) fn unexpected(reply: &Reply) -> Self {
        let text = match reply {
            Reply::Error { message } => message.clone(),
            Reply::Ok => "ok".to_owned(),
            Reply::Status(_) => "status".to_owned(),
            Reply::Exited(_) => "exited".to_owned(),
            Reply::Lost(_) => "lost".to_owned(),
        };
        Self::Unexpected(text)
    }
}

type Connection = BufReader<tokio::io::Take<UnixStream>>;

/// Sends one request and reads one answer.
///
/// # Errors
/// When nobody serves the folder, or not in time.
pub async fn ask(
    state_dir: &Path,
    nonce: &str,
    operation: Operation,
) -> Result<Reply, ControlError> {
    let exchange = async {
        let mut connection = connect(state_dir, nonce, operation).await?;
        match read_reply(&mut connection).await? {
            Some(reply) => Ok(reply),
            None => Err(not_served(state_dir, io::ErrorKind::UnexpectedEof.into())),
        }
    };
    timeout(ANSWER_LIMIT, exchange)
        .await
        .unwrap_or_else(|_| Err(ControlError::NoAnswer(state_dir.to_owned())))
}

fn not_served(state_dir: &Path, source: io::Error) -> ControlError {
    ControlError::NotServed {
        path: state_dir.to_owned(),
        source,
    }
}

async fn connect(
    state_dir: &Path,
    nonce: &str,
    operation: Operation,
) -> Result<Connection, ControlError> {
    let (folder, path) = socket_path(state_dir)?;
    let mut stream = UnixStream::connect(path)
        .await
        .map_err(|source| not_served(state_dir, source))?;
    drop(folder);
    let request = Request {
        operation,
        nonce: nonce.to_owned(),
    };
    let mut line =
        serde_json::to_vec(&request).map_err(|e| ControlError::Unexpected(e.to_string()))?;
    line.push(b'\n');
    stream
        .write_all(&line)
        .await
        .map_err(|source| not_served(state_dir, source))?;
    Ok(BufReader::new(stream.take(MAX_REPLY_BYTES)))
}

/// One line; `None` at the end of the stream.
async fn read_reply(connection: &mut Connection) -> Result<Option<Reply>, ControlError> {
    let mut line = String::new();
    match connection.read_line(&mut line).await {
        Ok(0) => Ok(None),
        Ok(_) => serde_json::from_str(&line)
            .map(Some)
            .map_err(|error| ControlError::Unexpected(error.to_string())),
        // A shim that is killed resets the stream; that is an end like any other.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
        Err(error) => Err(ControlError::Unexpected(error.to_string())),
    }
}

/// What a watch sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// A long-lived process of the tree is gone while the first one runs; see
    /// [`is_engine_core`].
    Lost(Box<LostMember>),
    /// The engine's first process ended; the rest is being removed.
    Exited(Box<ExitRecord>),
    /// Nothing of the tree is left; the shim has finished.
    Gone(Box<ExitRecord>),
    /// The shim died without finishing; the engine may well live. Adopt the folder.
    ShimLost,
}

/// True for a process without which its replica cannot serve: vLLM's engine core and workers, or
/// the simulated engine's. Others, such as compiler workers, come and go. The kernel keeps 15
/// bytes of a name.
#[must_use]
pub fn is_engine_core(member: &Member) -> bool {
    ["VLLM::EngineCor", "VLLM::Worker", "koi-engine-sim"]
        .iter()
        .any(|name| member.name.starts_with(name))
}

/// A kept connection to a shim.
#[derive(Debug)]
pub struct Watch {
    connection: Connection,
    state_dir: PathBuf,
    nonce: String,
}

/// Opens a watch.
///
/// # Errors
/// When nobody serves the folder.
pub async fn watch(state_dir: &Path, nonce: &str) -> Result<Watch, ControlError> {
    let connection = timeout(ANSWER_LIMIT, connect(state_dir, nonce, Operation::Watch))
        .await
        .unwrap_or_else(|_| Err(ControlError::NoAnswer(state_dir.to_owned())))?;
    Ok(Watch {
        connection,
        state_dir: state_dir.to_owned(),
        nonce: nonce.to_owned(),
    })
}

impl Watch {
    /// Waits for the next event. After [`WatchEvent::Gone`] or [`WatchEvent::ShimLost`] there is
    /// none.
    ///
    /// # Errors
    /// When the shim refuses or says something that is not the protocol.
    pub async fn next(&mut self) -> Result<WatchEvent, ControlError> {
        loop {
            match read_reply(&mut self.connection).await? {
                Some(Reply::Ok) => {}
                Some(Reply::Lost(member)) => return Ok(WatchEvent::Lost(member)),
                Some(Reply::Exited(record)) => return Ok(WatchEvent::Exited(record)),
                Some(other) => return Err(ControlError::unexpected(&other)),
                None => break,
            }
        }
        let record = exit_record(&self.state_dir, &self.nonce)?;
        Ok(match record.filter(|r| r.group_gone_at.is_some()) {
            Some(record) => WatchEvent::Gone(Box::new(record)),
            None => WatchEvent::ShimLost,
        })
    }
}
