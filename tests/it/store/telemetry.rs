//! Windows: stored exactly once, partitioned by day of receipt, read back as they were.

use koi_core::time::UtcMicros;
use koi_server::store::StoreError;
use koi_server::store::telemetry::{
    StoredHistogram, StoredWindow, TelemetryBatch, TelemetryGap, WindowsOf,
};

use super::records::job_id;
use crate::support::TestDatabase;

const DAY: i64 = 86_400_000_000;
const ALL: (UtcMicros, UtcMicros) = (UtcMicros(0), UtcMicros(i64::MAX));

fn window(n: i64, received_at: i64) -> StoredWindow {
    StoredWindow {
        host: "h1".parse().unwrap(),
        replica_id: Some(format!("chat.g1.r0.{}", n % 2).parse().unwrap()),
        job: Some(job_id(1)),
        start: UtcMicros(n * 10),
        end: UtcMicros(n * 10 + 10),
        length_us: 10_000_123,
        received_at: UtcMicros(received_at),
        n_scrapes: 3,
        scalars: vec![
            ("requests_running".to_owned(), 0.1 + 0.2),
            ("tokens".to_owned(), 1e17),
        ],
        histograms: vec![
            StoredHistogram {
                name: "ttft_seconds".to_owned(),
                edges: vec![0.001, 0.01, 2.5],
                sum: 1.0 / 3.0,
                count: 7,
                buckets: vec![(0, 3), (3, 4)],
            },
            StoredHistogram {
                name: "tpot_seconds".to_owned(),
                edges: vec![0.01, 0.02],
                sum: 0.0,
                count: 0,
                buckets: Vec::new(),
            },
        ],
        flags: vec!["sparse_scrapes".to_owned()],
    }
}

fn batch(seq: u64, windows: Vec<StoredWindow>) -> TelemetryBatch {
    TelemetryBatch {
        seq,
        windows,
        gap: None,
    }
}

fn one(seq: u64) -> TelemetryBatch {
    let n = i64::try_from(seq).unwrap();
    batch(seq, vec![window(n, DAY + n)])
}

async fn ends(database: &TestDatabase) -> Vec<i64> {
    let windows = database.store.windows_since(ALL, 1_000).await.unwrap();
    windows.iter().map(|w| w.end.0).collect()
}

#[tokio::test]
async fn windows_come_back_as_they_were() {
    let database = TestDatabase::new().await;
    let host_window = StoredWindow {
        replica_id: None,
        job: None,
        ..window(9, DAY)
    };
    let mut odd = window(3, DAY + 5);
    odd.scalars.push(("not_a_number".to_owned(), f64::NAN));
    odd.flags = Vec::new();
    let sent = vec![
        window(1, DAY),
        window(2, DAY),
        odd.clone(),
        host_window.clone(),
    ];
    database
        .store
        .telemetry_append(&"h1".parse().unwrap(), "b", &[batch(1, sent)])
        .await
        .unwrap();
    odd.scalars.pop();
    let of_job = database
        .store
        .windows(&WindowsOf::Job(job_id(1)), ALL, 10)
        .await
        .unwrap();
    assert_eq!(of_job, [window(1, DAY), window(2, DAY), odd.clone()]);
    let replica = WindowsOf::Replica("chat.g1.r0.1".parse().unwrap());
    let of_replica = database.store.windows(&replica, ALL, 10).await.unwrap();
    assert_eq!(of_replica, [window(1, DAY), odd.clone()]);
    let part = (UtcMicros(21), UtcMicros(31));
    let some = database
        .store
        .windows(&WindowsOf::Job(job_id(1)), part, 10)
        .await
        .unwrap();
    assert_eq!(some, [window(2, DAY)]);
    let late = (UtcMicros(DAY + 1), UtcMicros(DAY + 100));
    assert_eq!(database.store.windows_since(late, 10).await.unwrap(), [odd]);
    // Another server, whose dictionary is empty, reads the same.
    let other = TestDatabase {
        url: database.url.clone(),
        store: reconnect(&database).await,
    };
    assert_eq!(other.store.windows_since(ALL, 1).await.unwrap().len(), 1);
    assert!(
        other
            .store
            .windows_since(ALL, 10)
            .await
            .unwrap()
            .contains(&host_window)
    );
}

async fn reconnect(database: &TestDatabase) -> koi_server::store::Store {
    koi_server::store::Store::connect(&database.url, crate::support::patient())
        .await
        .unwrap()
}

#[tokio::test]
async fn telemetry_is_stored_exactly_once_under_duplicates_and_reordering() {
    let database = TestDatabase::new().await;
    let host = "h1".parse().unwrap();
    let append = async |batches: &[TelemetryBatch]| {
        database
            .store
            .telemetry_append(&host, "boot-1", batches)
            .await
            .unwrap()
    };
    assert_eq!(append(&[one(2)]).await, 0, "a hole is not skipped");
    assert_eq!(append(&[one(1)]).await, 1);
    assert_eq!(append(&[one(3), one(1), one(2), one(2)]).await, 3);
    assert_eq!(append(&[one(1), one(2), one(3)]).await, 3);
    assert_eq!(append(&[one(4), one(6)]).await, 4);
    assert_eq!(ends(&database).await, [20, 30, 40, 50]);
    let gap = TelemetryGap {
        from_seq: 5,
        to_seq: 7,
        n_lost: 12,
    };
    let told = TelemetryBatch {
        gap: Some(gap),
        ..one(8)
    };
    assert_eq!(append(&[one(9), told.clone()]).await, 9);
    assert_eq!(append(&[told]).await, 9);
    assert_eq!(ends(&database).await, [20, 30, 40, 50, 90, 100]);
    assert_eq!(
        database
            .store
            .telemetry_cursor(&host, "boot-1")
            .await
            .unwrap(),
        9
    );
    assert_eq!(
        database
            .store
            .telemetry_cursor(&host, "boot-2")
            .await
            .unwrap(),
        0
    );
}

#[tokio::test]
async fn concurrent_senders_of_the_same_batches_store_them_once() {
    let database = TestDatabase::new().await;
    let batches: Vec<_> = (1..=20).map(one).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let (store, batches) = (database.store.clone(), batches.clone());
        tasks.spawn(async move {
            let host = "h1".parse().unwrap();
            for some in batches.chunks(3) {
                store.telemetry_append(&host, "boot", some).await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(
        ends(&database).await,
        (1..=20).map(|n| n * 10 + 10).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn days_have_partitions_that_are_dropped_whole() {
    let database = TestDatabase::new().await;
    let host = "h1".parse().unwrap();
    let store = &database.store;
    let days = (100..103).map(|day| window(day, day * DAY + 5)).collect();
    store
        .telemetry_append(&host, "b", &[batch(1, days)])
        .await
        .unwrap();
    store.partitions_ahead(UtcMicros(102 * DAY)).await.unwrap();
    let count = "SELECT count(*) FROM pg_inherits WHERE inhparent = '\"window\"'::regclass";
    let n: i64 = sqlx::query_scalar(count)
        .fetch_one(&mut database.raw().await)
        .await
        .unwrap();
    assert_eq!(n, 4);
    assert_eq!(
        store
            .drop_partitions_before(UtcMicros(102 * DAY + 7))
            .await
            .unwrap(),
        2
    );
    assert_eq!(ends(&database).await, [102 * 10 + 10]);
    // A day that was dropped can be written again.
    store
        .telemetry_append(&host, "b", &[batch(2, vec![window(7, 100 * DAY)])])
        .await
        .unwrap();
    assert_eq!(ends(&database).await.len(), 2);
    // Another server that knows of no partition.
    let other = reconnect(&database).await;
    other
        .telemetry_append(&host, "b", &[batch(3, vec![window(8, 102 * DAY)])])
        .await
        .unwrap();
}

#[tokio::test]
async fn a_batch_that_breaks_a_bound_is_refused_whole() {
    let database = TestDatabase::new().await;
    let host = "h1".parse().unwrap();
    let broken = |change: &dyn Fn(&mut StoredWindow)| {
        let mut bad = window(2, DAY);
        change(&mut bad);
        batch(1, vec![window(1, DAY), bad])
    };
    let cases = [
        broken(&|w| w.scalars[0].0 = "tab\there".to_owned()),
        broken(&|w| w.scalars[0].0 = "x".repeat(300)),
        broken(&|w| w.histograms[0].edges = vec![1.0, 1.0]),
        broken(&|w| w.histograms[0].edges = vec![f64::NAN]),
        broken(&|w| w.histograms[0].buckets = vec![(4, 1)]),
        broken(&|w| w.histograms[0].sum = f64::INFINITY),
        broken(&|w| w.histograms[0].count = u64::MAX),
        broken(&|w| w.n_scrapes = u32::MAX),
        broken(&|w| w.received_at = UtcMicros(i64::MAX)),
        broken(&|w| w.scalars = vec![("s".to_owned(), 1.0); 300]),
        batch(0, Vec::new()),
        batch(u64::MAX, Vec::new()),
    ];
    for (i, case) in cases.into_iter().enumerate() {
        let answer = database.store.telemetry_append(&host, "b", &[case]).await;
        assert!(
            matches!(answer, Err(StoreError::BadTelemetry(_))),
            "case {i}: {answer:?}"
        );
    }
    let boot = database.store.telemetry_append(&host, "a b", &[]).await;
    assert!(matches!(boot, Err(StoreError::BadTelemetry(_))));
    assert!(ends(&database).await.is_empty());
}
