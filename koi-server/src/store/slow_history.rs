//! The slow loop tick by tick, bounded.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use koi_core::ids::TickId;
use koi_core::slow_loop::SlowTick;

use super::{MAX_PAGE, Store, StoreError, document};

/// Ticks that are kept: two weeks at one every five minutes.
pub const SLOW_HISTORY_TICKS: i64 = 4_032;

/// Appends a tick and drops those beyond the bound.
pub(super) async fn slow_tick_put(
    db: &mut PgConnection,
    tick: &SlowTick,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO slow_history (tick_id, doc) VALUES ($1, $2::json)
               ON CONFLICT (tick_id) DO UPDATE SET doc = excluded.doc";
    sqlx::query(sql)
        .bind(tick.tick.0)
        .bind(document::write(tick)?)
        .execute(&mut *db)
        .await?;
    sqlx::query("DELETE FROM slow_history WHERE tick_id <= $1")
        .bind(tick.tick.0.saturating_sub(SLOW_HISTORY_TICKS))
        .execute(db)
        .await?;
    Ok(())
}

fn slow_tick_of(row: &PgRow) -> Result<SlowTick, StoreError> {
    let id: i64 = row.try_get("tick_id")?;
    document::read("slow_history", id, row.try_get("doc")?)
}

impl Store {
    /// The newest ticks of the slow loop before `before`, at most `limit` ([`MAX_PAGE`] at most),
    /// oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn slow_history(
        &self,
        before: Option<TickId>,
        limit: u32,
    ) -> Result<Vec<SlowTick>, StoreError> {
        let sql = "SELECT tick_id, doc::text AS doc FROM slow_history
                   WHERE tick_id < $1 OR $1 IS NULL ORDER BY tick_id DESC LIMIT $2";
        let rows = sqlx::query(sql)
            .bind(before.map(|t| t.0))
            .bind(i64::from(limit.min(MAX_PAGE)))
            .fetch_all(&self.shared)
            .await?;
        rows.iter().rev().map(slow_tick_of).collect()
    }
}
