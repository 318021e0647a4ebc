//! What differs between two catalogs, row by row.
//!
//! Not a text diff: rows are compared as values, so a comment or an order changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value as Json;

use super::Catalog;

/// What happened to a row or a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// Only the second catalog has the row.
    Added,
    /// Only the first catalog has the row.
    Removed,
    /// Both have the row and a field differs.
    Changed,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// What happened.
    pub kind: DifferenceKind,
    /// Table: `features`, `gpus`, `instances`, `mediators`, `outcomes`, `flags`, `metrics`.
    pub table: &'static str,
    /// Row.
    pub row: String,
    /// Field, for changes.
    pub field: Option<String>,
    /// Value in the first catalog.
    pub before: Option<Json>,
    /// Value in the second catalog.
    pub after: Option<Json>,
}

type Table = BTreeMap<String, Json>;

/// Differences from one catalog to another, in order of table and row.
#[must_use]
pub fn differences(before: &Catalog, after: &Catalog) -> Vec<Difference> {
    let mut found = Vec::new();
    for ((name, left), (_, right)) in tables(before).into_iter().zip(tables(after)) {
        compare(name, &left, &right, &mut found);
    }
    found
}

fn json(row: &impl Serialize) -> Json {
    // Rows are plain data with text keys; a float that JSON cannot write was refused at load.
    serde_json::to_value(row).unwrap_or(Json::Null)
}

fn tables(catalog: &Catalog) -> [(&'static str, Table); 7] {
    let flags = catalog.engines().flat_map(|table| {
        table.flags.iter().map(|row| {
            let id = format!("{}.{}@{}", table.engine, row.feature, row.since);
            (id, json(row))
        })
    });
    let metrics = catalog.metrics().files().iter().flat_map(|file| {
        file.metric
            .iter()
            .map(|row| (format!("{}.{}", file.engine, row.series), json(row)))
    });
    [
        (
            "features",
            catalog
                .features()
                .map(|r| (r.id.clone(), json(r)))
                .collect(),
        ),
        (
            "mediators",
            catalog
                .mediators
                .iter()
                .map(|r| (r.id.clone(), json(r)))
                .collect(),
        ),
        (
            "outcomes",
            catalog
                .outcomes
                .iter()
                .map(|r| (r.id.clone(), json(r)))
                .collect(),
        ),
        (
            "gpus",
            catalog
                .gpu_types()
                .map(|r| (r.id.clone(), json(r)))
                .collect(),
        ),
        (
            "instances",
            catalog
                .instance_types()
                .map(|r| (r.id.clone(), json(r)))
                .collect(),
        ),
        ("flags", flags.collect()),
        ("metrics", metrics.collect()),
    ]
}

fn compare(table: &'static str, left: &Table, right: &Table, found: &mut Vec<Difference>) {
    let of = |kind, row: &str, field: Option<&str>, before: Option<&Json>, after: Option<&Json>| {
        Difference {
            kind,
            table,
            row: row.to_owned(),
            field: field.map(str::to_owned),
            before: before.cloned(),
            after: after.cloned(),
        }
    };
    let rows: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    for row in rows {
        match (left.get(row), right.get(row)) {
            (None, after) => found.push(of(DifferenceKind::Added, row, None, None, after)),
            (before, None) => found.push(of(DifferenceKind::Removed, row, None, before, None)),
            (Some(before), Some(after)) => {
                for field in fields(before, after) {
                    let (b, a) = (before.get(&field), after.get(&field));
                    if b != a {
                        found.push(of(DifferenceKind::Changed, row, Some(&field), b, a));
                    }
                }
            }
        }
    }
}

fn fields(before: &Json, after: &Json) -> BTreeSet<String> {
    [before, after]
        .into_iter()
        .filter_map(Json::as_object)
        .flat_map(|map| map.keys().cloned())
        .collect()
}
