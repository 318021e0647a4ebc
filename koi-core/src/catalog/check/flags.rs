//! Checks of the engines' flag tables against the X rows.

use std::collections::{BTreeMap, BTreeSet};

use super::super::load::Rows;
use super::super::{Domain, EngineFlags, Feature, FlagRow, FlagWriter, SetBy, Value};
use crate::violation::Violations;

pub(in crate::catalog) fn check(rows: &Rows, problems: &mut Violations) {
    let features: BTreeMap<&str, &Feature> = rows
        .features
        .iter()
        .map(|(_, row)| (row.id.as_str(), row))
        .collect();
    let mut engines = BTreeSet::new();
    for (file, table) in &rows.engines {
        if !engines.insert(&table.engine) {
            problems.add(&**file, "the engine has two tables");
        }
        if table.oldest >= table.before {
            problems.add(format!("{file}.before"), "must be after oldest");
        }
        check_table(file, table, &features, problems);
    }
}

fn check_table(
    file: &str,
    table: &EngineFlags,
    features: &BTreeMap<&str, &Feature>,
    problems: &mut Violations,
) {
    let mut earlier: BTreeMap<&str, Vec<&FlagRow>> = BTreeMap::new();
    for flag in &table.flags {
        let at = format!("{file}.{}", flag.feature);
        let Some(row) = features.get(flag.feature.as_str()) else {
            problems.add(at, "is not the id of an X row");
            continue;
        };
        if row.set_by != SetBy::Planner {
            problems.add(&*at, "is not planner-set, so no flag is written for it");
        }
        if flag.until.is_some_and(|until| until <= flag.since) {
            problems.add(&*at, "until must be after since");
        }
        if flag.since < table.oldest || flag.since >= table.before {
            problems.add(&*at, "since lies outside the versions of the table");
        }
        let others = earlier.entry(flag.feature.as_str()).or_default();
        if others.iter().any(|other| other.overlaps(flag)) {
            problems.add(&*at, "two rows write it in the same version");
        }
        others.push(flag);
        check_values(&at, flag, row, problems);
        check_writer(&at, &flag.write, row, problems);
    }
}

fn check_values(at: &str, flag: &FlagRow, row: &Feature, problems: &mut Violations) {
    let implied = match &flag.write {
        FlagWriter::Implied(value) => Some(value),
        _ => None,
    };
    for value in flag.only.iter().flatten().chain(implied) {
        if let Err(message) = row.domain.accept(value) {
            problems.add(at, message);
        }
    }
    if flag.only.as_ref().is_some_and(Vec::is_empty) {
        problems.add(at, "`only` names at least one value");
    }
}

fn check_writer(at: &str, writer: &FlagWriter, row: &Feature, problems: &mut Violations) {
    let fits = match writer {
        FlagWriter::Switch { .. } | FlagWriter::WhenTrue(_) | FlagWriter::WhenFalse(_) => {
            row.domain == Domain::Bool
        }
        FlagWriter::Json { inverted, .. } => !inverted || row.domain == Domain::Bool,
        FlagWriter::AboveOne(_) => {
            matches!(row.domain, Domain::Int { .. } | Domain::IntChoice(_))
        }
        FlagWriter::Choice(_) => matches!(row.domain, Domain::Choice(_)),
        FlagWriter::Value(_) => row.domain != Domain::Bool,
        FlagWriter::Implied(_) => true,
    };
    if !fits {
        problems.add(at, format!("does not fit the domain: {}", row.domain));
    }
    if let FlagWriter::Choice(choices) = writer {
        for name in choices.keys() {
            if let Err(message) = row.domain.accept(&Value::Text(name.clone())) {
                problems.add(at, message);
            }
        }
    }
    if writer.flags().iter().any(|flag| !flag.starts_with("--")) {
        problems.add(at, "arguments start with --");
    }
    if let FlagWriter::Json { key, .. } = writer
        && key.split('.').any(str::is_empty)
    {
        problems.add(at, "a key has parts between its dots");
    }
}
