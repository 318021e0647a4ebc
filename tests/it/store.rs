//! The store: one conformance suite for Postgres and memory, and what only Postgres can show.

mod conformance;
mod contrasts;
mod faults;
mod hang;
mod history;
mod learned;
mod mechanisms;
mod performance;
mod prices;
mod private_cluster;
mod programs;
pub(crate) mod records;
mod recovery;
mod replay;
mod schema;
mod telemetry;
mod words;

use koi_core::store::{ServerState, StoreTx, TxRefusal};
use koi_server::store::{StoreError, TxKey};
use koi_sim::mem_store::MemStore;

use crate::support::TestDatabase;

/// Both interpreters of a transaction, for tests that hold for either.
pub(crate) enum AnyStore {
    Memory(Box<MemStore>),
    Postgres(TestDatabase),
}

impl AnyStore {
    pub(crate) async fn both() -> [Self; 2] {
        [
            Self::Memory(Box::default()),
            Self::Postgres(TestDatabase::new().await),
        ]
    }

    pub(crate) async fn commit(&mut self, tx: &StoreTx) -> Result<(), TxRefusal> {
        match self {
            Self::Memory(memory) => memory.commit(tx),
            Self::Postgres(database) => refusal(database.store.commit(tx).await),
        }
    }

    pub(crate) async fn load(&self) -> ServerState {
        match self {
            Self::Memory(memory) => memory.load_state(),
            Self::Postgres(database) => load(database).await,
        }
    }
}

/// The state, nothing of which may have been left out.
pub(crate) async fn load(database: &TestDatabase) -> ServerState {
    let loaded = database.store.load_state().await.unwrap();
    assert_eq!(loaded.quarantined, []);
    loaded.state
}

/// Refusals as values; everything else fails the test.
pub(crate) fn refusal(result: Result<(), StoreError>) -> Result<(), TxRefusal> {
    match result {
        Ok(()) => Ok(()),
        Err(StoreError::Refused(refusal)) => Err(refusal),
        Err(StoreError::KeyReused(key)) => Err(TxRefusal::Conflict(format!(
            "key {key} was used for another transaction"
        ))),
        Err(other) => panic!("{other}: {:?}", std::error::Error::source(&other)),
    }
}

/// Refusals are compared by what a caller can act on; the words of a conflict are for people.
pub(crate) fn comparable(result: Result<(), TxRefusal>) -> Result<(), TxRefusal> {
    result.map_err(|refusal| match refusal {
        TxRefusal::Conflict(_) => TxRefusal::Conflict(String::new()),
        other => other,
    })
}

pub(crate) fn key() -> TxKey {
    TxKey::fresh()
}
