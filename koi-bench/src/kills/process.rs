//! Processes by pid and start time, read from `/proc`, and SIGKILL.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// A process that was started once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process {
    /// Process id.
    pub(super) pid: u32,
    start_ticks: u64,
}

/// State letter, parent and start time in `/proc/<pid>/stat`; the name before them may hold anything.
fn stat(pid: u32) -> Option<(char, u32, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some((
        fields.first()?.chars().next()?,
        fields.get(1)?.parse().ok()?,
        fields.get(19)?.parse().ok()?,
    ))
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok())
}

impl Process {
    /// The process of this pid as it is now; nothing when it is gone or a zombie.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let (state, _, start_ticks) = stat(pid)?;
        (state != 'Z' && state != 'X').then_some(Self { pid, start_ticks })
    }

    /// True while the very same process runs.
    pub(super) fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// SIGKILL to the very same process.
    ///
    /// # Errors
    /// When it has gone already.
    pub(super) fn kill(self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        match pid.filter(|_| self.is_alive()) {
            Some(pid) => Ok(kill_process(pid, Signal::KILL)?),
            None => anyhow::bail!("process {} is gone", self.pid),
        }
    }

    /// Its children.
    pub(super) fn children(self) -> Vec<Self> {
        let is_child = |pid: &u32| stat(*pid).is_some_and(|(_, parent, _)| parent == self.pid);
        pids().filter(is_child).filter_map(Self::of).collect()
    }
}

/// Every process whose environment names this cluster.
pub(super) fn of_cluster(cluster_id: &str) -> Vec<Process> {
    let marker = format!("KOI_CLUSTER_ID={cluster_id}");
    let marked = |pid: &u32| {
        let path = Path::new("/proc").join(pid.to_string()).join("environ");
        let environ = std::fs::read(path).unwrap_or_default();
        environ.split(|b| *b == 0).any(|v| v == marker.as_bytes())
    };
    pids().filter(marked).filter_map(Process::of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_found_and_killed_once() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let me = Process::of(std::process::id()).unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(me.children().contains(&process));
        process.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive() && process.kill().is_err());
    }
}
