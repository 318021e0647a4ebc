//! How the detector was set, tick by tick; bounded, and the newest counts.

use sqlx::{PgConnection, Row};

use koi_core::validation::meta::{CALIBRATION_VERSION, Calibration, CalibrationRecord};

use super::state::Quarantined;
use super::{StoreError, document};

/// Calibrations that are kept: the newest, and those before it for whoever asks why.
const KEPT: i64 = 32;

/// Appends a calibration and drops those beyond the bound.
pub(super) async fn calibration_put(
    db: &mut PgConnection,
    set: &CalibrationRecord,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO calibration (tick_id, version, doc) VALUES ($1, $2, $3::json)
               ON CONFLICT (tick_id) DO UPDATE SET
                   version = excluded.version, doc = excluded.doc";
    sqlx::query(sql)
        .bind(set.tick.0)
        .bind(i64::from(CALIBRATION_VERSION))
        .bind(document::write(&set.calibration)?)
        .execute(&mut *db)
        .await?;
    let trim = "DELETE FROM calibration WHERE tick_id <=
                    (SELECT tick_id FROM calibration ORDER BY tick_id DESC OFFSET $1 LIMIT 1)";
    sqlx::query(trim).bind(KEPT).execute(db).await?;
    Ok(())
}

/// The newest calibration; one that this build cannot read is left out, and the detector is set anew.
pub(super) async fn calibration_load(
    db: &mut PgConnection,
    quarantined: &mut Vec<Quarantined>,
) -> Result<Calibration, StoreError> {
    let sql = "SELECT tick_id, version, doc::text FROM calibration ORDER BY tick_id DESC LIMIT 1";
    let Some(row) = sqlx::query(sql).fetch_optional(db).await? else {
        return Ok(Calibration::default());
    };
    let (tick, version): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let read = if version == i64::from(CALIBRATION_VERSION) {
        serde_json::from_str(row.try_get(2)?).map_err(|e| e.to_string())
    } else {
        Err(format!(
            "version {version}, this build reads {CALIBRATION_VERSION}"
        ))
    };
    Ok(read.unwrap_or_else(|problem| {
        quarantined.push(Quarantined {
            table: "calibration",
            key: tick.to_string(),
            problem,
        });
        Calibration::default()
    }))
}
