//! CSV with a header: cells by column name, numbers that are absent or refused but never guessed.

use std::collections::BTreeMap;

use super::{Given, Import, MAX_PROBLEMS};
use crate::performance::PerformanceRow;
use crate::violation::{FieldViolation, Violations};

/// A parsed table: column places and the records with their line numbers.
pub(super) struct Table {
    columns: BTreeMap<String, usize>,
    n_columns: usize,
    records: Vec<(u64, csv::StringRecord)>,
}

pub(super) fn file_problem(message: impl Into<String>) -> Vec<FieldViolation> {
    vec![FieldViolation {
        field: "file".to_owned(),
        message: message.into(),
    }]
}

impl Table {
    /// Reads a table that must have these columns.
    pub(super) fn read(text: &str, required: &[&str]) -> Result<Self, Vec<FieldViolation>> {
        let text = text.trim_start_matches('\u{feff}');
        let mut reader = csv::ReaderBuilder::new()
            .flexible(true)
            .trim(csv::Trim::All)
            .from_reader(text.as_bytes());
        let header = reader
            .headers()
            .map_err(|e| file_problem(format!("its header cannot be read: {e}")))?;
        let columns = columns(header).map_err(|twice| {
            let problem = |message| FieldViolation {
                field: "line 1".to_owned(),
                message,
            };
            twice.into_iter().map(problem).collect::<Vec<_>>()
        })?;
        let n_columns = header.len();
        let missing: Vec<&str> = required
            .iter()
            .copied()
            .filter(|c| !columns.contains_key(*c))
            .collect();
        if !missing.is_empty() {
            return Err(file_problem(format!(
                "lacks the columns {}",
                missing.join(", ")
            )));
        }
        let mut records = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|e| file_problem(format!("is not CSV: {e}")))?;
            let line = record.position().map_or(0, csv::Position::line);
            records.push((line, record));
        }
        Ok(Self {
            columns,
            n_columns,
            records,
        })
    }

    /// Every record, as cells.
    pub(super) fn records(&self) -> impl Iterator<Item = Cells<'_>> {
        self.records.iter().map(|(line, record)| Cells {
            columns: &self.columns,
            record,
            line: *line,
            problems: surplus(record, *line, self.n_columns),
        })
    }
}

/// Places of the columns, or every name that is there more than once.
fn columns(header: &csv::StringRecord) -> Result<BTreeMap<String, usize>, Vec<String>> {
    let mut columns = BTreeMap::new();
    let mut twice = Vec::new();
    // A column without a name is never asked for.
    for (index, name) in header.iter().enumerate().filter(|(_, n)| !n.is_empty()) {
        if let Some(first) = columns.insert(name.to_owned(), index) {
            twice.push(format!(
                "column {} has the name of column {}: {:?}",
                index + 1,
                first + 1,
                shortened(name)
            ));
        }
    }
    if twice.is_empty() {
        Ok(columns)
    } else {
        twice.truncate(MAX_PROBLEMS);
        Err(twice)
    }
}

/// Cells beyond the header's columns: then it is not known which cell belongs to which column.
fn surplus(record: &csv::StringRecord, line: u64, n_columns: usize) -> Violations {
    let mut problems = Violations::default();
    let beyond = record.iter().enumerate().skip(n_columns);
    if let Some((index, cell)) = beyond.into_iter().find(|(_, cell)| !cell.is_empty()) {
        problems.add(
            "cells",
            format!(
                "line {line} has {} cells, and the header has {n_columns} columns: {:?} in column {} has none",
                record.len(),
                shortened(cell),
                index + 1
            ),
        );
    }
    problems
}

/// Reads every record of a table as a row; one that cannot be read costs itself.
pub(super) fn read_rows(
    text: &str,
    required: &[&str],
    given: &Given,
    row: fn(Cells<'_>, &Given) -> Result<PerformanceRow, Vec<FieldViolation>>,
) -> Result<Import, Vec<FieldViolation>> {
    let table = Table::read(text, required)?;
    let mut import = Import::default();
    for cells in table.records() {
        let place = cells.place();
        import.take(&place, row(cells, given));
    }
    Ok(import)
}

/// The cells of one record; problems are collected while they are read.
pub(super) struct Cells<'a> {
    columns: &'a BTreeMap<String, usize>,
    record: &'a csv::StringRecord,
    line: u64,
    problems: Violations,
}

impl<'a> Cells<'a> {
    /// Where the record stands.
    pub(super) fn place(&self) -> String {
        format!("line {}", self.line)
    }

    /// The text of a cell; empty when the column or the cell is missing.
    pub(super) fn text(&self, column: &str) -> &'a str {
        let index = self.columns.get(column);
        index.and_then(|i| self.record.get(*i)).unwrap_or_default()
    }

    /// The text of a cell that may be empty.
    pub(super) fn optional(&self, column: &str) -> Option<String> {
        Some(self.text(column))
            .filter(|t| !t.is_empty())
            .map(str::to_owned)
    }

    /// A number, if there is one.
    pub(super) fn number(&mut self, column: &str) -> Option<f64> {
        let text = self.text(column);
        if text.is_empty() {
            return None;
        }
        let number = text.parse::<f64>().ok().filter(|n| n.is_finite());
        if number.is_none() {
            self.refuse(column, format!("{:?} is not a number", shortened(text)));
        }
        number
    }

    /// A whole number of devices or stages, if there is one; 0 means unknown in published tables.
    pub(super) fn width(&mut self, column: &str) -> Option<u32> {
        let number = self.number(column)?;
        if number == 0.0 {
            return None;
        }
        if number.fract() != 0.0 || !(1.0..=f64::from(u32::MAX)).contains(&number) {
            self.refuse(column, format!("{number} is not a whole number above 0"));
            return None;
        }
        Some(number as u32)
    }

    /// Devices that experts are spread over; 0 for `on`, which does not say over how many.
    pub(super) fn expert_width(&mut self) -> Option<u32> {
        match self.text("ep") {
            "on" => Some(0),
            _ => self.width("ep"),
        }
    }

    /// A whole number of devices or stages of a deployment that is asked about: 0 is none.
    pub(super) fn devices(&mut self, column: &str) -> Option<u32> {
        let width = self.width(column);
        // Everything but a plain 0 has been refused with its own words.
        if width.is_none() && self.text(column).parse() == Ok(0.0) {
            self.refuse(column, "must be above 0; leave it out if unknown");
        }
        width
    }

    /// A number above 0, if there is one.
    pub(super) fn positive(&mut self, column: &str) -> Option<f64> {
        let number = self.number(column)?;
        if number <= 0.0 {
            self.refuse(column, "must be above 0; leave it out if unknown");
            return None;
        }
        Some(number)
    }

    /// Notes a problem.
    pub(super) fn refuse(&mut self, column: &str, message: impl Into<String>) {
        self.problems.add(column, message);
    }

    /// The row, unless something was wrong.
    pub(super) fn finish<T>(self, row: T) -> Result<T, Vec<FieldViolation>> {
        self.problems.finish(row)
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}
