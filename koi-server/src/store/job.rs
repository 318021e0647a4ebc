//! Jobs: live ones for decisions, finished ones for people.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use koi_core::store::JobRecord;
use koi_core::time::UtcMicros;

use super::apply::conflict;
use super::{Page, PageRequest, Store, StoreError, document, ladder};

/// A job that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedJob {
    /// As it was last written.
    pub record: JobRecord,
    /// When it ended.
    pub finished_at: UtcMicros,
}

pub(super) async fn job_put(
    db: &mut PgConnection,
    job: &JobRecord,
    at: UtcMicros,
) -> Result<(), StoreError> {
    check_version(db, job).await?;
    if !job.state.is_finished() {
        check_name(db, job).await?;
    }
    let sql = "INSERT INTO job (job_id, name, tenant_id, class, state, submitted_at, finished_at,
                                version, doc)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::json)
               ON CONFLICT (job_id) DO UPDATE SET
                   name = excluded.name, tenant_id = excluded.tenant_id, class = excluded.class,
                   state = excluded.state, submitted_at = excluded.submitted_at,
                   finished_at = CASE WHEN excluded.finished_at IS NOT NULL
                                      THEN coalesce(job.finished_at, excluded.finished_at) END,
                   version = excluded.version, doc = excluded.doc";
    sqlx::query(sql)
        .bind(job.id.0)
        .bind(job.spec.name.as_str())
        .bind(job.spec.tenant.as_str())
        .bind(job.spec.class.name())
        .bind(job.state.name())
        .bind(job.submitted_at.0)
        .bind(job.state.is_finished().then_some(at.0))
        .bind(job.version)
        .bind(document::write(job)?)
        .execute(&mut *db)
        .await?;
    let targets = job.rollout.iter().map(|r| &r.target);
    for committed in job.active.iter().chain(targets) {
        ladder::ladder_insert(db, job.id, committed).await?;
    }
    Ok(())
}

async fn check_version(db: &mut PgConnection, job: &JobRecord) -> Result<(), StoreError> {
    let sql = "SELECT version, is_history FROM job WHERE job_id = $1";
    let row = sqlx::query(sql).bind(job.id.0).fetch_optional(db).await?;
    let (version, is_history) = match row {
        Some(row) => (row.try_get::<i64, _>(0)?, row.try_get::<bool, _>(1)?),
        None => (0, false),
    };
    if is_history {
        return Err(conflict(format!("job {} is over", job.id)));
    }
    if job.version != version + 1 {
        return Err(conflict(format!(
            "job {} is at version {version}, the write carries {}",
            job.id, job.version
        )));
    }
    Ok(())
}

async fn check_name(db: &mut PgConnection, job: &JobRecord) -> Result<(), StoreError> {
    let sql = "SELECT job_id FROM job WHERE name = $1 AND state <> 'finished' AND job_id <> $2";
    let query = sqlx::query(sql).bind(job.spec.name.as_str()).bind(job.id.0);
    match query.fetch_optional(db).await? {
        Some(row) => {
            let twin: Uuid = row.try_get(0)?;
            Err(conflict(format!(
                "a live job named {} exists: {twin}",
                job.spec.name
            )))
        }
        None => Ok(()),
    }
}

/// A finished job without replicas is history.
pub(super) async fn job_forget_finished(db: &mut PgConnection) -> Result<(), StoreError> {
    let sql = "UPDATE job SET is_history = true
               WHERE NOT is_history AND state = 'finished'
                 AND NOT EXISTS (SELECT FROM replica WHERE replica.job_id = job.job_id)";
    sqlx::query(sql).execute(db).await?;
    Ok(())
}

fn job_of(row: &PgRow) -> Result<JobRecord, StoreError> {
    let id: Uuid = row.try_get("job_id")?;
    document::read("job", id, row.try_get("doc")?)
}

impl Store {
    /// Jobs that are over, the last one first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn jobs_finished(&self, page: &PageRequest) -> Result<Page<FinishedJob>, StoreError> {
        let (at, id) = page.after("jobs_finished", (i64::MAX, Uuid::max()))?;
        let sql = "SELECT job_id, finished_at, doc::text AS doc FROM job
                   WHERE state = 'finished' AND (finished_at, job_id) < ($1, $2)
                   ORDER BY finished_at DESC, job_id DESC LIMIT $3";
        let query = sqlx::query(sql).bind(at).bind(id).bind(page.sql_limit());
        let rows = query.fetch_all(&self.shared).await?;
        let finished = |row: &PgRow| {
            let finished_at = UtcMicros(row.try_get("finished_at")?);
            Ok(FinishedJob {
                record: job_of(row)?,
                finished_at,
            })
        };
        let items = rows
            .iter()
            .map(finished)
            .collect::<Result<_, StoreError>>()?;
        Ok(Page::cut(
            items,
            page,
            "jobs_finished",
            |j: &FinishedJob| (j.finished_at.0, j.record.id.0),
        ))
    }

    /// A job by its id or by its name, finished ones included; of several that had the name the live
    /// one, else the newest.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn job_by_name_or_id(&self, text: &str) -> Result<Option<JobRecord>, StoreError> {
        let sql = match Uuid::parse_str(text) {
            Ok(_) => "SELECT job_id, doc::text AS doc FROM job WHERE job_id = $1::uuid",
            Err(_) => {
                "SELECT job_id, doc::text AS doc FROM job WHERE name = $1
                 ORDER BY state = 'finished', submitted_at DESC LIMIT 1"
            }
        };
        let query = sqlx::query(sql).bind(document::plain(text));
        query
            .fetch_optional(&self.shared)
            .await?
            .as_ref()
            .map(job_of)
            .transpose()
    }
}
