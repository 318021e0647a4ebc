//! Checks of single rows against the rest of the catalog.
//!
//! Spelling and uniqueness of names are checked where names are collected, in [`super::load`].

mod bounds;
mod effects;
mod flags;
mod hardware;

pub(super) use effects::check as effects;
pub(super) use flags::check as flags;
pub(super) use hardware::check as hardware;

use std::collections::BTreeSet;

use super::load::{Located, Names, Rows};
use super::{Feature, SetBy, Status};
use crate::variables::VariableKind;
use crate::violation::Violations;

/// Units that rows may use; a typo in a unit is a bug in a formula.
const UNITS: [&str; 32] = [
    "none",
    "fraction",
    "ratio",
    "log ratio",
    "tokens",
    "tokens/s",
    "1/s",
    "tok/s",
    "requests",
    "requests/s",
    "sequences",
    "steps",
    "blocks",
    "adapters",
    "GPUs",
    "nodes",
    "layers",
    "heads",
    "experts",
    "bits",
    "bytes",
    "billions",
    "ms",
    "seconds",
    "hours",
    "GiB",
    "B/s",
    "B/token",
    "Gbit/s",
    "USD/h",
    "USD/token",
    "W",
];

pub(super) fn check_sentence(field: String, doc: &str, problems: &mut Violations) {
    let body = doc.strip_suffix('.');
    let first_is_upper = doc.starts_with(|c: char| !c.is_lowercase());
    if body.is_none_or(str::is_empty) || !first_is_upper || doc.contains('\n') {
        problems.add(
            field,
            "doc must be one sentence: a capital at the start, a full stop at the end",
        );
    }
}

pub(super) fn check_unit(field: String, unit: &str, problems: &mut Violations) {
    if !UNITS.contains(&unit) {
        problems.add(
            field,
            format!("{unit:?} is not a known unit; known: {}", UNITS.join(", ")),
        );
    }
}

pub(super) fn features(rows: &Rows, names: &Names, problems: &mut Violations) {
    let written: BTreeSet<&str> = rows
        .engines
        .iter()
        .flat_map(|(_, table)| table.flags.iter().map(|flag| flag.feature.as_str()))
        .collect();
    for located in &rows.features {
        feature(located, names, problems);
        if located.1.set_by == SetBy::Planner {
            planner_set(located, written.contains(&*located.1.id), problems);
        }
    }
}

fn feature((file, row): &Located<Feature>, names: &Names, problems: &mut Violations) {
    let at = |what: &str| format!("{file}.{}.{what}", row.id);
    check_sentence(at("doc"), &row.doc, problems);
    check_unit(at("unit"), &row.unit, problems);
    if !row.domain.is_sound() {
        problems.add(at("domain"), "bounds must be in order and choices present");
    }
    if let Some(Err(message)) = row.default.as_ref().map(|value| row.domain.accept(value)) {
        problems.add(at("default"), message);
    }
    if row.set_by != SetBy::Planner && row.optional {
        problems.add(at("optional"), "only planner-set rows are optional");
    }
    for condition in &row.applies {
        let known = names.get(&condition.feature);
        if !known
            .is_some_and(|(kind, id)| *kind == VariableKind::Feature && *id == condition.feature)
        {
            problems.add(
                at("applies"),
                format!("{:?} is not the id of an X row", condition.feature),
            );
        }
        if condition.feature == row.id {
            problems.add(at("applies"), "a row cannot be its own condition");
        }
    }
}

fn planner_set((file, row): &Located<Feature>, has_flag: bool, problems: &mut Violations) {
    let at = |what: &str| format!("{file}.{}.{what}", row.id);
    if row.default.is_none() && !row.optional {
        problems.add(
            at("default"),
            "a planner-set row has a default or `optional = true`",
        );
    }
    if row.status != Status::Active {
        if row.no_flag.is_none() {
            problems.add(
                at("no_flag"),
                format!("a {} row says why", row.status.name()),
            );
        }
    } else if has_flag == row.no_flag.is_some() {
        problems.add(
            at("no_flag"),
            "a planner-set row has either an engine flag or says why not",
        );
    }
}

pub(super) fn metrics(rows: &Rows, problems: &mut Violations) {
    for (file, metrics) in &rows.metrics {
        let mut seen = BTreeSet::new();
        for row in &metrics.metric {
            let at = |what: &str| format!("{file}.{}.{what}", row.series);
            check_sentence(at("doc"), &row.doc, problems);
            check_unit(at("unit"), &row.unit, problems);
            if !seen.insert(&row.series) {
                problems.add(at("series"), "is written twice");
            }
            if row.names.is_empty() {
                problems.add(at("names"), "a series has at least one metric name");
            }
            for name in &row.names {
                if name
                    .until
                    .is_some_and(|until| name.since.is_some_and(|s| until <= s))
                {
                    problems.add(at(&name.name), "until must be after since");
                }
            }
        }
    }
}
