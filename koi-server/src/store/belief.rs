//! Belief events, append-only, and their exact sums.

use std::collections::{BTreeMap, HashMap};

use sqlx::{PgConnection, Row};
use tokio_stream::StreamExt as _;

use koi_core::causal::{BeliefEvent, BeliefKey, BeliefSource};
use koi_core::ids::{Generation, JobId, TickId};
use koi_core::store::BeliefMove;

use super::apply::conflict;
use super::{MAX_PAGE, Store, StoreError};

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

/// What replaying the whole log gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// Events read.
    pub n_events: u64,
    /// Changes of single beliefs in them.
    pub n_changes: u64,
    /// The sum of every belief that is stored or was moved.
    pub sums: BTreeMap<String, BeliefMove>,
    /// Beliefs that are not the sum of their events.
    pub mismatches: Vec<BeliefMismatch>,
}

/// One event as it moved one belief.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeliefStep {
    /// Position in the log.
    pub event_seq: i64,
    /// When.
    pub tick: TickId,
    /// Why.
    pub source: BeliefSource,
    /// By how much.
    pub moved: BeliefMove,
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
    let sql = "INSERT INTO belief (subject, alpha_micro, beta_micro, last_event_seq, n_events)
               SELECT subject, sum(alpha)::bigint, sum(beta)::bigint, $4, count(*)
               FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS t (subject, alpha, beta)
               GROUP BY subject
               ON CONFLICT (subject) DO UPDATE SET
                   alpha_micro = belief.alpha_micro + excluded.alpha_micro,
                   beta_micro = belief.beta_micro + excluded.beta_micro,
                   last_event_seq = excluded.last_event_seq,
                   n_events = belief.n_events + excluded.n_events";
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
        let sql = "SELECT subject, n_events FROM belief";
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

    /// The newest events that moved a belief, newest first, at most `limit` ([`MAX_PAGE`] at most),
    /// older than the event `before`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn belief_history(
        &self,
        key: &BeliefKey,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<BeliefStep>, StoreError> {
        // No later event has moved it, so the scan begins there.
        let sql = "SELECT event_seq, tick_id, source, job_id, rank, generation,
                          alpha_micro[i] AS alpha, beta_micro[i] AS beta
                   FROM belief_event, array_position(subjects, $1) AS i
                   WHERE i IS NOT NULL AND (event_seq < $2 OR $2 IS NULL)
                     AND event_seq <= coalesce((SELECT last_event_seq FROM belief
                                                WHERE subject = $1), -1)
                   ORDER BY event_seq DESC LIMIT $3";
        let rows = sqlx::query(sql)
            .bind(key.to_string())
            .bind(before)
            .bind(i64::from(limit.min(MAX_PAGE)))
            .fetch_all(&self.shared)
            .await?;
        rows.iter().map(step_of).collect()
    }

    /// Reads every event once, adds all changes up and compares: every belief must be the sum of
    /// its events, exactly, and be counted as often as it was moved.
    ///
    /// The log is read as a stream in one snapshot of the database: memory grows with the number of
    /// beliefs, not with the number of events.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn beliefs_replay(&self) -> Result<Verified, StoreError> {
        let mut db = self.shared.begin().await?;
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .execute(&mut *db)
            .await?;
        sqlx::query("SET LOCAL statement_timeout = 0")
            .execute(&mut *db)
            .await?;
        let mut verified = Verified::default();
        // Subjects that follow each other in one event are the same from event to event.
        let mut sums: HashMap<String, (BeliefMove, u64)> = HashMap::new();
        {
            let sql =
                "SELECT subjects, alpha_micro, beta_micro FROM belief_event ORDER BY event_seq";
            let mut events = sqlx::query(sql).fetch(&mut *db);
            while let Some(row) = events.try_next().await? {
                let subjects: Vec<String> = row.try_get(0)?;
                let (alpha, beta): (Vec<i64>, Vec<i64>) = (row.try_get(1)?, row.try_get(2)?);
                verified.n_events += 1;
                for ((subject, alpha), beta) in subjects.into_iter().zip(alpha).zip(beta) {
                    verified.n_changes += 1;
                    add(&mut sums, &subject, alpha, beta);
                }
            }
        }
        let sql = "SELECT subject, alpha_micro, beta_micro, n_events FROM belief";
        for row in sqlx::query(sql).fetch_all(&mut *db).await? {
            let subject: String = row.try_get(0)?;
            let stored = BeliefMove {
                alpha_micro: row.try_get(1)?,
                beta_micro: row.try_get(2)?,
            };
            let n: i64 = row.try_get(3)?;
            let (summed, counted) = sums.remove(&subject).unwrap_or_default();
            if (stored, n.unsigned_abs()) != (summed, counted) {
                verified.mismatches.push(BeliefMismatch {
                    subject: subject.clone(),
                    stored,
                    summed,
                });
            }
            verified.sums.insert(subject, summed);
        }
        // Moved by events and not stored at all.
        for (subject, (summed, _)) in sums {
            verified.mismatches.push(BeliefMismatch {
                subject: subject.clone(),
                stored: BeliefMove::default(),
                summed,
            });
            verified.sums.insert(subject, summed);
        }
        verified
            .mismatches
            .sort_by(|a, b| a.subject.cmp(&b.subject));
        db.commit().await?;
        Ok(verified)
    }

    /// Adds all events up again and compares: empty when every belief is the sum of its events.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn beliefs_verify(&self) -> Result<Vec<BeliefMismatch>, StoreError> {
        Ok(self.beliefs_replay().await?.mismatches)
    }
}

fn add(sums: &mut HashMap<String, (BeliefMove, u64)>, subject: &str, alpha: i64, beta: i64) {
    // Looked up by reference first: the name is copied once per subject, not once per change.
    if !sums.contains_key(subject) {
        sums.insert(subject.to_owned(), <(BeliefMove, u64)>::default());
    }
    if let Some((sum, n)) = sums.get_mut(subject) {
        sum.alpha_micro = sum.alpha_micro.saturating_add(alpha);
        sum.beta_micro = sum.beta_micro.saturating_add(beta);
        *n += 1;
    }
}

fn step_of(row: &sqlx::postgres::PgRow) -> Result<BeliefStep, StoreError> {
    let source: String = row.try_get("source")?;
    let job: Option<uuid::Uuid> = row.try_get("job_id")?;
    let (rank, generation): (Option<i64>, Option<i64>) =
        (row.try_get("rank")?, row.try_get("generation")?);
    let narrow = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
    let of_row = job
        .zip(rank)
        .zip(generation)
        .filter(|_| source == "evidence");
    Ok(BeliefStep {
        event_seq: row.try_get("event_seq")?,
        tick: TickId(row.try_get("tick_id")?),
        source: of_row.map_or(BeliefSource::Forget, |((job, rank), generation)| {
            BeliefSource::Evidence {
                job: JobId(job),
                rank: narrow(rank),
                generation: Generation(narrow(generation)),
            }
        }),
        moved: BeliefMove {
            alpha_micro: row.try_get("alpha")?,
            beta_micro: row.try_get("beta")?,
        },
    })
}
