//! What the supervisor says: a line at a time, or into the live view while that owns the terminal.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::output::{escape, print};

/// Lines that the live view shows.
const KEPT_LINES: usize = 6;

#[derive(Debug, Default)]
struct Inner {
    is_live: bool,
    recent: VecDeque<String>,
}

/// The supervisor's messages.
#[derive(Debug, Default)]
pub(super) struct Events(Mutex<Inner>);

impl Events {
    fn with<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Says a line.
    pub(super) fn say(&self, line: &str) {
        let line = escape(line);
        let is_live = self.with(|inner| {
            inner.recent.push_back(line.clone());
            while inner.recent.len() > KEPT_LINES {
                inner.recent.pop_front();
            }
            inner.is_live
        });
        if !is_live {
            // A reader that has gone must not stop the cluster.
            print(&line).ok();
        }
    }

    /// From now on lines are shown by the live view.
    pub(super) fn live(&self) {
        self.with(|inner| {
            inner.is_live = true;
            inner.recent.clear();
        });
    }

    /// From now on lines are printed.
    pub(super) fn plain(&self) {
        self.with(|inner| inner.is_live = false);
    }

    /// The newest lines.
    pub(super) fn recent(&self) -> Vec<String> {
        self.with(|inner| inner.recent.iter().cloned().collect())
    }
}
