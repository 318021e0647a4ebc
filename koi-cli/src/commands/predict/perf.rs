//! Measured points from a file, for the neighbours member.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use koi_core::performance::import::{Format, Given, MAX_IMPORT_BYTES, asked_rows, import};
use koi_core::surrogate::measured_row::{MeasuredRow, Question};
use koi_core::surrogate::points::MeasuredPoints;
use koi_core::surrogate::stack::Calibration;
use koi_core::violation::FieldViolation;

use super::gpu;
use super::models::ModelBook;
use crate::failure::{ExitCode, Failure};

/// The points of a file; none without one.
///
/// # Errors
/// A file that cannot be read, is no table of measurements, or has no row that can be used.
pub(super) fn points(
    models: &mut ModelBook,
    file: Option<&Path>,
) -> anyhow::Result<MeasuredPoints> {
    let Some(path) = file else {
        return Ok(MeasuredPoints::default());
    };
    let name = path.display().to_string();
    let refuse = |why: String| Failure::new(ExitCode::Invalid, format!("{name}: {why}"));
    let mut text = String::new();
    let limit = MAX_IMPORT_BYTES as u64 + 1;
    std::fs::File::open(path)
        .and_then(|f| f.take(limit).read_to_string(&mut text))
        .map_err(|e| refuse(e.to_string()))?;
    let points = read(models, &text).map_err(|found| Failure::invalid(&name, found))?;
    if points.is_empty() {
        let why = "no row is a point that the surrogate could have predicted".to_owned();
        return Err(refuse(why).into());
    }
    Ok(points)
}

/// The points of a text. Rows that nobody could predict (other models, devices, engines) are left
/// out.
pub(super) fn read(
    models: &mut ModelBook,
    text: &str,
) -> Result<MeasuredPoints, Vec<FieldViolation>> {
    let format = Format::detect(text);
    let imported = import(text, format, &Given::default())?;
    // The tidy table says more of what ran than a stored row keeps.
    let asked: BTreeMap<String, MeasuredRow> = match format {
        Some(Format::Tidy) => asked_rows(text)?
            .into_iter()
            .filter_map(|a| Some((a.row_id, a.row.ok()?)))
            .collect(),
        Some(Format::Silicon | Format::VllmBench | Format::Guidellm) | None => BTreeMap::new(),
    };
    let calibration = Calibration::embedded();
    let mut points = MeasuredPoints::default();
    for row in &imported.rows {
        let ran = asked.get(&row.row_id).cloned();
        let ran = ran.unwrap_or_else(|| MeasuredRow::from(row));
        let (Ok(facts), Ok(gpu)) = (models.find(&ran.model), gpu(&ran.gpu_type)) else {
            continue;
        };
        if let Ok(question) = Question::of(&ran, &facts, gpu) {
            // A point that teaches nothing is no problem of the file.
            let _teaches = points.add(&row.row_id, (&question, gpu), &row.measured, &calibration);
        }
    }
    Ok(points)
}
