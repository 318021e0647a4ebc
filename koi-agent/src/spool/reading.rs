//! The reading side of the spool: oldest first, gaps where they belong, damage found on the way.

use crate::spool::segment::Step;
use crate::spool::{Cursor, Entry, Gap, GapReason, Spool};

impl Spool {
    /// The next entries to send, oldest first, of at most about `max_bytes` and `max_entries`.
    /// They are not given again before [`Self::rewind`] or the next start.
    pub fn read(&mut self, max_bytes: usize, max_entries: usize) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        while entries.len() < max_entries && bytes < max_bytes {
            let Some(entry) = self.next_entry() else {
                break;
            };
            if let Entry::Record { payload, .. } = &entry {
                bytes += payload.len();
            }
            entries.push(entry);
        }
        entries
    }

    fn next_entry(&mut self) -> Option<Entry> {
        loop {
            let at = self
                .segments
                .iter()
                .position(|s| s.index() >= self.cursor.index);
            let here = at.map_or(u64::MAX, |at| self.segments[at].index());
            let between = self.cursor.index != here || self.cursor.offset == 0;
            let gap = if between {
                self.gaps.undelivered_before(here)
            } else {
                None
            };
            if let Some(gap) = gap {
                return Some(Entry::Gap(gap));
            }
            let at = at?;
            if self.cursor.index != here {
                self.cursor = Cursor {
                    index: here,
                    offset: 0,
                };
            }
            let segment = &self.segments[at];
            match segment.read(self.cursor.offset) {
                Step::Record { seq, next, .. } if self.is_acked(segment.boot(), seq) => {
                    self.cursor.offset = next;
                }
                Step::Record { seq, payload, next } => {
                    self.cursor.offset = next;
                    return Some(Entry::Record {
                        boot: segment.boot().to_owned(),
                        seq,
                        payload,
                    });
                }
                Step::End if at + 1 < self.segments.len() => {
                    self.cursor = Cursor {
                        index: here + 1,
                        offset: 0,
                    };
                }
                Step::End => return None,
                Step::Damaged => self.cut_damaged(at),
            }
        }
    }

    /// A record went bad on the disk after it was written: the rest of the segment is lost.
    fn cut_damaged(&mut self, at: usize) {
        let segment = &mut self.segments[at];
        let (boot, index) = (segment.boot().to_owned(), segment.index());
        let end = segment.next_seq();
        let from = segment.cut(self.cursor.offset);
        self.n_disk_errors += 1;
        if from < end {
            self.gaps.add(
                Gap::closed(boot, from, end - 1, GapReason::Damage),
                index + 1,
            );
            self.store_gaps();
        }
        if at + 1 == self.segments.len() {
            let closed = self.segments[at].close();
            self.count(closed);
            self.cursor = Cursor {
                index: index + 1,
                offset: 0,
            };
        }
    }

    /// Starts again from the oldest entry that is not acknowledged, e.g. on a new stream.
    pub fn rewind(&mut self) {
        self.cursor = Cursor {
            index: 0,
            offset: 0,
        };
        self.gaps.rewind();
    }
}
