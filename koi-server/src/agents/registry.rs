//! Connected agents and the way to reach them. A new stream of a host replaces the older one.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use koi_core::ids::HostId;
use koi_core::rollout::DesiredSet;
use tokio::sync::{mpsc, watch};

use koi_proto::v1;

/// Messages that may wait for a slow agent, telemetry acks included.
pub const OUTBOX: usize = 64;

/// Identity of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamId(u64);

/// The sending side of one stream.
#[derive(Debug, Clone)]
pub struct Outbox {
    /// Newest desired set; an older one that was not sent yet is worthless.
    pub desired: watch::Sender<Option<DesiredSet>>,
    /// Everything else.
    pub messages: mpsc::Sender<Result<v1::ServerMessage, tonic::Status>>,
}

/// Who is connected.
#[derive(Debug, Default)]
pub struct Registry {
    streams: Mutex<BTreeMap<HostId, (StreamId, Outbox)>>,
    next: AtomicU64,
}

impl Registry {
    /// Enters a stream; an older one of the same host is dropped and ends.
    pub fn enter(&self, host: HostId, outbox: Outbox) -> StreamId {
        let id = StreamId(self.next.fetch_add(1, Ordering::Relaxed));
        self.lock().insert(host, (id, outbox));
        id
    }

    /// Removes a stream; false when a newer one has taken its place.
    pub fn leave(&self, host: &HostId, id: StreamId) -> bool {
        let mut streams = self.lock();
        let current = streams.get(host).is_some_and(|(current, _)| *current == id);
        if current {
            streams.remove(host);
        }
        current
    }

    /// True while this stream is the host's newest.
    #[must_use]
    pub fn is_current(&self, host: &HostId, id: StreamId) -> bool {
        self.lock()
            .get(host)
            .is_some_and(|(current, _)| *current == id)
    }

    /// Hands a desired set to the host's stream, replacing one that still waits.
    pub fn push(&self, host: &HostId, set: DesiredSet) {
        if let Some((_, outbox)) = self.lock().get(host) {
            outbox.desired.send_replace(Some(set));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<HostId, (StreamId, Outbox)>> {
        self.streams
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
