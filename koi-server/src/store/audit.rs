//! The audit trail: appended with the change it is about.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use koi_core::store::{AuditRecord, StoreTx};
use koi_core::time::UtcMicros;

use super::document::plain;
use super::{Page, PageRequest, Store, StoreError};

/// One line of the trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine {
    /// Position in the trail.
    pub id: i64,
    /// When.
    pub at: UtcMicros,
    /// What.
    pub record: AuditRecord,
}

pub(super) async fn audit_insert(
    db: &mut PgConnection,
    record: &AuditRecord,
    tx: &StoreTx,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO audit (at, epoch, actor, action, object, reason)
               VALUES ($1, $2, $3, $4, $5, $6)";
    sqlx::query(sql)
        .bind(tx.at.0)
        .bind(tx.epoch.0)
        .bind(plain(&record.actor))
        .bind(plain(&record.action))
        .bind(plain(&record.object))
        .bind(plain(&record.reason))
        .execute(db)
        .await?;
    Ok(())
}

fn line_of(row: &PgRow) -> Result<AuditLine, StoreError> {
    Ok(AuditLine {
        id: row.try_get(0)?,
        at: UtcMicros(row.try_get(1)?),
        record: AuditRecord {
            actor: row.try_get(2)?,
            action: row.try_get(3)?,
            object: row.try_get(4)?,
            reason: row.try_get(5)?,
        },
    })
}

impl Store {
    /// The trail, the newest line first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn audit(&self, page: &PageRequest) -> Result<Page<AuditLine>, StoreError> {
        let sql = "SELECT audit_id, at, actor, action, object, reason FROM audit
                   WHERE audit_id < $1 ORDER BY audit_id DESC LIMIT $2";
        let query = sqlx::query(sql)
            .bind(page.after("audit", i64::MAX)?)
            .bind(page.sql_limit());
        let rows = query.fetch_all(&self.shared).await?;
        let items = rows.iter().map(line_of).collect::<Result<_, _>>()?;
        Ok(Page::cut(items, page, "audit", |line: &AuditLine| line.id))
    }
}
