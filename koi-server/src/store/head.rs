//! The one row that every writing transaction locks first.

use sqlx::{PgConnection, Row};

use koi_core::ids::{Epoch, PlanSeq, TickId};

use super::{Store, StoreError};

/// Fencing token, newest plan and newest tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) epoch: Epoch,
    pub(super) plan_seq: PlanSeq,
    pub(super) tick: Option<TickId>,
}

pub(super) async fn head_lock(db: &mut PgConnection) -> Result<Head, StoreError> {
    head_of(
        db,
        "SELECT epoch, plan_seq, tick_id FROM store_head FOR UPDATE",
    )
    .await
}

pub(super) async fn head_read(db: &mut PgConnection) -> Result<Head, StoreError> {
    head_of(db, "SELECT epoch, plan_seq, tick_id FROM store_head").await
}

async fn head_of(db: &mut PgConnection, sql: &'static str) -> Result<Head, StoreError> {
    let row = sqlx::query(sql).fetch_one(db).await?;
    Ok(Head {
        epoch: Epoch(row.try_get(0)?),
        plan_seq: PlanSeq(row.try_get(1)?),
        tick: row.try_get::<Option<i64>, _>(2)?.map(TickId),
    })
}

pub(super) async fn head_write(db: &mut PgConnection, head: &Head) -> Result<(), StoreError> {
    sqlx::query("UPDATE store_head SET epoch = $1, plan_seq = $2, tick_id = $3")
        .bind(head.epoch.0)
        .bind(head.plan_seq.0)
        .bind(head.tick.map(|t| t.0))
        .execute(db)
        .await?;
    Ok(())
}

impl Store {
    /// Takes the next fencing token: writers with an older one are refused from now on.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn acquire_epoch(&self) -> Result<Epoch, StoreError> {
        let sql = "UPDATE store_head SET epoch = epoch + 1 RETURNING epoch";
        let row = sqlx::query(sql).fetch_one(&self.control).await?;
        Ok(Epoch(row.try_get(0)?))
    }
}
