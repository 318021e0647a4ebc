//! The rows of each table as grids for people and values for programs.

use koi_core::catalog::price::{PriceBook, PriceKey};
use koi_core::catalog::{
    Catalog, EngineVersion, Feature, FlagRow, FlagWriter, GpuType, InstanceType, MetricName, SetBy,
};
use koi_core::causal::CausalModel;
use serde_json::{Value as Json, json};

use crate::output::{Grid, number};

/// A table: what programs get and what people get.
pub(super) struct Table {
    pub(super) value: Json,
    pub(super) grid: Grid,
}

/// Counts of every table.
pub(super) fn counts(
    catalog: &Catalog,
    model: &CausalModel,
    prices: &PriceBook,
) -> Vec<(&'static str, usize)> {
    let flags = catalog.engines().map(|e| e.flags.len()).sum();
    let metrics = catalog
        .metrics()
        .files()
        .iter()
        .map(|f| f.metric.len())
        .sum();
    let is_planners = |row: &&Feature| row.set_by == SetBy::Planner;
    vec![
        ("features", catalog.features().filter(is_planners).count()),
        (
            "context",
            catalog.features().filter(|r| !is_planners(r)).count(),
        ),
        ("mediators", koi_core::variables::MEDIATOR_COUNT),
        ("outcomes", koi_core::variables::OUTCOME_COUNT),
        ("gpus", catalog.gpu_types().count()),
        ("instances", catalog.instance_types().count()),
        ("prices", prices.len()),
        ("flags", flags),
        ("metrics", metrics),
        ("edges", model.edges().count()),
        ("mechanisms", model.mechanisms().count()),
    ]
}

fn table<'a, T: serde::Serialize + 'a>(
    headings: &[&str],
    rows: impl Iterator<Item = &'a T>,
    cells: impl Fn(&T) -> Vec<String>,
) -> anyhow::Result<Table> {
    let mut grid = Grid::new(headings);
    let mut values = Vec::new();
    for row in rows {
        grid.row(cells(row));
        values.push(serde_json::to_value(row)?);
    }
    Ok(Table {
        value: Json::Array(values),
        grid,
    })
}

fn dash(text: Option<String>) -> String {
    text.filter(|t| !t.is_empty())
        .unwrap_or_else(|| "-".to_owned())
}

pub(super) fn features(catalog: &Catalog, planner: bool) -> anyhow::Result<Table> {
    let rows = catalog
        .features()
        .filter(|row| (row.set_by == SetBy::Planner) == planner);
    table(
        &[
            "ID", "FAMILY", "SET BY", "CHANGE", "STATUS", "DEFAULT", "VALUES", "MEANING",
        ],
        rows,
        |row: &Feature| {
            vec![
                row.id.clone(),
                row.family.clone(),
                row.set_by.name().to_owned(),
                row.change.name().to_owned(),
                row.status.name().to_owned(),
                dash(row.default.as_ref().map(ToString::to_string)),
                row.domain.to_string().chars().take(48).collect(),
                row.doc.clone(),
            ]
        },
    )
}

/// `989 T` and the like; absent is a dash.
pub(super) fn tera(value: Option<f64>) -> String {
    number(value.map(|v| v / 1e12), 1)
}

pub(super) fn gpus(catalog: &Catalog) -> anyhow::Result<Table> {
    table(
        &[
            "ID",
            "ARCHITECTURE",
            "TARGET",
            "GiB",
            "TB/s",
            "BF16 T",
            "FP8 T",
            "FP4 T",
            "FABRIC GB/s",
            "GPUs",
            "W",
            "CHECKED",
        ],
        catalog.gpu_types(),
        |row: &GpuType| {
            let peaks = row.peak_flops;
            vec![
                row.id.clone(),
                row.architecture.clone(),
                dash(row.compute_capability.clone()),
                number(Some(row.memory_bytes / 1024.0_f64.powi(3)), 1),
                number(Some(row.bandwidth_bytes_per_second / 1e12), 3),
                tera(Some(peaks.bf16)),
                tera(peaks.fp8),
                tera(peaks.fp4),
                number(row.nvlink_bytes_per_second.map(|b| b / 1e9), 1),
                row.scale_up_gpus.to_string(),
                number(Some(row.power_limit_w), 0),
                row.checked.name().to_owned(),
            ]
        },
    )
}

pub(super) fn instances(catalog: &Catalog, cloud: Option<&str>) -> anyhow::Result<Table> {
    table(
        &[
            "ID",
            "CLOUD",
            "GPUs",
            "TYPE",
            "vCPU",
            "USD/h",
            "USD/GPU/h",
            "REGION",
        ],
        catalog
            .instance_types()
            .filter(|row| cloud.is_none_or(|c| c == row.cloud)),
        |row: &InstanceType| {
            vec![
                row.id.clone(),
                row.cloud.clone(),
                row.gpus.to_string(),
                row.gpu_type.clone(),
                dash(row.vcpus.map(|n| n.to_string())),
                number(row.on_demand_usd_per_hour, 3),
                number(row.usd_per_gpu_hour(), 3),
                dash(row.list_region.clone()),
            ]
        },
    )
}

pub(super) fn prices(
    catalog: &Catalog,
    book: &PriceBook,
    keep: impl Fn(&PriceKey) -> bool,
) -> Table {
    let headings = [
        "CLOUD",
        "REGION",
        "MARKET",
        "INSTANCE",
        "USD/h",
        "USD/GPU/h",
        "DATE",
        "SOURCE",
    ];
    let mut grid = Grid::new(&headings).numbers(&[4, 5]);
    let mut values = Vec::new();
    for (key, price) in book.iter().filter(|(key, _)| keep(key)) {
        let gpus = catalog
            .instance_type(&key.instance)
            .map(|i| f64::from(i.gpus));
        grid.row([
            key.cloud.clone(),
            key.region.clone(),
            key.market.name().to_owned(),
            key.instance.clone(),
            number(Some(price.usd_per_hour), 3),
            number(gpus.map(|n| price.usd_per_hour / n), 3),
            price.date.to_string(),
            price.source.chars().take(60).collect(),
        ]);
        values.push(json!({ "for": key, "price": price }));
    }
    Table {
        value: Json::Array(values),
        grid,
    }
}

/// What a row writes, in short.
pub(super) fn written(row: &FlagRow) -> String {
    let flags: Vec<&str> = row.write.flags().into_iter().collect();
    match &row.write {
        FlagWriter::Json { flag, key, .. } => format!("{flag} {{{key}}}"),
        FlagWriter::Implied(value) => format!("none, always {value}"),
        _ => flags.join(", "),
    }
}

pub(super) fn range(row: &FlagRow) -> String {
    row.until.map_or_else(
        || format!("{} and later", row.since),
        |until| format!("{} to before {until}", row.since),
    )
}

pub(super) fn flags(
    catalog: &Catalog,
    engine: Option<&str>,
    version: Option<EngineVersion>,
) -> Table {
    let mut grid = Grid::new(&["ENGINE", "KNOB", "WRITTEN", "VERSIONS", "CHECKED"]);
    let mut values = Vec::new();
    for table in catalog
        .engines()
        .filter(|t| engine.is_none_or(|e| e == t.engine))
    {
        let rows = table.flags.iter();
        for row in rows.filter(|row| version.is_none_or(|v| row.exists_in(v))) {
            grid.row([
                table.engine.clone(),
                row.feature.clone(),
                written(row),
                range(row),
                row.checked.name().to_owned(),
            ]);
            values.push(json!({ "engine": table.engine, "flag": row }));
        }
    }
    Table {
        value: Json::Array(values),
        grid,
    }
}

pub(super) fn metrics(
    catalog: &Catalog,
    engine: Option<&str>,
    version: Option<EngineVersion>,
) -> Table {
    let mut grid = Grid::new(&["ENGINE", "SERIES", "KIND", "UNIT", "NAMES"]);
    let mut values = Vec::new();
    let exists = |name: &&MetricName| {
        version.is_none_or(|v| {
            name.since.is_none_or(|s| s <= v) && name.until.is_none_or(|until| v < until)
        })
    };
    let files = catalog.metrics().files().iter();
    for file in files.filter(|f| engine.is_none_or(|e| e == f.engine)) {
        for row in &file.metric {
            let names: Vec<&str> = row.names.iter().filter(exists).map(|n| &*n.name).collect();
            if names.is_empty() {
                continue;
            }
            grid.row([
                file.engine.clone(),
                row.series.clone(),
                row.kind.name().to_owned(),
                row.unit.clone(),
                names.join(", "),
            ]);
            values.push(json!({ "engine": file.engine, "metric": row }));
        }
    }
    Table {
        value: Json::Array(values),
        grid,
    }
}

pub(super) fn edges(model: &CausalModel, keep: impl Fn(&str, &str) -> bool) -> Table {
    let mut grid = Grid::new(&["FROM", "TO", "SIGN", "PRIOR", "SEEDED", "PHYSICS"]);
    let mut values = Vec::new();
    let text = |v: Json| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    for edge in model.edges() {
        let (from, to) = (edge.ends.source(), edge.ends.destination());
        if !keep(from, to) {
            continue;
        }
        let (sign, prior) = (json!(edge.sign), json!(edge.prior));
        values.push(json!({
            "from": from, "to": to, "sign": sign, "prior": prior, "doc": edge.doc,
            "seeded": edge.seeded, "exception": edge.exception,
        }));
        let seeded = match (edge.seeded, &edge.exception) {
            (true, None) => "yes",
            (true, Some(_)) => "exception",
            (false, _) => "no",
        };
        let mut physics = edge.doc.clone();
        if let Some(reason) = &edge.exception {
            physics = format!("{physics} Exception: {reason}");
        }
        grid.row([
            from.to_owned(),
            to.to_owned(),
            text(sign),
            text(prior),
            seeded.to_owned(),
            physics,
        ]);
    }
    Table {
        value: Json::Array(values),
        grid,
    }
}

pub(super) fn mechanisms(model: &CausalModel) -> Table {
    let mut grid = Grid::new(&["ID", "EDGES", "NARRATIVE"]);
    let mut values = Vec::new();
    for mechanism in model.mechanisms() {
        grid.row([
            mechanism.id.clone(),
            mechanism.edges.len().to_string(),
            mechanism.narrative.clone(),
        ]);
        values.push(json!({
            "id": mechanism.id,
            "edges": mechanism.edges,
            "narrative": mechanism.narrative,
        }));
    }
    Table {
        value: Json::Array(values),
        grid,
    }
}
