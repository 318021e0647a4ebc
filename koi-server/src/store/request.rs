//! Idempotency keys of clients and the answers remembered under them.

use sqlx::{PgConnection, Row};

use koi_core::store::RequestRecord;
use koi_core::time::UtcMicros;

use super::apply::conflict;
use super::{Store, StoreError, document};

/// Remembers an answer; the same request again is left as it is, another one is a conflict.
pub(super) async fn request_insert(
    db: &mut PgConnection,
    request: &RequestRecord,
    at: UtcMicros,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO request (identity, key, payload_hash, object, created_at)
               VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
    let inserted = sqlx::query(sql)
        .bind(&request.identity)
        .bind(&request.key)
        .bind(&request.payload_hash)
        .bind(&request.object)
        .bind(at.0)
        .execute(&mut *db)
        .await?;
    if inserted.rows_affected() == 1 {
        return Ok(());
    }
    match request_find(db, &request.identity, &request.key).await? {
        Some(stored) if stored.payload_hash == request.payload_hash => Ok(()),
        _ => Err(conflict(format!(
            "key {} was used for another request",
            request.key
        ))),
    }
}

async fn request_find(
    db: &mut PgConnection,
    identity: &str,
    key: &str,
) -> Result<Option<RequestRecord>, StoreError> {
    let sql = "SELECT identity, key, payload_hash, object FROM request
               WHERE identity = $1 AND key = $2";
    let query = sqlx::query(sql)
        .bind(document::plain(identity))
        .bind(document::plain(key));
    let Some(row) = query.fetch_optional(db).await? else {
        return Ok(None);
    };
    Ok(Some(RequestRecord {
        identity: row.try_get(0)?,
        key: row.try_get(1)?,
        payload_hash: row.try_get(2)?,
        object: row.try_get(3)?,
    }))
}

impl Store {
    /// The answer remembered under a client's key.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn request(
        &self,
        identity: &str,
        key: &str,
    ) -> Result<Option<RequestRecord>, StoreError> {
        request_find(&mut *self.control.acquire().await?, identity, key).await
    }
}
