//! Looking at other processes: is the owner of a lock file still there, and is it ours?

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// The contents of `postmaster.pid` that matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PidFile {
    /// Process that wrote it.
    pub(super) pid: u32,
    /// True when the server said that it accepts connections.
    pub(super) ready: bool,
}

impl PidFile {
    pub(super) fn read(data: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(data.join("postmaster.pid")).ok()?)
    }

    /// Line 1 is the process, line 8 the status.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let pid = lines.next()?.trim().parse().ok()?;
        let ready = lines.nth(6).is_some_and(|status| status.trim() == "ready");
        Some(Self { pid, ready })
    }
}

pub(super) fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // A process that is gone has what the signal wanted.
    let _gone = pid.map(|pid| kill_process(pid, signal));
}

/// True when the process exists, zombies included.
pub(super) fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// True when the process is a postmaster on this data folder: its command line says so.
pub(super) fn is_postmaster_of(pid: u32, data: &Path) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|b| *b == 0)
        .any(|arg| arg == data.as_os_str().as_encoded_bytes())
}

/// True when some process works inside the data folder: backends outlive their postmaster briefly.
pub(super) fn someone_works_in(data: &Path) -> bool {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|e| std::fs::read_link(e.path().join("cwd")).ok())
        .any(|cwd| cwd == data)
}
