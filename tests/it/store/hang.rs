//! A database that hangs: it neither answers nor ends its connections.

use std::time::Duration;

use koi_server::pulse::Pulse;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::support::TestDatabase;

/// The processes that serve this test's database, to be woken however the test ends.
struct Backends(Vec<Pid>);

impl Backends {
    async fn of(database: &TestDatabase) -> Self {
        let sql = "SELECT pid FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let pids: Vec<i32> = sqlx::query_scalar(sql)
            .fetch_all(&mut database.raw().await)
            .await
            .unwrap();
        Self(pids.into_iter().filter_map(Pid::from_raw).collect())
    }

    fn signal(&self, signal: Signal) {
        for pid in &self.0 {
            kill_process(*pid, signal).unwrap();
        }
    }
}

impl Drop for Backends {
    fn drop(&mut self) {
        for pid in &self.0 {
            // One that has ended needs no waking.
            let _woken = kill_process(*pid, Signal::CONT);
        }
    }
}

async fn within(limit: Duration, pulse: &Pulse, wanted: impl Fn(Option<&str>) -> bool) {
    let begun = Instant::now();
    while !wanted(pulse.problem().as_deref()) {
        assert!(begun.elapsed() < limit, "{:?}", pulse.problem());
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_database_that_hangs_is_not_called_well() {
    let database = TestDatabase::new().await;
    let shutdown = CancellationToken::new();
    let (pulse, task) = Pulse::start(database.store.clone(), shutdown.clone());
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(pulse.problem(), None);
    let backends = Backends::of(&database).await;
    assert!(!backends.0.is_empty());
    backends.signal(Signal::STOP);
    let is_silent = |p: Option<&str>| p.is_some_and(|p| p.starts_with("no answer for "));
    within(Duration::from_millis(2_500), &pulse, is_silent).await;
    backends.signal(Signal::CONT);
    within(Duration::from_secs(10), &pulse, |p| p.is_none()).await;
    shutdown.cancel();
    task.await.unwrap();
}
