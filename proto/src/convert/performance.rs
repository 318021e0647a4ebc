//! Rows of measured performance between wire and domain.

use koi_core::performance::{Load, LoadKind, Measured, PerformanceRow, Statistic, Timing};
use koi_core::violation::{FieldViolation, Violations};

use crate::v1;

/// Name of a statistic on the wire.
const fn statistic_name(statistic: Statistic) -> &'static str {
    match statistic {
        Statistic::Mean => "mean",
        Statistic::P50 => "p50",
        Statistic::Single => "single",
        Statistic::Derived => "derived",
    }
}

fn timing_to_wire(timing: Timing) -> v1::PerformanceTiming {
    v1::PerformanceTiming {
        ms: timing.ms,
        statistic: statistic_name(timing.statistic).to_owned(),
    }
}

impl From<&PerformanceRow> for v1::PerformanceRow {
    fn from(row: &PerformanceRow) -> Self {
        Self {
            source: row.source.clone(),
            row_id: row.row_id.clone(),
            date: row.date.clone(),
            model: row.model.clone(),
            gpu_type: row.gpu_type.clone(),
            n_gpus: row.n_gpus,
            tp: row.tp,
            pp: row.pp,
            ep: row.ep,
            dp: row.dp,
            engine: row.engine.clone(),
            engine_version: row.engine_version.clone(),
            weight_dtype: row.weight_dtype.clone(),
            kv_dtype: row.kv_dtype.clone(),
            isl: row.isl,
            osl: row.osl,
            load_kind: row
                .load
                .map_or_else(String::new, |l| l.kind.name().to_owned()),
            load_value: row.load.and_then(|l| l.value),
            disaggregated: row.disaggregated,
            output_tokens_per_sec: row.measured.output_tokens_per_sec,
            ttft: row.measured.ttft.map(timing_to_wire),
            tpot: row.measured.tpot.map(timing_to_wire),
            ttft_p99_ms: row.measured.ttft_p99_ms,
            tpot_p99_ms: row.measured.tpot_p99_ms,
            notes: row.notes.clone(),
        }
    }
}

/// A checked row.
///
/// # Errors
/// Every problem, by field.
pub fn row_from_wire(row: v1::PerformanceRow) -> Result<PerformanceRow, Vec<FieldViolation>> {
    let mut problems = Violations::default();
    let load = load_from_wire(&row, &mut problems);
    let ttft = timing_from_wire("ttft", row.ttft, &mut problems);
    let tpot = timing_from_wire("tpot", row.tpot, &mut problems);
    let domain = PerformanceRow {
        source: row.source,
        row_id: row.row_id,
        date: row.date,
        model: row.model,
        gpu_type: row.gpu_type,
        n_gpus: row.n_gpus,
        tp: row.tp,
        pp: row.pp,
        ep: row.ep,
        dp: row.dp,
        engine: row.engine,
        engine_version: row.engine_version,
        weight_dtype: row.weight_dtype,
        kv_dtype: row.kv_dtype,
        isl: row.isl,
        osl: row.osl,
        load,
        disaggregated: row.disaggregated,
        measured: Measured {
            output_tokens_per_sec: row.output_tokens_per_sec,
            ttft,
            tpot,
            ttft_p99_ms: row.ttft_p99_ms,
            tpot_p99_ms: row.tpot_p99_ms,
        },
        notes: row.notes,
    };
    match domain.check() {
        Ok(domain) => problems.finish(domain),
        Err(more) => {
            problems.extend("", more);
            Err(problems.into_vec())
        }
    }
}

fn load_from_wire(row: &v1::PerformanceRow, problems: &mut Violations) -> Option<Load> {
    if row.load_kind.is_empty() {
        if row.load_value.is_some() {
            problems.add("load_kind", "is missing beside load_value");
        }
        return None;
    }
    let Some(kind) = LoadKind::from_name(&row.load_kind) else {
        let known = LoadKind::ALL.map(LoadKind::name).join(", ");
        problems.add("load_kind", format!("must be one of {known}"));
        return None;
    };
    let value = row.load_value;
    Some(Load { kind, value })
}

fn timing_from_wire(
    field: &str,
    timing: Option<v1::PerformanceTiming>,
    problems: &mut Violations,
) -> Option<Timing> {
    let timing = timing?;
    let Some(statistic) = Statistic::from_words(&timing.statistic) else {
        let message = "must be mean, p50, single or derived";
        problems.add(format!("{field}.statistic"), message);
        return None;
    };
    let ms = timing.ms;
    Some(Timing { ms, statistic })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire() -> v1::PerformanceRow {
        v1::PerformanceRow {
            source: "bench".into(),
            row_id: "1".into(),
            model: "m".into(),
            gpu_type: "H100".into(),
            tp: Some(2),
            load_kind: "rate_rps".into(),
            load_value: Some(2.5),
            ttft: Some(v1::PerformanceTiming {
                ms: 40.0,
                statistic: "p50".into(),
            }),
            ..Default::default()
        }
    }

    #[test]
    fn a_row_survives_the_wire() {
        let domain = row_from_wire(wire()).unwrap();
        assert_eq!(v1::PerformanceRow::from(&domain), wire());
    }

    #[test]
    fn problems_of_wire_and_row_come_together() {
        let bad = v1::PerformanceRow {
            model: String::new(),
            load_kind: "often".into(),
            ttft: Some(v1::PerformanceTiming {
                ms: 1.0,
                statistic: "max".into(),
            }),
            tpot: Some(v1::PerformanceTiming {
                ms: f64::INFINITY,
                statistic: "mean".into(),
            }),
            ..wire()
        };
        let problems = row_from_wire(bad).unwrap_err();
        let mut fields: Vec<&str> = problems.iter().map(|p| p.field.as_str()).collect();
        fields.sort_unstable();
        assert_eq!(
            fields,
            ["load_kind", "measured.tpot_ms", "model", "ttft.statistic"]
        );
    }
}
