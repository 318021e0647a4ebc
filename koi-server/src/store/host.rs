//! Hosts, and the version of the desired set that each is to converge to.

use sqlx::PgConnection;

use koi_core::host::HostRecord;

use super::apply::Context;
use super::{StoreError, document};

pub(super) async fn host_put(
    db: &mut PgConnection,
    host: &HostRecord,
    context: &Context<'_>,
) -> Result<(), StoreError> {
    let id = host.facts.host.as_str();
    let sql = "INSERT INTO host (host_id, generation, cordoned, doc) VALUES ($1, $2, $3, $4::json)
               ON CONFLICT (host_id) DO UPDATE SET
                   generation = excluded.generation, cordoned = excluded.cordoned,
                   doc = excluded.doc";
    sqlx::query(sql)
        .bind(id)
        .bind(host.generation.0)
        .bind(host.cordoned)
        .bind(document::write(host)?)
        .execute(&mut *db)
        .await?;
    let sql = "INSERT INTO host_desired (host_id, generation, epoch, plan_seq, changed_at)
               VALUES ($1, $2, $3, $4, $5)
               ON CONFLICT (host_id) DO UPDATE SET
                   generation = excluded.generation, epoch = excluded.epoch,
                   plan_seq = excluded.plan_seq, changed_at = excluded.changed_at
               WHERE host_desired.generation <> excluded.generation";
    sqlx::query(sql)
        .bind(id)
        .bind(host.generation.0)
        .bind(context.tx.epoch.0)
        .bind(context.head.plan_seq.0)
        .bind(context.tx.at.0)
        .execute(db)
        .await?;
    Ok(())
}
