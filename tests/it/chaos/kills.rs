//! What clients notice of a kill: the promises of the reliability contract, one run each.

use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde::Deserialize;

use super::{programs, wait};
use crate::support::TestFolder;

/// All scenarios that need no canary window.
const SCENARIOS: [&str; 7] = [
    "server",
    "agent",
    "shim",
    "engine-parent",
    "engine-child",
    "postgres",
    "cancel",
];
/// Longest time for all of them on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);

#[derive(Debug, Deserialize)]
struct Row {
    scenario: String,
    sent: u64,
    figures: Vec<Figure>,
    problems: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Figure {
    name: String,
    seconds: Vec<f64>,
}

struct Run {
    rows: Vec<Row>,
    said: String,
}

/// One cluster and every scenario on it; tests look at their part.
fn run() -> &'static Run {
    static RUN: OnceLock<Run> = OnceLock::new();
    RUN.get_or_init(|| {
        let folder = TestFolder::new("kills");
        let (out, err) = (folder.0.join("out.json"), folder.0.join("err.txt"));
        let mut command = Command::new(programs().join("koi-bench"));
        // Other tests run beside it: the rate is measured, and only its order is asked for.
        command.args(["kills", "-o", "json", "--repeats", "1", "--fleet", "small"]);
        command.args(["--min-rate-rps", "5"]);
        command.args(SCENARIOS.iter().flat_map(|s| ["--only", s]));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&out).unwrap())
            .stderr(std::fs::File::create(&err).unwrap())
            .spawn()
            .unwrap();
        let status = wait(&mut child, LIMIT);
        let said = std::fs::read_to_string(&err).unwrap();
        let rows = serde_json::from_slice(&std::fs::read(&out).unwrap())
            .unwrap_or_else(|e| panic!("{status}, {e}: {said}"));
        Run { rows, said }
    })
}

fn assert_as_promised(scenario: &str, figures: &[&str]) {
    let run = run();
    let row = run.rows.iter().find(|r| r.scenario == scenario);
    let row = row.unwrap_or_else(|| panic!("{scenario} was not run: {}", run.said));
    assert_eq!(
        row.problems,
        Vec::<String>::new(),
        "{scenario}: {}",
        run.said
    );
    assert!(row.sent > 0, "{scenario} was measured without load");
    let measured: Vec<&str> = row.figures.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(measured, figures, "{scenario}");
    assert!(row.figures.iter().all(|f| f.seconds.len() == 1));
}

#[test]
fn a_killed_server_fails_no_request_and_plans_again() {
    assert_as_promised("server", &["first new tick"]);
}

#[test]
fn a_killed_database_fails_no_request_and_touches_no_engine() {
    assert_as_promised("postgres", &["tick after its return", "away"]);
}

#[test]
fn hazard_d1_an_agent_killed_under_load_adopts_its_engines_again_and_no_request_fails() {
    assert_as_promised("agent", &["re-adopted"]);
}

#[test]
fn hazard_d3_a_killed_shim_is_replaced_while_its_engine_serves_on() {
    assert_as_promised("shim", &["re-attached"]);
}

#[test]
fn hazard_e7_an_engine_that_loses_its_core_is_unpublished_cleared_and_replaced() {
    assert_as_promised(
        "engine-child",
        &["unpublished", "memory gone", "serves again"],
    );
}

#[test]
fn hazard_e8_an_engine_that_loses_its_parent_leaves_no_holder_of_its_memory() {
    assert_as_promised(
        "engine-parent",
        &["unpublished", "memory gone", "serves again"],
    );
}

#[test]
fn a_job_is_cancelled_beside_another_that_notices_nothing() {
    assert_as_promised("cancel", &["engines gone"]);
}

#[test]
fn a_cluster_that_was_mistreated_leaves_nothing() {
    assert!(!run().said.contains("left over"), "{}", run().said);
}
