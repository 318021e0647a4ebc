//! Belief events, append-only, and their exact sums.

use std::collections::{BTreeMap, BTreeSet, HashMap};

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

/// Appends events and adds them up, all in two statements; a source that already moved beliefs is a
/// conflict.
pub(super) async fn belief_events_insert(
    db: &mut PgConnection,
    events: &[BeliefEvent],
) -> Result<(), StoreError> {
    for some in events.chunks(EVENTS_AT_ONCE) {
        let event_seqs = events_append(db, some).await?;
        beliefs_add(db, some, &event_seqs).await?;
    }
    Ok(())
}

/// Events of one statement: its arrays stay within a few megabytes.
const EVENTS_AT_ONCE: usize = 2_000;

/// An event's subjects and changes as array literals: a statement that takes many events can take no
/// array of arrays of different lengths.
fn literals(event: &BeliefEvent) -> (String, String, String) {
    let (mut subjects, mut alpha, mut beta) = ("{".to_owned(), "{".to_owned(), "{".to_owned());
    for (i, change) in event.changes.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let name = change.key.to_string();
        let name = name.replace('\\', "\\\\").replace('"', "\\\"");
        subjects.extend([comma, "\"", &name, "\""]);
        alpha.extend([comma, &change.alpha_micro.to_string()]);
        beta.extend([comma, &change.beta_micro.to_string()]);
    }
    for list in [&mut subjects, &mut alpha, &mut beta] {
        list.push('}');
    }
    (subjects, alpha, beta)
}

/// Appends the events in their order and returns their places in the log.
async fn events_append(
    db: &mut PgConnection,
    events: &[BeliefEvent],
) -> Result<Vec<i64>, StoreError> {
    let row = |event: &BeliefEvent| match event.source {
        BeliefSource::Evidence {
            job,
            rank,
            generation,
        } => Some((job.0, i64::from(rank), i64::from(generation.0))),
        BeliefSource::Forget => None,
    };
    let rows: Vec<Option<(uuid::Uuid, i64, i64)>> = events.iter().map(row).collect();
    let (mut subjects, mut alpha, mut beta) = (Vec::new(), Vec::new(), Vec::new());
    for (s, a, b) in events.iter().map(literals) {
        subjects.push(s);
        alpha.push(a);
        beta.push(b);
    }
    let sql = "INSERT INTO belief_event (tick_id, source, job_id, rank, generation, subjects,
                                         alpha_micro, beta_micro)
               SELECT tick_id, CASE WHEN job_id IS NULL THEN 'forget' ELSE 'evidence' END,
                      job_id, rank, generation, subjects::text[], alpha::bigint[], beta::bigint[]
               FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::bigint[], $5::text[],
                           $6::text[], $7::text[]) WITH ORDINALITY
                    AS t (tick_id, job_id, rank, generation, subjects, alpha, beta, place)
               ORDER BY place
               ON CONFLICT DO NOTHING RETURNING event_seq";
    let inserted = sqlx::query(sql)
        .bind(events.iter().map(|e| e.tick.0).collect::<Vec<_>>())
        .bind(rows.iter().map(|r| r.map(|r| r.0)).collect::<Vec<_>>())
        .bind(rows.iter().map(|r| r.map(|r| r.1)).collect::<Vec<_>>())
        .bind(rows.iter().map(|r| r.map(|r| r.2)).collect::<Vec<_>>())
        .bind(subjects)
        .bind(alpha)
        .bind(beta)
        .fetch_all(db)
        .await?;
    if inserted.len() != events.len() {
        let ticks: BTreeSet<TickId> = events.iter().map(|e| e.tick).collect();
        return Err(conflict(format!(
            "beliefs already moved by a source of {ticks:?}"
        )));
    }
    let mut event_seqs = Vec::with_capacity(inserted.len());
    for row in &inserted {
        event_seqs.push(row.try_get(0)?);
    }
    // Places grow in the order of the rows; whatever order they come back in.
    event_seqs.sort_unstable();
    Ok(event_seqs)
}

/// The sums of some events by subject.
#[derive(Default)]
struct Moved {
    alpha_micro: i64,
    beta_micro: i64,
    n: i64,
    last_event_seq: i64,
}

async fn beliefs_add(
    db: &mut PgConnection,
    events: &[BeliefEvent],
    event_seqs: &[i64],
) -> Result<(), StoreError> {
    let mut sums: BTreeMap<&BeliefKey, Moved> = BTreeMap::new();
    for (event, event_seq) in events.iter().zip(event_seqs) {
        for change in &event.changes {
            let moved = sums.entry(&change.key).or_default();
            moved.alpha_micro = moved.alpha_micro.saturating_add(change.alpha_micro);
            moved.beta_micro = moved.beta_micro.saturating_add(change.beta_micro);
            moved.n += 1;
            moved.last_event_seq = *event_seq;
        }
    }
    let sql = "INSERT INTO belief (subject, alpha_micro, beta_micro, last_event_seq, n_events)
               SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[],
                                    $5::bigint[])
               ON CONFLICT (subject) DO UPDATE SET
                   alpha_micro = belief.alpha_micro + excluded.alpha_micro,
                   beta_micro = belief.beta_micro + excluded.beta_micro,
                   last_event_seq = excluded.last_event_seq,
                   n_events = belief.n_events + excluded.n_events";
    let column = |of: fn(&Moved) -> i64| sums.values().map(of).collect::<Vec<_>>();
    sqlx::query(sql)
        .bind(sums.keys().map(ToString::to_string).collect::<Vec<_>>())
        .bind(column(|m| m.alpha_micro))
        .bind(column(|m| m.beta_micro))
        .bind(column(|m| m.last_event_seq))
        .bind(column(|m| m.n))
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
