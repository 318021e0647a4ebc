//! Every id and alias of X, V and Y, once each.

use std::collections::BTreeMap;

use super::Rows;
use crate::variables::VariableKind;
use crate::violation::Violations;

/// Every id and alias with its layer and its id.
pub(in crate::catalog) type Names = BTreeMap<String, (VariableKind, String)>;

pub(super) fn collect(rows: &Rows, problems: &mut Violations) -> Names {
    let mut names = Names::new();
    let mut add = |file: &str, kind: VariableKind, id: &str, aliases: &[String]| {
        for name in std::iter::once(id).chain(aliases.iter().map(String::as_str)) {
            let at = format!("{file}.{name}");
            if !is_spelled_well(name) {
                problems.add(
                    &*at,
                    "names are 1 to 64 of a-z, 0-9 and '_', starting with a letter",
                );
            }
            if names
                .insert(name.to_owned(), (kind, id.to_owned()))
                .is_some()
            {
                problems.add(at, "is used twice among ids and aliases of X, V and Y");
            }
        }
    };
    for (file, row) in &rows.features {
        add(file, VariableKind::Feature, &row.id, &row.aliases);
    }
    for row in &rows.mediators {
        add(
            "mediators.toml",
            VariableKind::Mediator,
            &row.id,
            &row.aliases,
        );
    }
    for row in &rows.outcomes {
        add(
            "outcomes.toml",
            VariableKind::Outcome,
            &row.id,
            &row.aliases,
        );
    }
    names
}

fn is_spelled_well(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
}
