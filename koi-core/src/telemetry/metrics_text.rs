//! Parser of the Prometheus text exposition formats: classic (0.0.4 and 1.0.0) and OpenMetrics 1.0.
//!
//! Not a validator of exposition rules and not tied to one engine. One bad line costs that line
//! only: it is counted and the first [`MAX_REPORTED_PROBLEMS`] are reported with line and reason.
//! Names keep their colons, exemplars are ignored, `_created` series are dropped. Text borrows from
//! the page wherever no escape has to be resolved. Spec §18.13; reliability.md E13–E15, C7.

mod line;

use std::borrow::Cow;

use line::{Line, parse_line};

/// Bytes of one page that are read; the rest is cut at a line end and reported. An engine's page
/// is about 50 kB, so this is 160 times the usual.
pub const MAX_PAGE_BYTES: usize = 8 * 1024 * 1024;
/// Samples kept of one page; vLLM has about 400.
pub const MAX_SERIES: usize = 20_000;
/// Labels of one sample; vLLM's `cache_config_info` has 37.
pub const MAX_LABELS: usize = 128;
/// Bytes of a metric or label name.
pub const MAX_NAME_BYTES: usize = 256;
/// Bytes of a label value.
pub const MAX_LABEL_VALUE_BYTES: usize = 4096;
/// Bad lines that are described; all of them are counted.
pub const MAX_REPORTED_PROBLEMS: usize = 20;

/// One label of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label<'a> {
    /// Label name.
    pub name: Cow<'a, str>,
    /// Value with escapes resolved.
    pub value: Cow<'a, str>,
}

/// One sample line.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    /// Metric name, colons included.
    pub name: Cow<'a, str>,
    /// Labels in the order of the page; names do not repeat.
    pub labels: Vec<Label<'a>>,
    /// Value as written; may be NaN or infinite.
    pub value: f64,
    /// Timestamp as written: milliseconds in the classic format, seconds in OpenMetrics.
    pub timestamp: Option<f64>,
}

impl Sample<'_> {
    /// The value of one label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels
            .iter()
            .find(|l| l.name == name)
            .map(|l| l.value.as_ref())
    }
}

/// Declared type of a metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyType {
    /// Only grows, except at a restart.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Cumulative buckets with sum and count.
    Histogram,
    /// Precomputed quantiles.
    Summary,
    /// Anything else, also OpenMetrics' info, stateset, gaugehistogram and unknown.
    Other,
}

/// Why a line was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineProblem {
    /// Not UTF-8.
    #[error("the line is not UTF-8")]
    NotUtf8,
    /// Does not start with a metric name.
    #[error("the line does not start with a metric name")]
    BadName,
    /// A name is longer than [`MAX_NAME_BYTES`].
    #[error("a name is longer than 256 bytes")]
    NameTooLong,
    /// The braces do not hold `name="value"` pairs.
    #[error("the labels are not a list of name=\"value\"")]
    BadLabels,
    /// The same label twice.
    #[error("a label name is repeated")]
    RepeatedLabel,
    /// More than [`MAX_LABELS`].
    #[error("more than 128 labels")]
    TooManyLabels,
    /// A label value is longer than [`MAX_LABEL_VALUE_BYTES`].
    #[error("a label value is longer than 4096 bytes")]
    LabelTooLong,
    /// No number where the value belongs.
    #[error("the value is not a number")]
    BadValue,
    /// Something after the value that is neither a timestamp nor an exemplar.
    #[error("the text after the value is not a timestamp")]
    BadTimestamp,
}

/// One line that was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Problem {
    /// Line number from 1.
    pub line: usize,
    /// Why.
    pub problem: LineProblem,
}

/// What was read of one page.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page<'a> {
    /// Samples in the order of the page.
    pub samples: Vec<Sample<'a>>,
    /// `# TYPE` lines in the order of the page.
    pub types: Vec<(&'a str, FamilyType)>,
    /// Lines that could not be read.
    pub bad_lines: usize,
    /// The first [`MAX_REPORTED_PROBLEMS`] of them.
    pub problems: Vec<Problem>,
    /// `_created` samples left out.
    pub created_dropped: usize,
    /// Readable samples left out because the caller did not ask for their name.
    pub unselected: usize,
    /// Readable samples left out because the page had more than [`MAX_SERIES`].
    pub over_limit: usize,
    /// Bytes left out because the page was larger than [`MAX_PAGE_BYTES`].
    pub bytes_cut: usize,
    /// The page ended with `# EOF` (OpenMetrics).
    pub ended: bool,
    /// The last line had no line end, so its value may be cut short.
    pub unterminated: bool,
    /// How many of `samples` come from lines with a line end.
    whole: usize,
}

/// Reads a whole page.
#[must_use]
pub fn parse(page: &[u8]) -> Page<'_> {
    parse_selected(page, |_| true)
}

/// Reads a page and keeps only samples whose name `keep` accepts; others cost no memory.
#[must_use]
pub fn parse_selected(page: &[u8], keep: impl Fn(&str) -> bool) -> Page<'_> {
    let (page, bytes_cut) = within_limit(page);
    let mut read = Page {
        bytes_cut,
        ..Page::default()
    };
    for (index, line) in page.split_inclusive(|b| *b == b'\n').enumerate() {
        read.unterminated = !line.ends_with(b"\n");
        match std::str::from_utf8(line)
            .map_err(|_| LineProblem::NotUtf8)
            .and_then(parse_line)
        {
            Ok(line) => read.accept(line, &keep),
            Err(problem) => read.refuse(index + 1, problem),
        }
    }
    read
}

/// The part of the page inside the size limit, cut after the last whole line.
fn within_limit(page: &[u8]) -> (&[u8], usize) {
    if page.len() <= MAX_PAGE_BYTES {
        return (page, 0);
    }
    let head = &page[..MAX_PAGE_BYTES];
    let end = head.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    (&head[..end], page.len() - end)
}

impl<'a> Page<'a> {
    fn accept(&mut self, line: Line<'a>, keep: &impl Fn(&str) -> bool) {
        match line {
            Line::Nothing => {}
            Line::End => self.ended = true,
            Line::Type(name, kind) => {
                if self.types.len() < MAX_SERIES {
                    self.types.push((name, kind));
                }
            }
            Line::Sample(sample) if sample.name.ends_with("_created") => self.created_dropped += 1,
            Line::Sample(sample) if !keep(&sample.name) => self.unselected += 1,
            Line::Sample(_) if self.samples.len() >= MAX_SERIES => self.over_limit += 1,
            Line::Sample(sample) => {
                self.samples.push(sample);
                self.whole += usize::from(!self.unterminated);
            }
        }
    }

    fn refuse(&mut self, line: usize, problem: LineProblem) {
        self.bad_lines += 1;
        if self.problems.len() < MAX_REPORTED_PROBLEMS {
            self.problems.push(Problem { line, problem });
        }
    }

    /// Samples of lines that were there to their end: a page cut inside a number looks like a page
    /// with another number.
    #[must_use]
    pub fn whole_samples(&self) -> &[Sample<'a>] {
        &self.samples[..self.whole]
    }

    /// True when the page was read whole and without a bad line.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.bad_lines == 0 && self.over_limit == 0 && self.bytes_cut == 0 && !self.unterminated
    }
}

#[cfg(test)]
mod tests;
