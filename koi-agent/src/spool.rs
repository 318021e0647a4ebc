//! Telemetry that waits for the server: durable, bounded, exactly keyed, honest about loss.
//!
//! Records are opaque bytes with the key (boot, seq). They lie in segments with a checksum per
//! record and are replayed after a restart under their old boot. What cannot be kept (overflow,
//! damage) leaves a [`Gap`]. A failing disk turns new segments into memory; the agent goes on.
//! Calls do file I/O and belong on a blocking thread when the disk may be slow.

mod acking;
mod gap;
mod reading;
mod segment;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::spool::gap::GapBook;
pub use crate::spool::gap::{Gap, GapReason};
use crate::spool::segment::{HEADER_BYTES_MAX, RECORD_HEADER_BYTES, Segment};

/// Bounds of a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolLimits {
    /// Size at which a segment is closed, in bytes.
    pub segment_bytes: u64,
    /// Everything together on disk, in bytes.
    pub max_disk_bytes: u64,
    /// Everything together in memory while the disk fails, in bytes.
    pub max_memory_bytes: u64,
    /// Largest record in bytes.
    pub max_record_bytes: usize,
    /// Longest time a record may lie unsynced; a closed segment is always synced.
    pub sync_interval: Duration,
}

impl Default for SpoolLimits {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 20,
            max_disk_bytes: 256 << 20,
            max_memory_bytes: 4 << 20,
            max_record_bytes: 1 << 20,
            sync_interval: Duration::from_secs(2),
        }
    }
}

/// One thing to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A record.
    Record {
        /// Start of the agent that made it.
        boot: String,
        /// Position within that start, from 1.
        seq: u64,
        /// The bytes.
        payload: Vec<u8>,
    },
    /// Records that are lost.
    Gap(Gap),
}

/// A spool cannot be used as asked.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The record is larger than allowed.
    #[error("a record of {bytes} bytes is larger than {max}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The boot is not a name for a file, or was used before.
    #[error("{0:?} is not a fresh boot id of 1 to 64 letters, digits and dashes")]
    BadBoot(String),
}

/// Figures of a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpoolStats {
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Bytes in memory because the disk failed.
    pub memory_bytes: u64,
    /// Segments.
    pub n_segments: usize,
    /// Gaps that are not acknowledged yet.
    pub n_gaps: usize,
    /// Disk operations that failed since the start.
    pub n_disk_errors: u64,
}

#[derive(Debug, Clone, Copy)]
struct Cursor {
    index: u64,
    offset: u64,
}

/// The spool of one agent.
#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    boot: String,
    limits: SpoolLimits,
    segments: VecDeque<Segment>,
    gaps: GapBook,
    /// How far the server has stored each boot of which a segment is left.
    acked: BTreeMap<String, u64>,
    cursor: Cursor,
    next_seq: u64,
    next_index: u64,
    synced_at: Duration,
    n_disk_errors: u64,
}

impl Spool {
    /// Opens the spool of a folder and takes in what earlier starts left. `boot` names this start
    /// and must never be used twice. A folder that cannot be used means memory only.
    ///
    /// # Errors
    /// When the boot is not usable.
    pub fn open(folder: &Path, boot: &str, limits: SpoolLimits) -> Result<Self, SpoolError> {
        let legal = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
        if !(1..=64).contains(&boot.len()) || !boot.bytes().all(legal) {
            return Err(SpoolError::BadBoot(boot.chars().take(80).collect()));
        }
        let mut spool = Self {
            folder: folder.to_owned(),
            boot: boot.to_owned(),
            limits,
            segments: VecDeque::new(),
            gaps: GapBook::open(folder),
            acked: BTreeMap::new(),
            cursor: Cursor {
                index: 0,
                offset: 0,
            },
            next_seq: 1,
            next_index: 0,
            synced_at: Duration::ZERO,
            n_disk_errors: 0,
        };
        let loaded = fs::create_dir_all(folder).and_then(|()| spool.load());
        spool.count(loaded);
        if spool.segments.iter().any(|s| s.boot() == boot) || spool.gaps.has_boot(boot) {
            return Err(SpoolError::BadBoot(boot.to_owned()));
        }
        Ok(spool)
    }

    fn load(&mut self) -> io::Result<()> {
        let mut found: Vec<(u64, PathBuf)> = fs::read_dir(&self.folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter_map(|path| Some((segment::index_of(&path)?, path)))
            .collect();
        found.sort();
        let longest = self.limits.segment_bytes
            + self.limits.max_record_bytes as u64
            + HEADER_BYTES_MAX
            + RECORD_HEADER_BYTES;
        for (index, path) in found {
            self.next_index = index + 1;
            match Segment::load(index, &path, longest) {
                Ok((segment, damaged)) => self.take_in(segment, damaged),
                Err(_) => {
                    // The name still tells what the file held.
                    let (boot, first) = segment::name_of(&path).unwrap_or_default();
                    self.gaps
                        .add(Gap::open_ended(boot, first, GapReason::Damage), index + 1);
                    self.n_disk_errors += 1;
                    drop(fs::remove_file(&path));
                }
            }
        }
        self.store_gaps();
        Ok(())
    }

    /// A gap at the end of a segment ends where the next one of the same boot begins; a jump
    /// between two of them is a gap even if neither looks damaged, e.g. after a cut between two
    /// records or the loss of a whole file.
    fn take_in(&mut self, segment: Segment, damaged: bool) {
        let (boot, first) = (segment.boot().to_owned(), segment.first_seq());
        self.gaps.close(&boot, first, segment.index());
        let before = self
            .segments
            .back()
            .filter(|s| s.boot() == boot)
            .map(Segment::next_seq);
        if let Some(expected) = before.filter(|expected| *expected < first) {
            let gap = Gap::closed(boot.clone(), expected, first - 1, GapReason::Damage);
            self.gaps.add(gap, segment.index());
        }
        if damaged {
            let gap = Gap::open_ended(boot, segment.next_seq(), GapReason::Damage);
            self.gaps.add(gap, segment.index() + 1);
        }
        self.segments.push_back(segment);
    }

    fn store_gaps(&mut self) {
        let stored = self.gaps.store(&self.folder);
        self.count(stored);
    }

    fn count(&mut self, done: io::Result<()>) {
        if done.is_err() {
            self.n_disk_errors += 1;
        }
    }

    /// Keeps a record and returns its seq. Never fails for lack of space: the oldest makes room.
    ///
    /// # Errors
    /// When the record alone is too large.
    pub fn push(&mut self, payload: &[u8], now: Duration) -> Result<u64, SpoolError> {
        if payload.len() > self.limits.max_record_bytes {
            return Err(SpoolError::TooLarge {
                bytes: payload.len(),
                max: self.limits.max_record_bytes,
            });
        }
        let seq = self.next_seq;
        let full = |s: &Segment| s.is_closed() || s.bytes() >= self.limits.segment_bytes;
        if self
            .segments
            .back()
            .is_none_or(|s| s.boot() != self.boot || full(s))
        {
            self.begin_segment(seq, false);
        }
        let wrote = self.segments.back_mut().map(|s| s.append(seq, payload));
        if let Some(Err(_)) = wrote {
            self.n_disk_errors += 1;
            self.begin_segment(seq, true);
            // Memory takes every record.
            let again = self
                .segments
                .back_mut()
                .map_or(Ok(()), |s| s.append(seq, payload));
            self.count(again);
        }
        self.next_seq += 1;
        self.make_room();
        self.sync_if_due(now);
        Ok(seq)
    }

    fn begin_segment(&mut self, first_seq: u64, in_memory: bool) {
        let closed = self.segments.back_mut().map_or(Ok(()), Segment::close);
        self.count(closed);
        self.segments
            .retain(|s| !(s.is_closed() && s.is_empty() && s.boot() == self.boot));
        let index = self.next_index;
        self.next_index += 1;
        let on_disk = if in_memory {
            None
        } else {
            let created = Segment::create(&self.folder, index, &self.boot, first_seq);
            if created.is_err() {
                self.n_disk_errors += 1;
            }
            created.ok()
        };
        let segment = on_disk.unwrap_or_else(|| Segment::in_memory(index, &self.boot, first_seq));
        self.segments.push_back(segment);
    }

    fn make_room(&mut self) {
        let before = self.gaps.len();
        for in_memory in [false, true] {
            let max = if in_memory {
                self.limits.max_memory_bytes
            } else {
                self.limits.max_disk_bytes
            };
            let mut total: u64 = self
                .segments
                .iter()
                .filter(|s| s.is_memory() == in_memory)
                .map(Segment::bytes)
                .sum();
            while total > max {
                let at = self
                    .segments
                    .iter()
                    .position(|s| s.is_memory() == in_memory);
                let Some(dropped) = at.and_then(|at| self.segments.remove(at)) else {
                    break;
                };
                total -= dropped.bytes();
                if !dropped.is_empty() {
                    let gap = Gap::closed(
                        dropped.boot().to_owned(),
                        dropped.first_seq(),
                        dropped.next_seq() - 1,
                        GapReason::Overflow,
                    );
                    self.gaps.add(gap, dropped.index() + 1);
                }
                let removed = dropped.delete();
                self.count(removed);
            }
        }
        if self.gaps.len() != before || self.gaps.is_dirty() {
            self.store_gaps();
        }
    }

    /// Syncs what has lain unsynced for long enough; call it regularly while nothing is pushed.
    pub fn sync_if_due(&mut self, now: Duration) {
        if now.saturating_sub(self.synced_at) >= self.limits.sync_interval {
            self.synced_at = now;
            let synced = self.segments.back_mut().map_or(Ok(()), Segment::sync);
            self.count(synced);
        }
    }

    /// Figures now.
    #[must_use]
    pub fn stats(&self) -> SpoolStats {
        let bytes = |memory: bool| {
            self.segments
                .iter()
                .filter(|s| s.is_memory() == memory)
                .map(Segment::bytes)
                .sum()
        };
        SpoolStats {
            disk_bytes: bytes(false),
            memory_bytes: bytes(true),
            n_segments: self.segments.len(),
            n_gaps: self.gaps.len(),
            n_disk_errors: self.n_disk_errors,
        }
    }
}

#[cfg(test)]
mod tests;
