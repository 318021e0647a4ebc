//! The measured points that plans read: loaded from the table `performance` once, and again at the
//! first tick after an import; a tick in between reads what is there. Spec §4, member 2.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use koi_core::catalog::Catalog;
use koi_core::surrogate::points::{MeasuredPoints, PlannedPoints};

use crate::store::{Store, StoreError};

/// Rows read of one model on one GPU type, as sources name them; the newest imports first.
const ROWS_PER_SCOPE: u32 = 1_000;
/// Rows read in all.
const ROWS_MAX: u32 = 40_000;

/// Why points could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum PointsError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A bug.
    #[error("reading measured rows panicked: {0}")]
    Panicked(String),
}

/// The points, and whether the table has changed since they were read.
#[derive(Debug)]
pub struct PointsBoard {
    is_stale: AtomicBool,
    points: Mutex<Arc<PlannedPoints>>,
}

impl Default for PointsBoard {
    fn default() -> Self {
        Self {
            is_stale: AtomicBool::new(true),
            points: Mutex::default(),
        }
    }
}

impl PointsBoard {
    /// Rows were imported: the next tick reads them.
    pub fn mark_stale(&self) {
        self.is_stale.store(true, Ordering::Release);
    }

    /// The points as the table has them, read only when it has changed.
    ///
    /// # Errors
    /// [`PointsError`]; the next call tries again.
    pub async fn current(
        &self,
        store: &Store,
        catalog: &'static Catalog,
    ) -> Result<Arc<PlannedPoints>, PointsError> {
        // Taken down before the rows are read, so that an import meanwhile is not missed.
        if self.is_stale.swap(false, Ordering::AcqRel) {
            match load(store, catalog).await {
                Ok(points) => *self.lock() = points,
                Err(error) => {
                    self.mark_stale();
                    return Err(error);
                }
            }
        }
        Ok(self.lock().clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<PlannedPoints>> {
        self.points.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn load(store: &Store, catalog: &'static Catalog) -> Result<Arc<PlannedPoints>, PointsError> {
    let rows = store.performance_by_scope(ROWS_PER_SCOPE, ROWS_MAX).await?;
    let n_rows = rows.len();
    let read = tokio::task::spawn_blocking(move || MeasuredPoints::planned(&rows, catalog));
    let points = read
        .await
        .map_err(|panic| PointsError::Panicked(panic.to_string()))?;
    tracing::info!(
        rows = n_rows,
        kept = points.points.len(),
        left_out = points.n_left_out,
        digest = points.digest,
        "measured points were read"
    );
    Ok(Arc::new(points))
}
