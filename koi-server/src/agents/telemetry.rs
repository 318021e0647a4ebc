//! Telemetry in: decode, store once, show to the observatory, acknowledge. In that order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use koi_core::catalog::Catalog;
use koi_core::ids::HostId;
use koi_core::telemetry::histogram::EdgesTable;
use koi_core::telemetry::window::Window;
use koi_core::tick::observatory::Observatory;
use koi_proto::convert::telemetry::WindowDecoder;
use koi_proto::v1;
use koi_proto::v1::server_message::Message as ToAgent;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::core_loop::{Core, utc_now};
use crate::observability::Metric;
use crate::store::{Store, StoredWindow, TelemetryBatch, TelemetryGap};
use crate::tick::run::lock;

/// Batches of one agent that may wait; the agent sends again what was not acknowledged.
const BACKLOG: usize = 64;
/// Pause before a batch is tried again while the database is away.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
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

enum Offer {
    Dictionary(v1::Dictionary),
    Batch(v1::Telemetry),
}

type Outbound = mpsc::Sender<Result<v1::ServerMessage, tonic::Status>>;

impl Ingest {
    /// Starts the telemetry of a stream; it ends with the handle.
    #[must_use]
    pub fn open(&self, host: HostId, outbound: Outbound) -> IngestHandle {
        let (queue, inbox) = mpsc::channel(BACKLOG);
        let worker =
            Worker { ingest: self.clone(), host, outbound, decoder: WindowDecoder::default() };
        self.tasks.spawn(worker.run(inbox));
        IngestHandle { queue }
    }
}

impl IngestHandle {
    /// Names of series; must not be lost, so a full queue drops it together with what follows: the
    /// windows that use it are refused and the agent starts a new stream.
    pub fn dictionary(&mut self, dictionary: v1::Dictionary) {
        self.push(Offer::Dictionary(dictionary));
    }

    /// A batch; dropped when too many wait, and then not acknowledged.
    pub fn offer(&mut self, batch: v1::Telemetry) {
        self.push(Offer::Batch(batch));
    }

    fn push(&mut self, offer: Offer) {
        if self.queue.try_send(offer).is_err() {
            Metric::TelemetryDroppedTotal.count(1, Some(("reason", "backlog")));
        }
    }
}

struct Worker {
    ingest: Ingest,
    host: HostId,
    outbound: Outbound,
    decoder: WindowDecoder,
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

    /// False when the stream has ended.
    async fn take(&mut self, batch: v1::Telemetry) -> bool {
        let windows = self.decode(&batch);
        let stored = TelemetryBatch {
            seq: batch.seq,
            windows: windows.iter().map(|w| self.stored(w)).collect(),
            gap: batch.gap.map(|g| TelemetryGap {
                from_seq: g.from_seq,
                to_seq: g.to_seq,
                n_lost: g.n_lost,
            }),
        };
        let n = stored.windows.len() as u64;
        let append = [stored];
        let ack = loop {
            let result =
                self.ingest.store.telemetry_append(&self.host, &batch.agent_boot, &append).await;
            match result {
                Ok(ack) => break ack,
                Err(error) if error.is_transient() => {
                    if self.outbound.is_closed() {
                        return false;
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => {
                    tracing::error!(%error, host_id = %self.host, "telemetry was refused");
                    Metric::TelemetryDroppedTotal.count(1, Some(("reason", "refused")));
                    return true;
                }
            }
        };
        Metric::TelemetryWindowsTotal.count(n, None);
        self.show(windows, ack.is_new(batch.seq)).await;
        let ack = v1::TelemetryAck { agent_boot: batch.agent_boot, seq: ack.seq };
        let message = v1::ServerMessage { message: Some(ToAgent::Ack(ack)) };
        self.outbound.send(Ok(message)).await.is_ok()
    }

    fn decode(&self, batch: &v1::Telemetry) -> Vec<Window> {
        let decoded = batch.windows.iter().take(MAX_WINDOWS).map(|w| self.decoder.decode(w));
        let mut windows = Vec::with_capacity(batch.windows.len());
        for result in decoded {
            match result {
                Ok(window) => windows.push(window),
                Err(error) => {
                    tracing::warn!(%error, host_id = %self.host, "a window was left out");
                    Metric::TelemetryDroppedTotal.count(1, Some(("reason", "malformed")));
                }
            }
        }
        windows
    }

    fn stored(&self, window: &Window) -> StoredWindow {
        StoredWindow::from_window(&self.host, window, self.decoder.edges(), utc_now())
    }

    /// Shows stored windows to the next tick. A batch that was stored before is not shown again.
    async fn show(&self, windows: Vec<Window>, is_new: bool) {
        if !is_new || windows.is_empty() {
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
