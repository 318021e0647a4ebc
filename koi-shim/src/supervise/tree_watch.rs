//! Regular looks at the engine's tree, so that a lost engine core is seen though its parent lives.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::process::now;
use crate::record::{LostMember, Member, ProcessRef};
use crate::tree::{Depth, OwnedTree, open_exactly, signal_exactly};

/// Between looks at a young tree, which still grows, and at an old one.
const YOUNG: Duration = Duration::from_secs(1);
const OLD: Duration = Duration::from_secs(5);
const YOUNG_LOOKS: u32 = 60;
/// A member seen in this many looks is long-lived: no compiler run or shell helper.
const LONG_LIVED_LOOKS: u32 = 3;
const MAX_LOST: usize = 16;
const MAX_MEMBERS: usize = 256;
const MAX_HANDLES: usize = 64;

/// The tree as last seen.
#[derive(Debug)]
pub(crate) struct TreeWatch {
    tree: OwnedTree,
    engine: ProcessRef,
    members: Vec<Member>,
    looks_of: Vec<u32>,
    lost: Vec<LostMember>,
    /// Handles of long-lived members, so that a loss is seen at once and not at the next look.
    handles: BTreeMap<ProcessRef, OwnedFd>,
    looks: u32,
    due: Instant,
}

impl TreeWatch {
    pub(crate) fn new(tree: OwnedTree, engine: ProcessRef) -> Self {
        Self {
            tree,
            engine,
            members: Vec::new(),
            looks_of: Vec::new(),
            lost: Vec::new(),
            handles: BTreeMap::new(),
            looks: 0,
            due: Instant::now(),
        }
    }

    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(crate) fn lost(&self) -> &[LostMember] {
        &self.lost
    }

    /// Files that become readable when a long-lived member ends.
    pub(crate) fn handles(&self) -> impl Iterator<Item = &OwnedFd> {
        self.handles.values()
    }

    /// A member ended: look now.
    pub(crate) fn hasten(&mut self) {
        self.due = Instant::now();
    }

    /// Looks when it is time and returns new losses, which count only while the engine runs.
    pub(crate) fn look_if_due(&mut self, at: Instant, engine_runs: bool) -> Vec<LostMember> {
        if at < self.due {
            return Vec::new();
        }
        self.looks = self.looks.saturating_add(1);
        self.due = at + if self.looks < YOUNG_LOOKS { YOUNG } else { OLD };
        let Ok(mut seen) = self.tree.members(Depth::Descent) else {
            return Vec::new();
        };
        seen.truncate(MAX_MEMBERS);
        let lost = if engine_runs {
            self.losses(&seen)
        } else {
            Vec::new()
        };
        self.lost.extend(lost.iter().cloned());
        let surplus = self.lost.len().saturating_sub(MAX_LOST);
        self.lost.drain(..surplus);
        self.looks_of = seen.iter().map(|m| self.looks_at(m.process) + 1).collect();
        self.members = seen;
        self.tend_handles();
        lost
    }

    fn tend_handles(&mut self) {
        let members = &self.members;
        self.handles
            .retain(|process, _| members.iter().any(|m| m.process == *process));
        let engine = self.engine;
        let wanted = members
            .iter()
            .zip(&self.looks_of)
            .filter(|(m, looks)| m.process != engine && **looks >= LONG_LIVED_LOOKS)
            .map(|(m, _)| m.process);
        for process in wanted {
            if self.handles.len() < MAX_HANDLES && !self.handles.contains_key(&process) {
                self.handles
                    .extend(open_exactly(process).map(|handle| (process, handle)));
            }
        }
    }

    fn looks_at(&self, process: ProcessRef) -> u32 {
        let at = self.members.iter().position(|m| m.process == process);
        at.and_then(|i| self.looks_of.get(i)).copied().unwrap_or(0)
    }

    fn losses(&self, seen: &[Member]) -> Vec<LostMember> {
        let gone =
            |m: &&Member| m.process != self.engine && !seen.iter().any(|s| s.process == m.process);
        self.members
            .iter()
            .filter(gone)
            .filter(|m| self.looks_at(m.process) >= LONG_LIVED_LOOKS)
            .map(|m| LostMember {
                member: m.clone(),
                seen_at: now(),
            })
            .collect()
    }

    /// KILL to the first process and every member, by a fresh look.
    pub(crate) fn kill_all(&self) {
        // Ended ones are seen by their handles; only the others matter here.
        let _first = signal_exactly(self.engine, Signal::KILL);
        for member in self.tree.members(Depth::Descent).unwrap_or_default() {
            let _sent = signal_exactly(member.process, Signal::KILL);
        }
    }
}
