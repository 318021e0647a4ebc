//! Belief events, append-only, and their exact sums.

use std::collections::BTreeMap;

use sqlx::{PgConnection, Row};

use koi_core::causal::{BeliefEvent, BeliefKey, BeliefSource};
use koi_core::store::BeliefMove;

use super::apply::conflict;
use super::{Store, StoreError};

/// A materialised sum that is not the sum of its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeliefMismatch {
    /// Whose.
    pub subject: String,
    /// What is stored.
    pub stored: BeliefMove,
    /// What the events add up to.
    pub summed: BeliefMove,
}

/// Appends events and adds them up; a source that already moved beliefs is a conflict.
pub(super) async fn belief_events_insert(
    db: &mut PgConnection,
    events: &[BeliefEvent],
) -> Result<(), StoreError> {
    for event in events {
        let event_seq = belief_event_insert(db, event).await?;
        belief_add(db, event, event_seq).await?;
    }
    Ok(())
}

fn subjects(event: &BeliefEvent) -> Vec<String> {
    event.changes.iter().map(|c| c.key.to_string()).collect()
}

fn deltas(event: &BeliefEvent) -> (Vec<i64>, Vec<i64>) {
    event
        .changes
        .iter()
        .map(|c| (c.alpha_micro, c.beta_micro))
        .unzip()
}

async fn belief_event_insert(
    db: &mut PgConnection,
    event: &BeliefEvent,
) -> Result<i64, StoreError> {
    let (name, row) = match &event.source {
        BeliefSource::Evidence {
            job,
            rank,
            generation,
        } => (
            "evidence",
            Some((job.0, i64::from(*rank), i64::from(generation.0))),
        ),
        BeliefSource::Forget => ("forget", None),
    };
    let (alpha, beta) = deltas(event);
    let sql = "INSERT INTO belief_event (tick_id, source, job_id, rank, generation, subjects,
                                         alpha_micro, beta_micro)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING
               RETURNING event_seq";
    let inserted = sqlx::query(sql)
        .bind(event.tick.0)
        .bind(name)
        .bind(row.map(|r| r.0))
        .bind(row.map(|r| r.1))
        .bind(row.map(|r| r.2))
        .bind(subjects(event))
        .bind(alpha)
        .bind(beta)
        .fetch_optional(db)
        .await?;
    match inserted {
        Some(row) => Ok(row.try_get(0)?),
        None => Err(conflict(format!(
            "beliefs already moved by {:?} of {}",
            event.source, event.tick
        ))),
    }
}

async fn belief_add(
    db: &mut PgConnection,
    event: &BeliefEvent,
    event_seq: i64,
) -> Result<(), StoreError> {
    let (alpha, beta) = deltas(event);
    let sql = "INSERT INTO belief (subject, alpha_micro, beta_micro, last_event_seq)
               SELECT subject, sum(alpha)::bigint, sum(beta)::bigint, $4
               FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS t (subject, alpha, beta)
               GROUP BY subject
               ON CONFLICT (subject) DO UPDATE SET
                   alpha_micro = belief.alpha_micro + excluded.alpha_micro,
                   beta_micro = belief.beta_micro + excluded.beta_micro,
                   last_event_seq = excluded.last_event_seq";
    sqlx::query(sql)
        .bind(subjects(event))
        .bind(alpha)
        .bind(beta)
        .bind(event_seq)
        .execute(db)
        .await?;
    Ok(())
}

impl Store {
    /// How many events moved each belief.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn belief_event_counts(&self) -> Result<BTreeMap<BeliefKey, u64>, StoreError> {
        let sql = "SELECT subject, count(*) FROM belief_event, unnest(subjects) AS t (subject)
                   GROUP BY subject";
        let mut counts = BTreeMap::new();
        for row in sqlx::query(sql).fetch_all(&self.shared).await? {
            let (subject, n): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
            // A subject that no build of ours writes is not counted for any belief.
            if let Ok(key) = subject.parse() {
                counts.insert(key, n.unsigned_abs());
            }
        }
        Ok(counts)
    }

    /// Adds all events up again and compares: empty when every belief is the sum of its events.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn beliefs_verify(&self) -> Result<Vec<BeliefMismatch>, StoreError> {
        let sql = "WITH summed AS (
                       SELECT subject, sum(alpha)::bigint AS alpha, sum(beta)::bigint AS beta
                       FROM belief_event, unnest(subjects, alpha_micro, beta_micro)
                            AS t (subject, alpha, beta) GROUP BY subject)
                   SELECT coalesce(belief.subject, summed.subject),
                          coalesce(belief.alpha_micro, 0), coalesce(belief.beta_micro, 0),
                          coalesce(summed.alpha, 0), coalesce(summed.beta, 0)
                   FROM belief FULL JOIN summed ON belief.subject = summed.subject
                   WHERE (belief.alpha_micro, belief.beta_micro)
                         IS DISTINCT FROM (summed.alpha, summed.beta)
                   ORDER BY 1";
        let rows = sqlx::query(sql).fetch_all(&self.shared).await?;
        let mismatch = |row: &sqlx::postgres::PgRow| {
            Ok(BeliefMismatch {
                subject: row.try_get(0)?,
                stored: BeliefMove {
                    alpha_micro: row.try_get(1)?,
                    beta_micro: row.try_get(2)?,
                },
                summed: BeliefMove {
                    alpha_micro: row.try_get(3)?,
                    beta_micro: row.try_get(4)?,
                },
            })
        };
        rows.iter().map(mismatch).collect()
    }
}
