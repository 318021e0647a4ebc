//! Lost records, said aloud: which boot, from where to where, and why.

use std::io;
use std::path::Path;

use koi_shim::files::{read_json, write_json};
use serde::{Deserialize, Serialize};

const GAPS_FILE: &str = "gaps.json";
/// More gaps than this are merged: honest, but coarser.
const MAX_GAPS: usize = 1024;

/// Why records are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapReason {
    /// The oldest made room.
    Overflow,
    /// A torn or flipped record ends what can be read of its segment.
    Damage,
}

/// A run of lost records of one boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Start of the agent that made them; empty when not even that is known.
    pub boot: String,
    /// First lost seq.
    pub from: u64,
    /// Last lost seq; absent when the end of a boot is lost and nobody knows how much it was.
    pub to: Option<u64>,
    /// Why.
    pub reason: GapReason,
}

impl Gap {
    pub(super) fn open_ended(boot: String, from: u64, reason: GapReason) -> Self {
        Self {
            boot,
            from,
            to: None,
            reason,
        }
    }

    pub(super) fn closed(boot: String, from: u64, to: u64, reason: GapReason) -> Self {
        Self {
            boot,
            from,
            to: Some(to),
            reason,
        }
    }

    /// True when nothing lies between this gap and `from`.
    fn reaches(&self, from: u64) -> bool {
        self.to.is_none_or(|to| to.saturating_add(1) >= from)
    }

    /// How many records are lost, when known.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        self.to
            .map(|to| to.saturating_sub(self.from).saturating_add(1))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    gap: Gap,
    /// It is said before the first segment with this or a higher index.
    before: u64,
    #[serde(skip)]
    delivered: bool,
}

impl Noted {
    fn lengthen(&mut self, gap: &Gap, before: u64) {
        let seen_before = gap.to.is_none() && gap.from <= self.gap.from;
        if !seen_before {
            self.gap.to = match (self.gap.to, gap.to) {
                (Some(a), Some(b)) => Some(a.max(b)),
                (None, ended) => ended,
                (Some(_), None) => None,
            };
            self.before = before;
        }
        self.gap.from = self.gap.from.min(gap.from);
        self.delivered = false;
    }
}

/// All gaps that are not acknowledged, in the order in which they are said.
#[derive(Debug, Default)]
pub(super) struct GapBook {
    noted: Vec<Noted>,
    dirty: bool,
}

impl GapBook {
    /// Reads the book of a folder; a damaged one counts as empty.
    pub(super) fn open(folder: &Path) -> Self {
        let noted = read_json(&folder.join(GAPS_FILE))
            .ok()
            .flatten()
            .unwrap_or_default();
        Self {
            noted,
            dirty: false,
        }
    }

    pub(super) fn store(&mut self, folder: &Path) -> io::Result<()> {
        if !self.dirty {
            return Ok(());
        }
        write_json(&folder.join(GAPS_FILE), &self.noted).map_err(io::Error::other)?;
        self.dirty = false;
        Ok(())
    }

    /// Adds a gap; one that continues the boot's gap before it only makes that longer, and the
    /// same damage seen at every start stays one gap.
    pub(super) fn add(&mut self, gap: Gap, before: u64) {
        self.dirty = true;
        let crowded = self.noted.len() >= MAX_GAPS;
        let earlier = |n: &&mut Noted| n.gap.boot == gap.boot && n.before <= before;
        let last = self.noted.iter_mut().rev().find(earlier);
        if let Some(last) = last.filter(|last| crowded || last.gap.reaches(gap.from)) {
            last.lengthen(&gap, before);
            return;
        }
        let at = self.noted.iter().position(|n| n.before > before);
        let noted = Noted {
            gap,
            before,
            delivered: false,
        };
        self.noted.insert(at.unwrap_or(self.noted.len()), noted);
        let surplus = self.noted.len().saturating_sub(2 * MAX_GAPS);
        self.noted.drain(..surplus);
    }

    /// Ends the open gap of a boot before `first_seq`, where a segment `index` goes on.
    pub(super) fn close(&mut self, boot: &str, first_seq: u64, index: u64) {
        for noted in &mut self.noted {
            let open = noted.gap.to.is_none() && noted.gap.boot == boot;
            if open && noted.before <= index && noted.gap.from <= first_seq {
                noted.gap.to = Some(first_seq.saturating_sub(1));
                self.dirty = true;
            }
        }
        // Nothing was lost after all when the next segment begins where the torn one ended.
        let before = self.noted.len();
        self.noted
            .retain(|n| n.gap.to.is_none_or(|to| to >= n.gap.from));
        self.dirty |= self.noted.len() != before;
    }

    pub(super) fn undelivered_before(&mut self, index: u64) -> Option<Gap> {
        let noted = self
            .noted
            .iter_mut()
            .find(|n| !n.delivered && n.before <= index)?;
        noted.delivered = true;
        Some(noted.gap.clone())
    }

    pub(super) fn rewind(&mut self) {
        self.noted.iter_mut().for_each(|n| n.delivered = false);
    }

    /// Drops gaps that the server knows; true when there were any.
    pub(super) fn ack(&mut self, boot: &str, seq: u64) -> bool {
        let before = self.noted.len();
        self.noted
            .retain(|n| n.gap.boot != boot || n.gap.to.unwrap_or(n.gap.from) > seq);
        self.dirty |= self.noted.len() != before;
        self.noted.len() != before
    }

    pub(super) fn has_boot(&self, boot: &str) -> bool {
        self.noted.iter().any(|n| n.gap.boot == boot)
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub(super) fn len(&self) -> usize {
        self.noted.len()
    }
}
