//! Engines whose shim says nothing: the kernel and the port tell, and only they.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use koi_agent::engine::EngineSettings;
use koi_agent::gpu::cpu::CpuProbe;
use koi_agent::host::Event;
use koi_agent::launcher::Launcher;
use koi_agent::models::ModelFolders;
use koi_agent::ports::PortLedger;
use koi_agent::spool::{Spool, SpoolLimits};
use koi_agent::telemetry::TelemetrySink;
use koi_agent::worker::{self, Worker};
use koi_core::agent::AgentInput;
use koi_shim::files::EXIT_FILE;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::*;

/// Longest time until an engine that serves nobody is taken out of service.
const WITHDRAWN_WITHIN: Duration = Duration::from_secs(3);

/// An engine that has served, with the worker that looks after it.
struct Attended {
    launcher: Arc<Launcher>,
    replica: ReplicaProcess,
    events: mpsc::Receiver<Event>,
    worker: Worker,
}

impl Attended {
    /// `shim` is what the worker has when it looks for another one.
    async fn new(host: &Host, port: u16, script: &str, shim: &Path) -> Self {
        let mut spec = host.spec(0, script);
        spec.meta.port = port;
        let replica = launch(&host.0, &spec).await.unwrap();
        let supervision = Supervision {
            shim: shim.to_owned(),
            ..host.0.clone()
        };
        let launcher = Arc::new(launcher(supervision, &host.root()));
        let (sender, events) = mpsc::channel(64);
        let spool = Spool::open(&host.root().join("spool"), "boot", SpoolLimits::default());
        let worker = worker::spawn(worker::Parts {
            process: replica.clone(),
            launcher: launcher.clone(),
            events: sender,
            sink: TelemetrySink::new(spool.unwrap()),
            tasks: TaskTracker::new(),
            ready: Arc::new(AtomicBool::new(true)),
        });
        Self {
            launcher,
            replica,
            events,
            worker,
        }
    }

    async fn told(&mut self, limit: Duration) -> Option<AgentInput> {
        timeout(limit, async {
            loop {
                match self.events.recv().await? {
                    Event::Input(input) => return Some(input),
                    Event::Launched(_) | Event::Reshimmed(_) => {}
                }
            }
        })
        .await
        .ok()
        .flatten()
    }

    async fn is_told_to_be_gone(&mut self) {
        let told = self.told(WITHDRAWN_WITHIN).await;
        let ours = &self.replica.meta.replica_id;
        assert!(
            matches!(&told, Some(AgentInput::Exited { id, .. }) if id == ours),
            "{told:?}"
        );
    }

    async fn proves_its_exit(&self) {
        let (id, process) = (&self.replica.meta.replica_id, Some(&self.replica));
        timeout(
            Duration::from_secs(20),
            self.launcher.prove_exit(id, process),
        )
        .await
        .unwrap();
        let proof = self.replica.proof_of_exit().await.unwrap();
        assert_eq!(proof, ExitProof::Gone);
    }
}

pub(crate) fn launcher(supervision: Supervision, root: &Path) -> Launcher {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Launcher {
        supervision,
        engines: EngineSettings::default(),
        versions: BTreeMap::new(),
        models: ModelFolders {
            root: root.join("models"),
            brought: root.join("brought"),
        },
        address: loopback.to_string(),
        gpus: Box::new(CpuProbe::open(&"host".parse().unwrap()).unwrap()),
        ports: Mutex::new(PortLedger::open(
            &root.join("ports.json"),
            23000..=23099,
            loopback,
        )),
        turn: tokio::sync::Mutex::new(()),
    }
}

/// A port on which somebody listens.
async fn open_port() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[tokio::test]
async fn hazard_d3_a_stopped_shim_does_not_hide_a_dead_engine() {
    let host = Host::new();
    let (_listener, port) = open_port().await;
    // The child in a session of its own outlives its parent, as an engine core does.
    let script = "setsid sleep 1000 & touch up; exec sleep 1001";
    let mut attended = Attended::new(&host, port, script, shim()).await;
    let replica = attended.replica.clone();
    wait_for("the engine", || {
        replica.state_dir.join("up").exists().then_some(())
    })
    .await;
    assert!(signal_exactly(replica.identity.shim, Signal::STOP));
    assert!(signal_exactly(replica.identity.engine, Signal::KILL));
    attended.is_told_to_be_gone().await;
    attended.proves_its_exit().await;
    let again = host.launch("exec sleep 1000").await;
    assert!(is_alive(again.identity.engine));
}

#[tokio::test]
async fn hazard_d3_a_shim_that_cannot_write_does_not_hide_a_dead_engine() {
    let host = Host::new();
    let (_listener, port) = open_port().await;
    let failing = Path::new("/bin/false");
    let mut attended = Attended::new(&host, port, "exec sleep 1000", failing).await;
    let replica = attended.replica.clone();
    assert!(signal_exactly(replica.identity.shim, Signal::KILL));
    assert!(signal_exactly(replica.identity.engine, Signal::KILL));
    attended.is_told_to_be_gone().await;
    attended.proves_its_exit().await;
    assert!(!replica.state_dir.join(EXIT_FILE).exists());
    // Nobody recorded its end, and still the next launch goes through.
    let again = host.launch("exec sleep 1000").await;
    assert!(is_alive(again.identity.engine));
}

#[tokio::test]
async fn an_engine_whose_port_refuses_is_taken_out_of_service() {
    let host = Host::new();
    let (listener, port) = open_port().await;
    let mut attended = Attended::new(&host, port, "exec sleep 1000", shim()).await;
    let early = attended.told(Duration::from_millis(2500)).await;
    assert_eq!(early, None, "somebody listens");
    drop(listener);
    let told = attended.told(WITHDRAWN_WITHIN).await;
    let id = attended.replica.meta.replica_id.clone();
    assert_eq!(told, Some(AgentInput::Refusing(id)));
    assert!(is_alive(attended.replica.identity.engine));
    attended.worker.stop();
}

#[tokio::test]
async fn an_engine_that_only_answers_late_stays_in_service() {
    let host = Host::new();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    // Its queue of connections is full: a new one is not refused, it waits.
    let mut queue = Vec::new();
    for _ in 0..4 {
        let limit = Duration::from_millis(200);
        queue.push(timeout(limit, TcpStream::connect(address)).await);
    }
    assert!(queue.iter().any(Result::is_err), "{queue:?}");
    let mut attended = Attended::new(&host, address.port(), "exec sleep 1000", shim()).await;
    assert_eq!(attended.told(Duration::from_secs(5)).await, None);
}

#[tokio::test]
async fn an_engine_without_a_shim_is_kept_and_can_be_stopped() {
    let host = Host::new();
    let replica = host.launch("(setsid sleep 1000 &); exec sleep 1001").await;
    kill9(replica.identity.shim).await;
    let without = Supervision {
        shim: "/bin/false".into(),
        ..host.0.clone()
    };
    let Adopted::Unserved(process, why) = adopt_one(&without, &replica.state_dir).await else {
        panic!("a shim was had")
    };
    assert!(why.contains("exit code Some(1)"), "{why}");
    assert!(!process.has_ended().unwrap());
    // Nothing is cleared away while it lives.
    process.clear_away().await.unwrap();
    assert!(is_alive(replica.identity.engine));
    process.stop(1).await.unwrap();
    assert!(process.has_ended().unwrap());
    let proof = process.proof_of_exit().await.unwrap();
    assert_eq!(proof, ExitProof::Gone);
}
