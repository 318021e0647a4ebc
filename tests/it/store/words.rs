//! Words that an agent sent lie in records: none of their characters keeps a row from being written.

use koi_core::store::{Change, ReplicaPhase};

use super::records::*;
use super::{AnyStore, comparable};

#[tokio::test]
async fn a_reason_with_any_character_is_stored_as_it_is() {
    for mut store in AnyStore::both().await {
        let job = job(1, "chat");
        let base = vec![put_job(&job), Change::Host(Box::new(host("h1", 1)))];
        assert_eq!(comparable(store.commit(&tx(base)).await), Ok(()));
        let mut failed = replica(&job, 0, &["GPU-h1-0", "GPU-h1-1"]);
        failed.phase = ReplicaPhase::Failed {
            reason: "a\0b \u{1b}[2J \\u0000 \u{fffe} \"gpu_uuids\": 'ü'".to_owned(),
        };
        let other = replica(&job, 1, &["GPU-h1-2"]);
        let rows = vec![put_replica(&failed), put_replica(&other)];
        assert_eq!(comparable(store.commit(&tx(rows)).await), Ok(()));
        let state = store.load().await;
        assert_eq!(state.replicas[&failed.id], failed);
        assert_eq!(state.replicas[&other.id], other);
    }
}
