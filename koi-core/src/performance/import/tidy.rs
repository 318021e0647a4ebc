//! The tidy table: one row is one measured point, absent cells are absent.

use super::table::{Cells, read_rows};
use super::{Given, Import};
use crate::performance::{Load, LoadKind, Measured, PerformanceRow, Statistic, Timing};
use crate::violation::FieldViolation;

const REQUIRED: [&str; 5] = ["source", "model", "gpu_type", "load_kind", "row_id"];

pub(super) fn read(text: &str, given: &Given) -> Result<Import, Vec<FieldViolation>> {
    read_rows(text, &REQUIRED, given, row)
}

fn row(mut cells: Cells<'_>, given: &Given) -> Result<PerformanceRow, Vec<FieldViolation>> {
    let notes = cells.text("notes").to_owned();
    let named =
        |text: &str, given: &Option<String>| given.clone().unwrap_or_else(|| text.to_owned());
    let row = PerformanceRow {
        source: named(cells.text("source"), &given.source),
        row_id: cells.text("row_id").to_owned(),
        date: cells.text("date").to_owned(),
        model: named(cells.text("model"), &given.model),
        gpu_type: named(cells.text("gpu_type"), &given.gpu_type),
        n_gpus: cells.width("num_gpus").or(given.n_gpus),
        tp: cells.width("tp").or(given.tp),
        pp: cells.width("pp").or(given.pp),
        ep: cells.expert_width().or(given.ep),
        dp: cells.width("dp"),
        engine: cells.optional("engine").or_else(|| given.engine.clone()),
        engine_version: cells
            .optional("engine_version")
            .or_else(|| given.engine_version.clone()),
        weight_dtype: cells
            .optional("weight_dtype")
            .or_else(|| given.weight_dtype.clone()),
        kv_dtype: cells
            .optional("kv_dtype")
            .or_else(|| given.kv_dtype.clone()),
        isl: cells.number("isl"),
        osl: cells.number("osl"),
        load: load(&mut cells),
        disaggregated: notes.contains("DISAGGREGATED"),
        measured: measured(&mut cells),
        notes,
    };
    cells.finish(row)
}

fn load(cells: &mut Cells<'_>) -> Option<Load> {
    let name = cells.text("load_kind");
    if name.is_empty() {
        return None;
    }
    let Some(kind) = LoadKind::from_name(name) else {
        let known = LoadKind::ALL.map(LoadKind::name).join(", ");
        cells.refuse("load_kind", format!("must be one of {known}"));
        return None;
    };
    let value = cells.number("concurrency_or_rate");
    Some(Load { kind, value })
}

fn measured(cells: &mut Cells<'_>) -> Measured {
    Measured {
        output_tokens_per_sec: cells.number("out_tok_s_system"),
        ttft: timing(cells, "ttft_ms", "ttft_stat"),
        tpot: timing(cells, "tpot_ms", "tpot_stat"),
        ttft_p99_ms: cells.number("ttft_p99_ms"),
        tpot_p99_ms: cells.number("tpot_p99_ms"),
    }
}

fn timing(cells: &mut Cells<'_>, column: &str, statistic: &str) -> Option<Timing> {
    let ms = cells.number(column)?;
    let words = cells.text(statistic);
    let Some(statistic_of) = Statistic::from_words(words) else {
        let message = "says what the time is: mean, p50, single or derived";
        cells.refuse(statistic, message);
        return None;
    };
    Some(Timing {
        ms,
        statistic: statistic_of,
    })
}
