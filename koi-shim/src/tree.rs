//! Which processes belong to one launch, and killing exactly those.
//!
//! Ownership is the boot id, the pid with its start time, and one of: descent from the engine,
//! membership in the session its first shim opened, or the nonce in the environment. A pid that
//! was reused by somebody else fails all three, so it is never signalled.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::process::{NonceMark, ProcessStat, nonce_mark, scan, stat};
use crate::record::{Identity, Member, ProcessRef};

/// One launch's tree.
#[derive(Debug, Clone)]
pub struct OwnedTree {
    nonce: String,
    session: Option<ProcessRef>,
    shims: Vec<ProcessRef>,
    roots: Vec<ProcessRef>,
    not_before_ticks: u64,
}

/// How thoroughly to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Descent and session: cheap, for regular looks.
    Descent,
    /// Also every environment that can be read: for a proof that nothing is left.
    Marked,
}

impl OwnedTree {
    /// The tree of a recorded launch.
    #[must_use]
    pub fn of(identity: &Identity) -> Self {
        Self {
            nonce: identity.nonce.clone(),
            session: Some(identity.session),
            shims: vec![identity.session, identity.shim],
            roots: vec![identity.engine, identity.session, identity.shim],
            not_before_ticks: identity.session.start_ticks,
        }
    }

    /// A launch of which only the nonce is known.
    #[must_use]
    pub fn of_nonce(nonce: &str) -> Self {
        Self {
            nonce: nonce.to_owned(),
            ..Self::nothing()
        }
    }

    /// A launch whose records are gone: what carries its mark, and all below these processes.
    #[must_use]
    pub fn of_launch(nonce: &str, roots: Vec<ProcessRef>) -> Self {
        Self {
            nonce: nonce.to_owned(),
            roots,
            ..Self::nothing()
        }
    }

    fn nothing() -> Self {
        Self {
            nonce: String::new(),
            session: None,
            shims: Vec::new(),
            roots: Vec::new(),
            not_before_ticks: 0,
        }
    }

    /// Living processes of the tree; the shim itself and the caller never count.
    ///
    /// # Errors
    /// When `/proc` cannot be listed.
    pub fn members(&self, depth: Depth) -> io::Result<Vec<Member>> {
        let all = scan()?;
        Ok(self.select(&all, depth).into_iter().map(member).collect())
    }

    fn select<'a>(&self, all: &'a [ProcessStat], depth: Depth) -> Vec<&'a ProcessStat> {
        let by_pid: BTreeMap<u32, &ProcessStat> = all.iter().map(|s| (s.process.pid, s)).collect();
        let session = self
            .session
            .filter(|s| session_is_the_recorded_one(*s, &by_pid));
        let me = std::process::id();
        let mut owned: BTreeSet<u32> = BTreeSet::new();
        let candidates: Vec<&ProcessStat> = all
            .iter()
            .filter(|s| s.process.pid != me && s.process.start_ticks >= self.not_before_ticks)
            .filter(|s| !self.shims.contains(&s.process))
            .collect();
        for stat in &candidates {
            let in_session = session.is_some_and(|leader| stat.sid == leader.pid);
            if in_session
                || self.descends(stat, &by_pid)
                || (depth == Depth::Marked
                    && nonce_mark(stat.process.pid, &self.nonce) == NonceMark::Match)
            {
                owned.insert(stat.process.pid);
            }
        }
        candidates
            .into_iter()
            .filter(|s| owned.contains(&s.process.pid) && s.is_alive())
            .collect()
    }

    fn descends(&self, stat: &ProcessStat, by_pid: &BTreeMap<u32, &ProcessStat>) -> bool {
        let mut at = Some(stat);
        for _ in 0..64 {
            let Some(here) = at else { return false };
            if self.roots.contains(&here.process) {
                return true;
            }
            at = by_pid.get(&here.ppid).copied();
        }
        false
    }
}

/// The session number is free for reuse once every process of it is gone; a stranger with the
/// leader's pid shows that this has happened.
fn session_is_the_recorded_one(session: ProcessRef, by_pid: &BTreeMap<u32, &ProcessStat>) -> bool {
    by_pid
        .get(&session.pid)
        .is_none_or(|s| s.process == session)
}

fn member(stat: &ProcessStat) -> Member {
    Member {
        process: stat.process,
        ppid: stat.ppid,
        name: stat.name.clone(),
    }
}

/// A handle of exactly this process; `None` when it is gone or is somebody else.
#[must_use]
pub fn open_exactly(process: ProcessRef) -> Option<OwnedFd> {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw)?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // Checked after opening: from here on the handle cannot mean another process.
    stat(process.pid)
        .filter(|s| s.process == process)
        .map(|_| handle)
}

/// Signals exactly this process; `false` when it is gone or is somebody else.
#[must_use]
pub fn signal_exactly(process: ProcessRef, signal: Signal) -> bool {
    open_exactly(process).is_some_and(|handle| pidfd_send_signal(&handle, signal).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIM: ProcessRef = ProcessRef {
        pid: 2_000_010,
        start_ticks: 100,
    };

    fn line(pid: u32, start: u64, ppid: u32, sid: u32, state: char) -> ProcessStat {
        ProcessStat {
            process: ProcessRef {
                pid,
                start_ticks: start,
            },
            ppid,
            pgid: sid,
            sid,
            state,
            name: "x".to_owned(),
        }
    }

    fn tree() -> OwnedTree {
        OwnedTree {
            nonce: "00".to_owned(),
            session: Some(SHIM),
            shims: vec![SHIM],
            roots: vec![
                SHIM,
                ProcessRef {
                    pid: 2_000_011,
                    start_ticks: 101,
                },
            ],
            not_before_ticks: 100,
        }
    }

    fn pids(all: &[ProcessStat]) -> Vec<u32> {
        tree()
            .select(all, Depth::Descent)
            .iter()
            .map(|s| s.process.pid - 2_000_000)
            .collect()
    }

    #[test]
    fn the_tree_is_session_and_descent_without_the_shim() {
        let all = [
            line(2_000_010, 100, 1, 2_000_010, 'S'),
            line(2_000_011, 101, 2_000_010, 2_000_010, 'S'),
            line(2_000_012, 102, 2_000_011, 2_000_012, 'S'),
            line(2_000_013, 103, 1, 2_000_010, 'S'),
            line(2_000_014, 103, 1, 2_000_010, 'Z'),
            line(2_000_015, 104, 1, 2_000_099, 'S'),
            line(2_000_016, 105, 2_000_010, 2_000_016, 'S'),
        ];
        assert_eq!(pids(&all), [11, 12, 13, 16]);
    }

    #[test]
    fn hazard_d7_a_reused_pid_is_not_ours() {
        let all = [
            line(2_000_010, 900, 1, 2_000_010, 'S'),
            line(2_000_011, 901, 2_000_010, 2_000_010, 'S'),
            line(2_000_016, 902, 2_000_011, 2_000_010, 'S'),
        ];
        assert_eq!(pids(&all), Vec::<u32>::new());
    }

    #[test]
    fn hazard_d7_signalling_needs_the_start_time() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let real = crate::process::reference(child.id()).unwrap();
        let wrong = ProcessRef {
            start_ticks: real.start_ticks + 1,
            ..real
        };
        assert!(!signal_exactly(wrong, Signal::KILL));
        assert!(child.try_wait().unwrap().is_none());
        assert!(signal_exactly(real, Signal::KILL));
        child.wait().unwrap();
    }
}
