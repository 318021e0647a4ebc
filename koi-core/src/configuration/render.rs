//! From a configuration to the engine's arguments, by the flag table of the engine and version.
//!
//! Not the whole command line: model path, port and served name belong to the agent. Nothing is
//! dropped silently: a variable that the version cannot be told is an error. A version outside the
//! table is refused and never rendered as its nearest neighbour, because one unknown argument keeps
//! an engine from starting.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::Configuration;
use crate::catalog::{Catalog, EngineFlags, EngineVersion, FlagRow, FlagWriter, Value};
use crate::violation::{FieldViolation, Violations};

/// The engine's arguments, one token per value, in the order of the flag table.
///
/// # Errors
/// All problems at once: the engine has no table; the version is not one or is outside what the
/// table describes; a variable of the configuration has no flag in this version, or its value has
/// no spelling there.
pub fn engine_args(
    catalog: &Catalog,
    configuration: &Configuration,
    engine_version: &str,
) -> Result<Vec<String>, Vec<FieldViolation>> {
    let mut problems = Violations::default();
    let Some((table, version)) = table_of(catalog, configuration, engine_version, &mut problems)
    else {
        return Err(problems.into_vec());
    };
    refuse_unwritten(catalog, configuration, (table, version), &mut problems);
    let mut written = Written::default();
    for row in table.flags.iter().filter(|row| row.exists_in(version)) {
        let Some(value) = configuration.get(&row.feature) else {
            continue;
        };
        if let Err(message) = written.add(row, value) {
            problems.add(
                row.feature.clone(),
                format!("{message} in version {version}"),
            );
        }
    }
    problems.finish(written.into_arguments())
}

fn table_of<'a>(
    catalog: &'a Catalog,
    configuration: &Configuration,
    engine_version: &str,
    problems: &mut Violations,
) -> Option<(&'a EngineFlags, EngineVersion)> {
    let engine = configuration
        .get("engine_name")
        .map_or_else(|| catalog.engine().engine.clone(), ToString::to_string);
    let table = catalog.engine_named(&engine);
    if table.is_none() {
        problems.add("engine_name", format!("{engine} has no flag table"));
    }
    let version = match engine_version.parse::<EngineVersion>() {
        Ok(version) => version,
        Err(error) => {
            problems.add("engine_version", error.to_string());
            return None;
        }
    };
    let table = table?;
    if !table.describes(version) {
        let message = format!(
            "{version} is outside the versions that the flag table describes: {} and later, before {}",
            table.oldest, table.before
        );
        problems.add("engine_version", message);
        return None;
    }
    Some((table, version))
}

fn refuse_unwritten(
    catalog: &Catalog,
    configuration: &Configuration,
    (table, version): (&EngineFlags, EngineVersion),
    problems: &mut Violations,
) {
    for (id, _) in configuration.iter() {
        let Some(row) = catalog.feature(id) else {
            problems.add(id, "is not a variable of this catalog");
            continue;
        };
        let is_written = row.no_flag.is_some() || table.row(id, version).is_some();
        if row.is_knob() && !is_written {
            problems.add(id, format!("has no flag in version {version}"));
        }
    }
}

/// Arguments so far; JSON arguments stay open until the end, at the place of their first key.
#[derive(Default)]
struct Written {
    arguments: Vec<String>,
    json: BTreeMap<String, (usize, Map<String, Json>)>,
}

impl Written {
    fn add(&mut self, row: &FlagRow, value: &Value) -> Result<(), String> {
        if row.only.as_ref().is_some_and(|only| !only.contains(value)) {
            return Err(format!("{value} is not offered"));
        }
        let arguments = &mut self.arguments;
        match (&row.write, value) {
            (FlagWriter::Value(flag), value) => arguments.push(format!("{flag}={value}")),
            (FlagWriter::Switch { on, .. }, Value::Bool(true)) => arguments.push(on.clone()),
            (FlagWriter::Switch { off, .. }, Value::Bool(false)) => arguments.push(off.clone()),
            (FlagWriter::WhenTrue(flag), Value::Bool(is)) => {
                arguments.extend(is.then(|| flag.clone()));
            }
            (FlagWriter::WhenFalse(flag), Value::Bool(is)) => {
                arguments.extend((!is).then(|| flag.clone()));
            }
            (FlagWriter::AboveOne(flag), Value::Int(n)) => {
                arguments.extend((*n > 1).then(|| flag.clone()));
            }
            (FlagWriter::Choice(choices), Value::Text(name)) => match choices.get(name) {
                Some(written) => arguments.extend(written.iter().cloned()),
                None => return Err(format!("{value} has no spelling")),
            },
            (
                FlagWriter::Json {
                    flag,
                    key,
                    inverted,
                },
                value,
            ) => {
                self.add_key(flag, key, json(value, *inverted));
            }
            (FlagWriter::Implied(implied), value) if implied == value => {}
            (FlagWriter::Implied(implied), value) => {
                return Err(format!("{value} cannot be had: it is always {implied}"));
            }
            _ => return Err(format!("{value} has the wrong type for its flag")),
        }
        Ok(())
    }

    fn add_key(&mut self, flag: &str, key: &str, value: Json) {
        let place = self.arguments.len();
        let (_, object) = self.json.entry(flag.to_owned()).or_insert_with(|| {
            self.arguments.push(String::new());
            (place, Map::new())
        });
        insert(object, key, value);
    }

    fn into_arguments(mut self) -> Vec<String> {
        for (flag, (place, object)) in self.json {
            if let Some(argument) = self.arguments.get_mut(place) {
                *argument = format!("{flag}={}", Json::Object(object));
            }
        }
        self.arguments
    }
}

/// Puts a value at a dotted path; rows of one flag never use a leaf as a folder.
fn insert(object: &mut Map<String, Json>, key: &str, value: Json) {
    match key.split_once('.') {
        None => {
            object.insert(key.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = object
                .entry(first.to_owned())
                .or_insert_with(|| Json::Object(Map::new()));
            if let Json::Object(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

fn json(value: &Value, inverted: bool) -> Json {
    match value {
        Value::Bool(is) => Json::Bool(*is != inverted),
        Value::Int(n) => Json::from(*n),
        Value::Float(x) => Json::from(*x),
        Value::Text(text) => Json::from(text.as_str()),
    }
}
