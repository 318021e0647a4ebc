//! Postgres in trouble: killed, cut off at COMMIT, locked, fenced, damaged.

use std::time::{Duration, Instant};

use koi_core::ids::Epoch;
use koi_core::store::{Change, StoreTx, TxRefusal};
use koi_server::store::{ErrorClass, Outage, Outcome, Store, StoreError, StoreOptions};

use super::records::*;
use super::{key, load, refusal};
use crate::support::{TestDatabase, patient};

/// Kills every backend of the test's database except its own.
async fn kill_backends(database: &TestDatabase) {
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    sqlx::query(sql)
        .execute(&mut database.raw().await)
        .await
        .unwrap();
}

#[tokio::test]
async fn hazard_b1_a_cut_connection_is_retried_within_the_deadline() {
    let database = TestDatabase::new().await;
    for n in 1..=5 {
        kill_backends(&database).await;
        let name = format!("job-{n}");
        database
            .store
            .commit(&tx(vec![put_job(&job(n, &name))]))
            .await
            .unwrap();
    }
    assert_eq!(load(&database).await.jobs.len(), 5);
}

#[tokio::test]
async fn hazard_b2_the_same_key_happens_once() {
    let database = TestDatabase::new().await;
    let store = &database.store;
    let chat = job(1, "chat");
    let events = vec![belief_event(1, (chat.id, 0), &[("edge:e1", 10, 0)])];
    let once = tx(vec![
        put_job(&chat),
        Change::BeliefEvents(events),
        audit("once"),
    ]);
    let (first, other) = (key(), key());
    assert!(!store.has_happened(first).await.unwrap());
    for _ in 0..3 {
        store.commit_with_key(first, &once).await.unwrap();
    }
    assert!(store.has_happened(first).await.unwrap());
    assert!(!store.has_happened(other).await.unwrap());
    let lines = store.audit(&Default::default()).await.unwrap().items;
    assert_eq!(lines.len(), 1, "one transaction, one line");
    let reused = store
        .commit_with_key(first, &tx(vec![audit("other")]))
        .await;
    assert!(matches!(reused, Err(StoreError::KeyReused(k)) if k == first));
    // Refused transactions leave no key behind: the same key may be used once more.
    let refused = store
        .commit_with_key(other, &tx(vec![put_job(&chat)]))
        .await;
    assert!(matches!(
        refused,
        Err(StoreError::Refused(TxRefusal::Conflict(_)))
    ));
    store
        .commit_with_key(other, &tx(vec![audit("second")]))
        .await
        .unwrap();
    assert_eq!(store.forget_keys_before(i64::MAX).await.unwrap(), 2);
}

/// Commits while another connection keeps killing the store's backends: whatever each commit was
/// told, under its key it happened exactly once.
#[tokio::test]
async fn hazard_b2_an_unknown_outcome_is_settled_by_the_key() {
    let database = TestDatabase::new().await;
    let killer = async {
        for _ in 0..60 {
            kill_backends(&database).await;
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    let writer = async {
        let mut n_transient = 0;
        for n in 1..=40 {
            let name = format!("job-{n}");
            let (key, tx) = (key(), tx(vec![put_job(&job(n, &name)), audit(&name)]));
            while let Err(error) = database.store.commit_with_key(key, &tx).await {
                assert_eq!(error.class(), ErrorClass::Transient, "{error:?}");
                n_transient += 1;
                assert!(n_transient < 1_000, "the database never came back");
            }
        }
    };
    tokio::join!(killer, writer);
    assert_eq!(load(&database).await.jobs.len(), 40);
    let page = koi_server::store::PageRequest::first(1_000);
    let mut lines: Vec<String> = database
        .store
        .audit(&page)
        .await
        .unwrap()
        .items
        .into_iter()
        .map(|line| line.record.action)
        .collect();
    assert_eq!(lines.len(), 40);
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 40, "nothing happened twice");
}

#[tokio::test]
async fn hazard_b4_only_the_newest_epoch_writes() {
    let database = TestDatabase::new().await;
    let second = Store::connect(&database.url, patient()).await.unwrap();
    let (old, new) = (
        database.store.acquire_epoch().await.unwrap(),
        second.acquire_epoch().await.unwrap(),
    );
    assert_eq!((old, new), (Epoch(1), Epoch(2)));
    let from = |epoch, n| StoreTx {
        epoch,
        ..tx(vec![put_job(&job(n, &format!("job-{n}")))])
    };
    let fenced = refusal(database.store.commit(&from(old, 1)).await);
    assert_eq!(
        fenced,
        Err(TxRefusal::Fenced {
            offered: old,
            stored: new
        })
    );
    second.commit(&from(new, 2)).await.unwrap();
    assert_eq!(load(&database).await.jobs.len(), 1);
}

#[tokio::test]
async fn hazard_b5_a_read_only_database_is_told_apart() {
    let database = TestDatabase::new().await;
    let name: String = sqlx::query_scalar("SELECT current_database()")
        .fetch_one(&mut database.raw().await)
        .await
        .unwrap();
    let sql = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
    sqlx::query(sqlx::AssertSqlSafe(sql))
        .execute(&mut database.raw().await)
        .await
        .unwrap();
    let store = Store::connect(&database.url, patient()).await.unwrap();
    let error = store.commit(&tx(vec![audit("no")])).await.unwrap_err();
    let read_only = matches!(
        error,
        StoreError::Unavailable {
            outage: Outage::ReadOnly,
            outcome: Outcome::NotApplied,
            ..
        }
    );
    assert!(read_only, "{error:?}");
    store.load_state().await.unwrap();
}

/// A trigger refuses as Postgres does when it cannot extend a file.
#[tokio::test]
async fn hazard_b6_a_full_disk_says_what_to_do_and_nothing_is_half_written() {
    let database = TestDatabase::new().await;
    let full = "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full';
         END $$;
         CREATE TRIGGER full_disk BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION full_disk()";
    let mut admin = database.raw().await;
    sqlx::raw_sql(full).execute(&mut admin).await.unwrap();
    let both = tx(vec![put_job(&job(1, "chat")), audit("no")]);
    let error = database.store.commit(&both).await.unwrap_err();
    let is_full = matches!(
        error,
        StoreError::Unavailable {
            outage: Outage::DiskFull,
            outcome: Outcome::NotApplied,
            ..
        }
    );
    assert!(is_full && error.is_transient(), "{error:?}");
    assert!(error.to_string().contains("disk is full"), "{error}");
    assert_eq!(load(&database).await.jobs.len(), 0);
    let freed = "DROP TRIGGER full_disk ON audit";
    sqlx::raw_sql(freed).execute(&mut admin).await.unwrap();
    database.store.commit(&both).await.unwrap();
    assert_eq!(load(&database).await.jobs.len(), 1);
}

#[tokio::test]
async fn hazard_b8_a_held_lock_ends_in_a_typed_error_in_time() {
    let database = TestDatabase::new().await;
    let options = StoreOptions {
        commit_deadline: Duration::from_millis(400),
        lock_timeout: Duration::from_secs(60),
        ..patient()
    };
    let store = Store::connect(&database.url, options).await.unwrap();
    let mut holder = database.raw().await;
    let lock = "BEGIN; SELECT * FROM store_head FOR UPDATE";
    sqlx::raw_sql(lock).execute(&mut holder).await.unwrap();
    let begun = Instant::now();
    let error = store.commit(&tx(vec![audit("late")])).await.unwrap_err();
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "waited {:?}",
        begun.elapsed()
    );
    assert!(
        matches!(
            error,
            StoreError::Deadline {
                outcome: Outcome::NotApplied,
                ..
            }
        ),
        "{error:?}"
    );
    let options = StoreOptions {
        lock_timeout: Duration::from_millis(100),
        ..patient()
    };
    let store = Store::connect(&database.url, options).await.unwrap();
    let error = store.commit(&tx(vec![audit("late")])).await.unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Unavailable {
                outage: Outage::Timeout,
                ..
            }
        ),
        "{error:?}"
    );
    sqlx::raw_sql("ROLLBACK")
        .execute(&mut holder)
        .await
        .unwrap();
    store.commit(&tx(vec![audit("now")])).await.unwrap();
    assert_eq!(
        store.audit(&Default::default()).await.unwrap().items.len(),
        1
    );
}

/// A trigger gives way twice, as a serialization failure would; the whole transaction is repeated.
#[tokio::test]
async fn hazard_b9_serialization_failures_are_retried() {
    let database = TestDatabase::new().await;
    let give_way = |times: u32| {
        format!(
            "DROP SEQUENCE IF EXISTS tries CASCADE; CREATE SEQUENCE tries;
             CREATE OR REPLACE FUNCTION give_way() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF nextval('tries') <= {times} THEN
                     RAISE EXCEPTION 'give way' USING ERRCODE = '40P01';
                 END IF;
                 RETURN NEW;
             END $$;
             CREATE OR REPLACE TRIGGER give_way BEFORE INSERT ON audit
             FOR EACH ROW EXECUTE FUNCTION give_way()"
        )
    };
    let mut admin = database.raw().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(give_way(2)))
        .execute(&mut admin)
        .await
        .unwrap();
    let chat = job(1, "chat");
    database
        .store
        .commit(&tx(vec![put_job(&chat), audit("x")]))
        .await
        .unwrap();
    assert_eq!(load(&database).await.jobs.len(), 1);
    let tries: i64 = sqlx::query_scalar("SELECT last_value FROM tries")
        .fetch_one(&mut admin)
        .await
        .unwrap();
    assert_eq!(tries, 3);
    sqlx::raw_sql(sqlx::AssertSqlSafe(give_way(1_000)))
        .execute(&mut admin)
        .await
        .unwrap();
    let error = database
        .store
        .commit(&tx(vec![audit("y")]))
        .await
        .unwrap_err();
    let gave_up = matches!(
        error,
        StoreError::Unavailable {
            outage: Outage::Serialization,
            ..
        }
    );
    assert!(gave_up, "{error:?}");
    let tries: i64 = sqlx::query_scalar("SELECT last_value FROM tries")
        .fetch_one(&mut admin)
        .await
        .unwrap();
    assert_eq!(tries, 6, "one try and five retries");
}

#[tokio::test]
async fn hazard_b11_readers_cannot_starve_decisions() {
    let database = TestDatabase::new().await;
    // Readers queue behind this lock and take every shared connection.
    let mut holder = database.raw().await;
    sqlx::raw_sql("BEGIN; LOCK TABLE token")
        .execute(&mut holder)
        .await
        .unwrap();
    let readers: Vec<_> = (0..30)
        .map(|_| {
            let store = database.store.clone();
            tokio::spawn(async move { drop(store.token_lookup(&[0; 32]).await) })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let submit = tx(vec![put_job(&job(1, "chat"))]);
    let commit = database.store.commit(&submit);
    tokio::time::timeout(Duration::from_secs(5), commit)
        .await
        .unwrap()
        .unwrap();
    readers.iter().for_each(tokio::task::JoinHandle::abort);
    sqlx::raw_sql("ROLLBACK")
        .execute(&mut holder)
        .await
        .unwrap();
}

#[tokio::test]
async fn hazard_b14_a_damaged_row_is_quarantined_and_the_rest_loads() {
    let database = TestDatabase::new().await;
    let (good, bad) = (job(1, "good"), job(2, "bad"));
    let own = replica(&bad, 0, &["G1"]);
    let changes = vec![put_job(&good), put_job(&bad), put_replica(&own)];
    database.store.commit(&tx(changes)).await.unwrap();
    let sql = r#"UPDATE job SET doc = '{"from": "the future"}' WHERE name = 'bad';
                 UPDATE replica SET doc = '{}'"#;
    sqlx::raw_sql(sql)
        .execute(&mut database.raw().await)
        .await
        .unwrap();
    let loaded = database.store.load_state().await.unwrap();
    assert_eq!(
        loaded.state.jobs.keys().copied().collect::<Vec<_>>(),
        [good.id]
    );
    let tables: Vec<_> = loaded.quarantined.iter().map(|q| q.table).collect();
    assert_eq!(tables, ["job", "replica"]);
    let error = database.store.job_by_name_or_id("bad").await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Bug);
    // Its device is still taken.
    let taken = refusal(
        database
            .store
            .commit(&tx(vec![put_replica(&replica(&good, 0, &["G1"]))]))
            .await,
    );
    assert!(
        matches!(taken, Err(TxRefusal::DeviceTaken { .. })),
        "{taken:?}"
    );
}
