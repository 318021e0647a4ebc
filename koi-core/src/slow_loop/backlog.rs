//! Which evidence an S3 applies: that of its own tick, and that of earlier ticks whose S3 failed.
//!
//! Every stored row is applied once: the state says up to which tick all were, and moves on in the
//! transaction that applies them. White paper V1, Tick Algorithm S3; spec §6.

use super::state::SlowState;
use crate::ids::TickId;
use crate::validation::EvidenceRow;

/// Most earlier ticks whose rows one S3 makes up for; what is left waits for the next ones.
pub const MAX_TICKS: i64 = 100;

/// The ticks whose rows an S3 applies, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// First tick that no S3 has applied.
    pub from: TickId,
    /// Last tick that this one applies.
    pub through: TickId,
}

impl Backlog {
    /// What the S3 of a tick applies, as the state before it says. A state of an older build has
    /// applied what its own ticks wrote and says nothing: nothing is made up for then.
    #[must_use]
    pub fn of(state: &SlowState, tick: TickId) -> Self {
        let after = match state.applied_through {
            Some(applied) => applied.0,
            None if state.tick_count == 0 => -1,
            None => tick.0 - 1,
        };
        let from = after.saturating_add(1).min(tick.0);
        // Ticks count from 1: a state without a step begins within the first of them.
        let first = from.max(tick.0.min(1));
        let last = first.saturating_add(MAX_TICKS).min(tick.0);
        Self {
            from: TickId(first),
            through: TickId(last),
        }
    }

    /// Its rows in the order of ticks: stored ones of the ticks before, then those of the tick itself
    /// if its turn has come.
    #[must_use]
    pub fn rows(&self, stored: Vec<EvidenceRow>, fresh: &[EvidenceRow]) -> Vec<EvidenceRow> {
        let mut rows = stored;
        rows.extend_from_slice(fresh);
        rows.retain(|row| row.tick >= self.from && row.tick <= self.through);
        // As S2 judged them: what is learned may depend on the order.
        rows.sort_by_key(|row| (row.tick, row.job, row.generation, row.rank));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::evidence::testing::row;

    fn state(tick_count: u64, applied: Option<i64>) -> SlowState {
        SlowState {
            tick_count,
            applied_through: applied.map(TickId),
            ..SlowState::default()
        }
    }

    fn span(tick_count: u64, applied: Option<i64>, tick: i64) -> (i64, i64) {
        let backlog = Backlog::of(&state(tick_count, applied), TickId(tick));
        (backlog.from.0, backlog.through.0)
    }

    #[test]
    fn a_tick_applies_itself_and_what_was_left() {
        assert_eq!(span(8, Some(8), 9), (9, 9));
        assert_eq!(span(5, Some(5), 9), (6, 9));
        // The first S3 ever failed; then those of a hundred and more ticks.
        assert_eq!(span(0, None, 3), (1, 3));
        assert_eq!(span(5, Some(5), 500), (6, 106));
        // A state of an older build, and a tick that was applied already.
        assert_eq!(span(7, None, 9), (9, 9));
        assert_eq!(span(9, Some(9), 9), (9, 9));
    }

    #[test]
    fn rows_beyond_the_span_wait() {
        let rows = |ticks: &[i64]| ticks.iter().map(|t| row(*t, vec![])).collect::<Vec<_>>();
        let backlog = Backlog {
            from: TickId(6),
            through: TickId(106),
        };
        let got = backlog.rows(rows(&[5, 6, 7, 106, 107]), &rows(&[500]));
        assert_eq!(got, rows(&[6, 7, 106]));
    }
}
