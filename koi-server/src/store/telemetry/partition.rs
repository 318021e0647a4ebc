//! One partition of windows a day of receipt: made when needed, dropped whole.

use sqlx::{AssertSqlSafe, Row};

use koi_core::time::UtcMicros;

use super::{StoredWindow, locked};
use crate::store::{Store, StoreError};

/// Microseconds of a day.
const DAY_MICROS: i64 = 86_400_000_000;
/// Makes one maker of a partition wait for the other; a number of our own.
const PARTITION_LOCK: i64 = 0x6b6f_6977_696e;

/// Day since the Unix epoch, UTC.
pub(super) const fn day_of(at: UtcMicros) -> i64 {
    at.0.div_euclid(DAY_MICROS)
}

fn name_of(day: i64) -> String {
    format!("window_day_{day}")
}

impl Store {
    /// Makes the partitions of the days of these windows.
    pub(super) async fn partitions_ensure(
        &self,
        windows: impl Iterator<Item = &StoredWindow>,
    ) -> Result<(), StoreError> {
        let mut days: Vec<i64> = windows.map(|w| day_of(w.received_at)).collect();
        days.sort_unstable();
        days.dedup();
        for day in days {
            self.partition_ensure(day).await?;
        }
        Ok(())
    }

    /// Makes the partitions of the day of this moment and of the next one, so that midnight finds
    /// its partition.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn partitions_ahead(&self, now: UtcMicros) -> Result<(), StoreError> {
        self.partition_ensure(day_of(now)).await?;
        self.partition_ensure(day_of(now) + 1).await
    }

    async fn partition_ensure(&self, day: i64) -> Result<(), StoreError> {
        if locked(&self.telemetry.days).contains(&day) {
            return Ok(());
        }
        if !(0..=1_000_000).contains(&day) {
            return Err(StoreError::BadTelemetry(format!("received on day {day}")));
        }
        let mut db = self.shared.begin().await?;
        let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(PARTITION_LOCK);
        lock.execute(&mut *db).await?;
        let (from, to) = (day * DAY_MICROS, (day + 1) * DAY_MICROS);
        let name = name_of(day);
        // Only numbers go into the text.
        let sql = format!(
            "CREATE TABLE IF NOT EXISTS {name} PARTITION OF \"window\" \
             FOR VALUES FROM ({from}) TO ({to})"
        );
        sqlx::query(AssertSqlSafe(sql)).execute(&mut *db).await?;
        db.commit().await?;
        locked(&self.telemetry.days).insert(day);
        Ok(())
    }

    /// Drops every partition that ended before the day of this moment; how many.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn drop_partitions_before(&self, moment: UtcMicros) -> Result<u32, StoreError> {
        let sql = "SELECT child.relname::text FROM pg_inherits
                   JOIN pg_class child ON child.oid = inhrelid
                   WHERE inhparent = '\"window\"'::regclass";
        let mut n_dropped = 0;
        for row in sqlx::query(sql).fetch_all(&self.shared).await? {
            let name: String = row.try_get(0)?;
            let day = name
                .strip_prefix("window_day_")
                .and_then(|d| d.parse::<i64>().ok());
            let Some(day) = day.filter(|day| *day < day_of(moment)) else {
                continue;
            };
            let sql = format!("DROP TABLE IF EXISTS {}", name_of(day));
            locked(&self.telemetry.days).remove(&day);
            sqlx::query(AssertSqlSafe(sql))
                .execute(&self.shared)
                .await?;
            n_dropped += 1;
        }
        Ok(n_dropped)
    }
}
