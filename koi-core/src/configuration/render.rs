//! From a configuration to the engine's arguments, by the flag table of the engine's version.
//!
//! Not the whole command line: model path, port and served name belong to the agent. Nothing is
//! dropped silently: a variable that the version cannot be told is an error.

use super::Configuration;
use crate::catalog::{Catalog, EngineVersion, FlagWriter, SetBy, Value};
use crate::violation::{FieldViolation, Violations};

/// The engine's arguments, one token per value, in the order of the flag table.
///
/// # Errors
/// All problems at once: the version is not one or is outside what the table describes; a variable
/// of the configuration has no flag in this version, or its value has no spelling there.
pub fn engine_args(
    catalog: &Catalog,
    configuration: &Configuration,
    engine_version: &str,
) -> Result<Vec<String>, Vec<FieldViolation>> {
    let mut problems = Violations::default();
    let version = match engine_version.parse::<EngineVersion>() {
        Ok(version) => version,
        Err(error) => {
            problems.add("engine_version", error.to_string());
            return Err(problems.into_vec());
        }
    };
    let table = catalog.engine();
    if version < table.oldest || version >= table.before {
        let message = format!(
            "{version} is outside the versions that the flag table describes: {} and later, before {}",
            table.oldest, table.before
        );
        problems.add("engine_version", message);
        return Err(problems.into_vec());
    }
    refuse_unwritten(catalog, configuration, version, &mut problems);
    let mut arguments = Vec::with_capacity(table.flags.len());
    for row in table.flags.iter().filter(|row| row.exists_in(version)) {
        let Some(value) = configuration.get(&row.feature) else {
            continue;
        };
        if let Err(message) = write(&row.write, value, &mut arguments) {
            problems.add(
                row.feature.clone(),
                format!("{message} in version {version}"),
            );
        }
    }
    problems.finish(arguments)
}

fn refuse_unwritten(
    catalog: &Catalog,
    configuration: &Configuration,
    version: EngineVersion,
    problems: &mut Violations,
) {
    for (id, _) in configuration.iter() {
        let Some(row) = catalog.feature(id) else {
            problems.add(id, "is not a variable of this catalog");
            continue;
        };
        let is_written = row.no_flag.is_some() || catalog.engine().row(id, version).is_some();
        if row.set_by == SetBy::Planner && !is_written {
            problems.add(id, format!("has no flag in version {version}"));
        }
    }
}

fn write(writer: &FlagWriter, value: &Value, arguments: &mut Vec<String>) -> Result<(), String> {
    match (writer, value) {
        (FlagWriter::Value(flag), value) => arguments.push(format!("{flag}={value}")),
        (FlagWriter::Switch { on, .. }, Value::Bool(true)) => arguments.push(on.clone()),
        (FlagWriter::Switch { off, .. }, Value::Bool(false)) => arguments.push(off.clone()),
        (FlagWriter::AboveOne(flag), Value::Int(n)) => {
            if *n > 1 {
                arguments.push(flag.clone());
            }
        }
        (FlagWriter::Choice(choices), Value::Text(name)) => match choices.get(name) {
            Some(written) => arguments.extend(written.iter().cloned()),
            None => return Err(format!("{value} has no spelling")),
        },
        _ => return Err(format!("{value} has the wrong type for its flag")),
    }
    Ok(())
}
