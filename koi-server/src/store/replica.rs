//! Replicas and the reservation of their devices.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{PgConnection, Row};
use uuid::Uuid;

use koi_core::ids::ReplicaId;
use koi_core::store::{ReplicaPhase, ReplicaRecord, ReplicaRole, TxRefusal};

use super::apply::conflict;
use super::{StoreError, document};

/// What is stored of the replicas of a run, their jobs and the devices that they want.
struct Stored {
    jobs: BTreeSet<Uuid>,
    /// Owner and devices by replica.
    replicas: BTreeMap<String, (Uuid, Vec<String>)>,
    /// Holder by device, of the devices wanted.
    holders: BTreeMap<String, String>,
}

/// Inserts or replaces replicas of different ids, in order, and reserves their devices. Set by set:
/// a plan for a large fleet has thousands of them.
pub(super) async fn replicas_put(
    db: &mut PgConnection,
    replicas: &[&ReplicaRecord],
) -> Result<(), StoreError> {
    let mut stored = stored(db, replicas).await?;
    let mut moved = Vec::new();
    for replica in replicas {
        let id = replica.id.to_string();
        check_owner(&stored, replica)?;
        let before = stored.replicas.get(&id).map(|(_, devices)| devices.clone());
        if before.as_ref() != Some(&replica.gpu_uuids) {
            check_devices(&stored, replica)?;
            for uuid in before.iter().flatten() {
                stored.holders.remove(uuid);
            }
            let taken = replica
                .gpu_uuids
                .iter()
                .map(|uuid| (uuid.clone(), id.clone()));
            stored.holders.extend(taken);
            moved.push(*replica);
        }
    }
    replicas_write(db, replicas).await?;
    if moved.is_empty() {
        Ok(())
    } else {
        reserve(db, &moved).await
    }
}

async fn stored(db: &mut PgConnection, replicas: &[&ReplicaRecord]) -> Result<Stored, StoreError> {
    let jobs: BTreeSet<Uuid> = replicas.iter().map(|r| r.job.0).collect();
    let sql = "SELECT job_id FROM job WHERE job_id = ANY($1) AND NOT is_history";
    let query = sqlx::query_scalar(sql).bind(jobs.into_iter().collect::<Vec<_>>());
    let jobs = query.fetch_all(&mut *db).await?.into_iter().collect();
    let ids: Vec<String> = replicas.iter().map(|r| r.id.to_string()).collect();
    let sql = "SELECT replica_id, job_id, gpu_uuids FROM replica WHERE replica_id = ANY($1)";
    let mut known = BTreeMap::new();
    for row in sqlx::query(sql).bind(ids).fetch_all(&mut *db).await? {
        known.insert(row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?));
    }
    let devices: Vec<&String> = replicas.iter().flat_map(|r| &r.gpu_uuids).collect();
    let sql = "SELECT gpu_uuid, replica_id FROM gpu_reservation WHERE gpu_uuid = ANY($1)";
    let mut holders = BTreeMap::new();
    for row in sqlx::query(sql).bind(devices).fetch_all(db).await? {
        holders.insert(row.try_get(0)?, row.try_get(1)?);
    }
    Ok(Stored {
        jobs,
        replicas: known,
        holders,
    })
}

fn check_owner(stored: &Stored, replica: &ReplicaRecord) -> Result<(), StoreError> {
    if !stored.jobs.contains(&replica.job.0) {
        return Err(conflict(format!("there is no job {}", replica.job)));
    }
    match stored.replicas.get(&replica.id.to_string()) {
        Some((owner, _)) if *owner != replica.job.0 => Err(conflict(format!(
            "replica {} still belongs to job {owner}, not {}",
            replica.id, replica.job
        ))),
        _ => Ok(()),
    }
}

fn check_devices(stored: &Stored, replica: &ReplicaRecord) -> Result<(), StoreError> {
    let distinct: BTreeSet<&String> = replica.gpu_uuids.iter().collect();
    if distinct.len() != replica.gpu_uuids.len() {
        return Err(conflict(format!(
            "replica {} lists a device twice",
            replica.id
        )));
    }
    let id = replica.id.to_string();
    for uuid in &replica.gpu_uuids {
        if let Some(holder) = stored.holders.get(uuid).filter(|holder| **holder != id) {
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

async fn replicas_write(
    db: &mut PgConnection,
    replicas: &[&ReplicaRecord],
) -> Result<(), StoreError> {
    let docs = replicas
        .iter()
        .map(document::write)
        .collect::<Result<Vec<_>, _>>()?;
    // An array of arrays cannot be unnested by row, so each row's devices are a document of their own.
    // The record's is never looked into: it holds words of agents, and `json` takes escapes that
    // its operators refuse.
    let devices = replicas
        .iter()
        .map(|r| document::write(&r.gpu_uuids))
        .collect::<Result<Vec<_>, _>>()?;
    let sql = "INSERT INTO replica (replica_id, job_id, host_id, role, phase, gpu_uuids, doc)
               SELECT replica_id, job_id, host_id, role, phase,
                      ARRAY(SELECT json_array_elements_text(devices::json)), doc::json
               FROM unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[],
                           $7::text[])
                    AS t (replica_id, job_id, host_id, role, phase, doc, devices)
               ON CONFLICT (replica_id) DO UPDATE SET
                   host_id = excluded.host_id, role = excluded.role, phase = excluded.phase,
                   gpu_uuids = excluded.gpu_uuids, doc = excluded.doc";
    sqlx::query(sql)
        .bind(
            replicas
                .iter()
                .map(|r| r.id.to_string())
                .collect::<Vec<_>>(),
        )
        .bind(replicas.iter().map(|r| r.job.0).collect::<Vec<_>>())
        .bind(
            replicas
                .iter()
                .map(|r| r.host.to_string())
                .collect::<Vec<_>>(),
        )
        .bind(
            replicas
                .iter()
                .map(|r| role_name(&r.role))
                .collect::<Vec<_>>(),
        )
        .bind(
            replicas
                .iter()
                .map(|r| phase_name(&r.phase))
                .collect::<Vec<_>>(),
        )
        .bind(docs)
        .bind(devices)
        .execute(db)
        .await?;
    Ok(())
}

/// Gives replicas whose devices changed what they list now; what they held before goes first.
async fn reserve(db: &mut PgConnection, replicas: &[&ReplicaRecord]) -> Result<(), StoreError> {
    let ids: Vec<String> = replicas.iter().map(|r| r.id.to_string()).collect();
    let sql = "DELETE FROM gpu_reservation WHERE replica_id = ANY($1)";
    sqlx::query(sql).bind(ids).execute(&mut *db).await?;
    let pairs = |r: &&ReplicaRecord| {
        let id = r.id.to_string();
        r.gpu_uuids
            .clone()
            .into_iter()
            .map(move |uuid| (uuid, id.clone()))
    };
    let (uuids, holders): (Vec<String>, Vec<String>) = replicas.iter().flat_map(pairs).unzip();
    let sql = "INSERT INTO gpu_reservation (gpu_uuid, replica_id)
               SELECT * FROM unnest($1::text[], $2::text[])";
    sqlx::query(sql)
        .bind(uuids)
        .bind(holders)
        .execute(db)
        .await?;
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
