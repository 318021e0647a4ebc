//! The closed-world graph: all edges and all admitted mechanisms.
//!
//! Nothing adds edges at run time; mechanisms enter by one gate, [`crate::lifecycle::admit`].
//! White paper V1, The Causal Substrate; spec §5.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::belief::{Belief, BeliefKey};
use super::edge::{Edge, EdgeRow, KindOf};
use super::mechanism::{Mechanism, MechanismDraft, MechanismStatus};
use crate::catalog::{Catalog, CatalogText};
use crate::lifecycle;
use crate::variables::{Mediator, VariableKind};
use crate::violation::{FieldViolation, Violations};

const EDGES: &str = "edges.toml";
const MECHANISMS: &str = "mechanisms/";

/// Edges and mechanisms by id.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CausalModel {
    edges: BTreeMap<String, Edge>,
    mechanisms: BTreeMap<String, Mechanism>,
}

/// The layer of a name that is an id; an alias has none, since rows and values go by ids and an
/// edge or a condition on an alias would never meet a value.
#[must_use]
pub fn id_kind(catalog: &Catalog, name: &str) -> Option<VariableKind> {
    catalog
        .kind_of(name)
        .filter(|_| catalog.canonical(name) == Some(name))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EdgeFile {
    edge: Vec<EdgeRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MechanismFile {
    mechanism: Vec<MechanismDraft>,
}

impl CausalModel {
    /// The edges and mechanisms that ship with the program, over this catalog.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn embedded(catalog: &Catalog) -> Result<Self, Vec<FieldViolation>> {
        Self::of_text(&CatalogText::embedded(), &|name| id_kind(catalog, name))
    }

    /// The edges and mechanisms of a catalog's files.
    ///
    /// # Errors
    /// Files that are missing, else as [`Self::load`].
    pub fn of_text(
        text: &CatalogText<'_>,
        kind_of: KindOf<'_>,
    ) -> Result<Self, Vec<FieldViolation>> {
        let mut missing = Violations::default();
        let edges = text.file(EDGES);
        if edges.is_none() {
            missing.add(EDGES, "the catalog has no such file");
        }
        let mechanisms: Vec<(&str, &str)> = text
            .files()
            .filter(|(path, _)| path.starts_with(MECHANISMS))
            .collect();
        if mechanisms.is_empty() {
            missing.add(
                format!("{MECHANISMS}*.toml"),
                "the catalog has no such file",
            );
        }
        missing.finish(())?;
        Self::load(edges.unwrap_or_default(), &mechanisms, kind_of)
    }

    /// Reads edges and mechanisms, the latter as files by path; seeds pass the same gate as
    /// run-time proposals.
    ///
    /// # Errors
    /// Every problem of all files, named by edge or mechanism id.
    pub fn load(
        edges_toml: &str,
        mechanisms_toml: &[(&str, &str)],
        kind_of: KindOf<'_>,
    ) -> Result<Self, Vec<FieldViolation>> {
        let mut violations = Violations::default();
        let mut model = Self::default();
        match toml::from_str::<EdgeFile>(edges_toml) {
            Ok(file) => model.add_edges(file.edge, kind_of, &mut violations),
            Err(e) => violations.add(EDGES, e.to_string()),
        }
        model.check_mediators(&mut violations);
        for (path, text) in mechanisms_toml {
            match toml::from_str::<MechanismFile>(text) {
                Ok(file) => model.add_seeds(file.mechanism, kind_of, &mut violations),
                Err(e) => violations.add(*path, e.to_string()),
            }
        }
        violations.finish(model)
    }

    fn add_edges(&mut self, rows: Vec<EdgeRow>, kind_of: KindOf<'_>, violations: &mut Violations) {
        for row in rows {
            let Some(edge) = row.resolve(kind_of, violations) else {
                continue;
            };
            if let Some(twice) = self.edges.insert(edge.id.clone(), edge) {
                violations.add(twice.id, "the edge is written twice");
            }
        }
    }

    fn add_seeds(
        &mut self,
        drafts: Vec<MechanismDraft>,
        kind_of: KindOf<'_>,
        violations: &mut Violations,
    ) {
        for (i, draft) in drafts.into_iter().enumerate() {
            let prefix = draft
                .id
                .clone()
                .unwrap_or_else(|| format!("mechanism[{i}]"));
            match lifecycle::admit(draft, lifecycle::Origin::Seed, self, kind_of) {
                Ok(mechanism) => self.insert(mechanism),
                Err(problems) => violations.extend(&prefix, problems),
            }
        }
    }

    /// Over seeded edges alone every mediator has a way in and a way out; mediators do not move each
    /// other in a circle.
    fn check_mediators(&self, violations: &mut Violations) {
        let into: BTreeSet<Mediator> = self
            .seeded_edges()
            .filter_map(|e| e.ends.destination_mediator())
            .collect();
        let out_of: BTreeSet<Mediator> = self
            .seeded_edges()
            .filter_map(|e| e.ends.source_mediator())
            .collect();
        for v in into.difference(&out_of) {
            violations.add(v.name(), "has edges in and none out that is seeded");
        }
        for v in out_of.difference(&into) {
            violations.add(v.name(), "has edges out and none in that is seeded");
        }
        if self.mediators_form_a_circle() {
            violations.add("edge", "mediator_to_mediator edges form a circle");
        }
    }

    fn mediators_form_a_circle(&self) -> bool {
        let mut links: BTreeSet<(Mediator, Mediator)> = self
            .edges
            .values()
            .filter_map(|e| Some((e.ends.source_mediator()?, e.ends.destination_mediator()?)))
            .collect();
        loop {
            let sources: BTreeSet<Mediator> = links.iter().map(|l| l.0).collect();
            let before = links.len();
            links.retain(|l| sources.contains(&l.1));
            if links.len() == before {
                return before > 0;
            }
        }
    }

    /// Adds an admitted mechanism; the argument can only come from the gate.
    pub fn insert(&mut self, mechanism: Mechanism) {
        self.mechanisms.insert(mechanism.id.clone(), mechanism);
    }

    /// Marks a mechanism; false when it does not exist.
    pub fn set_status(&mut self, id: &str, status: MechanismStatus) -> bool {
        self.mechanisms
            .get_mut(id)
            .map(|m| m.status = status)
            .is_some()
    }

    /// An edge by id.
    #[must_use]
    pub fn edge(&self, id: &str) -> Option<&Edge> {
        self.edges.get(id)
    }

    /// A mechanism by id.
    #[must_use]
    pub fn mechanism(&self, id: &str) -> Option<&Mechanism> {
        self.mechanisms.get(id)
    }

    /// All edges, by id.
    pub fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.edges.values()
    }

    /// Edges that seed mechanisms may carry, by id.
    pub fn seeded_edges(&self) -> impl Iterator<Item = &Edge> {
        self.edges.values().filter(|e| e.seeded)
    }

    /// All mechanisms, by id.
    pub fn mechanisms(&self) -> impl Iterator<Item = &Mechanism> {
        self.mechanisms.values()
    }

    /// The belief in every edge and mechanism before any evidence.
    #[must_use]
    pub fn seed_beliefs(&self) -> BTreeMap<BeliefKey, Belief> {
        let edges = self
            .edges
            .values()
            .map(|e| (BeliefKey::Edge(e.id.clone()), e.prior.belief()));
        let mechanisms = self
            .mechanisms
            .values()
            .map(|m| (BeliefKey::Mechanism(m.id.clone()), m.prior.belief()));
        edges.chain(mechanisms).collect()
    }
}
