//! Does anybody still listen on the port of an engine that serves?
//!
//! A refused connection is the kernel's own word that nobody does. Silence is none: a busy engine
//! answers late, and one whose queue of connections is full does not answer at all.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use koi_core::agent::AgentInput;
use koi_shim::process::is_alive;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::host::{Event, send};
use crate::worker::Parts;

/// Between knocks.
const KNOCK_EVERY: Duration = Duration::from_secs(1);
/// So many refusals in a row count.
const REFUSALS: u32 = 3;
/// Between the knocks that make sure.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// Longest wait for a connection.
const KNOCK_LIMIT: Duration = Duration::from_secs(1);

/// Knocks at a serving engine until its port refuses, and says so.
pub(super) async fn knock(parts: Parts) {
    let meta = &parts.process.meta;
    let Ok(ip) = meta.host.parse() else { return };
    let address = SocketAddr::new(ip, meta.port);
    loop {
        sleep(KNOCK_EVERY).await;
        if parts.ready.load(Ordering::Relaxed) && refuses(address).await {
            break;
        }
    }
    // The end of the process is told with its reason by whoever watches it.
    if is_alive(parts.process.identity.engine) {
        let id = meta.replica_id.clone();
        tracing::warn!(replica = %id, %address, "it lives and its port refuses connections");
        send(&parts.events, Event::Input(AgentInput::Refusing(id))).await;
    }
}

async fn refuses(address: SocketAddr) -> bool {
    for _ in 0..REFUSALS {
        if !is_refused(address).await {
            return false;
        }
        sleep(AGAIN_AFTER).await;
    }
    true
}

async fn is_refused(address: SocketAddr) -> bool {
    match timeout(KNOCK_LIMIT, TcpStream::connect(address)).await {
        Ok(Err(error)) => error.kind() == io::ErrorKind::ConnectionRefused,
        Ok(Ok(_)) | Err(_) => false,
    }
}
