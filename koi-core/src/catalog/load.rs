//! From text to a checked [`Catalog`]: every problem of every file, at once.
//!
//! The checks are layout-and-style 4.3 rule 6, as far as they concern rows; edges and mechanisms
//! check their own.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::{
    Catalog, CatalogText, EngineFlags, Feature, FlagWriter, GpuType, InstanceType, MediatorRow,
    OutcomeRow, SetBy, Value,
};
use crate::variables::{Mediator, Outcome, VariableKind};
use crate::violation::{FieldViolation, Violations};

/// Largest catalog file; ours are below 64 KiB.
const MAX_FILE_BYTES: usize = 1024 * 1024;

/// Units that rows may use; a typo in a unit is a bug in a formula.
const UNITS: [&str; 24] = [
    "none", "fraction", "ratio", "log ratio", "tokens", "tokens/s", "1/s", "tok/s", "requests",
    "requests/s", "sequences", "GPUs", "nodes", "layers", "heads", "experts", "bits", "billions",
    "ms", "hours", "GiB", "B/s", "B/token", "USD/token",
];

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
struct HardwareFile {
    gpu: Vec<GpuType>,
    instance: Vec<InstanceType>,
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
        problems.add(file, format!("is {} bytes; at most {MAX_FILE_BYTES}", text.len()));
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
    for part in [text.features, text.mediators, text.outcomes, text.hardware, text.engine_vllm] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

type Names = BTreeMap<String, (VariableKind, String)>;

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
                problems.add(name, "names are 1 to 64 of a-z, 0-9 and '_', starting with a letter");
            }
            if names.insert(name.to_owned(), (kind, id.to_owned())).is_some() {
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
        && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
}

fn check_sentence(field: String, doc: &str, problems: &mut Violations) {
    let body = doc.strip_suffix('.');
    let first_is_upper = doc.starts_with(|c: char| !c.is_lowercase());
    if body.is_none_or(str::is_empty) || !first_is_upper || doc.contains('\n') {
        problems.add(field, "doc must be one sentence: a capital at the start, a full stop at the end");
    }
}

fn check_unit(field: String, unit: &str, problems: &mut Violations) {
    if !UNITS.contains(&unit) {
        problems.add(field, format!("{unit:?} is not a known unit; known: {}", UNITS.join(", ")));
    }
}

fn check_feature(row: &Feature, names: &Names, engine: &EngineFlags, problems: &mut Violations) {
    let at = |what: &str| format!("features.toml.{}.{what}", row.id);
    check_sentence(at("doc"), &row.doc, problems);
    check_unit(at("unit"), &row.unit, problems);
    if !row.domain.is_sound() {
        problems.add(at("domain"), "bounds must be in order and choices present");
    }
    if let Some(Err(message)) = row.default.as_ref().map(|value| row.domain.accept(value)) {
        problems.add(at("default"), message);
    }
    for condition in &row.applies {
        let known = names.get(&condition.feature);
        if !known.is_some_and(|(kind, id)| *kind == VariableKind::Feature && *id == condition.feature) {
            problems.add(at("applies"), format!("{:?} is not the id of an X row", condition.feature));
        }
    }
    if row.set_by != SetBy::Planner {
        return;
    }
    if row.default.is_none() != row.optional {
        problems.add(at("default"), "a planner-set row has either a default or `optional = true`");
    }
    let has_flag = engine.flags.iter().any(|flag| flag.feature == row.id);
    if has_flag == row.no_flag.is_some() {
        problems.add(at("no_flag"), "a planner-set row has either an engine flag or says why not");
    }
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
        problems.add(format!("{id}.unit"), format!("must be {expected:?}, as the code has it"));
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

fn check_flags(features: &[Feature], engine: &EngineFlags, problems: &mut Violations) {
    for flag in &engine.flags {
        let at = format!("engines/vllm.toml.{}", flag.feature);
        let Some(row) = features.iter().find(|f| f.id == flag.feature) else {
            problems.add(at, "is not the id of an X row");
            continue;
        };
        if flag.until.is_some_and(|until| until <= flag.since) {
            problems.add(&*at, "until must be after since");
        }
        check_writer(&at, &flag.write, row, problems);
    }
}

fn check_writer(at: &str, writer: &FlagWriter, row: &Feature, problems: &mut Violations) {
    let written: Vec<&String> = match writer {
        FlagWriter::Value(flag) | FlagWriter::AboveOne(flag) => vec![flag],
        FlagWriter::Switch { on, off } => vec![on, off],
        FlagWriter::Choice(choices) => {
            for name in choices.keys() {
                if let Err(message) = row.domain.accept(&Value::Text(name.clone())) {
                    problems.add(at, message);
                }
            }
            choices.values().flatten().collect()
        }
    };
    if written.iter().any(|argument| !argument.starts_with("--")) {
        problems.add(at, "arguments start with --");
    }
}

fn check_hardware(file: &HardwareFile, problems: &mut Violations) {
    let mut seen = BTreeSet::new();
    for gpu in &file.gpu {
        for name in std::iter::once(&gpu.id).chain(&gpu.aliases) {
            if !seen.insert(name.to_lowercase()) {
                problems.add(format!("hardware.toml.{name}"), "is used twice among GPU names");
            }
        }
        check_gpu(gpu, problems);
    }
    let mut ids = BTreeSet::new();
    for instance in &file.instance {
        let at = format!("hardware.toml.{}", instance.id);
        if !ids.insert(&instance.id) {
            problems.add(&*at, "is used twice among instance types");
        }
        if !file.gpu.iter().any(|gpu| gpu.id == instance.gpu_type) {
            problems.add(&*at, format!("{:?} is not a GPU type", instance.gpu_type));
        }
        if instance.gpus == 0 || instance.gpus > 64 {
            problems.add(&*at, "gpus must be from 1 to 64");
        }
        if instance.on_demand_usd_per_hour.is_some_and(|p| !(p.is_finite() && p > 0.0)) {
            problems.add(at, "a price is positive or absent");
        }
    }
}

fn check_gpu(gpu: &GpuType, problems: &mut Violations) {
    let fit = gpu.fit;
    let positive = [
        ("memory_bytes", Some(gpu.memory_bytes)),
        ("bandwidth_bytes_per_second", Some(gpu.bandwidth_bytes_per_second)),
        ("peak_flops.bf16", Some(gpu.peak_flops.bf16)),
        ("peak_flops.fp32", Some(gpu.peak_flops.fp32)),
        ("peak_flops.fp8", gpu.peak_flops.fp8),
        ("peak_flops.int8", gpu.peak_flops.int8),
        ("nvlink_bytes_per_second", gpu.nvlink_bytes_per_second),
        ("pcie_bytes_per_second", Some(gpu.pcie_bytes_per_second)),
        ("power_limit_w", Some(gpu.power_limit_w)),
        ("power_idle_w", Some(gpu.power_idle_w)),
        ("fit.allreduce_latency_us", Some(fit.allreduce_latency_us)),
        ("fit.step_overhead_ms", Some(fit.step_overhead_ms)),
        ("fit.eager_layer_overhead_us", Some(fit.eager_layer_overhead_us)),
        ("fit.load_bytes_per_second", Some(fit.load_bytes_per_second)),
        ("fit.reserved_bytes", Some(fit.reserved_bytes)),
    ];
    for (name, value) in positive {
        if value.is_some_and(|v| !(v.is_finite() && v > 0.0)) {
            problems.add(format!("hardware.toml.{}.{name}", gpu.id), "must be positive and finite");
        }
    }
    for (name, share) in [
        ("compute_fraction", fit.compute_fraction),
        ("bandwidth_fraction", fit.bandwidth_fraction),
        ("link_fraction", fit.link_fraction),
    ] {
        if !(share > 0.0 && share <= 1.0) {
            problems.add(format!("hardware.toml.{}.fit.{name}", gpu.id), "must be in (0, 1]");
        }
    }
}
