//! Metric names by engine and version, mapped to one set of series.
//!
//! Not a parser: [`crate::telemetry`] reads pages; this says what a name means. A name that is not
//! here has no meaning, which is not zero. Spec §14; field.md 2.5.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::engine::{Checked, EngineVersion};

/// Type of a metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// A level.
    Gauge,
    /// Buckets, a sum and a count.
    Histogram,
    /// Facts in labels.
    Info,
}

impl MetricKind {
    /// The word in the catalog.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// One name of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricName {
    /// Family name as exposed; counters with `_total`.
    pub name: String,
    /// First version that has it; absent for the oldest known.
    #[serde(default)]
    pub since: Option<EngineVersion>,
    /// First version that no longer has it.
    #[serde(default)]
    pub until: Option<EngineVersion>,
    /// What the values are multiplied by to have the series' unit.
    #[serde(default)]
    pub scale: Option<f64>,
    /// True when the name measures something near the series and not the series itself.
    #[serde(default)]
    pub is_proxy: bool,
}

/// One series of an engine, with all its names, the preferred one first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricRow {
    /// Canonical series; the same word for every engine.
    pub series: String,
    /// Type.
    pub kind: MetricKind,
    /// Unit of the series.
    pub unit: String,
    /// True when every engine page of the right version has it.
    #[serde(default)]
    pub expected: bool,
    /// Names.
    pub names: Vec<MetricName>,
    /// How the row came to be known.
    #[serde(default)]
    pub checked: Checked,
    /// One sentence.
    pub doc: String,
}

/// One file of metric names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricFile {
    /// Engine family.
    pub engine: String,
    /// What the names start with, e.g. `vllm:`.
    pub prefix: String,
    /// Other spellings of that start: Ray adds a word and cannot write a colon.
    pub other_prefixes: Vec<String>,
    /// Rows.
    pub metric: Vec<MetricRow>,
}

/// What a metric name means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CanonicalSeries<'a> {
    /// Engine family.
    pub engine: &'a str,
    /// The row.
    pub row: &'a MetricRow,
    /// The name within the row.
    pub name: &'a MetricName,
    /// Position among the row's names; 0 is preferred.
    pub preference: usize,
}

/// All metric names of all engines.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MetricNames {
    files: Vec<MetricFile>,
    /// Family name → (file, row, name).
    by_name: BTreeMap<String, (usize, usize, usize)>,
}

impl MetricNames {
    pub(super) fn of(files: Vec<MetricFile>) -> Self {
        let mut by_name = BTreeMap::new();
        for (f, file) in files.iter().enumerate() {
            for (r, row) in file.metric.iter().enumerate() {
                for (n, name) in row.names.iter().enumerate() {
                    by_name.entry(name.name.clone()).or_insert((f, r, n));
                }
            }
        }
        Self { files, by_name }
    }

    /// What a name on a metrics page means: the name of a family or of one of its series
    /// (`_bucket`, `_sum`, `_count`), plain or as Ray rewrites it.
    #[must_use]
    pub fn canonical(&self, series_name: &str) -> Option<CanonicalSeries<'_>> {
        if series_name.len() > 256 {
            return None;
        }
        self.exact(series_name).or_else(|| {
            let file = self.files.iter().find_map(|file| {
                let start = file
                    .other_prefixes
                    .iter()
                    .find_map(|p| series_name.strip_prefix(p.as_str()))?;
                Some((file, start))
            });
            let (file, rest) = file?;
            let plain = format!("{}{rest}", file.prefix);
            // Ray exports counters without the ending that the client library adds.
            self.exact(&plain)
                .or_else(|| self.exact(&format!("{plain}_total")))
        })
    }

    fn exact(&self, name: &str) -> Option<CanonicalSeries<'_>> {
        let family = ["_bucket", "_sum", "_count"]
            .into_iter()
            .find_map(|end| name.strip_suffix(end));
        let of = |name: &str, histogram: bool| {
            let (f, r, n) = *self.by_name.get(name)?;
            let file = self.files.get(f)?;
            let row = file.metric.get(r)?;
            (!histogram || row.kind == MetricKind::Histogram).then_some(CanonicalSeries {
                engine: &file.engine,
                row,
                name: row.names.get(n)?,
                preference: n,
            })
        };
        of(name, false).or_else(|| of(family?, true))
    }

    /// All rows of an engine; `sim` speaks as vLLM.
    pub fn rows(&self, engine: &str) -> impl Iterator<Item = &MetricRow> {
        let engine = super::speaks_as(engine).to_owned();
        self.files
            .iter()
            .filter(move |file| file.engine == engine)
            .flat_map(|file| &file.metric)
    }

    /// Names under which a version of an engine exposes a series, the preferred one first.
    #[must_use]
    pub fn names_in(&self, engine: &str, series: &str, version: EngineVersion) -> Vec<&str> {
        let row = self.rows(engine).find(|row| row.series == series);
        let exists = |name: &&MetricName| {
            name.since.is_none_or(|since| since <= version)
                && name.until.is_none_or(|until| version < until)
        };
        row.into_iter()
            .flat_map(|row| row.names.iter().filter(exists))
            .map(|name| name.name.as_str())
            .collect()
    }

    /// All files, one per engine.
    #[must_use]
    pub fn files(&self) -> &[MetricFile] {
        &self.files
    }
}
