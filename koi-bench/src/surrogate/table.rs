//! The table of measured points: CSV text to rows, each with what was measured beside it.
//!
//! Measured values stay in [`Measured`]; what the surrogate is asked is built from the other
//! columns alone. Not an importer of other formats.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use koi_core::catalog::{Catalog, GpuType};
use koi_core::model::{KnownModel, ModelFacts};
use koi_core::surrogate::measured_row::{LoadKind, MeasuredRow, Question};

/// Largest table that is read.
const MAX_BYTES: u64 = 64 << 20;

/// What was measured.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Measured {
    pub(super) tpot_ms: Option<f64>,
    pub(super) ttft_ms: Option<f64>,
    pub(super) out_tok_s_system: Option<f64>,
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
    /// Split and engine.
    pub(super) choice: String,
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
    let size = std::fs::metadata(path)?.len();
    if size > MAX_BYTES {
        bail!(
            "{} is {size} bytes; at most {MAX_BYTES} are read",
            path.display()
        );
    }
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut lines = text.lines();
    let header = cells(lines.next().unwrap_or_default());
    let columns: BTreeMap<&str, usize> = header
        .iter()
        .enumerate()
        .map(|(i, name)| (name.as_str(), i))
        .collect();
    for needed in [
        "model",
        "gpu_type",
        "engine",
        "isl",
        "osl",
        "load_kind",
        "tpot_ms",
    ] {
        if !columns.contains_key(needed) {
            bail!("{} has no column {needed}", path.display());
        }
    }
    let models = models()?;
    Ok(lines
        .map(|line| {
            let cells = cells(line);
            point(
                &Cells {
                    cells: &cells,
                    columns: &columns,
                },
                &models,
            )
        })
        .collect())
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

struct Cells<'a> {
    cells: &'a [String],
    columns: &'a BTreeMap<&'a str, usize>,
}

impl Cells<'_> {
    fn text(&self, name: &str) -> &str {
        let index = self.columns.get(name).copied();
        index
            .and_then(|i| self.cells.get(i))
            .map_or("", |s| s.trim())
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.text(name).parse().ok().filter(|x: &f64| x.is_finite())
    }

    fn count(&self, name: &str) -> Option<u32> {
        let n = self.number(name)?;
        ((0.0..=1e6).contains(&n)).then_some(n as u32)
    }

    fn words(&self, name: &str) -> Option<String> {
        let text = self.text(name);
        (!text.is_empty()).then(|| text.to_owned())
    }
}

fn point(cells: &Cells<'_>, models: &BTreeMap<String, ModelFacts>) -> Point {
    let row = row(cells);
    let gpu = Catalog::embedded().gpu_type(&row.gpu_type);
    let facts = models.get(&row.model);
    let question = match (facts, gpu) {
        (Some(facts), Some(gpu)) => Question::of(&row, facts, gpu),
        (None, _) => Err(format!("model {} is not known", row.model)),
        (_, None) => Err(format!("GPU {} is not known", row.gpu_type)),
    };
    let measured = measured(cells);
    let named = |names: &[&str]| -> String {
        names
            .iter()
            .map(|n| cells.text(n))
            .collect::<Vec<_>>()
            .join("|")
    };
    // The split that is asked: where a source states devices alone, they are the shards.
    let choice = question.as_ref().map_or_else(
        |_| named(&["tp", "pp", "engine"]),
        |q| format!("{}|{}|{}", q.shape.tp, q.shape.pp, row.engine),
    );
    let same_shape = facts.and_then(|f| models.iter().find(|(_, m)| is_same_shape(m, f)));
    Point {
        row_id: cells.text("row_id").to_owned(),
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
        choice,
        n_gpus: f64::from(row.num_gpus.or(row.tp).unwrap_or(1).max(1)),
        row,
    }
}

/// What a line says of what ran.
fn row(cells: &Cells<'_>) -> MeasuredRow {
    let notes = cells.text("notes");
    let ep = match cells.text("ep") {
        "" => None,
        "on" => Some(0),
        number => number.parse::<f64>().ok().map(|n| (n as u32).max(1)),
    };
    MeasuredRow {
        model: cells.text("model").to_owned(),
        gpu_type: cells.text("gpu_type").to_owned(),
        num_gpus: cells.count("num_gpus"),
        tp: cells.count("tp"),
        pp: cells.count("pp"),
        ep,
        dp: cells.count("dp"),
        engine: cells.text("engine").to_owned(),
        engine_version: cells.words("engine_version"),
        year: cells.text("date").get(..4).and_then(|y| y.parse().ok()),
        weight_dtype: cells.words("weight_dtype"),
        kv_dtype: cells.words("kv_dtype"),
        isl: cells.number("isl"),
        osl: cells.number("osl"),
        load: cells.number("concurrency_or_rate"),
        load_kind: LoadKind::from_name(cells.text("load_kind")),
        is_disaggregated: notes.contains("DISAGGREGATED"),
        n_requests: count_before(notes, " requests"),
    }
}

/// What a line says of what was measured.
fn measured(cells: &Cells<'_>) -> Measured {
    Measured {
        tpot_ms: cells.number("tpot_ms").filter(|x| *x > 0.0),
        ttft_ms: cells.number("ttft_ms").filter(|x| *x > 0.0),
        out_tok_s_system: cells.number("out_tok_s_system").filter(|x| *x > 0.0),
        published_tok_s: cells
            .number("throughput_tok_s")
            .filter(|x| *x > 0.0 && !cells.text("throughput_kind").contains("does not equal")),
        is_mean: cells.text("tpot_stat") == "mean",
        is_median: ["ttft_stat", "tpot_stat"]
            .iter()
            .any(|c| cells.text(c) == "p50"),
    }
}

/// The number before a word in a text, such as 2000 in "rate inf, 2000 requests".
fn count_before(text: &str, word: &str) -> Option<u32> {
    let (before, _) = text.split_once(word)?;
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|n| *n > 0)
}

/// Splits one CSV line; quotes protect commas.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
    }
    cells.push(cell);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_protect_commas_and_notes_give_counts() {
        assert_eq!(cells("a,\"b, c\",,d"), ["a", "b, c", "", "d"]);
        let notes = "advisor; request rate inf, 2000 requests; more";
        assert_eq!(count_before(notes, " requests"), Some(2_000));
        assert_eq!(count_before("no such thing", " requests"), None);
    }

    #[test]
    fn the_shapes_of_measured_models_are_read() {
        let models = models().unwrap();
        let expected = &models["llama-3.1-70b"];
        assert_eq!((expected.layers, expected.kv_heads), (80, 8));
        assert!(models.len() >= 25, "{}", models.len());
    }
}
