//! Writes that a database which answers has refused.
//!
//! A full disk lets small writes through and refuses larger ones, so neither a question nor the newest
//! write tells of it: what was refused is remembered for a while, whatever succeeds meanwhile.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::error::StoreError;

/// A refusal is told for so long after the newest one.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The refused writes of the last while.
#[derive(Debug, Default)]
pub(super) struct RefusedWrites(Mutex<Option<Refused>>);

#[derive(Debug)]
struct Refused {
    n: u64,
    first_at: Instant,
    newest_at: Instant,
    why: String,
}

impl RefusedWrites {
    /// Takes note of how a write ended.
    pub(super) fn note<T>(&self, result: &Result<T, StoreError>) {
        if let Err(error @ StoreError::Unavailable { outage, .. }) = result
            && outage.lasts()
        {
            self.add(error.to_string(), Instant::now());
        }
    }

    fn add(&self, why: String, now: Instant) {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = refused.take().filter(|r| r.is_told_at(now));
        *refused = Some(Refused {
            n: before.as_ref().map_or(0, |r| r.n).saturating_add(1),
            first_at: before.map_or(now, |r| r.first_at),
            newest_at: now,
            why,
        });
    }

    /// What was refused of late and why; `None` when nothing was.
    pub(super) fn told_at(&self, now: Instant) -> Option<String> {
        let refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let r = refused.as_ref().filter(|r| r.is_told_at(now))?;
        let ago = |at| now.saturating_duration_since(at).as_secs();
        let (n, first, newest) = (r.n, ago(r.first_at), ago(r.newest_at));
        let writes = if n == 1 { "write was" } else { "writes were" };
        let why = &r.why;
        Some(format!(
            "{n} {writes} refused in the last {first} s, the newest {newest} s ago: {why}"
        ))
    }
}

impl Refused {
    fn is_told_at(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.newest_at) <= REMEMBERED
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::{Outage, Outcome};
    use super::*;

    fn failed(outage: Outage) -> Result<(), StoreError> {
        Err(StoreError::Unavailable {
            outage,
            outcome: Outcome::NotApplied,
            source: sqlx::Error::PoolClosed,
        })
    }

    #[test]
    fn a_refusal_is_told_for_a_minute_though_other_writes_succeed() {
        let writes = RefusedWrites::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(writes.told_at(start), None);
        writes.add("disk full".to_owned(), at(0));
        writes.add("disk full".to_owned(), at(40));
        writes.note(&Ok::<(), StoreError>(()));
        let told = writes.told_at(at(50)).unwrap();
        assert_eq!(
            told,
            "2 writes were refused in the last 50 s, the newest 10 s ago: disk full"
        );
        assert!(writes.told_at(at(100)).is_some());
        assert_eq!(writes.told_at(at(101)), None, "a minute after the newest");
        writes.add("read only".to_owned(), at(200));
        let told = writes.told_at(at(200)).unwrap();
        assert!(told.starts_with("1 write was refused in the last 0 s"));
    }

    #[test]
    fn an_absent_database_refuses_nothing_and_a_full_one_says_what_to_do() {
        let writes = RefusedWrites::default();
        for outage in [Outage::ConnectionLost, Outage::Restarting, Outage::Timeout] {
            writes.note(&failed(outage));
        }
        assert_eq!(writes.told_at(Instant::now()), None);
        writes.note(&failed(Outage::DiskFull));
        let told = writes.told_at(Instant::now()).unwrap();
        assert!(told.contains("disk is full") && told.contains("add space"));
    }
}
