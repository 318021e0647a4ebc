//! Every ladder that was ever committed, with its ranks.

use sqlx::PgConnection;

use koi_core::ids::JobId;
use koi_core::ladder::{CommittedLadder, Rank};

use super::{StoreError, document};

/// Appends a ladder; one that is known is left as it is.
pub(super) async fn ladder_insert(
    db: &mut PgConnection,
    job: JobId,
    committed: &CommittedLadder,
) -> Result<(), StoreError> {
    let micro_usd = committed
        .promise
        .usd_per_hour
        .map(|usd| (usd * 1e6).round() as i64);
    let sql = "INSERT INTO ladder (job_id, generation, committed_at, usd_micro_per_hour, doc)
               VALUES ($1, $2, $3, $4, $5::json) ON CONFLICT DO NOTHING";
    let inserted = sqlx::query(sql)
        .bind(job.0)
        .bind(i64::from(committed.generation.0))
        .bind(committed.committed_at.0)
        .bind(micro_usd)
        .bind(document::write(committed)?)
        .execute(&mut *db)
        .await?;
    if inserted.rows_affected() == 0 {
        return Ok(());
    }
    ranks_insert(db, job, committed).await
}

async fn ranks_insert(
    db: &mut PgConnection,
    job: JobId,
    committed: &CommittedLadder,
) -> Result<(), StoreError> {
    let ranks = &committed.ladder.ranks;
    let column = |text: fn(&Rank) -> String| ranks.iter().map(text).collect::<Vec<_>>();
    let mechanisms: Vec<Option<String>> = ranks.iter().map(|r| r.mechanism_id.clone()).collect();
    let sql = "INSERT INTO rank (job_id, generation, rank, environment, instance_type, n_replicas,
                                 mechanism_id)
               SELECT $1, $2, ordinality - 1, environment, instance_type, n_replicas, mechanism_id
               FROM unnest($3::text[], $4::text[], $5::bigint[], $6::text[]) WITH ORDINALITY
                    AS t (environment, instance_type, n_replicas, mechanism_id, ordinality)";
    sqlx::query(sql)
        .bind(job.0)
        .bind(i64::from(committed.generation.0))
        .bind(column(|r| r.environment.to_string()))
        .bind(column(|r| r.instance_type.clone()))
        .bind(
            ranks
                .iter()
                .map(|r| i64::from(r.n_replicas))
                .collect::<Vec<_>>(),
        )
        .bind(mechanisms)
        .execute(db)
        .await?;
    Ok(())
}
