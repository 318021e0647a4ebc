//! The dictionary of series: a name, and for histograms its bucket edges, each stored once.

use std::collections::BTreeSet;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::{MAX_SERIES, StoredWindow, locked};
use crate::store::{Store, StoreError};

/// A name with the bits of its edges, so that it can be ordered; scalars have no edges.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SeriesKey {
    pub(super) name: String,
    edges: Vec<u64>,
}

impl SeriesKey {
    pub(super) fn new(name: &str, edges: &[f64]) -> Self {
        Self {
            name: name.to_owned(),
            edges: edges.iter().map(|e| e.to_bits()).collect(),
        }
    }

    pub(super) fn edges(&self) -> Vec<f64> {
        self.edges
            .iter()
            .map(|bits| f64::from_bits(*bits))
            .collect()
    }
}

fn keys_of(window: &StoredWindow) -> impl Iterator<Item = SeriesKey> + '_ {
    let scalars = window
        .scalars
        .iter()
        .map(|(name, _)| SeriesKey::new(name, &[]));
    scalars.chain(
        window
            .histograms
            .iter()
            .map(|h| SeriesKey::new(&h.name, &h.edges)),
    )
}

impl Store {
    /// Makes every series of the windows known, in transactions of their own: a name that outlives a
    /// failed batch does no harm.
    pub(super) async fn series_ensure(
        &self,
        windows: impl Iterator<Item = &StoredWindow>,
    ) -> Result<(), StoreError> {
        let keys: BTreeSet<SeriesKey> = windows.flat_map(keys_of).collect();
        let unknown: Vec<SeriesKey> = {
            let known = locked(&self.telemetry.by_key);
            keys.into_iter()
                .filter(|key| !known.contains_key(key))
                .collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        self.series_load().await?;
        for key in unknown {
            self.series_insert(key).await?;
        }
        Ok(())
    }

    async fn series_insert(&self, key: SeriesKey) -> Result<(), StoreError> {
        {
            let known = locked(&self.telemetry.by_key);
            if known.contains_key(&key) {
                return Ok(());
            }
            if known.len() >= MAX_SERIES {
                let text = format!("{:?} would be series number {}", key.name, MAX_SERIES + 1);
                return Err(StoreError::BadTelemetry(text));
            }
        }
        // The update that changes nothing makes RETURNING speak for rows that exist.
        let sql = "INSERT INTO series (name, edges) VALUES ($1, $2)
                   ON CONFLICT (name, edges) DO UPDATE SET name = excluded.name
                   RETURNING series_id, name, edges";
        let query = sqlx::query(sql).bind(&key.name).bind(key.edges());
        let row = query.fetch_one(&self.shared).await?;
        self.series_remember(&row)
    }

    pub(super) async fn series_load(&self) -> Result<(), StoreError> {
        let sql = "SELECT series_id, name, edges FROM series";
        for row in sqlx::query(sql).fetch_all(&self.shared).await? {
            self.series_remember(&row)?;
        }
        Ok(())
    }

    fn series_remember(&self, row: &PgRow) -> Result<(), StoreError> {
        let id: i32 = row.try_get(0)?;
        let (name, edges): (String, Vec<f64>) = (row.try_get(1)?, row.try_get(2)?);
        let key = SeriesKey::new(&name, &edges);
        locked(&self.telemetry.by_key).insert(key.clone(), id);
        locked(&self.telemetry.by_id).insert(id, key);
        Ok(())
    }

    pub(super) fn series_id(&self, name: &str, edges: &[f64]) -> Option<i32> {
        locked(&self.telemetry.by_key)
            .get(&SeriesKey::new(name, edges))
            .copied()
    }

    pub(super) fn series_key(&self, id: i32) -> Option<SeriesKey> {
        locked(&self.telemetry.by_id).get(&id).cloned()
    }
}
