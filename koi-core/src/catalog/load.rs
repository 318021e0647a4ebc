//! From text to a checked [`Catalog`]: every problem of every file, at once.
//!
//! The checks are layout-and-style 4.3 rule 6, as far as they concern rows; edges and mechanisms
//! check their own, and [`super::graph`] checks both against the rows.

mod names;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::check::{self, check_sentence};
use super::effect::resolve_all;
use super::hardware::{ArchitectureRow, GpuRow};
use super::metric::{MetricFile, MetricNames};
use super::{Catalog, CatalogText, EngineFlags, Feature, InstanceType, MediatorRow, OutcomeRow};
use crate::variables::{Mediator, Outcome};
use crate::violation::{FieldViolation, Violations};

pub(super) use names::Names;

/// Largest catalog file; ours are below 64 KiB.
const MAX_FILE_BYTES: usize = 1024 * 1024;
/// Most files of a catalog.
const MAX_FILES: usize = 256;

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
    #[serde(default)]
    architecture: Vec<ArchitectureRow>,
    #[serde(default)]
    gpu: Vec<GpuRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InstanceFile {
    instance: Vec<InstanceType>,
}

/// A row with the path of its file.
pub(super) type Located<T> = (String, T);

/// All rows as parsed, before they are checked against each other.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) features: Vec<Located<Feature>>,
    pub(super) mediators: Vec<MediatorRow>,
    pub(super) outcomes: Vec<OutcomeRow>,
    pub(super) architectures: Vec<Located<ArchitectureRow>>,
    pub(super) gpus: Vec<Located<GpuRow>>,
    pub(super) instances: Vec<Located<InstanceType>>,
    pub(super) engines: Vec<Located<EngineFlags>>,
    pub(super) metrics: Vec<Located<MetricFile>>,
}

pub(super) fn load(text: &CatalogText<'_>) -> Result<Catalog, Vec<FieldViolation>> {
    let mut problems = Violations::default();
    let rows = parse_all(text, &mut problems);
    // Checks between rows of a half-read catalog would report the missing half.
    if !problems.is_empty() {
        return Err(problems.into_vec());
    }
    let names = names::collect(&rows, &mut problems);
    check::features(&rows, &names, &mut problems);
    check::effects(&rows, &mut problems);
    check::flags(&rows, &mut problems);
    check::hardware(&rows, &mut problems);
    check::metrics(&rows, &mut problems);
    let mediators = ordered(rows.mediators, Mediator::ALL, &mut problems);
    let outcomes = ordered(rows.outcomes, Outcome::ALL, &mut problems);
    if !problems.is_empty() {
        return Err(problems.into_vec());
    }
    let architectures = keyed(rows.architectures, |a| a.id.clone());
    let gpus = rows.gpus.into_iter().filter_map(|(file, row)| {
        let resolved = row.resolve(&architectures)?;
        Some((file, resolved))
    });
    let features = keyed(rows.features, |f| f.id.clone());
    let defaults = features.values().filter(|f| f.is_knob() && !f.optional);
    let engines = keyed(rows.engines, |e| e.engine.clone());
    let told = |table: &EngineFlags| table.flags.iter().map(|f| f.feature.clone()).collect();
    Ok(Catalog {
        spoken: engines.iter().map(|(e, t)| (e.clone(), told(t))).collect(),
        defaults: defaults
            .filter_map(|f| Some((f.id.clone(), f.default.clone()?)))
            .collect(),
        mediators,
        outcomes,
        names,
        gpu_types: keyed(gpus.collect(), |g| g.id.clone()),
        instance_types: keyed(rows.instances, |i| i.id.clone()),
        engines,
        metrics: MetricNames::of(rows.metrics.into_iter().map(|(_, file)| file).collect()),
        hash: text.hash(),
        effects: resolve_all(&features),
        features,
    })
}

fn parse_all(text: &CatalogText<'_>, problems: &mut Violations) -> Rows {
    let mut rows = Rows::default();
    for (n, (path, file)) in text.files().enumerate() {
        if n >= MAX_FILES {
            problems.add(path, format!("at most {MAX_FILES} files"));
            break;
        }
        if file.len() > MAX_FILE_BYTES {
            problems.add(
                path,
                format!("is {} bytes; at most {MAX_FILE_BYTES}", file.len()),
            );
            continue;
        }
        rows.add(path, file, problems);
    }
    for (missing, what) in [
        (rows.features.is_empty(), "features/*.toml"),
        (rows.mediators.is_empty(), "mediators.toml"),
        (rows.outcomes.is_empty(), "outcomes.toml"),
        (rows.gpus.is_empty(), "hardware/*.toml"),
    ] {
        if missing && problems.is_empty() {
            problems.add(what, "the catalog has none of its rows");
        }
    }
    if !rows.engines.iter().any(|(_, e)| e.engine == super::VLLM) && problems.is_empty() {
        problems.add("engines/vllm.toml", "the catalog has no flag table of vllm");
    }
    rows
}

impl Rows {
    fn add(&mut self, path: &str, text: &str, problems: &mut Violations) {
        let (folder, _) = path.split_once('/').unwrap_or(("", path));
        match (folder, path) {
            ("features", _) => {
                let file = parse::<FeatureFile>(path, text, problems);
                locate(path, file.map(|f| f.feature), &mut self.features);
            }
            ("hardware", _) => {
                if let Some(file) = parse::<HardwareFile>(path, text, problems) {
                    locate(path, Some(file.architecture), &mut self.architectures);
                    locate(path, Some(file.gpu), &mut self.gpus);
                }
            }
            ("instances", _) => {
                let file = parse::<InstanceFile>(path, text, problems);
                locate(path, file.map(|f| f.instance), &mut self.instances);
            }
            ("engines", _) => {
                let table = parse::<EngineFlags>(path, text, problems);
                locate(path, table.map(|t| vec![t]), &mut self.engines);
            }
            ("metrics", _) => {
                let file = parse::<MetricFile>(path, text, problems);
                locate(path, file.map(|f| vec![f]), &mut self.metrics);
            }
            (_, "mediators.toml") => {
                let file = parse::<MediatorFile>(path, text, problems);
                self.mediators
                    .extend(file.into_iter().flat_map(|f| f.mediator));
            }
            (_, "outcomes.toml") => {
                let file = parse::<OutcomeFile>(path, text, problems);
                self.outcomes
                    .extend(file.into_iter().flat_map(|f| f.outcome));
            }
            // The causal model and the learning tables read these.
            ("mechanisms", _) | (_, "edges.toml" | "beta_updates.toml") => {}
            _ => problems.add(path, "is not a file of the catalog"),
        }
    }
}

fn locate<T>(path: &str, rows: Option<Vec<T>>, into: &mut Vec<Located<T>>) {
    into.extend(rows.into_iter().flatten().map(|row| (path.to_owned(), row)));
}

fn parse<T: DeserializeOwned>(file: &str, text: &str, problems: &mut Violations) -> Option<T> {
    match toml::from_str(text) {
        Ok(parsed) => Some(parsed),
        Err(error) => {
            problems.add(file, error.to_string());
            None
        }
    }
}

fn keyed<T>(rows: Vec<Located<T>>, key: impl Fn(&T) -> String) -> BTreeMap<String, T> {
    rows.into_iter().map(|(_, row)| (key(&row), row)).collect()
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
