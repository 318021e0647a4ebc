//! Asks a running cluster through the `koi` command, as a person would.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Global;

/// The `koi` executable and the cluster it is to ask.
pub(crate) struct Koi {
    program: PathBuf,
    data_dir: Option<PathBuf>,
}

/// A named number.
#[derive(Debug, Deserialize)]
pub(crate) struct NamedValue {
    name: String,
    value: Option<f64>,
}

/// The parts of `koi inspect job -o json` that benches read.
#[derive(Debug, Deserialize)]
pub(crate) struct Job {
    pub(crate) spec: Spec,
    pub(crate) state: String,
    pub(crate) submitted_at_us: i64,
    #[serde(default)]
    pub(crate) note: String,
    pub(crate) measured: Option<Measured>,
}

/// Parts of a job's specification.
#[derive(Debug, Deserialize)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) class: String,
}

/// What the server measured over an interval.
#[derive(Debug, Deserialize)]
pub(crate) struct Measured {
    pub(crate) outcomes: Vec<NamedValue>,
    pub(crate) mean_based: Vec<String>,
    pub(crate) n_requests: u64,
    pub(crate) from_us: i64,
    pub(crate) to_us: i64,
    pub(crate) n_windows_judged: u32,
    pub(crate) n_windows_inside: u32,
}

impl Measured {
    /// An outcome by name, unless it is only a mean.
    pub(crate) fn percentile(&self, name: &str) -> Option<f64> {
        if self.mean_based.iter().any(|n| n == name) {
            return None;
        }
        self.outcomes.iter().find(|o| o.name == name)?.value
    }
}

impl Koi {
    /// Finds `koi` beside this executable, in `KOI_BIN_DIR` or on `PATH`.
    pub(crate) fn find(global: &Global) -> anyhow::Result<Self> {
        let beside = std::env::current_exe()
            .ok()
            .and_then(|exe| exe.parent().map(PathBuf::from));
        let asked = std::env::var_os("KOI_BIN_DIR").map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = beside
            .into_iter()
            .chain(asked)
            .chain(std::env::split_paths(&path));
        let program = folders
            .map(|folder| folder.join("koi"))
            .find(|program| program.is_file())
            .context("koi is not beside koi-bench, in KOI_BIN_DIR or on PATH; build it")?;
        let data_dir = global.data_dir.clone();
        Ok(Self { program, data_dir })
    }

    /// Runs a command and reads its JSON.
    pub(crate) fn ask<T: DeserializeOwned>(&self, words: &[&str]) -> anyhow::Result<T> {
        let mut command = Command::new(&self.program);
        command.args(words).args(["-o", "json"]);
        if let Some(folder) = &self.data_dir {
            command.arg("--data-dir").arg(folder);
        }
        let said = || format!("koi {}", words.join(" "));
        let output = command.output().with_context(said)?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("{}: {}", said(), error.trim());
        }
        serde_json::from_slice(&output.stdout).with_context(said)
    }

    /// Jobs that are not over.
    pub(crate) fn jobs(&self) -> anyhow::Result<Vec<Job>> {
        self.ask(&["jobs"])
    }

    /// One job, measured over so many seconds that end at a moment.
    pub(crate) fn job_over(&self, name: &str, seconds: i64, until_us: i64) -> anyhow::Result<Job> {
        let (over, until) = (format!("{seconds}s"), until_us.to_string());
        let words = [
            "inspect",
            "job",
            name,
            "--over",
            &over,
            "--until-us",
            &until,
        ];
        self.ask(&words)
    }
}

/// Now in microseconds since the Unix epoch.
pub(crate) fn now_us() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX))
}
