//! What a bench found: tables for people, one document for programs, and bounds with their verdicts.

use std::io::Write as _;

use clap::ValueEnum;
use serde::Serialize;

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// Tables for people.
    #[default]
    Table,
    /// One JSON document.
    Json,
}

/// A stated bound and what came out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Bound {
    /// What is bounded.
    pub(crate) what: String,
    /// The bound in words.
    pub(crate) bound: String,
    /// What was measured.
    pub(crate) measured: String,
    /// Whether it was met; absent when there was too little to judge.
    pub(crate) met: Option<bool>,
}

impl Bound {
    /// A number that may not exceed another.
    pub(crate) fn at_most(what: String, measured: Option<f64>, limit: f64, unit: &str) -> Self {
        Self {
            what,
            bound: format!("≤ {limit} {unit}").trim_end().to_owned(),
            measured: format!("{} {unit}", number(measured, 2))
                .trim_end()
                .to_owned(),
            met: measured.map(|m| m <= limit),
        }
    }

    /// What could not be looked at.
    pub(crate) fn not_judged(what: &str, bound: &str) -> Self {
        Self {
            what: what.to_owned(),
            bound: bound.to_owned(),
            measured: "-".to_owned(),
            met: None,
        }
    }

    /// A number that may not fall below another.
    pub(crate) fn at_least(what: String, measured: Option<f64>, limit: f64, unit: &str) -> Self {
        Self {
            bound: format!("≥ {limit} {unit}").trim_end().to_owned(),
            met: measured.map(|m| m >= limit),
            ..Self::at_most(what, measured, limit, unit)
        }
    }

    /// A number that must lie between two others.
    pub(crate) fn within(what: String, measured: Option<f64>, (low, high): (f64, f64)) -> Self {
        Self {
            what,
            bound: format!("{low} – {high}"),
            measured: number(measured, 3),
            met: measured.map(|m| (low..=high).contains(&m)),
        }
    }
}

/// One table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub(crate) fn new(header: &[&str]) -> Self {
        Self {
            header: header.iter().map(|h| (*h).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as text.
    pub(crate) fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header(&self.header);
        for row in &self.rows {
            table.add_row(row);
        }
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.join("\n")
    }
}

/// What a bench found.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    /// Name of the bench.
    pub(crate) bench: &'static str,
    /// Conditions and remarks, one line each.
    pub(crate) notes: Vec<String>,
    /// For people.
    pub(crate) table: Table,
    /// For programs.
    pub(crate) data: serde_json::Value,
    /// Bounds.
    pub(crate) bounds: Vec<Bound>,
}

#[derive(Serialize)]
struct Document<'a> {
    bench: &'a str,
    build_id: &'a str,
    notes: &'a [String],
    results: &'a serde_json::Value,
    bounds: &'a [Bound],
    met: bool,
}

impl Report {
    /// True when no bound was missed; a bench with bounds must have judged one.
    pub(crate) fn is_met(&self) -> bool {
        let missed = self.bounds.iter().any(|b| b.met == Some(false));
        let judged = self.bounds.iter().any(|b| b.met.is_some());
        !missed && (judged || self.bounds.is_empty())
    }

    /// Prints it.
    pub(crate) fn emit(&self, format: Format) -> anyhow::Result<()> {
        match format {
            Format::Table => say(&self.text()),
            Format::Json => say(&serde_json::to_string_pretty(&Document {
                bench: self.bench,
                build_id: koi_core::build::BUILD_ID,
                notes: &self.notes,
                results: &self.data,
                bounds: &self.bounds,
                met: self.is_met(),
            })?),
        }
    }

    fn text(&self) -> String {
        let mut parts = vec![self.table.text()];
        if !self.notes.is_empty() {
            parts.push(self.notes.join("\n"));
        }
        if self.bounds.is_empty() {
            parts.push("no bound".to_owned());
        } else {
            let mut table = Table::new(&["BOUND", "", "MEASURED", "MET"]);
            for b in &self.bounds {
                let met = match b.met {
                    Some(true) => "yes",
                    Some(false) => "NO",
                    None => "not judged",
                };
                table.row([
                    b.what.clone(),
                    b.bound.clone(),
                    b.measured.clone(),
                    met.to_owned(),
                ]);
            }
            parts.push(table.text());
        }
        parts.join("\n\n")
    }
}

/// A number with so many decimals, or a dash.
pub(crate) fn number(value: Option<f64>, decimals: usize) -> String {
    value
        .filter(|v| v.is_finite())
        .map_or_else(|| "-".to_owned(), |v| format!("{v:.decimals$}"))
}

/// A share as a percentage, or a dash.
pub(crate) fn percent(value: Option<f64>) -> String {
    value
        .filter(|v| v.is_finite())
        .map_or_else(|| "-".to_owned(), |v| format!("{:.1}%", 100.0 * v))
}

/// Prints a line to standard output.
pub(crate) fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Prints a line to standard error; where even that is closed nobody can be told.
pub(crate) fn complain(text: &str) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(met: &[Option<bool>]) -> Report {
        let bound = |met: &Option<bool>| Bound {
            what: "x".to_owned(),
            bound: "≤ 1".to_owned(),
            measured: "2".to_owned(),
            met: *met,
        };
        Report {
            bench: "test",
            notes: vec![],
            table: Table::new(&["A"]),
            data: serde_json::Value::Null,
            bounds: met.iter().map(bound).collect(),
        }
    }

    #[test]
    fn a_missed_bound_or_no_verdict_at_all_is_not_met() {
        assert!(report(&[]).is_met());
        assert!(report(&[Some(true), None]).is_met());
        assert!(!report(&[Some(true), Some(false)]).is_met());
        assert!(!report(&[None]).is_met());
        assert!(report(&[Some(false)]).text().contains("NO"));
    }

    #[test]
    fn bounds_judge_numbers_and_leave_absent_ones() {
        assert_eq!(
            Bound::at_most("m".into(), Some(2.0), 2.0, "MiB").met,
            Some(true)
        );
        assert_eq!(
            Bound::at_most("m".into(), Some(2.1), 2.0, "MiB").met,
            Some(false)
        );
        assert_eq!(
            Bound::within("s".into(), Some(0.5), (0.7, 0.95)).met,
            Some(false)
        );
        assert_eq!(Bound::within("s".into(), None, (0.7, 0.95)).met, None);
        assert_eq!(
            Bound::at_most("m".into(), Some(f64::NAN), 2.0, "").met,
            Some(false)
        );
    }
}
