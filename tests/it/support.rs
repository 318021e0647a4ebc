//! One private Postgres per test run and one database per test.
//!
//! Needs nothing but the binaries: the cluster is made in a temporary folder, never as root, without
//! fsync, and goes away with the test process however that ends.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use koi_server::postgres::{PrivateCluster, RunningPostgres, Settings};
use koi_server::store::{Store, StoreOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// Database that every test's database is a copy of.
const TEMPLATE: &str = "koi_template";

static CLUSTER: OnceLock<RunningPostgres> = OnceLock::new();
static N_FOLDERS: AtomicU32 = AtomicU32::new(0);

/// A folder of this test run that other accounts can enter.
pub(crate) fn scratch_folder(name: &str) -> PathBuf {
    let n = N_FOLDERS.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("koi-it-{}-{n}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A folder that is removed when the test is over.
pub(crate) struct TestFolder(pub(crate) PathBuf);

impl TestFolder {
    pub(crate) fn new(name: &str) -> Self {
        Self(scratch_folder(name))
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

/// Options that a loaded two-core machine can keep.
pub(crate) fn patient() -> StoreOptions {
    StoreOptions {
        max_connections: 8,
        acquire_timeout: std::time::Duration::from_secs(20),
        commit_deadline: std::time::Duration::from_secs(20),
        ..StoreOptions::default()
    }
}

/// The URL of a database of the run's cluster.
fn url_of(database: &str) -> String {
    let cluster = CLUSTER.get_or_init(start_cluster);
    cluster.url().replace("/koi?", &format!("/{database}?"))
}

/// Starts the cluster and fills the template; on a thread of its own, because a test's runtime may
/// not block.
fn start_cluster() -> RunningPostgres {
    let start = || {
        let settings = Settings::throwaway(scratch_folder("cluster"));
        let running = PrivateCluster::prepare(&settings).unwrap().spawn().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut admin = PgConnection::connect(&running.url()).await.unwrap();
            create(&mut admin, &format!("CREATE DATABASE {TEMPLATE}")).await;
            admin.close().await.unwrap();
            let url = running.url().replace("/koi?", &format!("/{TEMPLATE}?"));
            let store = Store::connect(&url, patient()).await.unwrap();
            store.migrate().await.unwrap();
            store.close().await;
        });
        running
    };
    std::thread::spawn(start).join().unwrap()
}

async fn create(admin: &mut PgConnection, sql: &str) {
    sqlx::query(AssertSqlSafe(sql.to_owned()))
        .execute(admin)
        .await
        .unwrap();
}

/// A database of one test.
pub(crate) struct TestDatabase {
    pub(crate) url: String,
    pub(crate) store: Store,
}

impl TestDatabase {
    /// A copy of the migrated template.
    pub(crate) async fn new() -> Self {
        let n = N_FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{n}");
        let mut admin = PgConnection::connect(&url_of("koi")).await.unwrap();
        create(
            &mut admin,
            &format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}"),
        )
        .await;
        admin.close().await.unwrap();
        let url = url_of(&name);
        let store = Store::connect(&url, patient()).await.unwrap();
        Self { url, store }
    }

    /// A connection beside the store's, for looking and for making trouble.
    pub(crate) async fn raw(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }
}
