//! Benchmark files as [`PerformanceRow`]s: which format a text has, and what could not be read.
//!
//! A bad row costs that row; the others are kept. Formats: the tidy table, InferenceX points as
//! aiconfigurator publishes them, results of `vllm bench serve`, reports of GuideLLM (both layouts).

mod asked;
mod guidellm;
mod json;
mod quotes;
mod silicon;
mod table;
mod tidy;
mod vllm_bench;

use serde::{Deserialize, Serialize};

pub(crate) use asked::requests_of_run;
pub use asked::{AskedRow, asked_rows};

use super::PerformanceRow;
use crate::violation::FieldViolation;

/// Largest text taken.
pub const MAX_IMPORT_BYTES: usize = 256 * 1024 * 1024;
/// Problems told one by one; the rest is counted.
const MAX_PROBLEMS: usize = 200;

/// A format of benchmark results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A CSV with the columns of the tidy table.
    Tidy,
    /// A CSV of InferenceX points as aiconfigurator publishes them.
    Silicon,
    /// JSON or JSON lines of `vllm bench serve --save-result`.
    VllmBench,
    /// A GuideLLM report in JSON.
    Guidellm,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 4] = [Self::Tidy, Self::Silicon, Self::VllmBench, Self::Guidellm];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tidy => "tidy",
            Self::Silicon => "silicon",
            Self::VllmBench => "vllm-bench",
            Self::Guidellm => "guidellm",
        }
    }

    /// The format that a text looks like.
    #[must_use]
    pub fn detect(text: &str) -> Option<Self> {
        let start = text.trim_start_matches('\u{feff}').trim_start();
        if start.starts_with('{') {
            return json::looks_like_guidellm(start)
                .then_some(Self::Guidellm)
                .or_else(|| json::looks_like_vllm_bench(start).then_some(Self::VllmBench));
        }
        let header = start.lines().next()?;
        let has = |column: &str| header.split(',').any(|c| c.trim() == column);
        if has("silicon_ttft_ms") {
            Some(Self::Silicon)
        } else if has("row_id") && has("load_kind") {
            Some(Self::Tidy)
        } else {
            None
        }
    }
}

/// What a benchmark file does not say about its deployment; the person who ran it does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given {
    /// Who measured; the prefix of row ids of files that have none.
    pub source: Option<String>,
    /// Model, where the file's name for it is only a path.
    pub model: Option<String>,
    /// GPU type.
    pub gpu_type: Option<String>,
    /// Devices.
    pub n_gpus: Option<u32>,
    /// Tensor-parallel width.
    pub tp: Option<u32>,
    /// Pipeline stages.
    pub pp: Option<u32>,
    /// Expert-parallel width.
    pub ep: Option<u32>,
    /// Engine.
    pub engine: Option<String>,
    /// Its version.
    pub engine_version: Option<String>,
    /// Number format of the weights.
    pub weight_dtype: Option<String>,
    /// Number format of the KV cache.
    pub kv_dtype: Option<String>,
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Import {
    /// Rows that passed every check.
    pub rows: Vec<PerformanceRow>,
    /// Problems of the others, by place and field, e.g. `line 7, isl`; the first ones only.
    pub problems: Vec<FieldViolation>,
    /// Rows left out.
    pub n_left_out: usize,
}

impl Import {
    /// Takes a row that was read, or what is wrong with it.
    fn take(&mut self, place: &str, row: Result<PerformanceRow, Vec<FieldViolation>>) {
        match row.and_then(PerformanceRow::check) {
            Ok(row) => self.rows.push(row),
            Err(problems) => {
                self.n_left_out += 1;
                let room = MAX_PROBLEMS.saturating_sub(self.problems.len());
                self.problems
                    .extend(problems.into_iter().take(room).map(|p| FieldViolation {
                        field: format!("{place}, {}", p.field),
                        message: p.message,
                    }));
            }
        }
    }

    /// Drops rows that repeat an id; the first one stays.
    fn without_repeats(mut self) -> Self {
        let mut seen = std::collections::BTreeSet::new();
        let mut repeated = Vec::new();
        self.rows.retain(|row| {
            let is_new = seen.insert((row.source.clone(), row.row_id.clone()));
            if !is_new {
                repeated.push(row.row_id.clone());
            }
            is_new
        });
        self.n_left_out += repeated.len();
        let room = MAX_PROBLEMS.saturating_sub(self.problems.len());
        self.problems
            .extend(repeated.into_iter().take(room).map(|id| FieldViolation {
                field: "row_id".to_owned(),
                message: format!("{id:?} stands twice; the first one is kept"),
            }));
        self
    }
}

/// Reads a benchmark file.
///
/// # Errors
/// When the text as a whole is of no use: too long, not of this format, or of no format at all. Bad
/// rows are in [`Import::problems`].
pub fn import(
    text: &str,
    format: Option<Format>,
    given: &Given,
) -> Result<Import, Vec<FieldViolation>> {
    let refuse = |message: String| {
        Err(vec![FieldViolation {
            field: "file".to_owned(),
            message,
        }])
    };
    if text.len() > MAX_IMPORT_BYTES {
        return refuse(format!("longer than {} MiB", MAX_IMPORT_BYTES >> 20));
    }
    let Some(format) = format.or_else(|| Format::detect(text)) else {
        let names = Format::ALL.map(Format::name).join(", ");
        return refuse(format!(
            "is of no known format; name one with --format: {names}"
        ));
    };
    let import = match format {
        Format::Tidy => tidy::read(text, given)?,
        Format::Silicon => silicon::read(text, given)?,
        Format::VllmBench => vllm_bench::read(text, given)?,
        Format::Guidellm => guidellm::read(text, given)?,
    };
    Ok(import.without_repeats())
}

#[cfg(test)]
mod tests;
