//! Plans: a chain, kept whole so that it can be shown and replayed.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use koi_core::ids::{JobId, PlanSeq};
use koi_core::store::PlanRecord;

use super::apply::conflict;
use super::head::Head;
use super::{Page, PageRequest, Store, StoreError, document};

pub(super) async fn plan_put(
    db: &mut PgConnection,
    plan: &PlanRecord,
    head: &mut Head,
) -> Result<(), StoreError> {
    if plan.parent != head.plan_seq || plan.seq <= plan.parent {
        return Err(conflict(format!(
            "plan {} follows {}, the newest is {}",
            plan.seq, plan.parent, head.plan_seq
        )));
    }
    let sql = "INSERT INTO plan (plan_seq, parent, tick_id, created_at, doc)
               VALUES ($1, $2, $3, $4, $5::json)";
    sqlx::query(sql)
        .bind(plan.seq.0)
        .bind(plan.parent.0)
        .bind(plan.tick.0)
        .bind(plan.created_at.0)
        .bind(document::write(plan)?)
        .execute(&mut *db)
        .await?;
    let sql = "INSERT INTO plan_action (plan_seq, ordinal, job_id, kind, rationale)
               SELECT $1, ordinality - 1, job_id, kind, rationale
               FROM unnest($2::uuid[], $3::text[], $4::text[]) WITH ORDINALITY
                    AS t (job_id, kind, rationale, ordinality)";
    sqlx::query(sql)
        .bind(plan.seq.0)
        .bind(plan.actions.iter().map(|a| a.job.0).collect::<Vec<_>>())
        .bind(
            plan.actions
                .iter()
                .map(|a| a.kind.name())
                .collect::<Vec<_>>(),
        )
        .bind(
            plan.actions
                .iter()
                .map(|a| document::plain(&a.rationale))
                .collect::<Vec<_>>(),
        )
        .execute(db)
        .await?;
    head.plan_seq = plan.seq;
    Ok(())
}

fn plan_of(row: &PgRow) -> Result<PlanRecord, StoreError> {
    let seq: i64 = row.try_get("plan_seq")?;
    document::read("plan", seq, row.try_get("doc")?)
}

impl Store {
    /// A plan by number, or the newest.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn plan(&self, seq: Option<PlanSeq>) -> Result<Option<PlanRecord>, StoreError> {
        let sql = "SELECT plan_seq, doc::text AS doc FROM plan
                   WHERE plan_seq = $1 OR $1 IS NULL ORDER BY plan_seq DESC LIMIT 1";
        let query = sqlx::query(sql).bind(seq.map(|s| s.0));
        query
            .fetch_optional(&self.shared)
            .await?
            .as_ref()
            .map(plan_of)
            .transpose()
    }

    /// The newest plan with an action for the job.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn plan_for_job(&self, job: JobId) -> Result<Option<PlanRecord>, StoreError> {
        let sql = "SELECT plan_seq, doc::text AS doc FROM plan WHERE plan_seq =
                       (SELECT max(plan_seq) FROM plan_action WHERE job_id = $1)";
        let query = sqlx::query(sql).bind(job.0);
        query
            .fetch_optional(&self.shared)
            .await?
            .as_ref()
            .map(plan_of)
            .transpose()
    }

    /// Plans, the newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn plans(&self, page: &PageRequest) -> Result<Page<PlanRecord>, StoreError> {
        let sql = "SELECT plan_seq, doc::text AS doc FROM plan
                   WHERE plan_seq < $1 ORDER BY plan_seq DESC LIMIT $2";
        let query = sqlx::query(sql)
            .bind(page.after("plans", i64::MAX)?)
            .bind(page.sql_limit());
        let rows = query.fetch_all(&self.shared).await?;
        let items = rows.iter().map(plan_of).collect::<Result<_, _>>()?;
        Ok(Page::cut(items, page, "plans", |p: &PlanRecord| p.seq))
    }
}
