//! Removing what is left of a tree after its first process has ended.
//!
//! vLLM's EngineCore and workers survive a SIGKILL of their parent with their GPU memory, so an
//! unasked end is followed by KILL at once; after a stop the rest may finish for a moment.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::record::ProcessRef;
use crate::tree::{Depth, OwnedTree, signal_exactly};

/// Time for the rest of a tree that ends by itself after a stop.
const ORDERLY: Duration = Duration::from_secs(2);
const STEP_MIN: Duration = Duration::from_millis(10);
const STEP_MAX: Duration = Duration::from_secs(1);

/// A sweep in progress.
#[derive(Debug)]
pub(crate) struct Sweep {
    tree: OwnedTree,
    kill_from: Instant,
    due: Instant,
    step: Duration,
    killed: BTreeSet<ProcessRef>,
}

impl Sweep {
    pub(crate) fn start(tree: OwnedTree, orderly: bool) -> Self {
        let at = Instant::now();
        let kill_from = if orderly { at + ORDERLY } else { at };
        Self {
            tree,
            kill_from,
            due: at,
            step: STEP_MIN,
            killed: BTreeSet::new(),
        }
    }

    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    pub(crate) fn killed(&self) -> u32 {
        u32::try_from(self.killed.len()).unwrap_or(u32::MAX)
    }

    /// One look; true when nothing is left. A process stuck in the kernel keeps the sweep, and so
    /// the shim and the claim on the GPU, alive.
    pub(crate) fn step(&mut self, at: Instant) -> bool {
        let left = match self.tree.members(Depth::Marked) {
            Ok(left) if left.is_empty() => return true,
            Ok(left) => left,
            Err(_) => Vec::new(),
        };
        if at >= self.kill_from {
            for member in left {
                if signal_exactly(member.process, Signal::KILL) {
                    self.killed.insert(member.process);
                }
            }
        }
        self.due = at + self.step;
        self.step = (self.step * 2).min(STEP_MAX);
        false
    }
}
