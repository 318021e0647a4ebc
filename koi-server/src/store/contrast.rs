//! The deployment book and the sums of contrasts: rows written whole by S3.

use std::collections::BTreeSet;

use sqlx::{PgConnection, Row};

use koi_core::ids::{Generation, JobId};
use koi_core::validation::contrast::book::MAX_CLOSED;
use koi_core::validation::contrast::update::DeploymentChange;
use koi_core::validation::contrast::{
    ContrastBook, ContrastUpdate, DeploymentId, DeploymentRecord, SumChange, SumKey,
};

use super::apply::conflict;
use super::state::Quarantined;
use super::{StoreError, document};

/// Writes an update; a deployment that is neither known nor described is a conflict.
pub(super) async fn contrasts_put(
    db: &mut PgConnection,
    update: &ContrastUpdate,
) -> Result<(), StoreError> {
    deployments_forget(db, &update.forgotten).await?;
    let described: Vec<&DeploymentChange> = update
        .deployments
        .iter()
        .filter(|c| c.subject.is_some())
        .collect();
    deployments_insert(db, &described).await?;
    deployments_update(db, &update.deployments).await?;
    sums_put(db, &update.sums).await
}

/// The three columns of ids.
fn columns<'a>(
    ids: impl Iterator<Item = &'a DeploymentId>,
) -> (Vec<uuid::Uuid>, Vec<i64>, Vec<i64>) {
    let (mut jobs, mut generations, mut ranks) = (Vec::new(), Vec::new(), Vec::new());
    for id in ids {
        jobs.push(id.job.0);
        generations.push(i64::from(id.generation.0));
        ranks.push(i64::from(id.rank));
    }
    (jobs, generations, ranks)
}

async fn deployments_forget(db: &mut PgConnection, ids: &[DeploymentId]) -> Result<(), StoreError> {
    if ids.is_empty() {
        return Ok(());
    }
    let (jobs, generations, ranks) = columns(ids.iter());
    let delete = "DELETE FROM deployment USING unnest($1::uuid[], $2::bigint[], $3::bigint[])
                      AS t (job_id, generation, rank)
                  WHERE deployment.job_id = t.job_id AND deployment.generation = t.generation
                      AND deployment.rank = t.rank";
    let close = "INSERT INTO deployment_closed (job_id, rank, generation)
                 SELECT job_id, rank, max(generation)
                 FROM unnest($1::uuid[], $2::bigint[], $3::bigint[])
                      AS t (job_id, generation, rank)
                 GROUP BY job_id, rank
                 ON CONFLICT (job_id, rank) DO UPDATE SET
                     generation = greatest(deployment_closed.generation, excluded.generation)";
    for sql in [delete, close] {
        sqlx::query(sql)
            .bind(&jobs)
            .bind(&generations)
            .bind(&ranks)
            .execute(&mut *db)
            .await?;
    }
    // Ids of jobs grow with time: the oldest go first.
    let trim = "DELETE FROM deployment_closed WHERE (job_id, rank) IN
                    (SELECT job_id, rank FROM deployment_closed
                     ORDER BY job_id DESC, rank DESC OFFSET $1)";
    let kept = i64::try_from(MAX_CLOSED).unwrap_or(i64::MAX);
    sqlx::query(trim).bind(kept).execute(db).await?;
    Ok(())
}

async fn deployments_insert(
    db: &mut PgConnection,
    changes: &[&DeploymentChange],
) -> Result<(), StoreError> {
    if changes.is_empty() {
        return Ok(());
    }
    let (jobs, generations, ranks) = columns(changes.iter().map(|c| &c.id));
    let subjects = changes
        .iter()
        .map(|c| document::write(&c.subject))
        .collect::<Result<Vec<_>, _>>()?;
    let sql = "INSERT INTO deployment (job_id, generation, rank, subject, life, contrasts)
               SELECT job_id, generation, rank, subject::json, 'null', '[]'
               FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[])
                    AS t (job_id, generation, rank, subject)
               ON CONFLICT (job_id, generation, rank) DO UPDATE SET subject = excluded.subject";
    sqlx::query(sql)
        .bind(jobs)
        .bind(generations)
        .bind(ranks)
        .bind(subjects)
        .execute(db)
        .await?;
    Ok(())
}

async fn deployments_update(
    db: &mut PgConnection,
    changes: &[DeploymentChange],
) -> Result<(), StoreError> {
    if changes.is_empty() {
        return Ok(());
    }
    let (jobs, generations, ranks) = columns(changes.iter().map(|c| &c.id));
    let lives = changes
        .iter()
        .map(|c| document::write(&c.life))
        .collect::<Result<Vec<_>, _>>()?;
    let contrasts = changes
        .iter()
        .map(|c| c.contrasts.as_ref().map(document::write).transpose())
        .collect::<Result<Vec<_>, _>>()?;
    let sql = "UPDATE deployment SET
                   life = t.life::json,
                   contrasts = coalesce(t.contrasts::json, deployment.contrasts)
               FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::text[])
                    AS t (job_id, generation, rank, life, contrasts)
               WHERE deployment.job_id = t.job_id AND deployment.generation = t.generation
                   AND deployment.rank = t.rank";
    let known = sqlx::query(sql)
        .bind(jobs)
        .bind(generations)
        .bind(ranks)
        .bind(lives)
        .bind(contrasts)
        .execute(db)
        .await?
        .rows_affected();
    let distinct: BTreeSet<&DeploymentId> = changes.iter().map(|c| &c.id).collect();
    if usize::try_from(known).is_ok_and(|n| n == distinct.len()) {
        Ok(())
    } else {
        Err(conflict(
            "a deployment is not known and not described".to_owned(),
        ))
    }
}

async fn sums_put(db: &mut PgConnection, sums: &[SumChange]) -> Result<(), StoreError> {
    if sums.is_empty() {
        return Ok(());
    }
    let column = |of: fn(&SumKey) -> &str| -> Vec<String> {
        sums.iter().map(|s| of(&s.key).to_owned()).collect()
    };
    let docs = sums
        .iter()
        .map(|s| document::write(&s.sums))
        .collect::<Result<Vec<_>, _>>()?;
    let sql = "INSERT INTO contrast_sum (edge, scope, environment, doc)
               SELECT edge, scope, environment, doc::json
               FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
                    AS t (edge, scope, environment, doc)
               ON CONFLICT (edge, scope, environment) DO UPDATE SET doc = excluded.doc";
    sqlx::query(sql)
        .bind(column(|k| &k.edge))
        .bind(column(|k| &k.scope))
        .bind(column(|k| &k.environment))
        .bind(docs)
        .execute(db)
        .await?;
    Ok(())
}

/// The whole book; rows that cannot be read are left out.
pub(super) async fn contrasts_load(
    db: &mut PgConnection,
    quarantined: &mut Vec<Quarantined>,
) -> Result<ContrastBook, StoreError> {
    let mut book = ContrastBook::default();
    let sql = "SELECT job_id, rank, generation FROM deployment_closed";
    for row in sqlx::query(sql).fetch_all(&mut *db).await? {
        let (job, rank, generation): (uuid::Uuid, i64, i64) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        book.put_closed(DeploymentId {
            job: JobId(job),
            generation: Generation(u32::try_from(generation).unwrap_or(u32::MAX)),
            rank: u32::try_from(rank).unwrap_or(u32::MAX),
        });
    }
    let sql = "SELECT job_id || ' g' || generation || ' r' || rank,
                      subject::text, life::text, contrasts::text FROM deployment";
    for row in sqlx::query(sql).fetch_all(&mut *db).await? {
        let key: String = row.try_get(0)?;
        let parts: (String, String, String) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
        match deployment_record(&parts) {
            Ok(record) => book.put(record),
            Err(e) => quarantined.push(Quarantined {
                table: "deployment",
                key,
                problem: e.to_string(),
            }),
        }
    }
    let sql = "SELECT edge, scope, environment, doc::text FROM contrast_sum";
    for row in sqlx::query(sql).fetch_all(db).await? {
        let key = SumKey {
            edge: row.try_get(0)?,
            scope: row.try_get(1)?,
            environment: row.try_get(2)?,
        };
        match serde_json::from_str(row.try_get(3)?) {
            Ok(sums) => book.write_sums(key, sums),
            Err(e) => quarantined.push(Quarantined {
                table: "contrast_sum",
                key: format!("{} in {}", key.edge, key.environment),
                problem: e.to_string(),
            }),
        }
    }
    Ok(book)
}

fn deployment_record(
    (subject, life, contrasts): &(String, String, String),
) -> Result<DeploymentRecord, serde_json::Error> {
    Ok(DeploymentRecord {
        subject: serde_json::from_str(subject)?,
        life: serde_json::from_str(life)?,
        contrasts: serde_json::from_str(contrasts)?,
    })
}
