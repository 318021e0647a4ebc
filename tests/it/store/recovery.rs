//! Durability under `kill -9`, and the time that the largest transaction takes.

use std::time::{Duration, Instant};

use koi_core::store::Change;
use koi_server::postgres::{PrivateCluster, Settings};
use koi_server::store::{ErrorClass, PageRequest, Store, StoreError, StoreOptions};

use super::records::*;
use super::{key, load};
use crate::support::{TestDatabase, TestFolder, patient};

/// `kill -9` of the postmaster of a durable cluster under a writer: what was acknowledged is there
/// after recovery, nothing happened twice, and the store finds its way back.
#[tokio::test]
async fn hazard_b1_kill_9_of_the_server_loses_nothing_that_was_acknowledged() {
    let folder = TestFolder::new("kill");
    let cluster = PrivateCluster::prepare(&Settings::from_env(folder.0.clone())).unwrap();
    let mut running = cluster.spawn().unwrap();
    let store = Store::connect(&cluster.url(), patient()).await.unwrap();
    store.migrate().await.unwrap();
    let writer = tokio::spawn(write_until_acknowledged(store.clone()));
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        kill_9(running.pid());
        let error = impatient(&cluster).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Transient, "{error:?}");
        // The old handle goes first, as in a supervisor that saw its child die.
        drop(running);
        let again = cluster.clone();
        running = tokio::task::spawn_blocking(move || again.spawn().unwrap())
            .await
            .unwrap();
    }
    let n_acknowledged = writer.await.unwrap();
    assert_eq!(
        store.load_state().await.unwrap().state.jobs.len(),
        n_acknowledged
    );
    let page = PageRequest::first(1_000);
    assert_eq!(
        store.audit(&page).await.unwrap().items.len(),
        n_acknowledged
    );
    store.close().await;
    tokio::task::spawn_blocking(move || running.stop().unwrap())
        .await
        .unwrap();
}

/// Submits jobs one after the other for a second and a half, each under its key until it is told
/// that it happened; how many.
async fn write_until_acknowledged(store: Store) -> usize {
    let begun = Instant::now();
    let mut n_acknowledged = 0;
    while begun.elapsed() < Duration::from_millis(1_500) {
        n_acknowledged += 1;
        let name = format!("job-{n_acknowledged}");
        let n = u32::try_from(n_acknowledged).unwrap();
        let (key, tx) = (key(), tx(vec![put_job(&job(n, &name)), audit(&name)]));
        while let Err(error) = store.commit_with_key(key, &tx).await {
            assert_eq!(error.class(), ErrorClass::Transient, "{error:?}");
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "the database never came back"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    n_acknowledged
}

fn kill_9(pid: u32) {
    let done = std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()
        .unwrap();
    assert!(done.success());
}

async fn impatient(cluster: &PrivateCluster) -> Result<Store, StoreError> {
    let options = StoreOptions {
        acquire_timeout: Duration::from_millis(300),
        ..StoreOptions::default()
    };
    Store::connect(&cluster.url(), options).await
}

/// A plan that starts ten thousand GPUs at once stays inside the commit's deadline.
#[tokio::test]
async fn a_plan_for_the_whole_fleet_commits_in_time() {
    let database = TestDatabase::new().await;
    let jobs: Vec<_> = (0..250).map(|n| job(n, &format!("job-{n}"))).collect();
    database
        .store
        .commit(&tx(jobs.iter().map(put_job).collect()))
        .await
        .unwrap();
    let mut changes: Vec<Change> = jobs
        .iter()
        .map(|j| put_job(&rolling_out(j, 1, 9.5)))
        .collect();
    for (n, job) in jobs.iter().enumerate() {
        for index in 0..10_u32 {
            let devices: Vec<String> = (0..4).map(|gpu| format!("GPU-{n}-{index}-{gpu}")).collect();
            let names: Vec<&str> = devices.iter().map(String::as_str).collect();
            changes.push(put_replica(&replica(job, index, &names)));
        }
    }
    let ids: Vec<_> = jobs.iter().map(|j| j.id).collect();
    changes.push(put_plan(&plan(1, 0, &ids, 1.0)));
    let begun = Instant::now();
    database.store.commit(&tx(changes)).await.unwrap();
    println!(
        "2,500 replicas on 10,000 devices committed in {:?}",
        begun.elapsed()
    );
    let begun = Instant::now();
    let state = load(&database).await;
    println!("loaded in {:?}", begun.elapsed());
    assert_eq!((state.jobs.len(), state.replicas.len()), (250, 2_500));
}
