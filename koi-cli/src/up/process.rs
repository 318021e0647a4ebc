//! Processes by identity: a pid and the time it was started, so that a reused pid is never taken for
//! the one that was meant.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// Names the cluster in the environment of every process of it.
pub(super) const CLUSTER_ID_VARIABLE: &str = "KOI_CLUSTER_ID";

/// A process that was started once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    /// Process id.
    pub(super) pid: u32,
    /// Field 22 of `/proc/<pid>/stat`.
    pub(super) start_time_ticks: u64,
}

/// State letter and start time in `/proc/<pid>/stat`; the name before them may hold anything.
fn stat(pid: u32) -> Option<(char, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some((
        fields.first()?.chars().next()?,
        fields.get(19)?.parse().ok()?,
    ))
}

impl Process {
    /// The process of this pid as it is now; nothing when it is gone or a zombie.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let (state, start_time_ticks) = stat(pid)?;
        (state != 'Z' && state != 'X').then_some(Self {
            pid,
            start_time_ticks,
        })
    }

    /// This process.
    pub(super) fn me() -> Self {
        let pid = std::process::id();
        Self::of(pid).unwrap_or(Self {
            pid,
            start_time_ticks: 0,
        })
    }

    /// True while the very same process runs.
    pub(super) fn is_alive(&self) -> bool {
        Self::of(self.pid).is_some_and(|now| now == *self)
    }

    /// Sends a signal to the very same process; false when it is gone.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return false;
        };
        let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else {
            return false;
        };
        // The descriptor holds the process: what is checked now is what is signalled.
        self.is_alive() && pidfd_send_signal(&fd, signal).is_ok()
    }
}

/// Waits until all have ended; what still runs after the limit is returned.
pub(super) async fn wait_gone(processes: &[Process], limit: Duration) -> Vec<Process> {
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        let left: Vec<Process> = processes
            .iter()
            .copied()
            .filter(Process::is_alive)
            .collect();
        if left.is_empty() || tokio::time::Instant::now() >= deadline {
            return left;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Every other process whose environment names this cluster.
pub(super) fn of_cluster(cluster_id: &str) -> Vec<Process> {
    let marker = format!("{CLUSTER_ID_VARIABLE}={cluster_id}");
    let me = std::process::id();
    let entries = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let marked = |pid: &u32| {
        let environ = std::fs::read(Path::new("/proc").join(pid.to_string()).join("environ"))
            .unwrap_or_default();
        environ.split(|b| *b == 0).any(|v| v == marker.as_bytes())
    };
    pids.filter(|pid| *pid != me)
        .filter(marked)
        .filter_map(Process::of)
        .collect()
}

/// The command line of a process, for people.
pub(super) fn command_line(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<String> = bytes
        .split(|b| *b == 0)
        .map(|w| String::from_utf8_lossy(w).into_owned())
        .collect();
    let line: String = words.join(" ").trim().chars().take(120).collect();
    crate::output::escape(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_is_found_by_its_cluster_and_signalled_by_identity() {
        let id = format!("test{}", std::process::id());
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env(CLUSTER_ID_VARIABLE, &id)
            .spawn()
            .unwrap();
        // The environment is the child's own only after it has become `sleep`.
        let mut found = vec![];
        for _ in 0..100 {
            found = of_cluster(&id);
            if !found.is_empty() && command_line(child.id()) == "sleep 60" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(found, [Process::of(child.id()).unwrap()]);
        let impostor = Process {
            start_time_ticks: found[0].start_time_ticks + 1,
            ..found[0]
        };
        assert!(
            !impostor.signal(Signal::KILL) && found[0].is_alive(),
            "a reused pid is left alone"
        );
        assert!(found[0].signal(Signal::TERM));
        assert!(
            wait_gone(&found, Duration::from_secs(5)).await.is_empty(),
            "a zombie counts as gone"
        );
        child.wait().unwrap();
        assert!(of_cluster(&id).is_empty());
    }

    #[test]
    fn this_process_is_alive() {
        assert!(Process::me().is_alive());
        assert_eq!(Process::of(u32::MAX), None);
    }
}
