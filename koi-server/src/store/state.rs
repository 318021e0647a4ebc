//! The decision state out of the tables: what folding all transactions gives.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use sqlx::{PgConnection, Row};

use koi_core::store::{BeliefMove, ServerState};

use super::head::head_read;
use super::{Store, StoreError, calibration, contrast, document, price, tick};
use koi_core::slow_loop::SlowState;

/// A row that this build cannot read; the rest of the state stands without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Table.
    pub table: &'static str,
    /// Row.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
}

/// The state and what had to be left out of it. The devices of a replica that was left out stay
/// reserved in the database, so nothing can be placed on them.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedState {
    /// The state.
    pub state: ServerState,
    /// Rows that could not be read.
    pub quarantined: Vec<Quarantined>,
}

pub(super) async fn slow_state_put(
    db: &mut PgConnection,
    slow: &SlowState,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO slow_state (doc) VALUES ($1::json)
               ON CONFLICT (singleton) DO UPDATE SET doc = excluded.doc";
    sqlx::query(sql)
        .bind(document::write(slow)?)
        .execute(db)
        .await?;
    Ok(())
}

impl Store {
    /// The decision state in one snapshot.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Corrupt`] only when the newest tick or the slow state cannot be
    /// read, because no decision can do without them.
    pub async fn load_state(&self) -> Result<LoadedState, StoreError> {
        let mut db = self.control.begin().await?;
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .execute(&mut *db)
            .await?;
        let mut quarantined = Vec::new();
        let head = head_read(&mut db).await?;
        let mut state = ServerState {
            epoch: head.epoch,
            plan_seq: head.plan_seq,
            ..ServerState::default()
        };
        if let Some(id) = head.tick {
            state.tick = tick::tick_find(&mut db, id).await?;
        }
        let sql = "SELECT job_id::text, doc::text FROM job WHERE NOT is_history";
        let jobs = documents(&mut db, ("job", sql), &mut quarantined).await?;
        state.jobs = by(jobs, |j: &koi_core::store::JobRecord| j.id);
        let sql = "SELECT host_id, doc::text FROM host";
        let hosts = documents(&mut db, ("host", sql), &mut quarantined).await?;
        state.hosts = by(hosts, |h: &koi_core::host::HostRecord| h.facts.host.clone());
        let sql = "SELECT replica_id, doc::text FROM replica";
        let replicas = documents(&mut db, ("replica", sql), &mut quarantined).await?;
        state.replicas = by(replicas, |r: &koi_core::store::ReplicaRecord| r.id.clone());
        state.beliefs = beliefs(&mut db, &mut quarantined).await?;
        state.contrasts = contrast::contrasts_load(&mut db, &mut quarantined).await?;
        let set = calibration::calibration_load(&mut db, &mut quarantined).await?;
        state.calibration = std::sync::Arc::new(set);
        let sql = "SELECT mechanism_id, doc::text FROM mechanism";
        let mechanisms = documents(&mut db, ("mechanism", sql), &mut quarantined).await?;
        state.mechanisms = by(mechanisms, |m: &koi_core::lifecycle::MechanismRecord| {
            m.id.clone()
        });
        state.prices = price::prices_load(&mut db, &mut quarantined).await?;
        if let Some(slow) = slow_state(&mut db).await? {
            state.slow = slow;
        }
        db.commit().await?;
        Ok(LoadedState { state, quarantined })
    }
}

async fn documents<T: DeserializeOwned>(
    db: &mut PgConnection,
    (table, sql): (&'static str, &'static str),
    quarantined: &mut Vec<Quarantined>,
) -> Result<Vec<T>, StoreError> {
    let mut values = Vec::new();
    for row in sqlx::query(sql).fetch_all(db).await? {
        let (key, doc): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        match serde_json::from_str(&doc) {
            Ok(value) => values.push(value),
            Err(e) => quarantined.push(Quarantined {
                table,
                key,
                problem: e.to_string(),
            }),
        }
    }
    Ok(values)
}

fn by<K: Ord, T>(values: Vec<T>, key: impl Fn(&T) -> K) -> BTreeMap<K, T> {
    values
        .into_iter()
        .map(|value| (key(&value), value))
        .collect()
}

async fn beliefs(
    db: &mut PgConnection,
    quarantined: &mut Vec<Quarantined>,
) -> Result<BTreeMap<koi_core::causal::BeliefKey, BeliefMove>, StoreError> {
    let mut beliefs = BTreeMap::new();
    let sql = "SELECT subject, alpha_micro, beta_micro FROM belief";
    for row in sqlx::query(sql).fetch_all(db).await? {
        let subject: String = row.try_get(0)?;
        let sum = BeliefMove {
            alpha_micro: row.try_get(1)?,
            beta_micro: row.try_get(2)?,
        };
        match subject.parse() {
            Ok(key) => drop(beliefs.insert(key, sum)),
            Err(e) => quarantined.push(Quarantined {
                table: "belief",
                key: subject,
                problem: koi_core::causal::belief::NotABeliefKey::to_string(&e),
            }),
        }
    }
    Ok(beliefs)
}

async fn slow_state(db: &mut PgConnection) -> Result<Option<SlowState>, StoreError> {
    let row = sqlx::query("SELECT doc::text FROM slow_state")
        .fetch_optional(db)
        .await?;
    let Some(row) = row else { return Ok(None) };
    document::read("slow_state", "singleton", row.try_get(0)?).map(Some)
}
