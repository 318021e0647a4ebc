//! From text to a checked [`Catalog`]: every problem of every file, at once.
//!
//! The checks are layout-and-style 4.3 rule 6, as far as they concern rows; edges and mechanisms
//! check their own.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::check::{check_feature, check_flags, check_hardware, check_sentence};
use super::{
    Catalog, CatalogText, EngineFlags, Feature, GpuType, InstanceType, MediatorRow, OutcomeRow,
};
use crate::variables::{Mediator, Outcome, VariableKind};
use crate::violation::{FieldViolation, Violations};

/// Largest catalog file; ours are below 64 KiB.
const MAX_FILE_BYTES: usize = 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FeatureFile {
    feature: Vec<Feature>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MediatorFile {
    mediator: Vec<MediatorRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutcomeFile {
    outcome: Vec<OutcomeRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HardwareFile {
    pub(super) gpu: Vec<GpuType>,
    pub(super) instance: Vec<InstanceType>,
}

pub(super) fn load(text: &CatalogText<'_>) -> Result<Catalog, Vec<FieldViolation>> {
    let mut problems = Violations::default();
    let features = parse::<FeatureFile>("features.toml", text.features, &mut problems);
    let mediators = parse::<MediatorFile>("mediators.toml", text.mediators, &mut problems);
    let outcomes = parse::<OutcomeFile>("outcomes.toml", text.outcomes, &mut problems);
    let hardware = parse::<HardwareFile>("hardware.toml", text.hardware, &mut problems);
    let engine = parse::<EngineFlags>("engines/vllm.toml", text.engine_vllm, &mut problems);
    let (Some(features), Some(mediators), Some(outcomes), Some(hardware), Some(engine)) =
        (features, mediators, outcomes, hardware, engine)
    else {
        return Err(problems.into_vec());
    };
    let names = collect_names(&features, &mediators, &outcomes, &mut problems);
    for feature in &features.feature {
        check_feature(feature, &names, &engine, &mut problems);
    }
    let mediators = ordered(mediators.mediator, Mediator::ALL, &mut problems);
    let outcomes = ordered(outcomes.outcome, Outcome::ALL, &mut problems);
    check_flags(&features.feature, &engine, &mut problems);
    check_hardware(&hardware, &mut problems);
    problems.finish(Catalog {
        features: keyed(features.feature, |f| f.id.clone()),
        mediators,
        outcomes,
        names,
        gpu_types: keyed(hardware.gpu, |g| g.id.clone()),
        instance_types: keyed(hardware.instance, |i| i.id.clone()),
        engine,
        hash: content_hash(text),
    })
}

fn parse<T: DeserializeOwned>(file: &str, text: &str, problems: &mut Violations) -> Option<T> {
    if text.len() > MAX_FILE_BYTES {
        problems.add(
            file,
            format!("is {} bytes; at most {MAX_FILE_BYTES}", text.len()),
        );
        return None;
    }
    match toml::from_str(text) {
        Ok(parsed) => Some(parsed),
        Err(error) => {
            problems.add(file, error.to_string());
            None
        }
    }
}

fn keyed<T>(rows: Vec<T>, key: impl Fn(&T) -> String) -> BTreeMap<String, T> {
    rows.into_iter().map(|row| (key(&row), row)).collect()
}

/// SHA-256 over length-prefixed files, so that moving a line between files changes the hash.
fn content_hash(text: &CatalogText<'_>) -> String {
    let mut hasher = Sha256::new();
    for part in [
        text.features,
        text.mediators,
        text.outcomes,
        text.hardware,
        text.engine_vllm,
    ] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Every id and alias with its layer and its id.
pub(super) type Names = BTreeMap<String, (VariableKind, String)>;

fn collect_names(
    features: &FeatureFile,
    mediators: &MediatorFile,
    outcomes: &OutcomeFile,
    problems: &mut Violations,
) -> Names {
    let mut names = Names::new();
    let mut add = |kind: VariableKind, id: &str, aliases: &[String]| {
        for name in std::iter::once(id).chain(aliases.iter().map(String::as_str)) {
            if !is_spelled_well(name) {
                problems.add(
                    name,
                    "names are 1 to 64 of a-z, 0-9 and '_', starting with a letter",
                );
            }
            if names
                .insert(name.to_owned(), (kind, id.to_owned()))
                .is_some()
            {
                problems.add(name, "is used twice among ids and aliases of X, V and Y");
            }
        }
    };
    for row in &features.feature {
        add(VariableKind::Feature, &row.id, &row.aliases);
    }
    for row in &mediators.mediator {
        add(VariableKind::Mediator, &row.id, &row.aliases);
    }
    for row in &outcomes.outcome {
        add(VariableKind::Outcome, &row.id, &row.aliases);
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

/// Rows of a closed set, exactly once each, in the set's own order.
fn ordered<Row: ClosedRow, const N: usize>(
    rows: Vec<Row>,
    all: [Row::Member; N],
    problems: &mut Violations,
) -> Vec<Row> {
    let mut by_id = BTreeMap::new();
    for row in rows {
        check_sentence(format!("{}.doc", row.id()), row.doc(), problems);
        if by_id.insert(row.id().to_owned(), row).is_some() {
            problems.add("variables", "a row appears twice");
        }
    }
    let mut kept = Vec::with_capacity(N);
    for member in all {
        match by_id.remove(Row::name(member)) {
            Some(row) => {
                row.check(member, problems);
                kept.push(row);
            }
            None => problems.add(Row::name(member), "has no row"),
        }
    }
    for id in by_id.keys() {
        problems.add(id.clone(), "is not a member of the closed set");
    }
    kept
}

/// A row of a set that is also a Rust enum.
trait ClosedRow {
    type Member: Copy;
    fn name(member: Self::Member) -> &'static str;
    fn id(&self) -> &str;
    fn doc(&self) -> &str;
    fn check(&self, member: Self::Member, problems: &mut Violations);
}

fn check_member_unit(id: &str, unit: &str, expected: &str, problems: &mut Violations) {
    if unit != expected {
        problems.add(
            format!("{id}.unit"),
            format!("must be {expected:?}, as the code has it"),
        );
    }
}

impl ClosedRow for MediatorRow {
    type Member = Mediator;
    fn name(member: Mediator) -> &'static str {
        member.name()
    }
    fn id(&self) -> &str {
        &self.id
    }
    fn doc(&self) -> &str {
        &self.doc
    }
    fn check(&self, member: Mediator, problems: &mut Violations) {
        check_member_unit(&self.id, &self.unit, member.unit(), problems);
    }
}

impl ClosedRow for OutcomeRow {
    type Member = Outcome;
    fn name(member: Outcome) -> &'static str {
        member.name()
    }
    fn id(&self) -> &str {
        &self.id
    }
    fn doc(&self) -> &str {
        &self.doc
    }
    fn check(&self, member: Outcome, problems: &mut Violations) {
        check_member_unit(&self.id, &self.unit, member.unit(), problems);
        if self.maximise != member.is_maximised() {
            problems.add(format!("{}.maximise", self.id), "contradicts the code");
        }
    }
}
