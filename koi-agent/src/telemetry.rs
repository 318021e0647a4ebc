//! Windows on their way to the server: into the spool at once, out of it when acknowledged.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use koi_core::telemetry::histogram::EdgesTable;
use koi_core::telemetry::window::Window;
use koi_proto::convert::telemetry::WindowEncoder;
use koi_proto::v1;
use koi_proto::v1::agent_message::Message as ToServer;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::spool::{Entry, Gap, Spool};

/// Bytes read from the spool at a time.
const READ_BYTES: usize = 256 * 1024;

/// One record of the spool: a window with the bucket edges it needs, readable without anything else.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    window: Window,
    edges: Vec<Vec<f64>>,
}

/// Where workers put windows; cheap to clone.
#[derive(Clone)]
pub struct TelemetrySink {
    spool: Arc<Mutex<Spool>>,
    news: Arc<Notify>,
    started: Instant,
}

impl TelemetrySink {
    /// A sink over an open spool.
    #[must_use]
    pub fn new(spool: Spool) -> Self {
        Self {
            spool: Arc::new(Mutex::new(spool)),
            news: Arc::new(Notify::new()),
            started: Instant::now(),
        }
    }

    fn spool(&self) -> std::sync::MutexGuard<'_, Spool> {
        self.spool
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Keeps a window until the server has it.
    pub fn push(&self, window: Window, edges: &EdgesTable) {
        let used = window
            .histograms
            .values()
            .filter_map(|h| edges.get(h.edges));
        let edges = used.map(<[f64]>::to_vec).collect();
        let record = serde_json::to_vec(&Record { window, edges });
        let pushed = record.map_err(|e| e.to_string()).and_then(|r| {
            self.spool()
                .push(&r, self.started.elapsed())
                .map_err(|e| e.to_string())
        });
        match pushed {
            Ok(_) => self.news.notify_one(),
            Err(error) => tracing::error!(error, "a telemetry window was not kept"),
        }
    }

    /// The server has stored everything of this boot up to `seq`.
    pub fn ack(&self, boot: &str, seq: u64) {
        self.spool().ack(boot, seq);
    }

    /// Starts again from the oldest record that is not acknowledged.
    pub fn rewind(&self) {
        self.spool().rewind();
    }

    /// Writes out what lies unsynced.
    pub fn sync(&self) {
        self.spool().sync_if_due(self.started.elapsed());
    }

    /// Waits until something was pushed.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// The next messages to send, in order, of at most so many records; empty when everything was
    /// read.
    pub fn next_messages(
        &self,
        encoder: &mut WindowEncoder,
        max_records: usize,
    ) -> Vec<v1::AgentMessage> {
        let entries = self.spool().read(READ_BYTES, max_records);
        let mut messages = Vec::with_capacity(entries.len() + 1);
        for entry in entries {
            match entry {
                Entry::Record { boot, seq, payload } => {
                    messages.extend(self.record(encoder, boot, seq, &payload));
                }
                Entry::Gap(gap) => messages.extend(gap_message(gap)),
            }
        }
        messages
    }

    fn record(
        &self,
        encoder: &mut WindowEncoder,
        agent_boot: String,
        seq: u64,
        payload: &[u8],
    ) -> Vec<v1::AgentMessage> {
        let mut batch = v1::Telemetry {
            agent_boot,
            seq,
            sent_monotonic_us: i64::try_from(self.started.elapsed().as_micros()).unwrap_or(0),
            ..v1::Telemetry::default()
        };
        let mut messages = Vec::with_capacity(2);
        // A record of an agent that wrote another form is sent empty: its place must be filled.
        match serde_json::from_slice::<Record>(payload) {
            Ok(record) => {
                let mut edges = EdgesTable::default();
                let fine = record.edges.iter().all(|e| edges.insert(e).is_ok());
                if !fine {
                    tracing::warn!(seq, "a record carries edges that are none");
                }
                let (dictionary, window) = encoder.encode(&record.window, &edges);
                messages.extend(dictionary.map(|d| message(ToServer::Dictionary(d))));
                batch.windows.push(window);
            }
            Err(error) => tracing::warn!(%error, seq, "a spooled record cannot be read"),
        }
        messages.push(message(ToServer::Telemetry(batch)));
        messages
    }
}

/// A gap whose end is known moves the server's cursor past it; another one ends its boot, and the
/// server learns of it by the next boot's records.
fn gap_message(gap: Gap) -> Option<v1::AgentMessage> {
    let count = gap.count();
    let to = gap.to?;
    Some(message(ToServer::Telemetry(v1::Telemetry {
        agent_boot: gap.boot,
        seq: to,
        gap: Some(v1::Gap {
            from_seq: gap.from,
            to_seq: to,
            n_lost: count.unwrap_or(0),
        }),
        ..v1::Telemetry::default()
    })))
}

fn message(message: ToServer) -> v1::AgentMessage {
    v1::AgentMessage {
        message: Some(message),
    }
}
