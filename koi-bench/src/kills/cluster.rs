//! A dev cluster of its own in a temporary folder, seen from outside: the command line, the files that
//! `koi up` documents, and `/proc`. Whatever happens, nothing of it is left.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::Value;

use super::inputs::Inputs;
use super::process::{Process, of_cluster};

/// A running cluster; stopped, swept and deleted when dropped.
#[derive(Debug)]
pub(super) struct Cluster {
    koi: PathBuf,
    folder: PathBuf,
    /// What it was started with.
    pub(super) inputs: Inputs,
}

/// What the load generator has counted of one job.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Requests sent.
    pub(super) sent: u64,
    /// Requests failed.
    pub(super) failed: u64,
    /// Requests sent a second time.
    pub(super) retried: u64,
    /// Requests in flight.
    pub(super) in_flight: u64,
}

/// A replica as its state folder tells.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Replica {
    /// Identity, e.g. `chat.g1.r0.0`.
    pub(super) id: String,
    /// Host.
    pub(super) host: String,
    /// Its shim, when that runs.
    pub(super) shim: Option<Process>,
    /// Pid of the engine's first process.
    pub(super) engine_pid: u32,
    /// When that was started.
    pub(super) started_at_us: i64,
}

/// A tick as `koi ticks` lists it.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Tick {
    /// When it was opened.
    pub(super) opened_at_us: i64,
    /// When it was closed.
    pub(super) closed_at_us: Option<i64>,
}

/// Wall time in microseconds.
pub(super) fn now_us() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn read_json(path: &Path) -> anyhow::Result<Value> {
    let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("parse {}", path.display()))
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn pid_of(value: &Value) -> Option<u32> {
    u32::try_from(value["pid"].as_u64()?).ok()
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let listed = std::fs::read_dir(folder).into_iter().flatten().flatten();
    listed.map(|e| e.path())
}

impl Cluster {
    /// Starts a cluster and waits until its jobs run.
    ///
    /// # Errors
    /// When `koi up` fails; its words are part of the error.
    pub(super) fn start(koi: &Path, folder: PathBuf, inputs: Inputs) -> anyhow::Result<Self> {
        let cluster = Self {
            koi: koi.to_owned(),
            folder,
            inputs,
        };
        cluster.leave_nothing_behind()?;
        let (fleet, jobs) = (&cluster.inputs.fleet, &cluster.inputs.jobs);
        let args = ["up", "--detach", "--fleet"].map(Into::into);
        let files = [fleet.into(), "--jobs".into(), jobs.into(), "--load".into()];
        let args: Vec<std::ffi::OsString> = args.into_iter().chain(files).collect();
        cluster.run(args.iter().chain([&cluster.inputs.load.clone().into()]))?;
        Ok(cluster)
    }

    /// Starts a process that outlives this one by a second and then stops and deletes what is left:
    /// an interrupt or a SIGKILL runs no destructor.
    fn leave_nothing_behind(&self) -> anyhow::Result<()> {
        use std::os::unix::process::CommandExt as _;
        const SCRIPT: &str = r#"while kill -0 "$0" 2>/dev/null; do sleep 1; done
            if [ -d "$3" ]; then "$1" --data-dir "$2" down; rm -rf "$3"; fi"#;
        Command::new("sh")
            .args(["-c", SCRIPT, &std::process::id().to_string()])
            .args([&self.koi, &self.data(), &self.folder])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("start the process that cleans up")?;
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn run<S: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> anyhow::Result<String> {
        let mut command = Command::new(&self.koi);
        command.arg("--data-dir").arg(self.data()).args(args);
        // Another server may be named in the environment of who measures.
        command
            .env_remove("KOI_SERVER")
            .env_remove("KOI_DATABASE_URL");
        let out = command.stdin(Stdio::null()).output().context("run koi")?;
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        if !out.status.success() {
            let error = String::from_utf8_lossy(&out.stderr);
            bail!("{command:?} ended with {}: {said}{error}", out.status);
        }
        Ok(said)
    }

    /// Runs `koi` with these arguments and returns what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub(super) fn koi(&self, args: &[&str]) -> anyhow::Result<String> {
        self.run(args)
    }

    /// The newest ticks; nothing while the server is away.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        let text = self.koi(&["-o", "json", "--timeout-s", "2", "ticks", "--limit", "3"]);
        text.ok()
            .and_then(|t| serde_json::from_str(&t).ok())
            .unwrap_or_default()
    }

    /// A running child of the supervisor.
    ///
    /// # Errors
    /// When there is none of that name.
    pub(super) fn child(&self, name: &str) -> anyhow::Result<Process> {
        let state = read_json(&self.data().join("up.json"))?;
        let children = state["children"].as_array().cloned().unwrap_or_default();
        children
            .iter()
            .find(|c| c["name"] == name)
            .and_then(|c| Process::of(pid_of(&c["process"])?))
            .with_context(|| format!("no child {name} runs"))
    }

    /// What a child has written into its log.
    pub(super) fn log(&self, child: &str) -> String {
        let path = self.data().join("logs").join(format!("{child}.log"));
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// What was counted of a job.
    ///
    /// # Errors
    /// When the load generator has written nothing yet.
    pub(super) fn counts(&self, job: &str) -> anyhow::Result<Counts> {
        let load = read_json(&self.data().join("load").join(format!("{job}.json")))?;
        let totals = &load["totals"];
        let count = |name: &str| totals[name].as_u64().unwrap_or(0);
        let failed = totals["failed"]
            .as_object()
            .map_or(0, |kinds| kinds.values().filter_map(Value::as_u64).sum());
        Ok(Counts {
            sent: count("sent"),
            failed,
            retried: count("retried"),
            in_flight: load["in_flight"].as_u64().unwrap_or(0),
        })
    }

    /// Version of a job's endpoint file and the replicas in it.
    pub(super) fn endpoints(&self, job: &str) -> (i64, Vec<String>) {
        let path = self.data().join("endpoints").join(format!("{job}.json"));
        let file = read_json(&path).unwrap_or_default();
        let list = file["endpoints"].as_array().cloned().unwrap_or_default();
        let ids = list.iter().map(|e| text_of(&e["replica_id"])).collect();
        (file["version"].as_i64().unwrap_or(0), ids)
    }

    /// Every replica whose engine was started and is not yet forgotten, by id.
    pub(super) fn replicas(&self) -> Vec<Replica> {
        let mut found = Vec::new();
        for host in entries(&self.data().join("hosts")) {
            for folder in entries(&host.join("state/replicas")) {
                let Ok(identity) = read_json(&folder.join("identity.json")) else {
                    continue;
                };
                let Some(engine_pid) = pid_of(&identity["engine"]) else {
                    continue;
                };
                let name = host.file_name().unwrap_or_default().to_string_lossy();
                found.push(Replica {
                    id: text_of(&identity["replica_id"]),
                    host: name.into_owned(),
                    shim: pid_of(&identity["shim"]).and_then(Process::of),
                    engine_pid,
                    started_at_us: identity["started_at"].as_i64().unwrap_or(0),
                });
            }
        }
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found
    }

    /// Pids that hold memory of a host's simulated devices.
    pub(super) fn holders(&self, host: &str) -> Vec<u32> {
        let folder = self.data().join("hosts").join(host).join("gpus/holders");
        let pid = |path: PathBuf| path.file_stem()?.to_str()?.rsplit('.').next()?.parse().ok();
        entries(&folder).filter_map(pid).collect()
    }

    /// Pid of the database's first process, once it takes connections.
    pub(super) fn postmaster(&self) -> Option<u32> {
        let path = self.data().join("postgres/data/postmaster.pid");
        let text = std::fs::read_to_string(path).ok()?;
        let is_ready = text.lines().last().is_some_and(|l| l.trim() == "ready");
        text.lines()
            .next()?
            .trim()
            .parse()
            .ok()
            .filter(|_| is_ready)
    }

    /// Ends everything; returns what had to be killed.
    fn stop(&self) -> Vec<Process> {
        let id = read_json(&self.data().join("up.json"))
            .map(|state| text_of(&state["cluster_id"]))
            .unwrap_or_default();
        if let Err(error) = self.koi(&["down"]) {
            super::say(&format!("koi down: {error:#}"));
        }
        if id.is_empty() {
            return Vec::new();
        }
        let left = of_cluster(&id);
        for process in &left {
            // Gone in the meantime is what is wanted.
            process.kill().ok();
        }
        left
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.stop() {
            super::say(&format!("left over and killed: process {}", process.pid));
        }
        std::thread::sleep(Duration::from_millis(200));
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            super::say(&format!("{} stays: {error}", self.folder.display()));
        }
    }
}
