//! Parser of the Prometheus text exposition formats: classic (0.0.4 and 1.0.0) and OpenMetrics 1.0.
//!
//! Not a validator of exposition rules and not tied to one engine. One bad line costs that line
//! only: it is counted and the first [`MAX_REPORTED_PROBLEMS`] are reported with line and reason.
//! Names keep their colons; `_created` companions of declared series are counted and left out. A
//! sample is a view of the page: nothing is allocated for it but its place in the list, and a label
//! is copied only when it is asked for and holds an escape. Spec §18.13; reliability.md E13–E15, C7.

mod family;
mod labels;
mod line;
mod problem;
mod reader;
mod repeated;
mod scan;

use std::borrow::Cow;

pub use family::{Family, FamilyType};
pub use labels::{Label, LabelIter, Labels};
pub use problem::{LineProblem, Problem};
pub use repeated::RepeatedSeries;

use line::Lines;
use reader::Reader;
use scan::parse_exemplar;

/// Bytes of one scraped page that are read; the rest is cut at a line end and reported. An engine's
/// page is about 50 kB, so this is 160 times the usual.
pub const MAX_PAGE_BYTES: usize = 8 * 1024 * 1024;
/// Samples kept of one scraped page; vLLM has about 400.
pub const MAX_SERIES: usize = 20_000;
/// Labels of one sample; vLLM's `cache_config_info` has 37.
pub const MAX_LABELS: usize = 128;
/// Bytes of a metric or label name.
pub const MAX_NAME_BYTES: usize = 256;
/// Bytes of a label value.
pub const MAX_LABEL_VALUE_BYTES: usize = 4096;
/// Problems that are described; all of them are counted.
pub const MAX_REPORTED_PROBLEMS: usize = 20;
/// Bytes of a page that holds one sample, about; the list of samples starts at this guess.
const TYPICAL_BYTES_PER_SAMPLE: usize = 128;

/// How much of a page is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes.
    pub max_bytes: usize,
    /// Samples, and families.
    pub max_series: usize,
}

impl Limits {
    /// For a page that an engine serves.
    pub const SCRAPE: Self = Self {
        max_bytes: MAX_PAGE_BYTES,
        max_series: MAX_SERIES,
    };
    /// For a file that somebody asks about: two million series, 512 MiB.
    pub const FILE: Self = Self {
        max_bytes: 512 * 1024 * 1024,
        max_series: 2_000_000,
    };
}

/// One sample line.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    /// Metric name, colons included.
    pub name: Cow<'a, str>,
    /// Labels.
    pub labels: Labels<'a>,
    /// Value as written; may be NaN or infinite.
    pub value: f64,
    /// Timestamp as written: milliseconds in the classic format, seconds in OpenMetrics.
    pub timestamp: Option<f64>,
    /// Line number from 1.
    pub line: u32,
    exemplar: Option<&'a str>,
}

/// One observation that a sample names as an example, usually with a trace id.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar<'a> {
    /// Labels.
    pub labels: Labels<'a>,
    /// The observed value.
    pub value: f64,
    /// When, in seconds since the Unix epoch.
    pub timestamp: Option<f64>,
}

impl<'a> Sample<'a> {
    /// The value of one label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<Cow<'a, str>> {
        self.labels.get(name)
    }

    /// The exemplar; `None` without a readable one.
    #[must_use]
    pub fn exemplar(&self) -> Option<Exemplar<'a>> {
        self.exemplar.and_then(parse_exemplar)
    }
}

/// What was read of one page.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page<'a> {
    /// Samples in the order of the page.
    pub samples: Vec<Sample<'a>>,
    /// What comment lines declare, in the order of the page.
    pub families: Vec<Family<'a>>,
    /// Lines, blank ones included.
    pub lines: u32,
    /// Lines that could not be read.
    pub bad_lines: usize,
    /// Oddities of lines that were read.
    pub remarks: usize,
    /// The first [`MAX_REPORTED_PROBLEMS`] bad lines and oddities.
    pub problems: Vec<Problem>,
    /// `_created` samples left out.
    pub created_dropped: usize,
    /// Readable samples left out because the caller did not ask for their name.
    pub unselected: usize,
    /// Readable samples left out because there were more than the limit.
    pub over_limit: usize,
    /// Bytes left out because the page was larger than the limit.
    pub bytes_cut: usize,
    /// The page has the end mark `# EOF` of OpenMetrics.
    pub ended: bool,
    /// The last line is not the end mark and had no line end, so its value may be cut short.
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
    parse_within(page, Limits::SCRAPE, keep)
}

/// Reads a page within other limits than a scrape's. `keep` must answer a name always the same: it
/// is asked once for a run of samples with one name.
#[must_use]
pub fn parse_within(page: &[u8], limits: Limits, keep: impl Fn(&str) -> bool) -> Page<'_> {
    let (page, bytes_cut) = within_limit(page, limits.max_bytes);
    let guess = (page.len() / TYPICAL_BYTES_PER_SAMPLE).min(limits.max_series);
    let empty = Page {
        bytes_cut,
        samples: Vec::with_capacity(guess.min(MAX_SERIES)),
        ..Page::default()
    };
    let mut reader = Reader::new(empty, limits, keep);
    for line in Lines::of(page) {
        reader.read(&line);
    }
    reader.page
}

/// The part of the page inside the size limit, cut after the last whole line.
fn within_limit(page: &[u8], max_bytes: usize) -> (&[u8], usize) {
    if page.len() <= max_bytes {
        return (page, 0);
    }
    let end = memchr::memrchr(b'\n', &page[..max_bytes]).map_or(0, |i| i + 1);
    (&page[..end], page.len() - end)
}

impl<'a> Page<'a> {
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
