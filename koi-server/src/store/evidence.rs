//! Evidence rows: appended once, never changed.

use std::collections::BTreeSet;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use tokio_stream::StreamExt as _;

use koi_core::ids::{JobId, TickId};
use koi_core::store::Change;
use koi_core::validation::EvidenceRow;

use super::{MAX_PAGE, Store, StoreError, document, mechanism};

/// The documents of a transaction's evidence, written once for all that needs them.
pub(super) struct Documents(Vec<Vec<String>>);

impl Documents {
    /// By change; empty for those that are no evidence.
    pub(super) fn of(changes: &[Change]) -> Result<Self, StoreError> {
        let of = |change: &Change| match change {
            Change::Evidence(rows) => rows.iter().map(document::write).collect(),
            _ => Ok(Vec::new()),
        };
        Ok(Self(changes.iter().map(of).collect::<Result<_, _>>()?))
    }

    /// Those of the change at this place.
    pub(super) fn at(&self, place: usize) -> &[String] {
        self.0.get(place).map_or(&[], Vec::as_slice)
    }
}

/// Appends rows and counts what they decided; a row that exists is left as it is.
pub(super) async fn evidence_insert(
    db: &mut PgConnection,
    rows: &[EvidenceRow],
    docs: &[String],
) -> Result<(), StoreError> {
    let sql = "INSERT INTO evidence (tick_id, job_id, rank, generation, doc)
               SELECT tick_id, job_id, rank, generation, doc::json
               FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::bigint[], $5::text[])
                    AS t (tick_id, job_id, rank, generation, doc)
               ON CONFLICT DO NOTHING RETURNING tick_id, job_id, rank, generation";
    let inserted = sqlx::query(sql)
        .bind(rows.iter().map(|r| r.tick.0).collect::<Vec<_>>())
        .bind(rows.iter().map(|r| r.job.0).collect::<Vec<_>>())
        .bind(rows.iter().map(|r| i64::from(r.rank)).collect::<Vec<_>>())
        .bind(
            rows.iter()
                .map(|r| i64::from(r.generation.0))
                .collect::<Vec<_>>(),
        )
        .bind(docs)
        .fetch_all(&mut *db)
        .await?;
    let mut new = BTreeSet::new();
    for row in &inserted {
        let id: (i64, uuid::Uuid, i64, i64) = (
            row.try_get(0)?,
            row.try_get(1)?,
            row.try_get(2)?,
            row.try_get(3)?,
        );
        new.insert(id);
    }
    // Of two rows of one identity in one call the first is the one that was inserted.
    let is_new = |row: &&EvidenceRow| {
        let (rank, generation) = (i64::from(row.rank), i64::from(row.generation.0));
        new.remove(&(row.tick.0, row.job.0, rank, generation))
    };
    let fresh: Vec<&EvidenceRow> = rows.iter().filter(is_new).collect();
    mechanism::mechanism_count_add(db, &fresh).await
}

fn evidence_of(row: &PgRow) -> Result<EvidenceRow, StoreError> {
    let (tick, job): (i64, uuid::Uuid) = (row.try_get("tick_id")?, row.try_get("job_id")?);
    document::read("evidence", format!("{tick} {job}"), row.try_get("doc")?)
}

impl Store {
    /// The evidence of a tick, by job and rank.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn evidence_of_tick(&self, tick: TickId) -> Result<Vec<EvidenceRow>, StoreError> {
        let sql = "SELECT tick_id, job_id, doc::text AS doc FROM evidence
                   WHERE tick_id = $1 ORDER BY job_id, rank, generation";
        let rows = sqlx::query(sql)
            .bind(tick.0)
            .fetch_all(&self.shared)
            .await?;
        rows.iter().map(evidence_of).collect()
    }

    /// The newest evidence of a job, at most `limit` rows ([`MAX_PAGE`] at most).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn evidence_of_job(
        &self,
        job: JobId,
        limit: u32,
    ) -> Result<Vec<EvidenceRow>, StoreError> {
        let sql = "SELECT tick_id, job_id, doc::text AS doc FROM evidence
                   WHERE job_id = $1 ORDER BY tick_id DESC, rank, generation LIMIT $2";
        let query = sqlx::query(sql)
            .bind(job.0)
            .bind(i64::from(limit.min(MAX_PAGE)));
        query
            .fetch_all(&self.shared)
            .await?
            .iter()
            .map(evidence_of)
            .collect()
    }

    /// The newest evidence since a tick, at most `limit` rows, in the order in which it was judged.
    /// Rows that this build cannot read are left out.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn evidence_readable_since(
        &self,
        from: TickId,
        limit: i64,
    ) -> Result<Vec<EvidenceRow>, StoreError> {
        let sql = "SELECT doc::text FROM evidence WHERE tick_id >= $1
                   ORDER BY tick_id DESC, job_id DESC, generation DESC, rank DESC LIMIT $2";
        let mut found = sqlx::query(sql)
            .bind(from.0)
            .bind(limit)
            .fetch(&self.shared);
        let mut rows = Vec::new();
        while let Some(row) = found.try_next().await? {
            rows.extend(serde_json::from_str(row.try_get(0)?).ok());
        }
        rows.reverse();
        Ok(rows)
    }

    /// Evidence of the ticks from `from` up to but not including `to`, oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn evidence_between(
        &self,
        from: TickId,
        to: TickId,
    ) -> Result<Vec<EvidenceRow>, StoreError> {
        let sql = "SELECT tick_id, job_id, doc::text AS doc FROM evidence
                   WHERE tick_id >= $1 AND tick_id < $2 ORDER BY tick_id, job_id, rank, generation";
        let rows = sqlx::query(sql)
            .bind(from.0)
            .bind(to.0)
            .fetch_all(&self.shared)
            .await?;
        rows.iter().map(evidence_of).collect()
    }
}
