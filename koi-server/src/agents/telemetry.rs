//! Telemetry in: decode, store once, show to the observatory, acknowledge. In that order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use koi_core::catalog::Catalog;
use koi_core::ids::{HostId, JobId, ReplicaId};
use koi_core::telemetry::histogram::EdgesTable;
use koi_core::telemetry::window::Window;
use koi_core::tick::observatory::Observatory;
use koi_core::time::UtcMicros;
use koi_proto::convert::telemetry::WindowDecoder;
use koi_proto::v1;
use koi_proto::v1::server_message::Message as ToAgent;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::stored::to_stored;
use crate::core_loop::{Core, utc_now};
use crate::observability::{Metric, causes};
use crate::store::Store;
use crate::store::telemetry::{TelemetryBatch, TelemetryGap};
use crate::tick::run::lock;

/// Messages of one agent that may wait; agents keep fewer under way, and are read no further when it
/// is full.
const BACKLOG: usize = 64;
/// Pause before a batch is tried again while the database is away.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How far ahead of the server's clock a window may end: clocks differ, and a window from the future
/// would make all later ones look old.
pub const MAX_AHEAD_SECONDS: i64 = 60;
/// Most windows of one batch.
const MAX_WINDOWS: usize = 512;

/// Where telemetry goes.
#[derive(Clone)]
pub struct Ingest {
    /// The database.
    pub store: Store,
    /// What the tick looks at.
    pub observatory: Arc<Mutex<Observatory>>,
    /// Who knows which replica belongs to whom.
    pub core: Core,
    /// Closed world.
    pub catalog: &'static Catalog,
    /// Tasks that have to end before the server does.
    pub tasks: TaskTracker,
}

/// The receiving end of one stream's telemetry.
pub struct IngestHandle {
    queue: mpsc::Sender<Offer>,
}

/// Telemetry of this stream is taken no more; the stream has to start anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngestEnded;

/// One message of a stream's telemetry.
#[derive(Debug)]
pub enum Offer {
    /// Names of series.
    Dictionary(v1::Dictionary),
    /// A batch.
    Batch(v1::Telemetry),
}

type Outbound = mpsc::Sender<Result<v1::ServerMessage, tonic::Status>>;

impl Ingest {
    /// Starts the telemetry of a stream; it ends with the handle.
    #[must_use]
    pub fn open(&self, host: HostId, outbound: Outbound) -> IngestHandle {
        let (queue, inbox) = mpsc::channel(BACKLOG);
        let worker = Worker {
            ingest: self.clone(),
            host,
            outbound,
            decoder: WindowDecoder::default(),
            stored: None,
        };
        self.tasks.spawn(worker.run(inbox));
        IngestHandle { queue }
    }
}

impl IngestHandle {
    /// Room for one message, waited for: an agent that sends more than was agreed is read no further
    /// meanwhile, so what waits stays bounded and nothing is left out of its stream.
    ///
    /// # Errors
    /// When this stream's telemetry has ended.
    pub async fn room(&self) -> Result<mpsc::Permit<'_, Offer>, IngestEnded> {
        self.queue.reserve().await.map_err(|_| IngestEnded)
    }
}

struct Worker {
    ingest: Ingest,
    host: HostId,
    outbound: Outbound,
    decoder: WindowDecoder,
    /// Boot and position up to which everything is known to be stored.
    stored: Option<(String, u64)>,
}

impl Worker {
    async fn run(mut self, mut inbox: mpsc::Receiver<Offer>) {
        while let Some(offer) = inbox.recv().await {
            match offer {
                Offer::Dictionary(dictionary) => self.decoder.learn(dictionary),
                Offer::Batch(batch) => {
                    if !self.take(batch).await {
                        return;
                    }
                }
            }
        }
    }

    /// Stores a batch and acknowledges it. False when the stream has ended.
    async fn take(&mut self, batch: v1::Telemetry) -> bool {
        if self.is_stored(&batch) {
            return self.acknowledge(batch.agent_boot, batch.seq).await;
        }
        let now = utc_now();
        let (windows, mut stored) = self.believed(&batch, now).await;
        let Some(seq) = self.store_in_order(&batch.agent_boot, &mut stored).await else {
            return false;
        };
        Metric::TelemetryWindowsTotal.count(stored.windows.len() as u64, None);
        self.stored = Some((batch.agent_boot.clone(), seq));
        self.show(windows).await;
        self.acknowledge(batch.agent_boot, batch.seq.min(seq)).await
    }

    /// True for a batch of an earlier stream that the agent has not seen acknowledged.
    fn is_stored(&self, batch: &v1::Telemetry) -> bool {
        let known = self.stored.as_ref();
        known.is_some_and(|(boot, seq)| *boot == batch.agent_boot && batch.seq <= *seq)
    }

    /// Every batch is answered once, with its own position: agents count the answers to know how
    /// much is under way.
    async fn acknowledge(&self, agent_boot: String, seq: u64) -> bool {
        let ack = v1::TelemetryAck { agent_boot, seq };
        let message = v1::ServerMessage {
            message: Some(ToAgent::Ack(ack)),
        };
        self.outbound.send(Ok(message)).await.is_ok()
    }

    /// Windows to show and the batch to store.
    async fn believed(
        &self,
        batch: &v1::Telemetry,
        now: UtcMicros,
    ) -> (Vec<Window>, TelemetryBatch) {
        let mut left_out = LeftOut::default();
        let mut windows = self.decode(batch, &mut left_out);
        let owners = self.owners(&windows).await;
        windows.retain(|w| {
            let owner = owners.get(&w.replica).map(|(host, _)| host);
            let objection = objection(w, &self.host, owner, now);
            if let Some(reason) = objection {
                left_out.add(reason, || format!("{reason} window of {}", w.replica));
            }
            objection.is_none()
        });
        left_out.tell(&self.host);
        let row = |w: &Window| {
            let job = owners.get(&w.replica).map(|(_, job)| *job);
            to_stored(&self.host, job, w, self.decoder.edges(), now)
        };
        let stored = TelemetryBatch {
            seq: batch.seq,
            windows: windows.iter().map(row).collect(),
            gap: batch.gap.map(|g| TelemetryGap {
                from_seq: g.from_seq,
                to_seq: g.to_seq,
                n_lost: g.n_lost,
            }),
        };
        (windows, stored)
    }

    /// Stores a batch. An agent sends in order what it has: records before this one that are not
    /// stored are lost, here (a restored backup) or there, and must not hold up all that follow.
    async fn store_in_order(&self, boot: &str, batch: &mut TelemetryBatch) -> Option<u64> {
        let seq = self.store(boot, batch).await?;
        let told = batch.gap.map_or(0, |gap| gap.n_lost);
        let first = batch
            .gap
            .map_or(batch.seq, |gap| gap.from_seq.min(batch.seq));
        if seq >= batch.seq || first <= seq.saturating_add(1) {
            return Some(seq);
        }
        let lost = TelemetryGap {
            from_seq: seq.saturating_add(1),
            to_seq: batch.seq - 1,
            n_lost: told.saturating_add(first - 1 - seq),
        };
        tracing::warn!(host_id = %self.host, boot, ?lost, "telemetry is missing: going on after it");
        batch.gap = Some(lost);
        self.store(boot, batch).await
    }

    /// Host and job of each replica; unknown ones are stored without.
    async fn owners(&self, windows: &[Window]) -> BTreeMap<ReplicaId, (HostId, JobId)> {
        let wanted: Vec<ReplicaId> = windows.iter().map(|w| w.replica.clone()).collect();
        let owners = self.ingest.core.read(move |m| {
            let known = wanted.into_iter().filter_map(|id| {
                let replica = m.state().replicas.get(&id)?;
                Some((id, (replica.host.clone(), replica.job)))
            });
            known.collect()
        });
        owners.await.unwrap_or_default()
    }

    /// Stores a batch, however long the database is away; `None` when the stream has ended. A
    /// batch that breaks a bound is stored empty, so that the spool does not stick at it.
    async fn store(&self, boot: &str, batch: &mut TelemetryBatch) -> Option<u64> {
        loop {
            let append = std::slice::from_ref(&*batch);
            match self
                .ingest
                .store
                .telemetry_append(&self.host, boot, append)
                .await
            {
                Ok(seq) => return Some(seq),
                Err(error) if error.is_transient() => {
                    if self.outbound.is_closed() {
                        return None;
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => {
                    let error = causes(&error);
                    tracing::error!(error, host_id = %self.host, "telemetry was refused");
                    Metric::TelemetryDroppedTotal.count(1, Some(("reason", "refused")));
                    if batch.windows.is_empty() {
                        return None;
                    }
                    batch.windows.clear();
                }
            }
        }
    }

    fn decode(&self, batch: &v1::Telemetry, left_out: &mut LeftOut) -> Vec<Window> {
        let mut windows = Vec::with_capacity(batch.windows.len().min(MAX_WINDOWS));
        for wire in batch.windows.iter().take(MAX_WINDOWS) {
            match self.decoder.decode(wire) {
                Ok(window) => windows.push(window),
                Err(error) => left_out.add("malformed", || error.to_string()),
            }
        }
        windows
    }

    /// Shows stored windows to the next tick; the observatory knows those it has seen.
    async fn show(&self, windows: Vec<Window>) {
        if windows.is_empty() {
            return;
        }
        let mut edges = EdgesTable::default();
        if edges.extend(self.decoder.edges()).is_err() {
            Metric::TelemetryDroppedTotal.count(1, Some(("reason", "edges")));
        }
        let observatory = self.ingest.observatory.clone();
        let catalog = self.ingest.catalog;
        let shown = self.ingest.core.read(move |machine| {
            lock(&observatory).add(machine.state(), catalog, &edges, windows);
        });
        if shown.await.is_err() {
            tracing::debug!("the server is stopping");
        }
    }
}

/// Why a window is not believed: an agent speaks for replicas of its own host alone, and not of times
/// to come. A replica that nobody knows (any more) is stored for the audit.
fn objection(
    window: &Window,
    host: &HostId,
    owner: Option<&HostId>,
    now: UtcMicros,
) -> Option<&'static str> {
    if window.end > now.plus_seconds(MAX_AHEAD_SECONDS) {
        Some("future")
    } else if owner.is_some_and(|owner| owner != host) {
        Some("foreign")
    } else {
        None
    }
}

/// Windows of one batch that were left out: counted each, told once.
#[derive(Default)]
struct LeftOut {
    n: u64,
    first: Option<String>,
}

impl LeftOut {
    fn add(&mut self, reason: &'static str, words: impl FnOnce() -> String) {
        self.n += 1;
        self.first.get_or_insert_with(words);
        Metric::TelemetryDroppedTotal.count(1, Some(("reason", reason)));
    }

    fn tell(&self, host: &HostId) {
        if let Some(first) = &self.first {
            tracing::warn!(host_id = %host, n = self.n, first, "windows were left out");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(end: UtcMicros) -> Window {
        Window {
            replica: "chat.g1.r0.0".parse().unwrap(),
            start: UtcMicros(0),
            end,
            elapsed_micros: 10_000_000,
            scrapes: 10,
            failed_scrapes: 0,
            gpus: 1,
            counters: BTreeMap::new(),
            gauges: BTreeMap::new(),
            histograms: BTreeMap::new(),
            tpot_source: None,
            cache: Default::default(),
            flags: Default::default(),
        }
    }

    #[test]
    fn hazard_h13_an_agent_speaks_for_its_own_replicas_and_its_own_time() {
        let now = UtcMicros(1_000_000_000);
        let [own, other]: [HostId; 2] = ["h100-a", "l40s-b"].map(|h| h.parse().unwrap());
        let fresh = window(now);
        assert_eq!(objection(&fresh, &own, Some(&own), now), None);
        assert_eq!(objection(&fresh, &own, None, now), None);
        assert_eq!(objection(&fresh, &other, Some(&own), now), Some("foreign"));
        let near = window(now.plus_seconds(MAX_AHEAD_SECONDS));
        assert_eq!(objection(&near, &own, Some(&own), now), None);
        let far = window(now.plus_seconds(86_400));
        assert_eq!(objection(&far, &own, Some(&own), now), Some("future"));
    }
}
