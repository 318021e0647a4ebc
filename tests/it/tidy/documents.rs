//! The documents tell the truth: `docs/paper-map.md` names every heading of the two papers and only
//! paths that exist; other documents name only files that exist.

use std::collections::BTreeSet;

use koi_tests::{shared_dir, workspace_root};

use super::{read, refuse};

/// Headings of white paper V1, in its order.
const WHITE_PAPER: [&str; 34] = [
    "Abstract",
    "Introduction",
    "Background",
    "Problem Formulation",
    "Why a Predictor Alone Is Not a Cluster Scheduler",
    "Why Global Search Is Not a Static ILP",
    "The Surrogate Stack",
    "The Causal Substrate",
    "Decision Variables",
    "Mediators",
    "Outcomes",
    "Edges",
    "Mechanisms",
    "The Beta-Bernoulli Confidence Model",
    "Exploration and Exploitation",
    "Exploitation: Augmented Tchebycheff",
    "Exploration: Expected Information Gain",
    "Risk: Distributionally Robust Prediction",
    "The Cluster Objective",
    "Closing the Loop: CUSUM, Quadrants, and ICP",
    "CUSUM on Mediators and Outcomes",
    "Quadrant Classification",
    "ICP Invariance Testing",
    "The Slow Loop",
    "The Agentic Planner",
    "Tick Algorithm",
    "Assumptions",
    "Assumption 1: Near-Optimal Proposal Coverage",
    "Assumption 2: Convergence",
    "Discussion",
    "Appendix A",
    "Appendix B: Notation and Key Hyperparameters",
    "Appendix C: Tracked Variables",
    "Appendix D: Lifecycle: Seed, Learn, Promote",
];

/// Headings of ADR-0007, in its order.
const ADR_0007: [&str; 8] = [
    "Context",
    "Decision",
    "D1 — The loop actuates placement scoring, nothing else",
    "D2 — Signals ride the existing NodeState reporter contract",
    "D3 — Strict lexicographic ordering; warmth stays dominant",
    "D4 — The loop acts only at natural decision points",
    "D5 — Scope and falsification",
    "Consequences",
];

fn document(name: &str) -> String {
    read(&workspace_root().join(name))
}

/// First cells of a document's tables.
fn first_cells(text: &str) -> BTreeSet<&str> {
    text.lines()
        .filter_map(|l| l.strip_prefix("| "))
        .filter_map(|l| l.split(" |").next())
        .collect()
}

/// Words in backquotes that look like paths of this repository.
fn quoted_paths(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter(|q| {
            q.contains('/')
                && !q.contains(['<', '*', ' ', '{', '$', ':', '~'])
                && !q.starts_with('/')
        })
        .collect()
}

#[test]
fn the_paper_map_names_every_heading() {
    let map = document("docs/paper-map.md");
    let named = first_cells(&map);
    let headings = WHITE_PAPER.iter().chain(&ADR_0007);
    let missing: Vec<String> = headings
        .filter(|h| !named.contains(**h))
        .map(|h| (*h).to_owned())
        .collect();
    refuse("docs/paper-map.md does not name", &missing);
}

#[test]
fn the_list_of_headings_is_that_of_the_papers() {
    for (file, headings) in [
        ("koi-whitepaper-v1.txt", &WHITE_PAPER[..]),
        ("adr-0007.txt", &ADR_0007[..]),
    ] {
        let Some(path) = shared_dir()
            .map(|d| d.join("requirements").join(file))
            .filter(|p| p.is_file())
        else {
            println!(
                "SKIPPED: no shared/requirements/{file}; set KOI_SHARED to the folder that holds it"
            );
            continue;
        };
        let text = read(&path);
        let lines: BTreeSet<&str> = text.lines().map(str::trim).collect();
        let unknown: Vec<String> = headings
            .iter()
            .filter(|h| !lines.contains(**h))
            .map(|h| (*h).to_owned())
            .collect();
        refuse(&format!("not a heading of {file}"), &unknown);
    }
}

#[test]
fn documents_name_only_paths_that_exist() {
    let root = workspace_root();
    let mut wrong = Vec::new();
    for name in [
        "docs/paper-map.md",
        "docs/style.md",
        "docs/glossary.md",
        "docs/hazards.md",
        "CONTRIBUTING.md",
    ] {
        let text = document(name);
        let missing = quoted_paths(&text)
            .into_iter()
            .filter(|p| !root.join(p).exists());
        wrong.extend(missing.map(|p| format!("{name}: {p}")));
    }
    refuse("documents name paths that do not exist", &wrong);
}

#[test]
fn every_module_of_the_core_is_on_the_map() {
    let map = document("docs/paper-map.md");
    let core = document("koi-core/src/lib.rs");
    let modules = core
        .lines()
        .filter_map(|l| l.strip_prefix("pub mod "))
        .map(|m| m.trim_end_matches(';'));
    let missing: Vec<String> = modules
        .map(|m| format!("koi-core/src/{m}.rs"))
        .filter(|p| !map.contains(p.as_str()))
        .collect();
    refuse("docs/paper-map.md does not name these modules", &missing);
}

/// Settings structs, by file.
const SETTINGS: [(&str, &[&str]); 4] = [
    ("koi-server/src/config.rs", &["ServerConfig", "TlsConfig"]),
    ("koi-server/src/auth.rs", &["TokenRow"]),
    (
        "koi-agent/src/config.rs",
        &["AgentConfig", "GpuConfig", "EnginesConfig", "ModelsConfig"],
    ),
    ("koi-cli/src/client.rs", &["ClientSettings"]),
];

/// Names of the fields of a struct in a source.
fn fields<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let head = format!("struct {name} {{\n");
    let body = source.split_once(&head).map_or("", |(_, rest)| rest);
    let body = body.split("\n}").next().unwrap_or_default();
    let names = body.lines().filter_map(|l| {
        let field = l.trim().split_once(": ")?.0;
        let field = field.strip_prefix("pub ").unwrap_or(field);
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        field.chars().all(is_name).then_some(field)
    });
    names.collect()
}

#[test]
fn every_setting_is_documented() {
    let text = document("docs/configuration.md");
    let named: BTreeSet<&str> = first_cells(&text);
    let mut missing = Vec::new();
    for (file, structs) in SETTINGS {
        let source = document(file);
        for name in structs {
            let fields = fields(&source, name);
            assert!(!fields.is_empty(), "{file} has no struct {name}");
            // A section is a heading of its own and not a row.
            let told = |f: &str| {
                named.contains(format!("`{f}`").as_str()) || text.contains(&format!("`[{f}]`"))
            };
            let untold = fields.into_iter().filter(|f| !told(f));
            missing.extend(untold.map(|f| format!("{file}: {name}.{f}")));
        }
    }
    refuse("docs/configuration.md does not name", &missing);
}

#[test]
fn fields_are_read_from_a_struct() {
    let source = "/// A.\npub struct A {\n    /// Is: x.\n    #[serde(default)]\n    pub a_b2: T,\n    c: u8,\n}\nstruct B {\n    d: u8,\n}\n";
    assert_eq!(fields(source, "A"), ["a_b2", "c"]);
    assert_eq!(fields(source, "C"), [""; 0]);
}

#[test]
fn paths_are_told_from_other_words() {
    let text =
        "see `koi-core/src/tick.rs`, `cargo test`, `/metrics`, `a/<id>`, `x` and `docs/a.md`";
    assert_eq!(quoted_paths(text), ["koi-core/src/tick.rs", "docs/a.md"]);
    assert_eq!(
        first_cells("| a b | c |\n|---|---|\ntext"),
        BTreeSet::from(["a b"])
    );
}
