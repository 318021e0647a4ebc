//! An agent's stream against the real service and Postgres: what an agent sends again, and what a
//! damaged or hostile one sends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use koi_agent::session::Session;
use koi_agent::spool::{Spool, SpoolLimits};
use koi_agent::telemetry::TelemetrySink;
use koi_core::catalog::Catalog;
use koi_core::host::HostFacts;
use koi_core::rollout::ObservedState;
use koi_core::server::{ServerMachine, ServerSettings};
use koi_proto::convert::agents::facts_to_wire;
use koi_proto::v1;
use koi_proto::v1::agent_message::Message as ToServer;
use koi_proto::v1::agents_client::AgentsClient;
use koi_proto::v1::agents_server::AgentsServer;
use koi_proto::v1::server_message::Message as FromServer;
use koi_server::agents::registry::Registry;
use koi_server::agents::session::{AgentsApi, Rhythm};
use koi_server::agents::telemetry::Ingest;
use koi_server::auth::TokenTable;
use koi_server::core_loop::{Core, CoreParts, Lead};
use koi_server::endpoints::EndpointBoard;
use koi_server::store::telemetry::TelemetryBatch;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::store::records;
use crate::support::{TestDatabase, TestFolder};

const TOKEN: &str = "a-token-that-is-long-enough";
const BOOT: &str = "boot-1";
const LIMIT: Duration = Duration::from_secs(30);

/// A server that takes in agents' streams and nothing else.
struct World {
    database: TestDatabase,
    core: Core,
    address: String,
    shutdown: CancellationToken,
    _folder: TestFolder,
}

impl World {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let folder = TestFolder::new("agents");
        let path = |name: &str| folder.0.join(name);
        std::fs::write(path("secret"), TOKEN).unwrap();
        let tokens = "[[token]]\nrole = \"agent\"\nhost = \"h1\"\nsecret_file = \"secret\"\n";
        std::fs::write(path("tokens.toml"), tokens).unwrap();
        let tokens = TokenTable::load(&path("tokens.toml"), &folder.0).unwrap();
        let shutdown = CancellationToken::new();
        let registry = Arc::new(Registry::default());
        let epoch = database.store.acquire_epoch().await.unwrap();
        let state = database.store.load_state().await.unwrap().state;
        let (catalog, settings) = (Catalog::embedded(), ServerSettings::default());
        let (core, _task) = Core::spawn(CoreParts {
            machine: ServerMachine::new(state, epoch, catalog, settings),
            store: database.store.clone(),
            registry: registry.clone(),
            endpoints: Arc::new(EndpointBoard::open(path("endpoints")).unwrap()),
            lead: Lead::default(),
            shutdown: shutdown.clone(),
        });
        let ingest = Ingest {
            store: database.store.clone(),
            observatory: Arc::new(Mutex::default()),
            core: core.clone(),
            catalog,
            tasks: TaskTracker::new(),
        };
        let api = AgentsApi {
            core: core.clone(),
            tokens,
            registry,
            ingest,
            rhythm: Rhythm::default(),
            tasks: TaskTracker::new(),
            shutdown: shutdown.clone(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = tonic::transport::Server::builder()
            .add_service(AgentsServer::new(api))
            .serve_with_incoming_shutdown(
                TcpListenerStream::new(listener),
                shutdown.clone().cancelled_owned(),
            );
        tokio::spawn(server);
        Self {
            database,
            core,
            address,
            shutdown,
            _folder: folder,
        }
    }

    /// As if an earlier stream had brought so many batches.
    async fn store(&self, n: u64) {
        let batch = |seq| TelemetryBatch {
            seq,
            windows: Vec::new(),
            gap: None,
        };
        let batches: Vec<_> = (1..=n).map(batch).collect();
        for part in batches.chunks(500) {
            let store = &self.database.store;
            store.telemetry_append(&host(), BOOT, part).await.unwrap();
        }
    }

    async fn cursor(&self) -> u64 {
        let store = &self.database.store;
        store.telemetry_cursor(&host(), BOOT).await.unwrap()
    }

    async fn wait_for(&self, cursor: u64) {
        let reached = async {
            while self.cursor().await < cursor {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let waited = tokio::time::timeout(LIMIT, reached).await;
        assert!(waited.is_ok(), "at {} of {cursor}", self.cursor().await);
    }

    /// A stream that is let in, by hand.
    async fn stream(
        &self,
    ) -> (
        mpsc::Sender<v1::AgentMessage>,
        tonic::Streaming<v1::ServerMessage>,
    ) {
        let mut client = AgentsClient::connect(self.address.clone()).await.unwrap();
        let (outbox, outbound) = mpsc::channel(16);
        let hello = ToServer::Hello(v1::Hello {
            facts: Some(facts_to_wire(&facts())),
            agent_boot: BOOT.to_owned(),
            ..v1::Hello::default()
        });
        outbox.send(message(hello)).await.unwrap();
        let mut request = tonic::Request::new(ReceiverStream::new(outbound));
        let bearer = format!("Bearer {TOKEN}").parse().unwrap();
        request.metadata_mut().insert("authorization", bearer);
        let inbound = client.agent_stream(request).await.unwrap().into_inner();
        (outbox, inbound)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn facts() -> HostFacts {
    records::host("h1", 1).facts
}

fn host() -> koi_core::ids::HostId {
    facts().host
}

fn message(message: ToServer) -> v1::AgentMessage {
    v1::AgentMessage {
        message: Some(message),
    }
}

fn batch(seq: u64) -> v1::AgentMessage {
    message(ToServer::Telemetry(v1::Telemetry {
        agent_boot: BOOT.to_owned(),
        seq,
        ..v1::Telemetry::default()
    }))
}

/// Acks of a stream, until there are so many.
async fn acks(inbound: &mut tonic::Streaming<v1::ServerMessage>, n: usize) -> Vec<u64> {
    let mut seqs = Vec::new();
    while seqs.len() < n {
        let next = tokio::time::timeout(LIMIT, inbound.message()).await;
        let next = next.expect("an ack in time").expect("no error");
        let next = next.expect("the stream is not cut off");
        if let Some(FromServer::Ack(ack)) = next.message {
            assert_eq!(ack.agent_boot, BOOT);
            seqs.push(ack.seq);
        }
    }
    seqs
}

#[tokio::test]
async fn an_agent_that_sends_everything_again_is_paused_and_never_cut_off() {
    let world = World::new().await;
    world.store(900).await;
    let (outbox, mut inbound) = world.stream().await;
    // It reads no answer before all is sent, far more than may be under way.
    for seq in 1..=1_000 {
        let sent = tokio::time::timeout(LIMIT, outbox.send(batch(seq))).await;
        assert!(matches!(sent, Ok(Ok(()))), "cut off at {seq}");
    }
    let acks = acks(&mut inbound, 1_000).await;
    assert_eq!(
        acks,
        (1..=1_000).collect::<Vec<_>>(),
        "its own position each"
    );
    assert_eq!(world.cursor().await, 1_000);
    let connected = world
        .core
        .read(|m| m.live().hosts.values().all(|h| h.connected));
    assert!(connected.await.unwrap());
}

#[tokio::test]
async fn records_that_are_lost_on_both_sides_hold_up_none_that_follow() {
    let world = World::new().await;
    world.store(20).await;
    let (outbox, mut inbound) = world.stream().await;
    for seq in [50, 51, 30, 52] {
        outbox.send(batch(seq)).await.unwrap();
    }
    assert_eq!(acks(&mut inbound, 4).await, [50, 51, 30, 52]);
    assert_eq!(world.cursor().await, 52);
    let sql = "SELECT n_lost FROM telemetry_cursor";
    let mut raw = world.database.raw().await;
    let n_lost: i64 = sqlx::query_scalar(sql).fetch_one(&mut raw).await.unwrap();
    assert_eq!(n_lost, 29);
}

/// The agent's own session over a full spool: the server had most of it before it went away.
#[tokio::test]
async fn a_session_with_hundreds_of_spooled_records_gets_through_on_one_stream() {
    let world = World::new().await;
    world.store(400).await;
    let folder = TestFolder::new("spool");
    let mut spool = Spool::open(&folder.0, BOOT, SpoolLimits::default()).unwrap();
    for _ in 0..700 {
        spool.push(b"{}", Duration::ZERO).unwrap();
    }
    let sink = TelemetrySink::new(spool);
    let (events, _inbox) = mpsc::channel(64);
    let (_observe, observed) = watch::channel(ObservedState::default());
    let session = Session {
        server: world.address.clone(),
        ca_file: None,
        token: TOKEN.to_owned(),
        facts: facts(),
        agent_boot: BOOT.to_owned(),
        events,
        observed,
        sink: sink.clone(),
        shutdown: world.shutdown.clone(),
    };
    let task = tokio::spawn(session.run());
    world.wait_for(700).await;
    world.shutdown.cancel();
    task.await.unwrap();
    // Nothing of it goes on the next stream.
    tokio::time::sleep(Duration::from_millis(100)).await;
    sink.rewind();
    let left = sink.next_messages(&mut Default::default(), usize::MAX);
    assert!(left.len() <= 32, "{} go again", left.len());
}
