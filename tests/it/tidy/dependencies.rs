//! Who may import whom, over `cargo metadata`. The table is that of `docs/style.md`.

use std::collections::BTreeMap;
use std::process::Command;

use koi_tests::workspace_root;

use super::refuse;

/// What a crate may use of the workspace, and what it must never use of the outside.
struct Rule {
    name: &'static str,
    koi: &'static [&'static str],
    never: &'static [&'static str],
}

const RUNTIMES_AND_IO: &[&str] = &[
    "tokio",
    "tokio-util",
    "tokio-stream",
    "tonic",
    "prost",
    "sqlx",
    "tracing",
    "hyper",
    "hyper-util",
    "axum",
    "tower",
    "rustix",
    "libc",
    "nvml-wrapper",
    "metrics",
    "clap",
    "getrandom",
    "rand",
];

const RULES: &[Rule] = &[
    Rule {
        name: "koi-core",
        koi: &[],
        never: RUNTIMES_AND_IO,
    },
    Rule {
        name: "koi-proto",
        koi: &["koi-core"],
        never: &["sqlx", "tokio", "hyper", "axum", "nvml-wrapper"],
    },
    Rule {
        name: "koi-sim",
        koi: &["koi-core"],
        never: RUNTIMES_AND_IO,
    },
    Rule {
        name: "koi-server",
        koi: &["koi-core", "koi-proto"],
        never: &["nvml-wrapper"],
    },
    Rule {
        name: "koi-agent",
        koi: &["koi-core", "koi-proto", "koi-shim"],
        never: &["sqlx"],
    },
    Rule {
        name: "koi-shim",
        koi: &["koi-core"],
        never: &[
            "tokio", "tonic", "prost", "sqlx", "hyper", "axum", "tracing",
        ],
    },
    Rule {
        name: "koi-engine-sim",
        koi: &["koi-core", "koi-sim"],
        never: &["sqlx", "tonic", "prost", "nvml-wrapper"],
    },
    Rule {
        name: "koi-cli",
        koi: &["koi-core", "koi-proto"],
        never: &["sqlx", "nvml-wrapper"],
    },
];

/// These may import everything, and nothing imports them.
const TOPMOST: [&str; 2] = ["koi-bench", "koi-tests"];

#[derive(serde::Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(serde::Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(serde::Deserialize)]
struct Dependency {
    name: String,
    /// `dev`, `build`, or absent for a normal dependency.
    kind: Option<String>,
    /// Present for a crate of this workspace.
    path: Option<String>,
    source: Option<String>,
}

fn packages() -> BTreeMap<String, Vec<Dependency>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(workspace_root())
        .output()
        .expect("cargo can be run");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Metadata = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    metadata
        .packages
        .into_iter()
        .map(|p| (p.name, p.dependencies))
        .collect()
}

/// Everything that a crate's manifest breaks of its rule.
fn breaches(rule: &Rule, dependencies: &[Dependency]) -> Vec<String> {
    let mut problems = Vec::new();
    for dependency in dependencies {
        let ours = dependency.path.is_some();
        let shipped = dependency.kind.as_deref() != Some("dev");
        if ours && !rule.koi.contains(&dependency.name.as_str()) {
            problems.push(format!("{} must not use {}", rule.name, dependency.name));
        }
        if shipped && rule.never.contains(&dependency.name.as_str()) {
            problems.push(format!("{} must never use {}", rule.name, dependency.name));
        }
    }
    problems
}

#[test]
fn crates_import_only_what_the_table_allows() {
    let packages = packages();
    let mut problems = Vec::new();
    for rule in RULES {
        match packages.get(rule.name) {
            Some(dependencies) => problems.extend(breaches(rule, dependencies)),
            None => problems.push(format!(
                "{} is in the table and not in the workspace",
                rule.name
            )),
        }
    }
    for name in packages.keys() {
        if !TOPMOST.contains(&name.as_str()) && RULES.iter().all(|r| r.name != name) {
            problems.push(format!(
                "{name} has no row in the table of tests/it/tidy/dependencies.rs"
            ));
        }
    }
    refuse("the dependency table is broken", &problems);
}

#[test]
fn dependencies_come_from_the_registry() {
    let mut problems = Vec::new();
    for (name, dependencies) in packages() {
        for dependency in dependencies {
            let registry = dependency
                .source
                .as_deref()
                .is_some_and(|s| s.starts_with("registry+"));
            if dependency.path.is_none() && !registry {
                problems.push(format!(
                    "{name} takes {} from {:?}",
                    dependency.name, dependency.source
                ));
            }
        }
    }
    refuse(
        "dependencies that are neither ours nor from the registry",
        &problems,
    );
}

#[test]
fn the_rule_check_sees_a_breach() {
    let dependency = |name: &str, kind: Option<&str>, path: Option<&str>| Dependency {
        name: name.to_owned(),
        kind: kind.map(str::to_owned),
        path: path.map(str::to_owned),
        source: None,
    };
    let core = &RULES[0];
    assert_eq!(breaches(core, &[dependency("tokio", None, None)]).len(), 1);
    assert_eq!(
        breaches(core, &[dependency("tokio", Some("build"), None)]).len(),
        1
    );
    assert_eq!(
        breaches(core, &[dependency("tokio", Some("dev"), None)]).len(),
        0
    );
    assert_eq!(
        breaches(core, &[dependency("koi-sim", Some("dev"), Some("/x"))]).len(),
        1
    );
}
