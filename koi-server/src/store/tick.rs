//! Ticks: the newest decides, the others are history.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use koi_core::ids::TickId;
use koi_core::tick::TickRecord;

use super::apply::conflict;
use super::head::Head;
use super::{Page, PageRequest, Store, StoreError, document};

pub(super) async fn tick_put(
    db: &mut PgConnection,
    tick: &TickRecord,
    head: &mut Head,
) -> Result<(), StoreError> {
    if let Some(newest) = head.tick.filter(|newest| *newest > tick.id) {
        return Err(conflict(format!(
            "tick {} is over, the newest is {newest}",
            tick.id
        )));
    }
    let sql = "INSERT INTO tick (tick_id, phase, epoch, opened_at, closed_at, plan_seq, doc)
               VALUES ($1, $2, $3, $4, $5, $6, $7::json)
               ON CONFLICT (tick_id) DO UPDATE SET
                   phase = excluded.phase, epoch = excluded.epoch, opened_at = excluded.opened_at,
                   closed_at = excluded.closed_at, plan_seq = excluded.plan_seq, doc = excluded.doc";
    sqlx::query(sql)
        .bind(tick.id.0)
        .bind(tick.phase.code())
        .bind(tick.epoch.0)
        .bind(tick.opened_at.0)
        .bind(tick.closed_at.map(|t| t.0))
        .bind(tick.plan_seq.map(|s| s.0))
        .bind(document::write(tick)?)
        .execute(db)
        .await?;
    head.tick = Some(tick.id);
    Ok(())
}

pub(super) async fn tick_find(
    db: &mut PgConnection,
    id: TickId,
) -> Result<Option<TickRecord>, StoreError> {
    let sql = "SELECT tick_id, doc::text AS doc FROM tick WHERE tick_id = $1";
    let row = sqlx::query(sql).bind(id.0).fetch_optional(db).await?;
    row.as_ref().map(tick_of).transpose()
}

fn tick_of(row: &PgRow) -> Result<TickRecord, StoreError> {
    let id: i64 = row.try_get("tick_id")?;
    document::read("tick", id, row.try_get("doc")?)
}

impl Store {
    /// A tick by number, or the newest.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn tick(&self, id: Option<TickId>) -> Result<Option<TickRecord>, StoreError> {
        let sql = "SELECT tick_id, doc::text AS doc FROM tick
                   WHERE tick_id = $1 OR $1 IS NULL ORDER BY tick_id DESC LIMIT 1";
        let query = sqlx::query(sql).bind(id.map(|id| id.0));
        query
            .fetch_optional(&self.shared)
            .await?
            .as_ref()
            .map(tick_of)
            .transpose()
    }

    /// Ticks, the newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn ticks(&self, page: &PageRequest) -> Result<Page<TickRecord>, StoreError> {
        let sql = "SELECT tick_id, doc::text AS doc FROM tick
                   WHERE tick_id < $1 ORDER BY tick_id DESC LIMIT $2";
        let query = sqlx::query(sql)
            .bind(page.after("ticks", i64::MAX)?)
            .bind(page.sql_limit());
        let rows = query.fetch_all(&self.shared).await?;
        let items = rows.iter().map(tick_of).collect::<Result<_, _>>()?;
        Ok(Page::cut(items, page, "ticks", |t: &TickRecord| t.id))
    }
}
