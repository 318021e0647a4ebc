//! Batches of a spool, each stored exactly once: the cursor moves in the transaction that stores.

use sqlx::{PgConnection, Row};

use koi_core::ids::HostId;
use koi_core::time::UtcMicros;

use super::copy_text::COPY_WINDOWS;
use super::{
    MAX_BUCKETS, MAX_SERIES_PER_WINDOW, MAX_WINDOWS_PER_BATCH, StoredHistogram, StoredWindow,
    TelemetryBatch,
};
use crate::store::{Store, StoreError};

/// Longest name of a series, a boot or a flag.
const MAX_NAME_BYTES: usize = 200;

/// Whose spool, and how far it is stored.
struct Cursor<'a> {
    host: &'a HostId,
    agent_boot: &'a str,
    last_seq: u64,
    n_lost: u64,
}

impl Store {
    /// Stores what follows the cursor without a hole and moves the cursor. Batches that are stored
    /// already and batches behind a hole are left out; a gap that the agent tells of is no hole.
    /// Returns the last position up to which everything is stored: what the agent may forget.
    ///
    /// # Errors
    /// [`StoreError::BadTelemetry`] when a batch breaks a bound; nothing is stored then.
    pub async fn telemetry_append(
        &self,
        host: &HostId,
        agent_boot: &str,
        batches: &[TelemetryBatch],
    ) -> Result<u64, StoreError> {
        check(agent_boot, batches)?;
        let result = self.append(host, agent_boot, batches).await;
        self.refused.note(&result);
        result
    }

    async fn append(
        &self,
        host: &HostId,
        agent_boot: &str,
        batches: &[TelemetryBatch],
    ) -> Result<u64, StoreError> {
        let mut ordered: Vec<&TelemetryBatch> = batches.iter().collect();
        ordered.sort_by_key(|b| b.seq);
        let windows = || ordered.iter().flat_map(|b| &b.windows);
        self.series_ensure(windows()).await?;
        self.partitions_ensure(windows()).await?;
        let mut db = self.shared.begin().await?;
        let mut cursor = cursor_lock(&mut db, host, agent_boot).await?;
        let before = cursor.last_seq;
        let mut rows = String::new();
        for batch in ordered {
            if cursor.take(batch) {
                for window in &batch.windows {
                    self.copy_row(&mut rows, window)?;
                }
            }
        }
        if cursor.last_seq == before {
            return Ok(before);
        }
        if !rows.is_empty() {
            let mut copy = db.copy_in_raw(COPY_WINDOWS).await?;
            copy.send(rows.into_bytes()).await?;
            copy.finish().await?;
        }
        let newest = batches
            .iter()
            .flat_map(|b| &b.windows)
            .map(|w| w.received_at)
            .max();
        cursor_write(&mut db, &cursor, newest.unwrap_or_default()).await?;
        db.commit().await?;
        Ok(cursor.last_seq)
    }

    /// How far the spool of this agent's boot is stored; 0 before the first batch.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn telemetry_cursor(
        &self,
        host: &HostId,
        agent_boot: &str,
    ) -> Result<u64, StoreError> {
        let sql = "SELECT last_seq FROM telemetry_cursor WHERE host_id = $1 AND agent_boot = $2";
        let query = sqlx::query(sql).bind(host.as_str()).bind(agent_boot);
        let row = query.fetch_optional(&self.shared).await?;
        row.map_or(Ok(0), |r| Ok(r.try_get::<i64, _>(0)?.unsigned_abs()))
    }
}

impl Cursor<'_> {
    /// Moves over the batch if it follows; false when it is stored already or lies behind a hole.
    fn take(&mut self, batch: &TelemetryBatch) -> bool {
        let first = batch
            .gap
            .map_or(batch.seq, |gap| gap.from_seq.min(batch.seq));
        let next = self.last_seq + 1;
        let follows = first <= next && batch.seq >= next;
        if follows {
            self.last_seq = batch.seq;
            self.n_lost = self
                .n_lost
                .saturating_add(batch.gap.map_or(0, |gap| gap.n_lost));
        }
        follows
    }
}

async fn cursor_lock<'a>(
    db: &mut PgConnection,
    host: &'a HostId,
    agent_boot: &'a str,
) -> Result<Cursor<'a>, StoreError> {
    let sql = "INSERT INTO telemetry_cursor (host_id, agent_boot, last_seq, updated_at)
               VALUES ($1, $2, 0, 0) ON CONFLICT DO NOTHING";
    sqlx::query(sql)
        .bind(host.as_str())
        .bind(agent_boot)
        .execute(&mut *db)
        .await?;
    let sql = "SELECT last_seq, n_lost FROM telemetry_cursor
               WHERE host_id = $1 AND agent_boot = $2 FOR UPDATE";
    let row = sqlx::query(sql)
        .bind(host.as_str())
        .bind(agent_boot)
        .fetch_one(db)
        .await?;
    let (last_seq, n_lost): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    Ok(Cursor {
        host,
        agent_boot,
        last_seq: last_seq.unsigned_abs(),
        n_lost: n_lost.unsigned_abs(),
    })
}

async fn cursor_write(
    db: &mut PgConnection,
    cursor: &Cursor<'_>,
    at: UtcMicros,
) -> Result<(), StoreError> {
    let sql = "UPDATE telemetry_cursor
               SET last_seq = $3, n_lost = $4, updated_at = greatest(updated_at, $5)
               WHERE host_id = $1 AND agent_boot = $2";
    sqlx::query(sql)
        .bind(cursor.host.as_str())
        .bind(cursor.agent_boot)
        .bind(i64::try_from(cursor.last_seq).unwrap_or(i64::MAX))
        .bind(i64::try_from(cursor.n_lost).unwrap_or(i64::MAX))
        .bind(at.0)
        .execute(db)
        .await?;
    Ok(())
}

fn check(agent_boot: &str, batches: &[TelemetryBatch]) -> Result<(), StoreError> {
    let bad = |text: String| Err(StoreError::BadTelemetry(text));
    if !is_name(agent_boot) {
        return bad(format!(
            "agent boot must be 1 to {MAX_NAME_BYTES} printable characters"
        ));
    }
    for batch in batches {
        if batch.seq == 0 || i64::try_from(batch.seq).is_err() {
            return bad(format!("seq {} is not a position of a spool", batch.seq));
        }
        if batch.windows.len() > MAX_WINDOWS_PER_BATCH {
            return bad(format!("{} windows in one batch", batch.windows.len()));
        }
        for window in &batch.windows {
            if let Err(problem) = check_window(window) {
                return bad(format!("seq {}: {problem}", batch.seq));
            }
        }
    }
    Ok(())
}

fn check_window(window: &StoredWindow) -> Result<(), String> {
    let n = window
        .scalars
        .len()
        .max(window.histograms.len())
        .max(window.flags.len());
    if n > MAX_SERIES_PER_WINDOW {
        return Err(format!("{n} series in one window"));
    }
    if i32::try_from(window.n_scrapes).is_err() {
        return Err(format!("{} scrapes in one window", window.n_scrapes));
    }
    if let Some((name, _)) = window.scalars.iter().find(|(name, _)| !is_name(name)) {
        return Err(format!("{:?} is not a series name", cut(name)));
    }
    window.histograms.iter().try_for_each(check_histogram)
}

fn check_histogram(histogram: &StoredHistogram) -> Result<(), String> {
    let name = cut(&histogram.name);
    let edges = &histogram.edges;
    if !is_name(&histogram.name) {
        return Err(format!("{name:?} is not a series name"));
    }
    let ascending = edges.windows(2).all(|w| w.first() < w.last());
    let finite = edges.iter().all(|e| e.is_finite());
    if edges.is_empty() || edges.len() >= MAX_BUCKETS || !finite || !ascending {
        return Err(format!(
            "{name}: edges must be finite, ascending, at most {MAX_BUCKETS}"
        ));
    }
    let storable = |n: u64| i64::try_from(n).is_ok();
    let known = |index: u32| (index as usize) <= edges.len();
    if histogram
        .buckets
        .iter()
        .any(|(i, n)| !known(*i) || !storable(*n))
    {
        return Err(format!("{name}: a bucket outside of its edges"));
    }
    let plausible = histogram.sum.is_finite() && storable(histogram.count);
    if plausible {
        Ok(())
    } else {
        Err(format!("{name}: sum and count must be finite"))
    }
}

fn is_name(text: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_graphic())
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::telemetry::TelemetryGap;

    fn taken(batches: &[(u64, Option<(u64, u64)>)]) -> (Vec<u64>, u64) {
        let host = "h".parse().unwrap();
        let mut cursor = Cursor {
            host: &host,
            agent_boot: "b",
            last_seq: 0,
            n_lost: 0,
        };
        let mut stored = Vec::new();
        for (seq, gap) in batches {
            let gap = gap.map(|(from_seq, to_seq)| TelemetryGap {
                from_seq,
                to_seq,
                n_lost: 1,
            });
            if cursor.take(&TelemetryBatch {
                seq: *seq,
                windows: Vec::new(),
                gap,
            }) {
                stored.push(*seq);
            }
        }
        (stored, cursor.last_seq)
    }

    #[test]
    fn the_cursor_stops_at_holes_and_passes_told_gaps() {
        assert_eq!(
            taken(&[(1, None), (2, None), (2, None), (3, None)]),
            (vec![1, 2, 3], 3)
        );
        assert_eq!(taken(&[(1, None), (3, None)]), (vec![1], 1));
        assert_eq!(taken(&[(1, None), (5, Some((2, 4)))]), (vec![1, 5], 5));
        assert_eq!(taken(&[(5, Some((3, 4)))]), (vec![], 0));
        assert_eq!(taken(&[(5, Some((1, 4))), (4, None)]), (vec![5], 5));
    }
}
