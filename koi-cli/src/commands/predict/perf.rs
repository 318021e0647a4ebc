//! Measured points from a file, for the neighbours member.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use koi_core::performance::PerformanceRow;
use koi_core::performance::import::{Format, Given, MAX_IMPORT_BYTES, asked_rows, import};
use koi_core::surrogate::measured_row::{MeasuredRow, Question};
use koi_core::surrogate::points::MeasuredPoints;
use koi_core::surrogate::stack::Calibration;
use koi_core::violation::FieldViolation;
use serde::Serialize;

use super::gpu;
use super::models::ModelBook;
use crate::failure::{ExitCode, Failure};
use crate::output::{complain, escape};

/// Rows that are named with the reason why they were left out; the rest is counted.
const MAX_NAMED: usize = 20;

/// Points, and what became of the rows they came from.
#[derive(Debug, Default)]
pub(super) struct Perf {
    pub(super) points: MeasuredPoints,
    pub(super) report: Report,
}

/// What became of the rows of a file.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    n_points: usize,
    n_left_out: usize,
    /// The first ones.
    left_out: Vec<LeftOut>,
}

/// A row that does not speak.
#[derive(Debug, Serialize)]
struct LeftOut {
    row: String,
    reason: String,
}

impl Report {
    fn leave_out(&mut self, row: String, reason: String) {
        self.n_left_out += 1;
        self.name(row, reason);
    }

    fn name(&mut self, row: String, reason: String) {
        if self.left_out.len() < MAX_NAMED {
            self.left_out.push(LeftOut { row, reason });
        }
    }

    /// For people.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "measured   {} points are used, {} rows are left out",
            self.n_points, self.n_left_out
        )];
        let named = self.left_out.iter();
        lines.extend(named.map(|l| format!("  {}: {}", l.row, l.reason)));
        let more = self.n_left_out.saturating_sub(self.left_out.len());
        if more > 0 {
            lines.push(format!("  and {more} more"));
        }
        lines
    }
}

impl Perf {
    /// Says on standard error which rows do not speak.
    pub(super) fn complain(&self) {
        if self.report.n_left_out > 0 {
            for line in self.report.lines() {
                complain(&escape(&line));
            }
        }
    }
}

/// The points of a file; none without one.
///
/// # Errors
/// A file that cannot be read, is no table of measurements, or has no row that can be used.
pub(super) fn points(models: &mut ModelBook, file: Option<&Path>) -> anyhow::Result<Perf> {
    let Some(path) = file else {
        return Ok(Perf::default());
    };
    let name = path.display().to_string();
    let refuse = |why: String| Failure::new(ExitCode::Invalid, format!("{name}: {why}"));
    let mut text = String::new();
    let limit = MAX_IMPORT_BYTES as u64 + 1;
    std::fs::File::open(path)
        .and_then(|f| f.take(limit).read_to_string(&mut text))
        .map_err(|e| Failure::unreadable(path, &e))?;
    let perf = read(models, &text).map_err(|found| Failure::invalid(&name, found))?;
    if perf.points.is_empty() {
        let why = "no row is a point that the surrogate could have predicted".to_owned();
        let violations = perf.report.left_out.into_iter().map(|l| FieldViolation {
            field: l.row,
            message: l.reason,
        });
        return Err(Failure {
            violations: violations.collect(),
            ..refuse(why)
        }
        .into());
    }
    Ok(perf)
}

/// The points of a text. Rows that are wrong, and those that nobody could predict (other models,
/// devices, engines), are left out and named.
pub(super) fn read(models: &mut ModelBook, text: &str) -> Result<Perf, Vec<FieldViolation>> {
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
    let mut perf = Perf::default();
    perf.report.n_left_out = imported.n_left_out;
    for problem in imported.problems {
        perf.report.name(problem.field, problem.message);
    }
    let calibration = Calibration::embedded();
    for row in &imported.rows {
        let ran = asked.get(&row.row_id).cloned();
        let ran = ran.unwrap_or_else(|| MeasuredRow::from(row));
        if let Err(why) = add(models, &mut perf.points, (row, &ran), &calibration) {
            perf.report.leave_out(format!("row {}", row.row_id), why);
        }
    }
    perf.report.n_points = perf.points.len();
    Ok(perf)
}

fn add(
    models: &mut ModelBook,
    points: &mut MeasuredPoints,
    (row, ran): (&PerformanceRow, &MeasuredRow),
    calibration: &Calibration<'_>,
) -> Result<(), String> {
    let facts = models.find(&ran.model).map_err(|found| words(&found))?;
    let gpu = gpu(&ran.gpu_type)
        .map_err(|_| format!("GPU type {:?} is not in the catalog", ran.gpu_type))?;
    let question = Question::of(ran, &facts, gpu)?;
    points.add(&row.row_id, (&question, gpu), &row.measured, calibration)
}

fn words(problems: &[FieldViolation]) -> String {
    let words: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "source,row_id,model,gpu_type,num_gpus,tp,pp,engine,isl,osl,load_kind,concurrency_or_rate,out_tok_s_system\n";

    fn perf(rows: &[&str]) -> Perf {
        let mut models = ModelBook::open(None).unwrap();
        read(&mut models, &format!("{HEADER}{}", rows.join("\n"))).unwrap()
    }

    #[test]
    fn every_row_that_does_not_speak_is_counted_and_named() {
        let row = |id: &str, isl: &str, tokens: &str| {
            format!("x,{id},llama-3.1-8b,H100,1,1,1,vllm,{isl},200,concurrency,16,{tokens}")
        };
        let rows = [
            row("good", "1000", "900"),
            row("good", "1000", "901"),
            row("text", "abc", "900"),
            row("absurd", "1000", "900000"),
            row("good2", "1000", "800"),
            row("tiny", "1000", "1e-300"),
        ];
        let report = perf(&rows.each_ref().map(String::as_str)).report;
        assert_eq!((report.n_points, report.n_left_out), (2, 4));
        let text = report.lines().join("\n");
        for word in ["twice", "is not a number", "can compute", "above 0.000001"] {
            assert!(text.contains(word), "{word} in {text}");
        }
        let rows: Vec<String> = (0..30).map(|i| row(&format!("r{i}"), "nan", "1")).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let report = perf(&rows).report;
        assert_eq!((report.n_points, report.n_left_out), (0, 30));
        assert_eq!(report.lines().last().unwrap(), "  and 10 more");
    }
}
