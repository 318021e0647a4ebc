//! Tables for people, JSON and YAML for programs, and nothing a terminal could obey.
//! Reliability K20.

use std::io::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use koi_core::printable::is_hidden;
use serde::Serialize;

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// Tables and text.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// The text with every unsafe character written as its escape.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Rows under headings; cells are escaped on the way in.
#[derive(Debug)]
pub struct Grid(Table);

impl Grid {
    /// A grid with these headings.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(headings.to_vec());
        Self(table)
    }

    /// Adds a row.
    pub fn row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cells: Vec<String> = cells.into_iter().map(|c| escape(c.as_ref())).collect();
        self.0.add_row(cells);
    }

    /// Right-aligns the columns of these indices.
    #[must_use]
    pub fn numbers(mut self, columns: &[usize]) -> Self {
        for column in columns {
            if let Some(column) = self.0.column_mut(*column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        self
    }

    /// The grid as lines without trailing blanks.
    #[must_use]
    pub fn text(&self) -> String {
        let lines: Vec<String> = self.0.lines().map(|l| l.trim_end().to_owned()).collect();
        lines.join("\n")
    }
}

/// Prints the value in the asked form; `people` makes the text of the table form.
///
/// # Errors
/// When the value cannot be serialised or standard output is closed.
pub fn emit(
    format: Format,
    value: &impl Serialize,
    people: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    match format {
        Format::Table => print(&people()),
        // Through a Value, so that maps come out in a fixed order.
        Format::Json => print(&serde_json::to_string_pretty(&serde_json::to_value(
            value,
        )?)?),
        Format::Yaml => print(serde_yaml_ng::to_string(&serde_json::to_value(value)?)?.trim_end()),
    }
}

/// Prints text and a line end to standard output.
///
/// # Errors
/// When standard output is closed.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Prints a line to standard error; a closed standard error is nobody's problem.
pub fn complain(text: &str) {
    let mut line = text.to_owned();
    line.push('\n');
    std::io::stderr().write_all(line.as_bytes()).ok();
}

/// True when the reader of standard output has gone, as in `koi jobs | head -1`.
#[must_use]
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error
        .chain()
        .find_map(|e| e.downcast_ref::<std::io::Error>());
    io.is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

/// A number with so many digits after the point, or a dash when absent.
#[must_use]
pub fn number(value: Option<f64>, digits: usize) -> String {
    let Some(value) = value.filter(|v| v.is_finite()) else {
        return "-".to_owned();
    };
    let text = format!("{value:.digits$}");
    // What rounds to zero from below is zero.
    let is_zero = text.starts_with('-') && text.bytes().all(|c| matches!(c, b'-' | b'0' | b'.'));
    if is_zero { text[1..].to_owned() } else { text }
}

/// A span in the largest fitting unit: `42s`, `7m`, `3h`, `2d`.
#[must_use]
pub fn span(seconds: f64) -> String {
    let s = seconds.max(0.0);
    match s {
        s if !s.is_finite() => "-".to_owned(),
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7200.0 => format!("{:.0}m", s / 60.0),
        s if s < 172_800.0 => format!("{:.0}h", s / 3600.0),
        s => format!("{:.0}d", s / 86_400.0),
    }
}

/// How long ago a moment was, in the form of [`span`].
#[must_use]
pub fn age(at_us: i64) -> String {
    if at_us == 0 {
        "-".to_owned()
    } else {
        span((now_us() - at_us) as f64 / 1e6)
    }
}

/// Microseconds since the Unix epoch.
#[must_use]
pub fn now_us() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_bytes_never_reach_the_terminal() {
        let hostile = "a\u{1b}[31mb\rc\nd\u{7}e\u{202e}f\u{200b}g\u{9b}h\u{feff}\0";
        let shown = escape(hostile);
        assert!(shown.chars().all(|c| !is_hidden(c)), "{shown:?}");
        assert_eq!(escape("héllo wörld 模型"), "héllo wörld 模型");
        let mut grid = Grid::new(&["NAME"]);
        grid.row([hostile]);
        assert_eq!(grid.text().lines().count(), 2, "a name cannot add lines");
        assert!(!grid.text().contains('\u{1b}'));
    }

    #[test]
    fn absent_is_a_dash_and_never_zero() {
        assert_eq!(
            (number(None, 2), number(Some(f64::NAN), 1)),
            ("-".to_owned(), "-".to_owned())
        );
        assert_eq!(number(Some(1.005), 1), "1.0");
        assert_eq!(
            (
                number(Some(-0.0), 0),
                number(Some(-0.04), 1),
                number(Some(-0.06), 1)
            ),
            ("0".to_owned(), "0.0".to_owned(), "-0.1".to_owned())
        );
        assert_eq!(
            (span(59.6), span(600.0), span(1e6)),
            ("60s".to_owned(), "10m".to_owned(), "12d".to_owned())
        );
    }
}
