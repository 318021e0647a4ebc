//! `koi catalog show`: a table, or everything about one row.

use std::collections::BTreeSet;

use koi_core::catalog::price::PriceBook;
use koi_core::catalog::{Catalog, EngineVersion, Feature, check_all};
use koi_core::causal::CausalModel;
use koi_core::violation::nearest;
use serde_json::{Value as Json, json};

use super::folder::Folder;
use super::rows::{self, Table};
use crate::args::CatalogShow;
use crate::failure::{ExitCode, Failure};
use crate::output::{Format, Grid, emit, escape};

/// Tables by name.
const TABLES: [&str; 11] = [
    "features",
    "context",
    "mediators",
    "outcomes",
    "gpus",
    "instances",
    "prices",
    "flags",
    "metrics",
    "edges",
    "mechanisms",
];

/// Everything that can be shown.
pub(super) struct Shown {
    catalog: Catalog,
    model: CausalModel,
    prices: PriceBook,
}

impl Shown {
    pub(super) fn read(args: &CatalogShow) -> anyhow::Result<Self> {
        let folder = Folder::read(args.catalog.as_deref())?;
        let (catalog, model) =
            check_all(&folder.text()).map_err(|p| super::refused(&folder.name, p))?;
        let prices = folder
            .prices()
            .map_err(|p| super::refused(&folder.name, p))?;
        Ok(Self {
            catalog,
            model,
            prices: super::price_book(prices, args.prices.as_deref())?,
        })
    }
}

pub(super) fn run(format: Format, args: &CatalogShow) -> anyhow::Result<()> {
    let shown = Shown::read(args)?;
    let Some(what) = args.what.as_deref() else {
        let counts = rows::counts(&shown.catalog, &shown.model, &shown.prices);
        let value: serde_json::Map<String, Json> = counts
            .iter()
            .map(|(t, n)| ((*t).to_owned(), json!(n)))
            .collect();
        return emit(format, &value, || {
            let mut grid = Grid::new(&["TABLE", "ROWS"]).numbers(&[1]);
            for (table, n) in &counts {
                grid.row([(*table).to_owned(), n.to_string()]);
            }
            grid.text()
        });
    };
    if let Some(table) = table(&shown, what, args)? {
        return emit(format, &table.value, || table.grid.text());
    }
    let (value, text) = row(&shown, what).ok_or_else(|| not_found(&shown, what))?;
    emit(format, &value, || text)
}

pub(super) fn table(
    shown: &Shown,
    what: &str,
    args: &CatalogShow,
) -> anyhow::Result<Option<Table>> {
    let Shown {
        catalog,
        model,
        prices,
    } = shown;
    let engine = args.engine.as_deref();
    let version = args
        .engine_version
        .as_deref()
        .map(str::parse::<EngineVersion>)
        .transpose()
        .map_err(|e| Failure::new(ExitCode::Invalid, format!("--engine-version: {e}")))?;
    let cloud = args.cloud.as_deref();
    let engines = catalog.engines().map(|e| e.engine.as_str());
    check_known("--engine", engine, engines.collect())?;
    let clouds = prices.iter().map(|(key, _)| key.cloud.as_str());
    let clouds = clouds.chain(catalog.instance_types().map(|i| i.cloud.as_str()));
    check_known("--cloud", cloud, clouds.collect())?;
    let found = match what {
        "features" => rows::features(catalog, true)?,
        "context" => rows::features(catalog, false)?,
        "gpus" => rows::gpus(catalog)?,
        "instances" => rows::instances(catalog, cloud)?,
        "prices" => rows::prices(catalog, prices, |key| cloud.is_none_or(|c| c == key.cloud)),
        "flags" => rows::flags(catalog, engine, version),
        "metrics" => rows::metrics(catalog, engine, version),
        "edges" => rows::edges(model, |_, _| true),
        "mechanisms" => rows::mechanisms(model),
        "mediators" => closed(koi_core::variables::Mediator::ALL.map(|m| {
            let row = catalog.mediator(m);
            (
                json!(row),
                vec![row.id.clone(), row.unit.clone(), row.doc.clone()],
            )
        })),
        "outcomes" => closed(koi_core::variables::Outcome::ALL.map(|o| {
            let row = catalog.outcome(o);
            (
                json!(row),
                vec![row.id.clone(), row.unit.clone(), row.doc.clone()],
            )
        })),
        _ => return Ok(None),
    };
    Ok(Some(found))
}

/// A filter that nothing can match is a mistake, not an empty table.
fn check_known(option: &str, wanted: Option<&str>, known: BTreeSet<&str>) -> Result<(), Failure> {
    let Some(wanted) = wanted.filter(|w| !known.contains(w)) else {
        return Ok(());
    };
    let wanted: String = wanted.chars().take(80).collect();
    let known: Vec<&str> = known.into_iter().collect();
    let message = format!("{option}: {wanted:?} is not known: {}", known.join(", "));
    Err(Failure::new(ExitCode::Invalid, message))
}

fn closed(rows: impl IntoIterator<Item = (Json, Vec<String>)>) -> Table {
    let mut grid = Grid::new(&["ID", "UNIT", "MEANING"]);
    let mut values = Vec::new();
    for (value, cells) in rows {
        grid.row(cells);
        values.push(value);
    }
    Table {
        value: Json::Array(values),
        grid,
    }
}

/// Everything about one row, by id, alias or a name that a driver reports.
pub(super) fn row(shown: &Shown, name: &str) -> Option<(Json, String)> {
    let catalog = &shown.catalog;
    if let Some(feature) = catalog.feature(name) {
        return Some(feature_page(shown, feature));
    }
    if let Some(mediator) = catalog.mediator_named(name) {
        let row = catalog.mediator(mediator);
        let edges = rows::edges(&shown.model, |from, to| from == row.id || to == row.id);
        let value = json!({ "mediator": row, "edges": edges.value });
        return Some((value, page(&json!(row), &[("edges", edges.grid.text())])));
    }
    if let Some(outcome) = catalog.outcome_named(name) {
        let row = catalog.outcome(outcome);
        let edges = rows::edges(&shown.model, |_, to| to == row.id);
        let value = json!({ "outcome": row, "edges": edges.value });
        return Some((value, page(&json!(row), &[("edges", edges.grid.text())])));
    }
    if let Some(gpu) = catalog.gpu_type(name) {
        return Some((json!({ "gpu": gpu }), page(&json!(gpu), &[])));
    }
    if let Some(instance) = catalog.instance_type(name) {
        let prices = rows::prices(catalog, &shown.prices, |key| key.instance == instance.id);
        let value = json!({ "instance": instance, "prices": prices.value });
        return Some((
            value,
            page(&json!(instance), &[("prices", prices.grid.text())]),
        ));
    }
    if let Some(mechanism) = shown.model.mechanism(name) {
        let ends: Vec<&str> = mechanism.edges.iter().map(String::as_str).collect();
        let edges = rows::edges(&shown.model, |from, to| {
            ends.contains(&format!("{from}->{to}").as_str())
        });
        let value = json!({ "mechanism": mechanism.id, "narrative": mechanism.narrative, "edges": edges.value });
        let text = format!("{}\n\n{}", escape(&mechanism.narrative), edges.grid.text());
        return Some((value, text));
    }
    let series = catalog.metrics().canonical(name)?;
    let value = json!({ "engine": series.engine, "metric": series.row, "name": series.name });
    Some((value, page(&json!(series.row), &[])))
}

fn feature_page(shown: &Shown, row: &Feature) -> (Json, String) {
    let mut grid = Grid::new(&["ENGINE", "WRITTEN", "VERSIONS", "CHECKED"]);
    let mut flags = Vec::new();
    for table in shown.catalog.engines() {
        for flag in table.flags.iter().filter(|f| f.feature == row.id) {
            grid.row([
                table.engine.clone(),
                rows::written(flag),
                rows::range(flag),
                flag.checked.name().to_owned(),
            ]);
            flags.push(json!({ "engine": table.engine, "flag": flag }));
        }
    }
    let edges = rows::edges(&shown.model, |from, _| from == row.id);
    let sections = [("flags", grid.text()), ("edges", edges.grid.text())];
    let value = json!({ "feature": row, "flags": flags, "edges": edges.value });
    (value, page(&json!(row), &sections))
}

/// `field  value` lines, then tables under their headings; empty tables are left out.
fn page(row: &Json, sections: &[(&str, String)]) -> String {
    let mut grid = Grid::new(&["FIELD", "VALUE"]);
    for (field, value) in row.as_object().into_iter().flatten() {
        let text = match value {
            Json::Null => continue,
            Json::String(text) => text.clone(),
            other => other.to_string(),
        };
        grid.row([field.clone(), text]);
    }
    let mut text = grid.text();
    for (title, table) in sections
        .iter()
        .filter(|(_, table)| table.lines().count() > 1)
    {
        text.push_str(&format!("\n\n{title}\n{table}"));
    }
    text
}

fn not_found(shown: &Shown, name: &str) -> anyhow::Error {
    let catalog = &shown.catalog;
    let names = TABLES
        .into_iter()
        .chain(catalog.features().flat_map(Feature::names))
        .chain(catalog.gpu_types().map(|g| g.id.as_str()))
        .chain(catalog.instance_types().map(|i| i.id.as_str()))
        .chain(shown.model.mechanisms().map(|m| m.id.as_str()));
    let of_many = TABLES
        .into_iter()
        .find(|t| t.strip_suffix('s') == Some(name));
    let near = of_many
        .or_else(|| nearest(name, names))
        .map_or_else(String::new, |n| format!("; did you mean {n}?"));
    let shown: String = name.chars().take(80).collect();
    let message = format!("no table and no row of the catalog is called {shown:?}{near}");
    Failure::new(ExitCode::NotFound, message).into()
}
