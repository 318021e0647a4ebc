//! Replicas and the reservation of their devices.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{PgConnection, Row};
use uuid::Uuid;

use koi_core::ids::ReplicaId;
use koi_core::store::{ReplicaPhase, ReplicaRecord, ReplicaRole, TxRefusal};

use super::apply::conflict;
use super::{StoreError, document};

pub(super) async fn replica_put(
    db: &mut PgConnection,
    replica: &ReplicaRecord,
) -> Result<(), StoreError> {
    let held = check_owner(db, replica).await?;
    let keeps = held.as_ref() == Some(&replica.gpu_uuids);
    if !keeps {
        check_devices(db, replica).await?;
    }
    let sql = "INSERT INTO replica (replica_id, job_id, host_id, role, phase, gpu_uuids, doc)
               VALUES ($1, $2, $3, $4, $5, $6, $7::json)
               ON CONFLICT (replica_id) DO UPDATE SET
                   host_id = excluded.host_id, role = excluded.role, phase = excluded.phase,
                   gpu_uuids = excluded.gpu_uuids, doc = excluded.doc";
    sqlx::query(sql)
        .bind(replica.id.to_string())
        .bind(replica.job.0)
        .bind(replica.host.as_str())
        .bind(role_name(&replica.role))
        .bind(phase_name(&replica.phase))
        .bind(&replica.gpu_uuids)
        .bind(document::write(replica)?)
        .execute(&mut *db)
        .await?;
    if keeps {
        Ok(())
    } else {
        reserve(db, replica).await
    }
}

/// The devices that the stored replica holds, if it is stored.
async fn check_owner(
    db: &mut PgConnection,
    replica: &ReplicaRecord,
) -> Result<Option<Vec<String>>, StoreError> {
    let sql = "SELECT job.job_id IS NOT NULL, replica.job_id, replica.gpu_uuids
               FROM (SELECT) AS one
               LEFT JOIN job ON job.job_id = $1 AND NOT job.is_history
               LEFT JOIN replica ON replica.replica_id = $2";
    let query = sqlx::query(sql)
        .bind(replica.job.0)
        .bind(replica.id.to_string());
    let row = query.fetch_one(db).await?;
    if !row.try_get::<bool, _>(0)? {
        return Err(conflict(format!("there is no job {}", replica.job)));
    }
    let owner: Option<Uuid> = row.try_get(1)?;
    if let Some(owner) = owner.filter(|owner| *owner != replica.job.0) {
        return Err(conflict(format!(
            "replica {} still belongs to job {owner}, not {}",
            replica.id, replica.job
        )));
    }
    Ok(row.try_get(2)?)
}

async fn check_devices(db: &mut PgConnection, replica: &ReplicaRecord) -> Result<(), StoreError> {
    let distinct: BTreeSet<&String> = replica.gpu_uuids.iter().collect();
    if distinct.len() != replica.gpu_uuids.len() {
        return Err(conflict(format!(
            "replica {} lists a device twice",
            replica.id
        )));
    }
    let sql = "SELECT gpu_uuid, replica_id FROM gpu_reservation
               WHERE gpu_uuid = ANY($1) AND replica_id <> $2";
    let query = sqlx::query(sql)
        .bind(&replica.gpu_uuids)
        .bind(replica.id.to_string());
    let mut taken = BTreeMap::new();
    for row in query.fetch_all(db).await? {
        taken.insert(row.try_get::<String, _>(0)?, row.try_get::<String, _>(1)?);
    }
    for uuid in &replica.gpu_uuids {
        if let Some(holder) = taken.get(uuid) {
            let unreadable = |_| conflict(format!("device {uuid} is reserved by {holder}"));
            let (uuid, wanted) = (uuid.clone(), replica.id.clone());
            let holder = holder.parse().map_err(unreadable)?;
            return Err(TxRefusal::DeviceTaken {
                uuid,
                holder,
                wanted,
            }
            .into());
        }
    }
    Ok(())
}

async fn reserve(db: &mut PgConnection, replica: &ReplicaRecord) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM gpu_reservation WHERE replica_id = $1")
        .bind(replica.id.to_string())
        .execute(&mut *db)
        .await?;
    let sql = "INSERT INTO gpu_reservation (gpu_uuid, replica_id)
               SELECT uuid, $2 FROM unnest($1::text[]) AS t (uuid)";
    let query = sqlx::query(sql)
        .bind(&replica.gpu_uuids)
        .bind(replica.id.to_string());
    query.execute(db).await?;
    Ok(())
}

/// The reservations go with the row.
pub(super) async fn replica_release(
    db: &mut PgConnection,
    id: &ReplicaId,
) -> Result<(), StoreError> {
    let query = sqlx::query("DELETE FROM replica WHERE replica_id = $1");
    query.bind(id.to_string()).execute(db).await?;
    Ok(())
}

const fn role_name(role: &ReplicaRole) -> &'static str {
    match role {
        ReplicaRole::Serve => "serve",
        ReplicaRole::Withdrawn { .. } => "withdrawn",
        ReplicaRole::Drain { .. } => "drain",
    }
}

const fn phase_name(phase: &ReplicaPhase) -> &'static str {
    match phase {
        ReplicaPhase::Launching => "launching",
        ReplicaPhase::Ready => "ready",
        ReplicaPhase::Failed { .. } => "failed",
    }
}
