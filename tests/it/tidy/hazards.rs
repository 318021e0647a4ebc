//! `docs/hazards.md` lists all 162 faults; a row marked covered has a test whose name carries its id.

use std::collections::{BTreeMap, BTreeSet};

use koi_tests::workspace_root;

use super::{read, refuse, rust_sources};

/// Groups of the fault list, with their number of rows.
const GROUPS: [(char, usize); 10] = [
    ('A', 18),
    ('B', 17),
    ('C', 14),
    ('D', 17),
    ('E', 19),
    ('F', 10),
    ('G', 12),
    ('H', 13),
    ('J', 17),
    ('K', 25),
];

#[derive(Debug, PartialEq, Clone, Copy)]
enum Status {
    Planned,
    Covered,
}

/// Every id that must be listed.
fn all_ids() -> BTreeSet<String> {
    GROUPS
        .into_iter()
        .flat_map(|(group, n)| (1..=n).map(move |i| format!("{group}{i}")))
        .collect()
}

/// The rows `| id | title | status |` of the document, and what is wrong with others.
fn rows(text: &str) -> (BTreeMap<String, Status>, Vec<String>) {
    let (mut rows, mut wrong) = (BTreeMap::new(), Vec::new());
    let table = text
        .lines()
        .filter_map(|l| l.strip_prefix("| "))
        .filter_map(|l| l.strip_suffix(" |"));
    for line in table.filter(|l| !l.starts_with("row")) {
        let cells: Vec<&str> = line.split(" | ").collect();
        let status = match cells.as_slice() {
            [_, title, "planned"] if !title.is_empty() => Status::Planned,
            [_, title, "covered"] if !title.is_empty() => Status::Covered,
            _ => {
                wrong.push(format!(
                    "not a row `| id | title | planned or covered |`: {line}"
                ));
                continue;
            }
        };
        if rows.insert(cells[0].to_owned(), status).is_some() {
            wrong.push(format!("{} is listed twice", cells[0]));
        }
    }
    (rows, wrong)
}

/// Ids in test names `hazard_<id>_…` of a source.
fn tested_ids(source: &str) -> BTreeSet<String> {
    let names = source.split("fn hazard_").skip(1);
    names
        .filter_map(|name| name.split(['_', '(']).next())
        .map(str::to_uppercase)
        .collect()
}

#[test]
fn every_fault_is_listed_and_covered_means_tested() {
    let (rows, mut problems) = rows(&read(&workspace_root().join("docs/hazards.md")));
    let ids = all_ids();
    assert_eq!(ids.len(), 162, "the fault list has 162 rows");
    problems.extend(
        ids.iter()
            .filter(|id| !rows.contains_key(*id))
            .map(|id| format!("{id} is not listed")),
    );
    problems.extend(
        rows.keys()
            .filter(|id| !ids.contains(*id))
            .map(|id| format!("{id} is no row of the fault list")),
    );
    let sources = rust_sources();
    let tests = sources
        .iter()
        .filter(|s| !s.path.starts_with("tests/it/tidy"));
    let tested: BTreeSet<String> = tests.flat_map(|s| tested_ids(&s.text)).collect();
    for (id, status) in &rows {
        if *status == Status::Covered && !tested.contains(id) {
            problems.push(format!(
                "{id} is marked covered; no test is named hazard_{}_…",
                id.to_lowercase()
            ));
        }
    }
    problems.extend(
        tested
            .iter()
            .filter(|id| !ids.contains(*id))
            .map(|id| format!("a test names the unknown row {id}")),
    );
    refuse("docs/hazards.md and the tests disagree", &problems);
}

#[test]
fn rows_and_test_names_are_read() {
    let (read, wrong) = rows(
        "| row | title | status |\n|---|---|---|\n| A1 | x | covered |\n| A2 | y | done |\n| A1 | z | planned |\n",
    );
    assert_eq!(read.keys().collect::<Vec<_>>(), ["A1"]);
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert_eq!(
        tested_ids("fn hazard_d1_kill() {}\n async fn hazard_k25_x()"),
        BTreeSet::from(["D1".to_owned(), "K25".to_owned()])
    );
}
