//! Mechanisms beside the catalog's seeds, and what was decided about each.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{PgConnection, Row};

use koi_core::causal::MechanismStatus;
use koi_core::ids::TickId;
use koi_core::lifecycle::{MechanismRecord, MechanismTrack};
use koi_core::validation::EvidenceRow;

use super::{Store, StoreError, document};

pub(super) async fn mechanism_put(
    db: &mut PgConnection,
    record: &MechanismRecord,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO mechanism (mechanism_id, status, doc) VALUES ($1, $2, $3::json)
               ON CONFLICT (mechanism_id) DO UPDATE SET
                   status = excluded.status, doc = excluded.doc";
    let status = match record.status {
        MechanismStatus::Active => "active",
        MechanismStatus::Archived => "archived",
    };
    sqlx::query(sql)
        .bind(&record.id)
        .bind(status)
        .bind(document::write(record)?)
        .execute(db)
        .await?;
    Ok(())
}

/// What new evidence rows decided about one mechanism.
#[derive(Default)]
struct Fresh {
    n_decided: i64,
    n_deployments: i64,
    n_environments: i64,
    first_tick: Option<i64>,
    last_tick: Option<i64>,
}

/// Counts what rows decided; every row must be new.
pub(super) async fn mechanism_count_add(
    db: &mut PgConnection,
    rows: &[&EvidenceRow],
) -> Result<(), StoreError> {
    let mut fresh: BTreeMap<&str, Fresh> = BTreeMap::new();
    // Rows of one tick share environments and deployments: each pair is looked up once.
    let mut pairs: BTreeSet<(&str, &str)> = BTreeSet::new();
    let named: Vec<(String, String)> = rows
        .iter()
        .map(|row| {
            let deployment = format!("deployment {} {}", row.job.0, row.generation.0);
            (deployment, format!("environment {}", row.environment))
        })
        .collect();
    for (row, (deployment, environment)) in rows.iter().zip(&named) {
        for verdict in row.mechanisms.iter().filter(|m| m.quadrant.is_some()) {
            let counted = fresh.entry(&verdict.id).or_default();
            counted.n_decided += 1;
            let tick = row.tick.0;
            counted.first_tick = Some(counted.first_tick.map_or(tick, |t| t.min(tick)));
            counted.last_tick = counted.last_tick.max(Some(tick));
            pairs.extend([deployment, environment].map(|s| (verdict.id.as_str(), s.as_str())));
        }
    }
    if fresh.is_empty() {
        return Ok(());
    }
    for (id, subject) in seen_add(db, &pairs).await? {
        if let Some(counted) = fresh.get_mut(id.as_str()) {
            let is_deployment = subject.starts_with("deployment ");
            counted.n_deployments += i64::from(is_deployment);
            counted.n_environments += i64::from(!is_deployment);
        }
    }
    count_add(db, &fresh).await
}

/// Remembers pairs and returns those that are new.
async fn seen_add(
    db: &mut PgConnection,
    pairs: &BTreeSet<(&str, &str)>,
) -> Result<Vec<(String, String)>, StoreError> {
    let (ids, subjects): (Vec<&str>, Vec<&str>) = pairs.iter().copied().unzip();
    let sql = "INSERT INTO mechanism_seen (mechanism_id, subject)
               SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING
               RETURNING mechanism_id, subject";
    let rows = sqlx::query(sql)
        .bind(ids)
        .bind(subjects)
        .fetch_all(db)
        .await?;
    let pair = |row: &sqlx::postgres::PgRow| Ok((row.try_get(0)?, row.try_get(1)?));
    rows.iter().map(pair).collect()
}

async fn count_add(db: &mut PgConnection, fresh: &BTreeMap<&str, Fresh>) -> Result<(), StoreError> {
    let sql = "INSERT INTO mechanism_count AS c (mechanism_id, n_decided, n_deployments,
                                                n_environments, first_tick, last_tick)
               SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[],
                                    $5::bigint[], $6::bigint[])
               ON CONFLICT (mechanism_id) DO UPDATE SET
                   n_decided = c.n_decided + excluded.n_decided,
                   n_deployments = c.n_deployments + excluded.n_deployments,
                   n_environments = c.n_environments + excluded.n_environments,
                   first_tick = least(c.first_tick, excluded.first_tick),
                   last_tick = greatest(c.last_tick, excluded.last_tick)";
    let column = |of: &dyn Fn(&Fresh) -> i64| fresh.values().map(of).collect::<Vec<_>>();
    let ends = |of: &dyn Fn(&Fresh) -> Option<i64>| fresh.values().map(of).collect::<Vec<_>>();
    sqlx::query(sql)
        .bind(fresh.keys().copied().collect::<Vec<_>>())
        .bind(column(&|f| f.n_decided))
        .bind(column(&|f| f.n_deployments))
        .bind(column(&|f| f.n_environments))
        .bind(ends(&|f| f.first_tick))
        .bind(ends(&|f| f.last_tick))
        .execute(db)
        .await?;
    Ok(())
}

impl Store {
    /// What was decided about each mechanism over its life.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn mechanism_tracks(&self) -> Result<BTreeMap<String, MechanismTrack>, StoreError> {
        let sql = "SELECT mechanism_id, n_decided, n_deployments, n_environments, first_tick,
                          last_tick FROM mechanism_count";
        let rows = sqlx::query(sql).fetch_all(&self.shared).await?;
        let track = |row: &sqlx::postgres::PgRow| {
            let count = |i: usize| -> Result<u32, StoreError> {
                let n: i64 = row.try_get(i)?;
                Ok(u32::try_from(n).unwrap_or(u32::MAX))
            };
            let (first, last): (Option<i64>, Option<i64>) = (row.try_get(4)?, row.try_get(5)?);
            let track = MechanismTrack {
                n_decided: count(1)?,
                n_deployments: count(2)?,
                n_environments: count(3)?,
                first_tick: first.map(TickId),
                last_tick: last.map(TickId),
            };
            Ok((row.try_get(0)?, track))
        };
        rows.iter().map(track).collect()
    }
}
