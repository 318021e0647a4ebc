//! A private server and one agent as real processes, and a look at what they leave behind.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use koi_agent::supervise::binaries::find_binary;
use koi_cli::client::{Client, Target};
use koi_cli::secrets::{new_token, read_token, write_private};
use koi_proto::v1;
use koi_shim::process::{is_alive, reference, scan, stat};
use koi_shim::record::ProcessRef;
use rustix::process::{Pid, Signal, kill_process};

use super::tiny_model;
use crate::support::TestFolder;

const UP_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(60);
const HOST: &str = "dev-1";
/// Ports of one engine; far from what `koi up` uses.
const PORTS: [u16; 2] = [28_600, 28_680];

/// Server, agent, and their folder.
pub(super) struct Cluster {
    server: Child,
    agent: Child,
    address: String,
    folder: TestFolder,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Cluster {
    /// Starts both and waits until the agent is connected.
    pub(super) async fn start(python: &Path) -> Self {
        let folder = TestFolder::new("vllm");
        let listen = format!("127.0.0.1:{}", free_port());
        write_settings(&folder.0, &listen, python);
        let server = spawn(
            &folder.0,
            "koi-server",
            &["serve", "--config"],
            "server.toml",
        );
        let agent = spawn(&folder.0, "koi-agent", &["--config"], "agent.toml");
        let cluster = Self {
            server,
            agent,
            address: format!("http://{listen}"),
            folder,
        };
        cluster.wait_for_agent().await;
        cluster
    }

    async fn wait_for_agent(&self) {
        let begun = Instant::now();
        let client = self.client();
        loop {
            let reply = client.admin().get_status(v1::GetStatusRequest {}).await;
            if reply.is_ok_and(|r| r.get_ref().n_nodes_alive == 1) {
                return;
            }
            assert!(
                begun.elapsed() < UP_LIMIT,
                "no agent connects\n{}",
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// A client of the server.
    pub(super) fn client(&self) -> Client {
        let target = Target {
            server: self.address.clone(),
            token: Some(read_token(&self.folder.0.join("token")).unwrap()),
            ca: None,
            timeout: Duration::from_secs(30),
        };
        Client::lazy(&target).unwrap()
    }

    /// The file that gateways read.
    pub(super) fn endpoint_file(&self, job: &str) -> PathBuf {
        self.folder.0.join("endpoints").join(format!("{job}.json"))
    }

    fn replicas(&self) -> PathBuf {
        self.folder.0.join("agent/replicas")
    }

    /// Living processes of engines and shims: each has the replica's folder in its environment or in
    /// its command line.
    pub(super) fn engine_processes(&self) -> Vec<(u32, String)> {
        processes_with(&self.replicas())
    }

    /// The ends of all logs.
    pub(super) fn logs(&self) -> String {
        let mut found = vec![];
        logs_below(&self.folder.0, &mut found);
        let tail = |path: &PathBuf| {
            let text = std::fs::read(path).unwrap_or_default();
            let text =
                String::from_utf8_lossy(&text[text.len().saturating_sub(6_000)..]).into_owned();
            format!("=== {}\n{text}", path.display())
        };
        found.iter().map(tail).collect::<Vec<_>>().join("\n")
    }

    /// Ends agent and server as an operator would, and looks that nothing is left.
    pub(super) fn stop(mut self) {
        for child in [&mut self.agent, &mut self.server] {
            signal(child.id(), Signal::TERM);
            let begun = Instant::now();
            while child.try_wait().unwrap().is_none() {
                assert!(begun.elapsed() < STOP_LIMIT, "a process does not end");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        let left = processes_with(&self.folder.0);
        assert!(left.is_empty(), "left: {left:?}");
    }
}

impl Drop for Cluster {
    /// After a failed test: engines first, then whoever would start them again.
    fn drop(&mut self) {
        let _ended = self.agent.kill();
        let _status = self.agent.wait();
        if !self.engine_processes().is_empty()
            && let Ok(agent) = find_binary("koi-agent")
        {
            let config = self.folder.0.join("agent.toml");
            let _stopped = Command::new(agent)
                .args(["--stop-engines", "--config"])
                .arg(config)
                .status();
        }
        signal(self.server.id(), Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10)
            && matches!(self.server.try_wait(), Ok(None))
        {
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ended = self.server.kill();
        let _status = self.server.wait();
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _gone = kill_process(pid, signal);
    }
}

fn spawn(folder: &Path, name: &str, args: &[&str], config: &str) -> Child {
    let program = find_binary(name).unwrap_or_else(|e| panic!("{e}; run `cargo build` first"));
    let log = File::create(folder.join(format!("{name}.log"))).unwrap();
    Command::new(program)
        .args(args)
        .arg(folder.join(config))
        .env_remove("KOI_DATABASE_URL")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Tokens, server.toml, agent.toml and the model.
fn write_settings(folder: &Path, listen: &str, python: &Path) {
    let at = |name: &str| folder.join(name).display().to_string();
    for name in ["token", "agent-token"] {
        write_private(&folder.join(name), &format!("{}\n", new_token().unwrap())).unwrap();
    }
    let tokens = format!(
        "[[token]]\nrole = \"operator\"\nsecret_file = {:?}\n\
         [[token]]\nrole = \"agent\"\nhost = {HOST:?}\nsecret_file = {:?}\n",
        at("token"),
        at("agent-token")
    );
    write_private(&folder.join("tokens.toml"), &tokens).unwrap();
    let server = format!(
        "listen = {listen:?}\ndata_dir = {:?}\ntick_interval_s = 5\ncanary_window_s = 10\n\
         drain_grace_s = 10\nendpoints_dir = {:?}\ntokens_file = {:?}\n",
        at("server"),
        at("endpoints"),
        at("tokens.toml")
    );
    write_private(&folder.join("server.toml"), &server).unwrap();
    let agent = format!(
        "host = {HOST:?}\nenvironment = \"on_demand/local/here/rack-1/CPU\"\ninstance_type = \"cpu\"\n\
         server = \"http://{listen}\"\ntoken_file = {:?}\nstate_dir = {:?}\n\
         advertise_address = \"127.0.0.1\"\nprice_usd_per_hour = 0.20\nprice_source = \"a test\"\n\
         price_date = \"2026-11-30\"\nport_range = {PORTS:?}\n\
         [gpu]\nprobe = \"cpu\"\n\
         [engines]\nvllm_python = {:?}\nvllm_cpu_kv_cache_gib = 1\nvllm_load_format = \"dummy\"\n\
         [models]\nroot = {:?}\n",
        at("agent-token"),
        at("agent"),
        python.display().to_string(),
        at("models")
    );
    write_private(&folder.join("agent.toml"), &agent).unwrap();
    tiny_model::write(&folder.join("models"));
}

fn logs_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            logs_below(&path, found);
        } else if path.extension().is_some_and(|e| e == "log") {
            found.push(path);
        }
    }
}

/// Living processes, other than this one, that name a folder in environment or command line.
fn processes_with(folder: &Path) -> Vec<(u32, String)> {
    let needle = folder.display().to_string().into_bytes();
    let names_it = |pid: u32| {
        ["environ", "cmdline"].iter().any(|file| {
            let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            text.windows(needle.len()).any(|w| w == needle)
        })
    };
    let living = scan().unwrap().into_iter().filter(|p| p.is_alive());
    let others = living.filter(|p| p.process.pid != std::process::id() && names_it(p.process.pid));
    others.map(|p| (p.process.pid, p.name)).collect()
}

/// Which process of an engine is killed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Victim {
    /// The first process, which answers requests.
    Api,
    /// Its child, which schedules and holds the KV cache.
    EngineCore,
}

/// An engine of which one process was killed.
pub(super) struct Crash {
    /// Its processes before, with their names.
    pub(super) family: Vec<(u32, String)>,
    references: Vec<ProcessRef>,
}

impl Crash {
    /// Kills a process of the one engine.
    pub(super) fn cause(cluster: &Cluster, victim: Victim) -> Self {
        let all = cluster.engine_processes();
        let (shims, family): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, name)| name == "koi-shim");
        let parent = |pid: u32| stat(pid).map(|s| s.ppid);
        let is_victim = |(pid, name): &&(u32, String)| match victim {
            Victim::Api => shims.iter().any(|(shim, _)| parent(*pid) == Some(*shim)),
            Victim::EngineCore => name.starts_with("VLLM::EngineCor"),
        };
        let (pid, _) = family.iter().find(is_victim).unwrap();
        assert!(
            family.len() > 2,
            "only {family:?}: where is the engine core?"
        );
        let references = family
            .iter()
            .filter_map(|(pid, _)| reference(*pid))
            .collect();
        signal(*pid, Signal::KILL);
        Self { family, references }
    }

    /// Processes of the old engine that still live.
    pub(super) fn survivors(&self) -> Vec<ProcessRef> {
        self.references
            .iter()
            .copied()
            .filter(|r| is_alive(*r))
            .collect()
    }
}
