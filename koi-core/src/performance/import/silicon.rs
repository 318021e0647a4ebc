//! InferenceX points in the table that aiconfigurator publishes: mean TTFT and TPOT at a concurrency,
//! no throughput. Points with prefill and decode apart are marked so.

use super::table::{Cells, read_rows};
use super::{Given, Import};
use crate::performance::{Load, LoadKind, Measured, PerformanceRow, Statistic, Timing};
use crate::violation::FieldViolation;

const SOURCE: &str = "InferenceX (aiconfigurator silicon)";
const REQUIRED: [&str; 6] = [
    "id",
    "backend",
    "model_path",
    "system",
    "silicon_ttft_ms",
    "silicon_tpot_ms",
];

pub(super) fn read(text: &str, given: &Given) -> Result<Import, Vec<FieldViolation>> {
    read_rows(text, &REQUIRED, given, row)
}

fn row(mut cells: Cells<'_>, given: &Given) -> Result<PerformanceRow, Vec<FieldViolation>> {
    let facts = Facts::of(cells.text("silicon_data_source"));
    let is_apart = cells.text("mode") == "disagg";
    let widths = ["tp_size", "pp_size", "attention_dp_size", "moe_ep_size"];
    let [tp, pp, dp, ep] = widths.map(|column| cells.width(column));
    let value = match facts.concurrency {
        Some(n) => Some(n),
        None => cells.number("batch_size"),
    };
    // Attention that is not cut runs on as many devices as there are copies of it.
    let n_gpus = tp.map(|tp| {
        tp.saturating_mul(pp.unwrap_or(1))
            .saturating_mul(dp.unwrap_or(1))
    });
    let row = PerformanceRow {
        source: given.source.clone().unwrap_or_else(|| SOURCE.to_owned()),
        row_id: cells.text("id").to_owned(),
        date: facts.date,
        model: given
            .model
            .clone()
            .unwrap_or_else(|| cells.text("model_path").to_owned()),
        gpu_type: given
            .gpu_type
            .clone()
            .unwrap_or_else(|| cells.text("system").to_owned()),
        n_gpus: n_gpus.filter(|_| !is_apart),
        tp,
        pp,
        ep,
        dp,
        engine: cells.optional("backend"),
        engine_version: cells.optional("backend_version"),
        weight_dtype: cells
            .optional("gemm_quant_mode")
            .or_else(|| given.weight_dtype.clone()),
        kv_dtype: given.kv_dtype.clone(),
        isl: cells.number("isl"),
        osl: cells.number("osl"),
        load: Some(Load {
            kind: LoadKind::Concurrency,
            value,
        }),
        disaggregated: is_apart,
        measured: Measured {
            ttft: mean(&mut cells, "silicon_ttft_ms"),
            tpot: mean(&mut cells, "silicon_tpot_ms"),
            ..Measured::default()
        },
        notes: cells.text("silicon_data_source").to_owned(),
    };
    cells.finish(row)
}

fn mean(cells: &mut Cells<'_>, column: &str) -> Option<Timing> {
    let ms = cells.number(column)?;
    Some(Timing {
        ms,
        statistic: Statistic::Mean,
    })
}

/// What the free-text column says: `…; silicon_concurrency=32; measured=2026-04-22T…`.
struct Facts {
    concurrency: Option<f64>,
    date: String,
}

impl Facts {
    fn of(words: &str) -> Self {
        let value = |key: &str| {
            let mut parts = words.split(';').map(str::trim);
            parts.find_map(|p| p.strip_prefix(key)?.strip_prefix('='))
        };
        Self {
            concurrency: value("silicon_concurrency").and_then(|v| v.parse().ok()),
            date: value("measured")
                .map(|v| v.chars().take(10).collect())
                .unwrap_or_default(),
        }
    }
}
