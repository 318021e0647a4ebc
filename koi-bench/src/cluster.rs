//! The processes of a running dev cluster, found by `KOI_CLUSTER_ID`, and what each holds and burns.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::Global;

/// Names the cluster in the environment of every process of it.
const CLUSTER_ID_VARIABLE: &str = "KOI_CLUSTER_ID";
/// Ticks per second of the times in `/proc`; Linux shows every program 100.
const TICKS_PER_SECOND: f64 = 100.0;

/// What a process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// `koi-server serve`.
    Server,
    /// `koi-agent`.
    Agent,
    /// `koi-shim`.
    Shim,
    /// An engine's parent or core.
    Engine,
    /// `koi-server postgres`, Postgres and its backends.
    Postgres,
    /// `koi load`.
    Load,
    /// `koi up`.
    Supervisor,
    /// Anything else.
    Other,
}

impl Role {
    /// For people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Agent => "agent",
            Self::Shim => "shim",
            Self::Engine => "engine",
            Self::Postgres => "postgres",
            Self::Load => "load",
            Self::Supervisor => "supervisor",
            Self::Other => "other",
        }
    }

    fn of(words: &[String], executable: &str) -> Self {
        let has = |word: &str| words.iter().any(|w| w == word);
        match executable {
            "koi-server" if has("postgres") => Self::Postgres,
            "koi-server" => Self::Server,
            "koi-agent" => Self::Agent,
            "koi-shim" => Self::Shim,
            "koi-engine-sim" => Self::Engine,
            "postgres" => Self::Postgres,
            "koi" if has("load") => Self::Load,
            "koi" if has("up") => Self::Supervisor,
            _ => Self::Other,
        }
    }
}

/// One process of the cluster.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Member {
    pub(crate) pid: u32,
    pub(crate) role: Role,
    /// Which one of its kind, e.g. the host of an agent.
    pub(crate) label: String,
    pub(crate) executable: PathBuf,
    /// Told apart from a later process with the same pid.
    start_ticks: u64,
}

/// Memory and processor time of a process at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reading {
    pub(crate) rss_anon_bytes: u64,
    pub(crate) cpu_seconds: f64,
}

#[derive(Deserialize)]
struct UpState {
    cluster_id: String,
}

/// The folder of the cluster: as asked for, else where `koi up` puts it.
fn data_dir(global: &Global) -> anyhow::Result<PathBuf> {
    if let Some(folder) = &global.data_dir {
        return Ok(folder.clone());
    }
    let root = PathBuf::from("/var/lib/koi");
    if root.join("up.json").exists() {
        return Ok(root);
    }
    let home = std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".local/share"));
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let folder = data.or(home).map(|d| d.join("koi"));
    folder.context("name the folder of the cluster with --data-dir")
}

/// Every process of the running cluster.
pub(crate) fn members(global: &Global) -> anyhow::Result<Vec<Member>> {
    let path = data_dir(global)?.join("up.json");
    let bytes = std::fs::read(&path)
        .with_context(|| format!("read {}; start a cluster with `koi up`", path.display()))?;
    let up: UpState = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} cannot be read", path.display()))?;
    let marker = format!("{CLUSTER_ID_VARIABLE}={}", up.cluster_id);
    let found = belonging(&marker)?;
    anyhow::ensure!(
        found.iter().any(|m| m.role == Role::Server),
        "no server of cluster {} runs; start one with `koi up`",
        up.cluster_id
    );
    Ok(found)
}

/// Processes with the marker in their environment, and all below them: Postgres writes over its
/// own environment.
fn belonging(marker: &str) -> anyhow::Result<Vec<Member>> {
    let mut parents: BTreeMap<u32, u32> = BTreeMap::new();
    let mut inside: BTreeSet<u32> = BTreeSet::new();
    for entry in std::fs::read_dir("/proc").context("read /proc")?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        let Some(stat) = Stat::read(pid) else {
            continue;
        };
        parents.insert(pid, stat.parent);
        if words_of(&entry.path().join("environ"))
            .iter()
            .any(|w| w == marker)
        {
            inside.insert(pid);
        }
    }
    let is_below = |mut pid: u32| {
        for _ in 0..64 {
            if inside.contains(&pid) {
                return true;
            }
            match parents.get(&pid) {
                Some(parent) => pid = *parent,
                None => return false,
            }
        }
        false
    };
    let own = std::process::id();
    let pids = parents.keys().copied();
    let pids = pids.filter(|pid| *pid != own && is_below(*pid));
    Ok(pids.filter_map(Member::read).collect())
}

/// The NUL-separated words of a file in `/proc`; none when it cannot be read.
fn words_of(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes
        .split(|b| *b == 0)
        .map(|w| String::from_utf8_lossy(w).into_owned())
        .collect()
}

/// Fields of `/proc/<pid>/stat`.
struct Stat {
    parent: u32,
    cpu_ticks: u64,
    start_ticks: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name before the last parenthesis may hold anything.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            parent: u32::try_from(number(1)?).ok()?,
            cpu_ticks: number(11)? + number(12)?,
            start_ticks: number(19)?,
        })
    }
}

impl Member {
    fn read(pid: u32) -> Option<Self> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let words = words_of(&folder.join("cmdline"));
        let executable = std::fs::read_link(folder.join("exe")).ok()?;
        let name = executable.file_name()?.to_str()?.to_owned();
        let name = name.trim_end_matches(" (deleted)").to_owned();
        let role = Role::of(&words, &name);
        // An agent is named by the folder of its host.
        let label = words
            .iter()
            .filter_map(|w| w.split("/hosts/").nth(1)?.split('/').next())
            .map(str::to_owned)
            .next()
            .unwrap_or(name);
        Some(Self {
            pid,
            role,
            label,
            executable,
            start_ticks: Stat::read(pid)?.start_ticks,
        })
    }

    /// What it holds and has burnt; `None` when it is gone.
    pub(crate) fn reading(&self) -> Option<Reading> {
        let stat = Stat::read(self.pid).filter(|s| s.start_ticks == self.start_ticks)?;
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        Some(Reading {
            rss_anon_bytes: field_kib(&status, "RssAnon:")? * 1024,
            cpu_seconds: stat.cpu_ticks as f64 / TICKS_PER_SECOND,
        })
    }
}

/// A field of `/proc/<pid>/status` in KiB.
pub(crate) fn field_kib(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_finds_itself_by_its_fields() {
        let stat = Stat::read(std::process::id()).unwrap();
        assert!(stat.start_ticks > 0 && stat.parent > 0);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(field_kib(&status, "RssAnon:").unwrap() > 100);
        assert_eq!(field_kib(&status, "Nothing:"), None);
    }

    #[test]
    fn names_with_parentheses_do_not_shift_fields() {
        let text = "7 (a) b) c) S 3 7 7 0 -1 0 1 2 3 4 50 60 0 0 20 0 1 0 999 1 2";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(
            (stat.parent, stat.cpu_ticks, stat.start_ticks),
            (3, 110, 999)
        );
    }

    #[test]
    fn roles_by_command_line() {
        let role = |executable: &str, words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            Role::of(&words, executable)
        };
        assert_eq!(role("koi-server", &["koi-server", "serve"]), Role::Server);
        assert_eq!(
            role("koi-server", &["koi-server", "postgres"]),
            Role::Postgres
        );
        assert_eq!(role("koi", &["koi", "up", "--detach"]), Role::Supervisor);
        assert_eq!(role("koi", &["koi", "load"]), Role::Load);
        assert_eq!(role("sleep", &["sleep"]), Role::Other);
    }
}
