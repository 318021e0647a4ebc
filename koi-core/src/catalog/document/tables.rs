//! The tables of the page, one function each.

use std::collections::BTreeMap;

use super::super::{Catalog, Feature, FlagRow, GpuType, SetBy, Status, Value};
use super::table;
use crate::causal::{CausalModel, EdgeEnds};
use crate::configuration::{EngineShape, Rule, Term};

/// A number with its thousands as a suffix of ten, `989.4e12`.
fn short(value: f64) -> String {
    for (power, unit) in [(1e15, "P"), (1e12, "T"), (1e9, "G")] {
        if value >= power {
            return format!("{:.4}", value / power)
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned()
                + " "
                + unit;
        }
    }
    value.to_string()
}

fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "–".to_owned())
}

fn default_of(row: &Feature) -> String {
    let value = row.default.as_ref().map(Value::to_string);
    match (value, row.optional) {
        (Some(value), true) => format!("{value} (engine)"),
        (Some(value), false) => value,
        (None, _) => "–".to_owned(),
    }
}

pub(super) fn knobs(catalog: &Catalog, model: &CausalModel) -> String {
    let mut moves: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for edge in model.edges() {
        if let EdgeEnds::FeatureToMediator(feature, mediator) = &edge.ends {
            moves.entry(feature).or_default().push(mediator.name());
        }
    }
    let rows = catalog
        .features()
        .filter(|row| row.set_by == SetBy::Planner);
    let headings = [
        "id",
        "family",
        "values",
        "default",
        "change",
        "applies",
        "moves",
        "prediction",
        "meaning",
    ];
    table(
        "Knobs",
        &headings,
        rows.map(|row| {
            let applies: Vec<String> = row.applies.iter().map(ToString::to_string).collect();
            let meaning = match (row.status, &row.no_flag) {
                (Status::Active, Some(why)) => format!("{} No flag: {why}.", row.doc),
                (Status::Active, None) => row.doc.clone(),
                (status, why) => format!(
                    "{} {}: {}.",
                    row.doc,
                    status.name(),
                    why.as_deref().unwrap_or("no reason given")
                ),
            };
            vec![
                row.id.clone(),
                row.family.clone(),
                row.domain.to_string(),
                default_of(row),
                row.change.name().to_owned(),
                or_dash((!applies.is_empty()).then(|| applies.join(", "))),
                or_dash(moves.get(row.id.as_str()).map(|v| v.join(", "))),
                followed(catalog, row),
                meaning,
            ]
        }),
    )
}

/// Through which terms the prediction follows a knob, and what each magnitude rests on.
fn followed(catalog: &Catalog, row: &Feature) -> String {
    let effects = catalog.effects_of(&row.id);
    if !effects.is_empty() {
        let terms = effects
            .iter()
            .map(|e| format!("{} ({})", e.term.name(), e.basis.name()));
        return terms.collect::<Vec<_>>().join(", ");
    }
    let of_row = match row.id.as_str() {
        "ep" | "max_model_len" => "what is legal and fits; no mediator",
        "engine_name" => "the constants of the engine, where a caller names it",
        id if EngineShape::MAIN_SETTINGS.contains(&id) => "by itself",
        _ => "not followed",
    };
    of_row.to_owned()
}

/// The vocabulary of effects.
pub(super) fn terms() -> String {
    table(
        "Terms of the prediction",
        &["term", "several knobs", "shows first in", "meaning"],
        Term::ALL.into_iter().map(|term| {
            let shows: Vec<&str> = term.shows_in().iter().map(|m| m.name()).collect();
            let meet = match term.rule() {
                Rule::Product => "multiply",
                Rule::Sum => "add up",
                Rule::Least => "the least counts",
                Rule::Most => "the most counts",
                Rule::Alone => "one alone decides",
            };
            vec![
                term.name().to_owned(),
                meet.to_owned(),
                shows.join(", "),
                term.doc().to_owned(),
            ]
        }),
    )
}

pub(super) fn context(catalog: &Catalog) -> String {
    let rows = catalog
        .features()
        .filter(|row| row.set_by != SetBy::Planner);
    table(
        "Context",
        &["id", "family", "set by", "values", "unit", "meaning"],
        rows.map(|row| {
            vec![
                row.id.clone(),
                row.family.clone(),
                row.set_by.name().to_owned(),
                row.domain.to_string(),
                row.unit.clone(),
                row.doc.clone(),
            ]
        }),
    )
}

pub(super) fn mediators(catalog: &Catalog) -> String {
    table(
        "Mediators",
        &["id", "family", "unit", "meaning"],
        catalog.mediators.iter().map(|row| {
            vec![
                row.id.clone(),
                row.family.clone(),
                row.unit.clone(),
                row.doc.clone(),
            ]
        }),
    )
}

pub(super) fn outcomes(catalog: &Catalog) -> String {
    table(
        "Outcomes",
        &["id", "unit", "better", "meaning"],
        catalog.outcomes.iter().map(|row| {
            let better = if row.maximise { "more" } else { "less" };
            vec![
                row.id.clone(),
                row.unit.clone(),
                better.to_owned(),
                row.doc.clone(),
            ]
        }),
    )
}

fn gpu(row: &GpuType) -> Vec<String> {
    let peaks = row.peak_flops;
    let peak = |value: Option<f64>| or_dash(value.map(short));
    vec![
        row.id.clone(),
        row.architecture.clone(),
        or_dash(row.compute_capability.clone()),
        or_dash(row.compute_units.map(|n| n.to_string())),
        format!("{:.1}", row.memory_bytes / 1024.0_f64.powi(3)),
        short(row.bandwidth_bytes_per_second),
        short(peaks.fp32),
        peak(peaks.tf32),
        peak(peaks.fp16),
        peak(peaks.has_bf16.then_some(peaks.bf16)),
        peak(peaks.fp8),
        peak(peaks.int8),
        peak(peaks.fp4),
        or_dash(row.nvlink_bytes_per_second.map(|b| {
            format!(
                "{} {} × {}",
                row.scale_up.name(),
                short(b),
                row.scale_up_gpus
            )
        })),
        short(row.pcie_bytes_per_second),
        format!("{:.0}", row.power_limit_w),
        row.checked.name().to_owned(),
        row.source.clone(),
    ]
}

pub(super) fn gpus(catalog: &Catalog) -> String {
    let headings = [
        "id",
        "architecture",
        "target",
        "units",
        "GiB",
        "B/s",
        "fp32",
        "tf32",
        "fp16",
        "bf16",
        "fp8",
        "int8",
        "fp4",
        "fabric",
        "PCIe B/s",
        "W",
        "checked",
        "source",
    ];
    table("GPU types", &headings, catalog.gpu_types().map(gpu))
}

pub(super) fn machines(catalog: &Catalog) -> String {
    table(
        "Machine types",
        &["id", "cloud", "GPUs", "type", "USD/h on demand", "region"],
        catalog.instance_types().map(|row| {
            vec![
                row.id.clone(),
                row.cloud.clone(),
                row.gpus.to_string(),
                row.gpu_type.clone(),
                or_dash(row.on_demand_usd_per_hour.map(|usd| usd.to_string())),
                or_dash(row.list_region.clone()),
            ]
        }),
    )
}

fn range(row: &FlagRow) -> String {
    row.until.map_or_else(
        || format!("{} –", row.since),
        |until| format!("{} – {until}", row.since),
    )
}

pub(super) fn flags(catalog: &Catalog) -> String {
    let rows = catalog.engines().flat_map(|engine| {
        engine.flags.iter().map(|row| {
            let flags: Vec<&str> = row.write.flags().into_iter().collect();
            let key = match &row.write {
                super::super::FlagWriter::Json { key, .. } => format!(" {{{key}}}"),
                super::super::FlagWriter::Implied(value) => format!("none: always {value}"),
                _ => String::new(),
            };
            let written: String = flags.join(", ") + &key;
            vec![
                engine.engine.clone(),
                row.feature.clone(),
                written,
                range(row),
                row.checked.name().to_owned(),
            ]
        })
    });
    table(
        "Flags",
        &[
            "engine",
            "knob",
            "written",
            "versions (the last is the first without it)",
            "checked",
        ],
        rows,
    )
}

pub(super) fn metrics(catalog: &Catalog) -> String {
    let rows = catalog.metrics().files().iter().flat_map(|file| {
        file.metric.iter().map(|row| {
            let names: Vec<String> = row
                .names
                .iter()
                .map(|name| {
                    let since = name
                        .since
                        .map_or_else(String::new, |v| format!(" from {v}"));
                    let until = name
                        .until
                        .map_or_else(String::new, |v| format!(" before {v}"));
                    format!("{}{since}{until}", name.name)
                })
                .collect();
            vec![
                file.engine.clone(),
                row.series.clone(),
                row.kind.name().to_owned(),
                row.unit.clone(),
                names.join("; "),
                row.doc.clone(),
            ]
        })
    });
    table(
        "Metric names",
        &["engine", "series", "kind", "unit", "names", "meaning"],
        rows,
    )
}
