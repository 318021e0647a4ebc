//! The API process's side of the socket: requests out, tokens in, handed to whoever waits for them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use koi_sim::engine::TokenEvent;
use koi_sim::metrics::EngineMetrics;
use koi_sim::prompt::TokenChain;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use crate::clock::wall_clock;
use crate::frame::{FromCore, MAX_FRAME_BYTES, ReadyFacts, Submit, ToCore};

/// A request that the engine works on. Dropping it before the last token cancels it.
pub(crate) struct Running {
    id: u64,
    tokens: mpsc::UnboundedReceiver<TokenEvent>,
    client: EngineClient,
    finished: bool,
}

/// What a request needs besides an id and an arrival time.
pub(crate) struct NewRequest {
    pub(crate) prompt: TokenChain,
    pub(crate) max_tokens: u32,
    pub(crate) natural_end: Option<u32>,
    pub(crate) answer_seed: u64,
}

#[derive(Default)]
struct Waiters {
    /// One channel per live request. Unbounded, yet a request has at most `max_tokens` events of
    /// 20 bytes, and a slow reader must not hold up the others.
    requests: BTreeMap<u64, mpsc::UnboundedSender<TokenEvent>>,
    metrics: VecDeque<oneshot::Sender<Box<EngineMetrics>>>,
}

struct Shared {
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    waiters: Mutex<Waiters>,
    alive: AtomicBool,
    next_id: AtomicU64,
}

/// Handle to the engine; clones share it.
#[derive(Clone)]
pub(crate) struct EngineClient {
    shared: Arc<Shared>,
}

impl EngineClient {
    /// Starts the two tasks of the connection. The first receiver gets the facts when the engine
    /// is ready, or nothing when it failed to start; the second ends when the engine is gone.
    pub(crate) fn start(
        socket: UnixStream,
    ) -> (Self, oneshot::Receiver<ReadyFacts>, oneshot::Receiver<()>) {
        let (read, write) = socket.into_split();
        let (outgoing, to_write) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            outgoing,
            waiters: Mutex::default(),
            alive: AtomicBool::new(true),
            next_id: AtomicU64::new(1),
        });
        let (ready, is_ready) = oneshot::channel();
        let (gone, is_gone) = oneshot::channel();
        drop(tokio::spawn(write_frames(write, to_write)));
        let of_reader = Arc::clone(&shared);
        drop(tokio::spawn(async move {
            // However the connection ends, nobody may go on waiting for it.
            drop(read_frames(read, &of_reader, ready).await);
            of_reader.alive.store(false, Ordering::SeqCst);
            *of_reader.waiters() = Waiters::default();
            drop(gone);
        }));
        (Self { shared }, is_ready, is_gone)
    }

    /// Whether the engine still answers.
    pub(crate) fn is_alive(&self) -> bool {
        self.shared.alive.load(Ordering::SeqCst)
    }

    /// Hands a request to the engine; `None` when it is gone.
    pub(crate) fn submit(&self, request: NewRequest) -> Option<Running> {
        let id = self.shared.next_id.fetch_add(1, Ordering::SeqCst);
        let (sender, tokens) = mpsc::unbounded_channel();
        self.shared.waiters().requests.insert(id, sender);
        let submit = Submit {
            id,
            arrival_micros: wall_clock().0,
            max_tokens: request.max_tokens,
            natural_end: request.natural_end,
            answer_seed: request.answer_seed,
            prompt: request.prompt,
        };
        let running = Running {
            id,
            tokens,
            client: self.clone(),
            finished: false,
        };
        self.send(&ToCore::Submit(Box::new(submit)));
        self.is_alive().then_some(running)
    }

    /// The engine's counters; `None` when it is gone.
    pub(crate) async fn metrics(&self) -> Option<Box<EngineMetrics>> {
        let (sender, answer) = oneshot::channel();
        self.shared.waiters().metrics.push_back(sender);
        self.send(&ToCore::ReadMetrics);
        if !self.is_alive() {
            return None;
        }
        answer.await.ok()
    }

    /// Asks the engine to finish what it has and to exit.
    pub(crate) fn drain(&self) {
        self.send(&ToCore::Drain);
    }

    fn send(&self, message: &ToCore) {
        // A closed channel means that the engine is gone, which `alive` says.
        drop(self.shared.outgoing.send(message.encode()));
    }
}

impl Running {
    /// The next token; `None` when the engine died or refused the request.
    pub(crate) async fn next(&mut self) -> Option<TokenEvent> {
        let event = self.tokens.recv().await;
        self.note(event)
    }

    /// [`Self::next`] for a hand-written stream.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<TokenEvent>> {
        self.tokens.poll_recv(context).map(|event| self.note(event))
    }

    /// A further token that is there already.
    pub(crate) fn next_if_there(&mut self) -> Option<TokenEvent> {
        let event = self.tokens.try_recv().ok();
        self.note(event)
    }

    fn note(&mut self, event: Option<TokenEvent>) -> Option<TokenEvent> {
        self.finished |= event.is_some_and(|event| event.finish.is_some());
        event
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.finished {
            self.client.shared.waiters().requests.remove(&self.id);
            self.client.send(&ToCore::Cancel(self.id));
        }
    }
}

impl Shared {
    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, events: &[TokenEvent]) {
        let mut waiters = self.waiters();
        for event in events {
            let gone = waiters
                .requests
                .get(&event.id)
                .is_none_or(|w| w.send(*event).is_err());
            if gone || event.finish.is_some() {
                waiters.requests.remove(&event.id);
            }
        }
    }
}

async fn write_frames(mut socket: OwnedWriteHalf, mut frames: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if socket.write_all(&frame).await.is_err() {
            return;
        }
    }
}

async fn read_frames(
    socket: OwnedReadHalf,
    shared: &Shared,
    ready: oneshot::Sender<ReadyFacts>,
) -> io::Result<()> {
    let mut socket = BufReader::with_capacity(16 << 10, socket);
    let mut ready = Some(ready);
    let mut bytes = Vec::new();
    loop {
        let length = socket.read_u32_le().await? as usize;
        if length > MAX_FRAME_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "frame too long"));
        }
        bytes.resize(length, 0);
        socket.read_exact(&mut bytes).await?;
        match FromCore::decode(&bytes) {
            Some(FromCore::Ready(facts)) => {
                if let Some(ready) = ready.take() {
                    drop(ready.send(facts));
                }
            }
            Some(FromCore::Tokens(events)) => shared.deliver(&events),
            Some(FromCore::Rejected(id)) => drop(shared.waiters().requests.remove(&id)),
            Some(FromCore::Metrics(metrics)) => {
                let waiter = shared.waiters().metrics.pop_front();
                drop(waiter.map(|waiter| waiter.send(metrics)));
            }
            None => return Err(io::Error::new(io::ErrorKind::InvalidData, "unknown frame")),
        }
    }
}
