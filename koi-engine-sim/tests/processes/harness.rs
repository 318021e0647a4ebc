//! Starts engines on simulated hosts and talks HTTP to them over plain sockets.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a harness fails its test at the first surprise"
)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with simulated devices and a model's configuration.
pub(crate) struct SimHost {
    root: PathBuf,
}

impl SimHost {
    pub(crate) fn new(name: &str, gpu_type: &str, n_gpus: u32) -> Self {
        let root = std::env::temp_dir().join(format!("koi-engine-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&root));
        fs::create_dir_all(root.join("model")).unwrap();
        let gpus: Vec<Value> = (0..n_gpus)
            .map(|i| {
                json!({"uuid": format!("GPU-{i}"), "index": i, "name": gpu_type,
                    "memory_bytes": 80_u64 << 30, "power_limit_w": 700.0})
            })
            .collect();
        let inventory = json!({"gpu_type": gpu_type, "gpus": gpus, "idle_power_w": 70.0,
            "environment": format!("reserved/aws/us-east-1/a/{gpu_type}")});
        fs::write(root.join("gpus.json"), inventory.to_string()).unwrap();
        let model = json!({"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
            "torch_dtype": "bfloat16", "max_position_embeddings": 4096,
            "model_type": "llama", "tie_word_embeddings": false});
        fs::write(root.join("model/config.json"), model.to_string()).unwrap();
        Self { root }
    }

    /// Bytes that living processes hold of all devices.
    pub(crate) fn held_bytes(&self) -> u64 {
        let Ok(entries) = fs::read_dir(self.root.join("holders")) else {
            return 0;
        };
        let holders = entries.filter_map(|e| fs::read_to_string(e.ok()?.path()).ok());
        holders
            .filter_map(|text| serde_json::from_str::<Value>(&text).ok())
            .filter(|holder| is_alive(holder["pid"].as_u64().unwrap() as u32))
            .map(|holder| holder["memory_bytes"].as_u64().unwrap())
            .sum()
    }

    pub(crate) fn energy_millijoules(&self) -> u64 {
        let text = fs::read_to_string(self.root.join("counters/GPU-0.json")).unwrap_or_default();
        let counters: Value = serde_json::from_str(&text).unwrap_or_default();
        counters["energy_millijoules"].as_u64().unwrap_or(0)
    }
}

impl Drop for SimHost {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.root));
    }
}

/// What to add to the command line.
#[derive(Default)]
pub(crate) struct Options<'a> {
    pub(crate) extra: &'a [&'a str],
}

/// A running engine; killed with its child when dropped.
pub(crate) struct Engine {
    process: Child,
    address: String,
    child_pid: u32,
}

fn command(host: &SimHost, options: &Options<'_>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_koi-engine-sim"));
    command
        .arg("serve")
        .arg(host.root.join("model"))
        .args([
            "--served-model-name=chat",
            "--host=127.0.0.1",
            "--port",
            "0",
        ])
        .args(options.extra)
        .env("KOI_SIM_GPU_DIR", &host.root)
        .env("KOI_SIM_LOAD_BYTES_PER_SEC", "1e12")
        .env_remove("CUDA_VISIBLE_DEVICES")
        .stderr(Stdio::piped());
    command
}

impl Engine {
    /// Starts one and waits until it serves.
    pub(crate) fn start(host: &SimHost, options: &Options<'_>) -> Self {
        let mut process = command(host, options).spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let (found, address) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some((_, address)) = line.split_once("server on http://") {
                    drop(found.send(address.to_owned()));
                }
            }
        });
        let address = address.recv_timeout(PATIENCE).expect("the engine starts");
        let pid = process.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let child_pid = children.split_whitespace().next().unwrap().parse().unwrap();
        let engine = Self {
            process,
            address,
            child_pid,
        };
        eventually("health", || engine.get("/health").0 == 200);
        engine
    }

    /// Starts one that must fail with exit code 1; its output.
    pub(crate) fn fail(host: &SimHost, options: &Options<'_>) -> String {
        let output = command(host, options).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn child_pid(&self) -> u32 {
        self.child_pid
    }

    pub(crate) fn wait_for_exit(&mut self) -> Option<i32> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the engine does not exit");
    }

    fn send(&self, head: &str, body: &str) -> Option<TcpStream> {
        let mut socket = TcpStream::connect(&self.address).ok()?;
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "{head} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        // A server that refuses a body early may close before it has read it.
        drop(socket.write_all(request.as_bytes()));
        Some(socket)
    }

    fn exchange(&self, head: &str, body: &str) -> (u16, String) {
        let mut reply = Vec::new();
        if let Some(mut socket) = self.send(head, body) {
            drop(socket.read_to_end(&mut reply));
        }
        let reply = String::from_utf8_lossy(&reply);
        let status = reply
            .split(' ')
            .nth(1)
            .and_then(|s| s.parse().ok())
            .unwrap_or(0);
        let body = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status, body.to_owned())
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.exchange(&format!("GET {path}"), "")
    }

    pub(crate) fn post_text(&self, path: &str, body: &str) -> (u16, String) {
        self.exchange(&format!("POST {path}"), body)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, reply) = self.post_text(path, &body.to_string());
        (status, serde_json::from_str(&reply).unwrap_or_default())
    }

    pub(crate) fn open_stream(&self, path: &str, body: &Value) -> EventStream {
        EventStream(
            self.send(&format!("POST {path}"), &body.to_string())
                .unwrap(),
        )
    }

    /// The data of every event of a stream.
    pub(crate) fn post_stream(&self, path: &str, body: &Value) -> Vec<String> {
        let text = self.open_stream(path, body).read_to_end();
        text.lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(str::to_owned)
            .collect()
    }

    /// A series without labels of its own.
    pub(crate) fn gauge(&self, name: &str) -> Option<f64> {
        let start = format!("vllm:{name}{{engine=\"0\",model_name=\"chat\"}} ");
        self.get("/metrics")
            .1
            .lines()
            .find_map(|l| l.strip_prefix(&start)?.parse().ok())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if is_alive(self.child_pid) {
            signal(self.child_pid, "KILL");
        }
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// An answer that is still coming.
pub(crate) struct EventStream(TcpStream);

impl EventStream {
    pub(crate) fn read_to_end(mut self) -> String {
        let mut bytes = Vec::new();
        drop(self.0.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Waits until something is true.
pub(crate) fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < PATIENCE, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// Whether a process exists and is not a zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(pid.to_string())
        .status();
    assert!(status.unwrap().success());
}

/// Runs the binary to its end; exit code, and both outputs.
pub(crate) fn run(words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_koi-engine-sim"))
        .args(words)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}
