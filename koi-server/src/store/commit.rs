//! One transaction, whole or not at all, at most once, within a deadline.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::{PgConnection, Row};
use tokio::time::Instant;

use koi_core::store::{Change, StoreTx};

use super::apply::apply;
use super::evidence::Documents;
use super::head::{head_lock, head_write};
use super::{Outcome, Store, StoreError, document};

/// Tries after the first one; a lock conflict that lasts longer is not one.
const MAX_RETRIES: u32 = 5;
/// First pause before a retry; doubles every time, half of it random.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Identity of one commit across its retries: what happened under it is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TxKey(uuid::Uuid);

impl TxKey {
    /// A key that nobody has used.
    #[must_use]
    pub fn fresh() -> Self {
        Self(uuid::Uuid::now_v7())
    }
}

impl fmt::Display for TxKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What one attempt needs.
struct Attempt<'a> {
    key: TxKey,
    payload_hash: [u8; 32],
    tx: &'a StoreTx,
    documents: Documents,
    /// True from the moment that COMMIT may have been sent.
    committing: AtomicBool,
}

impl Store {
    /// Commits under a fresh key.
    ///
    /// # Errors
    /// As [`Self::commit_with_key`]; with an unknown outcome use that function instead.
    pub async fn commit(&self, tx: &StoreTx) -> Result<(), StoreError> {
        self.commit_with_key(TxKey::fresh(), tx).await
    }

    /// Locks the head, compares the epoch, checks the conditions, applies the changes and remembers
    /// the key, in one database transaction. A transaction that already happened under this key
    /// succeeds without happening again, so a caller that got [`Outcome::Unknown`] repeats the call.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the state does not allow it, [`StoreError::KeyReused`], and
    /// what the database says; [`StoreError::outcome`] tells whether it may have happened.
    pub async fn commit_with_key(&self, key: TxKey, tx: &StoreTx) -> Result<(), StoreError> {
        let result = self.commit_within_deadline(key, tx).await;
        self.refused.note(&result);
        result
    }

    async fn commit_within_deadline(&self, key: TxKey, tx: &StoreTx) -> Result<(), StoreError> {
        let documents = Documents::of(&tx.changes)?;
        let attempt = Attempt {
            key,
            payload_hash: payload_hash(tx, &documents)?,
            tx,
            documents,
            committing: AtomicBool::new(false),
        };
        let limit = self.options.commit_deadline;
        let deadline = Instant::now() + limit;
        let mut pause = FIRST_PAUSE;
        let mut n_retries = 0;
        loop {
            let tried = tokio::time::timeout_at(deadline, self.attempt(&attempt)).await;
            let unknown = attempt.committing.load(Ordering::Relaxed);
            let late = || StoreError::Deadline {
                limit_ms: limit.as_millis(),
                outcome: if unknown {
                    Outcome::Unknown
                } else {
                    Outcome::NotApplied
                },
            };
            let error = match tried {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error.with_outcome(unknown),
                Err(_elapsed) => return Err(late()),
            };
            if !error.passes_soon() || n_retries == MAX_RETRIES || Instant::now() >= deadline {
                return Err(error);
            }
            tokio::time::sleep_until((Instant::now() + jittered(pause)).min(deadline)).await;
            pause *= 2;
            n_retries += 1;
        }
    }

    async fn attempt(&self, attempt: &Attempt<'_>) -> Result<(), StoreError> {
        let mut db = self.control.begin().await?;
        let mut head = head_lock(&mut db).await?;
        if let Some(hash) = applied_tx_find(&mut db, attempt.key).await? {
            attempt.committing.store(false, Ordering::Relaxed);
            let same = hash == attempt.payload_hash;
            return if same {
                Ok(())
            } else {
                Err(StoreError::KeyReused(attempt.key))
            };
        }
        // The lock is ours and the key is not there: no earlier attempt has happened or can.
        attempt.committing.store(false, Ordering::Relaxed);
        let before = head;
        apply(&mut db, &mut head, (attempt.tx, &attempt.documents)).await?;
        if head != before {
            head_write(&mut db, &head).await?;
        }
        applied_tx_insert(&mut db, attempt).await?;
        attempt.committing.store(true, Ordering::Relaxed);
        db.commit().await?;
        Ok(())
    }

    /// Whether a transaction has happened under this key.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn has_happened(&self, key: TxKey) -> Result<bool, StoreError> {
        let mut db = self.control.begin().await?;
        // Behind the lock nothing under this key can be on its way.
        head_lock(&mut db).await?;
        Ok(applied_tx_find(&mut db, key).await?.is_some())
    }

    /// Forgets the keys of transactions and idempotent requests decided before this moment.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn forget_keys_before(&self, micros: i64) -> Result<u64, StoreError> {
        let keys = sqlx::query("DELETE FROM applied_tx WHERE decided_at < $1");
        let requests = sqlx::query("DELETE FROM request WHERE created_at < $1");
        let n_keys = keys
            .bind(micros)
            .execute(&self.shared)
            .await?
            .rows_affected();
        let n_requests = requests
            .bind(micros)
            .execute(&self.shared)
            .await?
            .rows_affected();
        Ok(n_keys + n_requests)
    }
}

/// What a transaction says, as far as two of them may differ; rows of evidence by their documents.
fn payload_hash(tx: &StoreTx, documents: &Documents) -> Result<[u8; 32], StoreError> {
    let mut hash = Sha256::new();
    let head = (tx.kind, tx.epoch, tx.at, &tx.expects, tx.changes.len());
    hash.update(document::write(&head)?);
    for (place, change) in tx.changes.iter().enumerate() {
        let Change::Evidence(rows) = change else {
            hash.update(document::write(change)?);
            continue;
        };
        hash.update(rows.len().to_le_bytes());
        for doc in documents.at(place) {
            hash.update(doc);
        }
    }
    Ok(hash.finalize().into())
}

async fn applied_tx_find(db: &mut PgConnection, key: TxKey) -> Result<Option<Vec<u8>>, StoreError> {
    let sql = "SELECT payload_hash FROM applied_tx WHERE tx_key = $1";
    let row = sqlx::query(sql).bind(key.0).fetch_optional(db).await?;
    Ok(row.map(|r| r.try_get(0)).transpose()?)
}

async fn applied_tx_insert(db: &mut PgConnection, attempt: &Attempt<'_>) -> Result<(), StoreError> {
    let sql = "INSERT INTO applied_tx (tx_key, payload_hash, kind, epoch, decided_at)
               VALUES ($1, $2, $3, $4, $5)";
    sqlx::query(sql)
        .bind(attempt.key.0)
        .bind(attempt.payload_hash.as_slice())
        .bind(attempt.tx.kind.name())
        .bind(attempt.tx.epoch.0)
        .bind(attempt.tx.at.0)
        .execute(db)
        .await?;
    Ok(())
}

/// Between half the pause and all of it; without dice the whole pause.
fn jittered(pause: Duration) -> Duration {
    let fraction = getrandom::u32().map_or(1.0, |n| f64::from(n) / f64::from(u32::MAX));
    pause.mul_f64(0.5 + 0.5 * fraction)
}
