//! The table of measured points: CSV text to rows, each with what was measured beside it.
//!
//! Measured values stay in [`Measured`]; what the surrogate is asked is built from the other
//! columns alone. Not an importer of other formats.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use koi_core::catalog::{Catalog, GpuType};
use koi_core::model::{KnownModel, ModelFacts};
use koi_core::performance::import::{AskedRow, asked_rows};
use koi_core::surrogate::measured_row::{MeasuredRow, Question};

use crate::Usage;

/// Largest table that is read.
const MAX_BYTES: u64 = 64 << 20;

/// What was measured.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Measured {
    pub(super) tpot_ms: Option<f64>,
    pub(super) ttft_ms: Option<f64>,
    pub(super) out_tok_s_system: Option<f64>,
    pub(super) tpot_p99_ms: Option<f64>,
    pub(super) ttft_p99_ms: Option<f64>,
    /// As published, where the output rate cannot be derived.
    pub(super) published_tok_s: Option<f64>,
    /// The statistic of both latencies is the mean.
    pub(super) is_mean: bool,
    /// The statistic of either latency is the median.
    pub(super) is_median: bool,
}

/// One row.
pub(super) struct Point {
    pub(super) row_id: String,
    pub(super) source: String,
    pub(super) row: MeasuredRow,
    pub(super) measured: Measured,
    /// The question, or why there is none.
    pub(super) question: Result<Question, String>,
    pub(super) gpu: Option<&'static GpuType>,
    /// Rows of one shape of model share this key, whatever the model is called.
    pub(super) model_key: String,
    /// Rows of one device share this key.
    pub(super) gpu_key: String,
    /// Everything but the split and the engine: a grid to choose from.
    pub(super) grid_key: String,
    /// Split and engine, as published.
    pub(super) choice: String,
    /// The same where a source states only devices: replicas count as another choice.
    pub(super) choice_by_devices: String,
    /// Devices, for rates per GPU.
    pub(super) n_gpus: f64,
}

/// The folder of shared data: `KOI_SHARED`, else `shared` above the working directory.
pub(super) fn shared_folder() -> Option<PathBuf> {
    let named = std::env::var_os("KOI_SHARED").map(PathBuf::from);
    let here = std::env::current_dir().ok();
    let above = here
        .iter()
        .flat_map(|p| p.ancestors().map(|a| a.join("shared")).collect::<Vec<_>>());
    let folders: Vec<PathBuf> = named.into_iter().chain(above).collect();
    folders
        .into_iter()
        .find(|f| f.join("data/perf_tidy.csv").is_file())
}

/// Reads a table.
pub(super) fn read(path: &std::path::Path) -> Result<Vec<Point>> {
    let refuse = |why: String| Usage(format!("{}: {why}", path.display()));
    let size = std::fs::metadata(path)
        .map_err(|e| refuse(e.to_string()))?
        .len();
    if size > MAX_BYTES {
        bail!(
            "{} is {size} bytes; at most {MAX_BYTES} are read",
            path.display()
        );
    }
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let name = path.display();
    let asked = asked_rows(&text).map_err(|problems| {
        let words = problems
            .iter()
            .map(|p| format!("{}: {}", p.field, p.message));
        refuse(words.collect::<Vec<_>>().join("; "))
    })?;
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .from_reader(text.as_bytes());
    let header = reader.headers()?.clone();
    let columns: BTreeMap<&str, usize> = header.iter().zip(0..).collect();
    for needed in ["source", "engine", "load_kind", "tpot_ms"] {
        if !columns.contains_key(needed) {
            bail!("{name} has no column {needed}");
        }
    }
    let models = models()?;
    let mut points = Vec::new();
    for (asked, record) in asked.into_iter().zip(reader.records()) {
        let cells = Cells {
            record: &record?,
            columns: &columns,
        };
        points.push(point(asked, &cells, &models));
    }
    Ok(points)
}

/// Facts of the models that are known by name.
fn models() -> Result<BTreeMap<String, ModelFacts>> {
    let mut out = BTreeMap::new();
    for known in KnownModel::all() {
        let facts = known
            .facts()
            .map_err(|e| anyhow!("{}: {} problems", known.name, e.len()))?;
        out.insert(known.name.clone(), facts);
    }
    Ok(out)
}

/// What makes two names one model for a left-out fold: the same matrices.
fn is_same_shape(a: &ModelFacts, b: &ModelFacts) -> bool {
    let shape = |m: &ModelFacts| {
        (
            m.layers,
            m.hidden,
            m.heads,
            m.kv_heads,
            m.intermediate,
            m.vocab,
        )
    };
    shape(a) == shape(b) && a.moe == b.moe
}

/// The cells of what was measured, and of what makes a grid.
struct Cells<'a> {
    record: &'a csv::StringRecord,
    columns: &'a BTreeMap<&'a str, usize>,
}

impl Cells<'_> {
    fn text(&self, name: &str) -> &str {
        let index = self.columns.get(name).copied();
        index.and_then(|i| self.record.get(i)).map_or("", str::trim)
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.text(name).parse().ok().filter(|x: &f64| x.is_finite())
    }
}

fn point(asked: AskedRow, cells: &Cells<'_>, models: &BTreeMap<String, ModelFacts>) -> Point {
    let (row, unread) = match asked.row {
        Ok(row) => (row, None),
        Err(problems) => (MeasuredRow::default(), Some(format!("{problems:?}"))),
    };
    let gpu = Catalog::embedded().gpu_type(&row.gpu_type);
    let facts = models.get(&row.model);
    let question = match (unread, facts, gpu) {
        (Some(problems), ..) => Err(problems),
        (None, Some(facts), Some(gpu)) => Question::of(&row, facts, gpu),
        (None, None, _) => Err(format!("model {} is not known", row.model)),
        (None, _, None) => Err(format!("GPU {} is not known", row.gpu_type)),
    };
    let measured = measured(cells);
    let named = |names: &[&str]| -> String {
        names
            .iter()
            .map(|n| cells.text(n))
            .collect::<Vec<_>>()
            .join("|")
    };
    let same_shape = facts.and_then(|f| models.iter().find(|(_, m)| is_same_shape(m, f)));
    Point {
        row_id: asked.row_id,
        source: cells.text("source").to_owned(),
        measured,
        question,
        model_key: same_shape.map_or_else(|| row.model.clone(), |(name, _)| name.clone()),
        gpu_key: gpu.map_or_else(|| row.gpu_type.clone(), |g| g.id.clone()),
        gpu,
        grid_key: named(&[
            "source",
            "model",
            "gpu_type",
            "isl",
            "osl",
            "concurrency_or_rate",
            "load_kind",
            "weight_dtype",
        ]),
        choice: named(&["tp", "pp", "engine"]),
        choice_by_devices: named(&["tp", "num_gpus", "pp", "engine"]),
        n_gpus: f64::from(row.num_gpus.or(row.tp).unwrap_or(1).max(1)),
        row,
    }
}

/// What a line says of what was measured.
fn measured(cells: &Cells<'_>) -> Measured {
    Measured {
        tpot_ms: cells.number("tpot_ms").filter(|x| *x > 0.0),
        ttft_ms: cells.number("ttft_ms").filter(|x| *x > 0.0),
        out_tok_s_system: cells.number("out_tok_s_system").filter(|x| *x > 0.0),
        tpot_p99_ms: cells.number("tpot_p99_ms").filter(|x| *x > 0.0),
        ttft_p99_ms: cells.number("ttft_p99_ms").filter(|x| *x > 0.0),
        published_tok_s: cells
            .number("throughput_tok_s")
            .filter(|x| *x > 0.0 && !cells.text("throughput_kind").contains("does not equal")),
        is_mean: cells.text("tpot_stat") == "mean",
        is_median: ["ttft_stat", "tpot_stat"]
            .iter()
            .any(|c| cells.text(c) == "p50"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shapes_of_measured_models_are_read() {
        let models = models().unwrap();
        let expected = &models["llama-3.1-70b"];
        assert_eq!((expected.layers, expected.kv_heads), (80, 8));
        assert!(models.len() >= 25, "{}", models.len());
    }
}
