//! Idempotency keys: a change that is asked for again under its key gets the first answer.
//!
//! Requests under one key run one at a time, to their end even when the caller leaves: the second
//! finds what the first left in the store. A key is optional; without one every call is new.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use koi_core::store::RequestRecord;
use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedMutexGuard;
use tonic::Status;

use super::status::{invalid_field, store_failed};
use crate::auth::Identity;
use crate::store::Store;

/// Longest idempotency key.
const MAX_KEY_BYTES: usize = 128;

type Turns = BTreeMap<(String, String), Weak<tokio::sync::Mutex<()>>>;

/// What was asked for before, and who is asking now.
#[derive(Clone)]
pub struct Requests {
    store: Store,
    turns: Arc<Mutex<Turns>>,
}

/// What a key stands for.
pub(super) enum Asked {
    /// It was done before; this is what it made.
    Before(String),
    /// It is new.
    Now(Turn),
}

/// The only running request of its key.
pub(super) struct Turn {
    /// To be written together with the change.
    pub(super) record: RequestRecord,
    alone: Option<OwnedMutexGuard<()>>,
}

impl Requests {
    /// Over a store.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self {
            store,
            turns: Arc::default(),
        }
    }

    /// What a key stands for. `payload` is the request in a form in which equal requests are equal.
    pub(super) async fn ask(
        &self,
        identity: &Identity,
        key: &str,
        payload: &[u8],
    ) -> Result<Asked, Status> {
        if key.len() > MAX_KEY_BYTES || !key.bytes().all(|c| c.is_ascii_graphic()) {
            let message = format!("at most {MAX_KEY_BYTES} printable ASCII characters");
            return Err(invalid_field("idempotency_key", message));
        }
        let digest = Sha256::digest(payload);
        let mut record = RequestRecord {
            identity: identity.name(),
            key: key.to_owned(),
            payload_hash: digest.iter().map(|b| format!("{b:02x}")).collect(),
            object: String::new(),
        };
        if key.is_empty() {
            record.key = uuid::Uuid::now_v7().to_string();
            let alone = None;
            return Ok(Asked::Now(Turn { record, alone }));
        }
        let alone = Some(self.turn(&record).lock_owned().await);
        let known = self.store.request(&record.identity, key).await;
        match known.map_err(|e| store_failed(&e))? {
            None => Ok(Asked::Now(Turn { record, alone })),
            Some(known) if known.payload_hash == record.payload_hash => {
                Ok(Asked::Before(known.object))
            }
            Some(_) => Err(Status::aborted(
                "this idempotency key was used for another request",
            )),
        }
    }

    /// The lock of a key; those that nobody holds are forgotten.
    fn turn(&self, record: &RequestRecord) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        let name = (record.identity.clone(), record.key.clone());
        let held = turns.entry(name).or_default();
        held.upgrade().unwrap_or_else(|| {
            let fresh = Arc::default();
            *held = Arc::downgrade(&fresh);
            fresh
        })
    }
}

impl Turn {
    /// True when the caller may ask again under a key.
    pub(super) fn is_keyed(&self) -> bool {
        self.alone.is_some()
    }

    /// Does the work to its end, whether or not the caller waits for it.
    pub(super) async fn run<T: Send + 'static>(
        self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Status> {
        let alone = self.alone;
        let task = tokio::spawn(async move {
            let done = work.await;
            drop(alone);
            done
        });
        let ended = task.await;
        ended.map_err(|_| Status::internal("the request failed; see the server's log"))
    }
}
