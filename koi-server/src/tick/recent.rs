//! The newest evidence rows, kept between ticks: rows never change and this server alone writes them,
//! so that a tick reads none of them again.

use koi_core::ids::TickId;
use koi_core::validation::EvidenceRow;

use crate::store::{Store, StoreError};

/// Rows that risk and z* are built from.
pub const MAX_ROWS: usize = 2_000;

/// The newest rows in the order in which they were judged.
#[derive(Debug, Default)]
pub struct RecentEvidence {
    rows: Vec<EvidenceRow>,
    is_loaded: bool,
}

impl RecentEvidence {
    /// The rows; the first call reads them from the store.
    ///
    /// # Errors
    /// [`StoreError`]; the next call tries again.
    pub async fn rows(&mut self, store: &Store) -> Result<&[EvidenceRow], StoreError> {
        if !self.is_loaded {
            let limit = i64::try_from(MAX_ROWS).unwrap_or(i64::MAX);
            self.rows = store.evidence_readable_since(TickId(0), limit).await?;
            self.is_loaded = true;
        }
        Ok(&self.rows)
    }

    /// Takes in rows that have been written; the oldest make room.
    pub fn written(&mut self, rows: &[EvidenceRow]) {
        if self.is_loaded {
            self.rows.extend_from_slice(rows);
            let surplus = self.rows.len().saturating_sub(MAX_ROWS);
            self.rows.drain(..surplus);
        }
    }

    /// Forgets what it holds: a write whose end is not known may have happened.
    pub fn distrust(&mut self) {
        *self = Self::default();
    }
}
