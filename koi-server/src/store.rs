//! The store: Postgres as the durable interpreter of [`koi_core::store::StoreTx`], the history that
//! people ask for, and telemetry. The only place that speaks SQL.
//!
//! Not the meaning of a transaction: that is [`koi_core::store::ServerState::apply`], and a
//! conformance suite holds both to each other. Spec §18.1, §18.8, §18.9; reliability contract 2.0.

mod apply;
mod audit;
mod belief;
mod calibration;
mod commit;
mod contrast;
mod document;
mod error;
mod evidence;
mod head;
mod host;
mod job;
mod ladder;
mod mechanism;
mod page;
mod performance;
mod plan;
mod price;
mod refused;
mod replica;
mod request;
mod slow_history;
mod state;
pub mod telemetry;
mod tick;
mod token;

use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{Connection as _, PgConnection};

pub use audit::AuditLine;
pub use belief::{BeliefMismatch, BeliefStep, Verified};
pub use commit::TxKey;
pub use error::{ErrorClass, Outage, Outcome, StoreError};
pub use job::FinishedJob;
pub use page::{MAX_PAGE, Page, PageRequest};
pub use performance::{ImportCounts, ImportedRow, PerformanceFilter, PerformanceSource};
pub use slow_history::SLOW_HISTORY_TICKS;
pub use state::{LoadedState, Quarantined};
pub use token::{NewToken, TokenRecord};

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations");

/// Connections kept for decisions alone, so that no reader or flood of telemetry can starve them.
const CONTROL_CONNECTIONS: u32 = 4;

/// Limits of the store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Connections in all; at least eight, four of which are kept for decisions.
    pub max_connections: u32,
    /// Longest time for one statement of a reader or of telemetry.
    pub statement_timeout: Duration,
    /// Longest wait for a lock.
    pub lock_timeout: Duration,
    /// Longest wait for a connection from the pool.
    pub acquire_timeout: Duration,
    /// Longest time for one commit, retries included.
    pub commit_deadline: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            max_connections: 16,
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(2),
            acquire_timeout: Duration::from_secs(2),
            commit_deadline: Duration::from_secs(2),
        }
    }
}

/// Reads a URL; one of another kind of database is refused here, for sqlx would look for its host.
fn connect_options(url: &str) -> Result<PgConnectOptions, StoreError> {
    let is_postgres = ["postgres://", "postgresql://"]
        .iter()
        .any(|s| url.starts_with(s));
    if !is_postgres {
        let why = "it must begin with postgres:// or postgresql://";
        return Err(StoreError::BadUrl(sqlx::Error::Configuration(why.into())));
    }
    PgConnectOptions::from_str(url).map_err(StoreError::BadUrl)
}

/// The database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    /// Decisions: epoch, commits, the state they start from.
    control: PgPool,
    /// Everything else: history, telemetry.
    shared: PgPool,
    options: StoreOptions,
    telemetry: std::sync::Arc<telemetry::Caches>,
    refused: std::sync::Arc<refused::RefusedWrites>,
}

impl Store {
    /// Connects; fails at once when the database cannot be reached.
    ///
    /// # Errors
    /// [`StoreError`]; a URL that cannot be read is a caller's mistake.
    pub async fn connect(url: &str, options: StoreOptions) -> Result<Self, StoreError> {
        let base = connect_options(url)?;
        let millis = |d: Duration| d.as_millis().to_string();
        let connect = base.application_name("koi-server").options([
            ("statement_timeout", millis(options.statement_timeout)),
            ("lock_timeout", millis(options.lock_timeout)),
            (
                "idle_in_transaction_session_timeout",
                millis(options.statement_timeout),
            ),
            ("timezone", "UTC".to_owned()),
            // What migrations and partitions find in place already is no news.
            ("client_min_messages", "warning".to_owned()),
        ]);
        // A pool tries until its patience ends and then says that alone; one connection says why.
        let first = PgConnection::connect_with(&connect);
        match tokio::time::timeout(options.acquire_timeout, first).await {
            Ok(first) => first?.close().await?,
            Err(_) => return Err(sqlx::Error::PoolTimedOut.into()),
        }
        let pool = |size| {
            PgPoolOptions::new()
                .max_connections(size)
                .acquire_timeout(options.acquire_timeout)
                .idle_timeout(Duration::from_secs(300))
        };
        let control = pool(CONTROL_CONNECTIONS)
            .connect_with(connect.clone())
            .await?;
        let others = options.max_connections.max(2 * CONTROL_CONNECTIONS) - CONTROL_CONNECTIONS;
        let shared = pool(others).connect_lazy_with(connect);
        Ok(Self {
            control,
            shared,
            options,
            telemetry: std::sync::Arc::default(),
            refused: std::sync::Arc::default(),
        })
    }

    /// Brings the schema up to date; a database that is newer than this build is refused. Each
    /// migration is one transaction, so a killed run is simply run again.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn migrate(&self) -> Result<(), StoreError> {
        // Building an index on a large table takes longer than a reader may.
        let mut db = self.control.acquire().await?;
        sqlx::raw_sql("SET statement_timeout = 0; SET lock_timeout = 0")
            .execute(&mut *db)
            .await?;
        let done = MIGRATIONS.run(&mut *db).await;
        // The session's limits are not the defaults any more.
        db.close().await?;
        Ok(done?)
    }

    /// True when the database answers.
    ///
    /// # Errors
    /// [`StoreError`] with the reason when it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(&self.control).await?;
        Ok(())
    }

    /// What a database that answers refused to write in the last minute, and why: a full disk, a
    /// standby. `None` when nothing was refused.
    #[must_use]
    pub fn refused_writes(&self) -> Option<String> {
        self.refused.told_at(tokio::time::Instant::now())
    }

    /// When the database was started, in microseconds since the Unix epoch: another time means that
    /// it was away, however short.
    ///
    /// # Errors
    /// [`StoreError`] with the reason when it does not answer.
    pub async fn database_started_at_us(&self) -> Result<i64, StoreError> {
        let started = "SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint";
        Ok(sqlx::query_scalar(started).fetch_one(&self.control).await?)
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.shared.close().await;
        self.control.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_of_postgres_are_taken() {
        for url in ["postgres://koi@db/koi", "postgresql:///koi?host=/run/koi"] {
            assert!(connect_options(url).is_ok(), "{url}");
        }
        for url in ["mysql://a/b", "nonsense", ""] {
            let refused = connect_options(url).unwrap_err();
            assert!(matches!(refused, StoreError::BadUrl(_)), "{url}");
        }
    }
}
