//! Windows read back.

use sqlx::Row;
use sqlx::postgres::PgRow;

use koi_core::ids::{JobId, ReplicaId};
use koi_core::time::UtcMicros;

use super::{StoredHistogram, StoredWindow};
use crate::store::{Store, StoreError};

/// Most windows of one answer: ten thousand replicas for about three minutes.
const MAX_WINDOWS: u32 = 200_000;
/// A window is received after it ends, but the agent's wall clock may run ahead by this much.
const MAX_CLOCK_AHEAD_MICROS: i64 = 3_600_000_000;

/// Whose windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WindowsOf {
    /// All replicas of a job.
    Job(JobId),
    /// One replica.
    Replica(ReplicaId),
}

macro_rules! select_windows {
    ($condition:literal) => {
        concat!(
            "SELECT host_id, replica_id, job_id, start_us, end_us, length_us, received_at, n_scrapes, \
             scalar_series, scalar_value, histogram_series, histogram_sum, histogram_count, \
             histogram_sizes, bucket_index, bucket_count, flags FROM \"window\" WHERE ",
            $condition
        )
    };
}

impl Store {
    /// Windows that ended within `[from, to)`, by end, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn windows(
        &self,
        of: &WindowsOf,
        (from, to): (UtcMicros, UtcMicros),
        limit: u32,
    ) -> Result<Vec<StoredWindow>, StoreError> {
        // The bound on received_at lets the planner leave out the partitions of earlier days.
        let query = match of {
            WindowsOf::Job(job) => sqlx::query(select_windows!(
                "job_id = $1 AND end_us >= $2 AND end_us < $3 AND received_at >= $4
                 ORDER BY end_us, replica_id LIMIT $5"
            ))
            .bind(job.0),
            WindowsOf::Replica(id) => sqlx::query(select_windows!(
                "replica_id = $1 AND end_us >= $2 AND end_us < $3 AND received_at >= $4
                 ORDER BY end_us, replica_id LIMIT $5"
            ))
            .bind(id.to_string()),
        };
        let query = query.bind(from.0).bind(to.0);
        let query = query.bind(from.0.saturating_sub(MAX_CLOCK_AHEAD_MICROS));
        let rows = query
            .bind(i64::from(limit.min(MAX_WINDOWS)))
            .fetch_all(&self.shared)
            .await?;
        self.windows_of(&rows).await
    }

    /// Windows received within `[from, to)`, in the order of receipt, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn windows_since(
        &self,
        (from, to): (UtcMicros, UtcMicros),
        limit: u32,
    ) -> Result<Vec<StoredWindow>, StoreError> {
        let query = sqlx::query(select_windows!(
            "received_at >= $1 AND received_at < $2
             ORDER BY received_at, host_id, replica_id, end_us LIMIT $3"
        ));
        let query = query
            .bind(from.0)
            .bind(to.0)
            .bind(i64::from(limit.min(MAX_WINDOWS)));
        let rows = query.fetch_all(&self.shared).await?;
        self.windows_of(&rows).await
    }

    async fn windows_of(&self, rows: &[PgRow]) -> Result<Vec<StoredWindow>, StoreError> {
        if !self.knows_all(rows)? {
            self.series_load().await?;
        }
        rows.iter().map(|row| self.window_of(row)).collect()
    }

    fn knows_all(&self, rows: &[PgRow]) -> Result<bool, StoreError> {
        for row in rows {
            let scalars: Vec<i32> = row.try_get("scalar_series")?;
            let histograms: Vec<i32> = row.try_get("histogram_series")?;
            if scalars
                .iter()
                .chain(&histograms)
                .any(|id| self.series_key(*id).is_none())
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn window_of(&self, row: &PgRow) -> Result<StoredWindow, StoreError> {
        let text = |column| row.try_get::<Option<String>, _>(column);
        let micros = |column| row.try_get(column).map(UtcMicros);
        Ok(StoredWindow {
            host: parsed(row.try_get("host_id")?)?,
            replica_id: text("replica_id")?.map(parsed).transpose()?,
            job: row.try_get::<Option<uuid::Uuid>, _>("job_id")?.map(JobId),
            start: micros("start_us")?,
            end: micros("end_us")?,
            length_us: row.try_get("length_us")?,
            received_at: micros("received_at")?,
            n_scrapes: row.try_get::<i32, _>("n_scrapes")?.unsigned_abs(),
            scalars: self.scalars_of(row)?,
            histograms: self.histograms_of(row)?,
            flags: row.try_get("flags")?,
        })
    }

    fn scalars_of(&self, row: &PgRow) -> Result<Vec<(String, f64)>, StoreError> {
        let ids: Vec<i32> = row.try_get("scalar_series")?;
        let values: Vec<f64> = row.try_get("scalar_value")?;
        let named = |(id, value)| Some((self.series_key(id)?.name, value));
        Ok(ids.into_iter().zip(values).filter_map(named).collect())
    }

    fn histograms_of(&self, row: &PgRow) -> Result<Vec<StoredHistogram>, StoreError> {
        let ids: Vec<i32> = row.try_get("histogram_series")?;
        let sums: Vec<f64> = row.try_get("histogram_sum")?;
        let counts: Vec<i64> = row.try_get("histogram_count")?;
        let sizes: Vec<i32> = row.try_get("histogram_sizes")?;
        let indices: Vec<i32> = row.try_get("bucket_index")?;
        let bucket_counts: Vec<i64> = row.try_get("bucket_count")?;
        let mut buckets = indices.into_iter().zip(bucket_counts);
        let mut histograms = Vec::with_capacity(ids.len());
        for (((id, sum), count), size) in ids.into_iter().zip(sums).zip(counts).zip(sizes) {
            let own = buckets.by_ref().take(size.unsigned_abs() as usize);
            let own = own
                .map(|(i, n)| (i.unsigned_abs(), n.unsigned_abs()))
                .collect();
            if let Some(key) = self.series_key(id) {
                let edges = key.edges();
                let count = count.unsigned_abs();
                histograms.push(StoredHistogram {
                    name: key.name,
                    edges,
                    sum,
                    count,
                    buckets: own,
                });
            }
        }
        Ok(histograms)
    }
}

fn parsed<T: std::str::FromStr>(text: String) -> Result<T, StoreError> {
    let corrupt = || StoreError::Corrupt {
        table: "window",
        key: text.clone(),
        source: serde::de::Error::custom("not an id"),
    };
    text.parse().map_err(|_| corrupt())
}
