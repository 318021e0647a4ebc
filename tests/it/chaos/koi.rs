//! The command line on a data directory of its own; the cluster goes when it is dropped.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use koi_tests::workspace_root;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{programs, wait};
use crate::support::TestFolder;

/// Longest wait for a command.
pub(super) const LIMIT: Duration = Duration::from_secs(150);

/// The command line and one data directory.
pub(super) struct Koi {
    program: PathBuf,
    folder: TestFolder,
}

/// What a command said.
pub(super) struct Answer {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

impl Koi {
    pub(super) fn new(name: &str) -> Self {
        Self {
            program: programs().join("koi"),
            folder: TestFolder::new(name),
        }
    }

    pub(super) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Answer {
        let (out, err) = (self.folder.0.join("out.txt"), self.folder.0.join("err.txt"));
        let mut command = Command::new(&self.program);
        command.arg("--data-dir").arg(self.data()).args(args);
        // Files, because the supervisor in the background keeps what it inherits.
        let mut child = command
            .env_remove("KOI_SERVER")
            .env_remove("KOI_DATABASE_URL")
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&out).unwrap())
            .stderr(std::fs::File::create(&err).unwrap())
            .spawn()
            .unwrap();
        let code = wait(&mut child, LIMIT).code();
        let read = |path| std::fs::read_to_string(path).unwrap();
        Answer {
            code,
            out: read(out),
            err: read(err),
        }
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.0.join("data")
    }

    /// Starts the demo fleet with the sample jobs.
    pub(super) fn up(&self) -> Answer {
        let jobs = workspace_root().join("configs/jobs");
        self.up_with(&["--jobs".into(), jobs.into()])
    }

    /// Starts the demo fleet.
    pub(super) fn up_with(&self, more: &[OsString]) -> Answer {
        let fleet = workspace_root().join("configs/fleets/demo.toml");
        let mut args: Vec<OsString> = ["up", "--detach", "--no-load", "--fleet"]
            .map(Into::into)
            .to_vec();
        args.push(fleet.into());
        args.extend_from_slice(more);
        self.run(args)
    }

    pub(super) fn json(&self, command: &str) -> Value {
        let answer = self.run(["-o", "json", command]);
        serde_json::from_str(&answer.out).unwrap_or_else(|e| panic!("{e}: {}", answer.err))
    }

    fn state(&self) -> Value {
        let bytes = std::fs::read(self.data().join("up.json")).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    pub(super) fn cluster_id(&self) -> String {
        self.state()["cluster_id"].as_str().unwrap().to_owned()
    }

    pub(super) fn signal_supervisor(&self, signal: Signal) {
        let pid = self.state()["supervisor"]["pid"].as_u64().unwrap();
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Names and ids of the jobs.
    pub(super) fn jobs(&self) -> Vec<(String, String)> {
        let jobs = self.json("jobs");
        let text = |job: &Value, field: &str| job[field].as_str().unwrap().to_owned();
        let mut jobs: Vec<_> = jobs
            .as_array()
            .unwrap()
            .iter()
            .map(|j| (text(&j["spec"], "name"), text(j, "job_id")))
            .collect();
        jobs.sort();
        jobs
    }
}

impl Drop for Koi {
    fn drop(&mut self) {
        if self.data().join("up.json").exists() {
            let answer = self.run(["down"]);
            assert!(
                answer.code == Some(0) || std::thread::panicking(),
                "{}",
                answer.err
            );
        }
    }
}
