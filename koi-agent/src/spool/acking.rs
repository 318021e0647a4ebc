//! What the server has stored is forgotten: whole segments at once, the rest when it would be read.

use crate::spool::Spool;
use crate::spool::segment::Segment;

/// A segment being written that is stored to its end is given up at this share of a full one: what
/// a restart would send again stays small, and quiet hosts do not make a file per record.
const EARLY_CLOSE_DIVISOR: u64 = 16;

impl Spool {
    /// The server has stored everything of this boot up to and including `seq`. None of it is read
    /// again.
    pub fn ack(&mut self, boot: &str, seq: u64) {
        let early = self.limits.segment_bytes / EARLY_CLOSE_DIVISOR;
        let newest = self.segments.back().map(Segment::index);
        let current = self.boot.clone();
        let mut failed = 0;
        self.segments.retain(|s| {
            let stored = s.boot() == boot && s.next_seq() <= seq.saturating_add(1);
            let open = Some(s.index()) == newest && s.boot() == current && !s.is_closed();
            let writing = open && (s.is_empty() || s.bytes() < early);
            if stored && !writing && s.delete().is_err() {
                failed += 1;
            }
            !stored || writing
        });
        self.n_disk_errors += failed;
        self.note_acked(boot, seq);
        if self.gaps.ack(boot, seq) {
            self.store_gaps();
        }
    }

    /// Bounded by the boots whose segments are left.
    fn note_acked(&mut self, boot: &str, seq: u64) {
        let segments = &self.segments;
        if segments.iter().any(|s| s.boot() == boot) {
            let acked = self.acked.entry(boot.to_owned()).or_default();
            *acked = seq.max(*acked);
        }
        self.acked
            .retain(|boot, _| segments.iter().any(|s| s.boot() == boot));
    }

    /// True when the server is known to have this record.
    pub(super) fn is_acked(&self, boot: &str, seq: u64) -> bool {
        self.acked.get(boot).is_some_and(|acked| seq <= *acked)
    }
}
