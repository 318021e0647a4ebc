//! The one gate through which mechanisms enter, deterministic for seeds and proposals alike.
//!
//! White paper V1, Appendix D, Propose; spec §5, Admission.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use crate::causal::edge::{Edge, KindOf};
use crate::causal::mechanism::{Mechanism, MechanismDraft, MechanismStatus, bundle};
use crate::causal::{CausalModel, PriorBin};
use crate::variables::Mediator;
use crate::violation::{FieldViolation, Violations};

/// Most edges of one mechanism: beyond that a verdict over its bundle says nothing.
const MAX_EDGES: usize = 32;
/// Longest narrative in bytes.
const MAX_NARRATIVE_BYTES: usize = 2_000;
/// Longest seed id in bytes.
const MAX_ID_BYTES: usize = 63;

/// Who wrote the draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The seed file: its id and prior count.
    Seed,
    /// A run-time proposal: id from its content, Beta(1, 1).
    Proposal,
}

/// Admits a draft, or says everything that is wrong with it.
///
/// # Errors
/// Unknown or repeated edges, edges that a seed may not carry, no complete X→V→Y path, a dangling V, parts that do not hang
/// together, an ill-typed scope, a duplicate of an existing mechanism.
pub fn admit(
    draft: MechanismDraft,
    origin: Origin,
    model: &CausalModel,
    kind_of: KindOf<'_>,
) -> Result<Mechanism, Vec<FieldViolation>> {
    let mut violations = Violations::default();
    let edges = known_edges(&draft.edges, model, &mut violations);
    if origin == Origin::Seed {
        for edge in edges.iter().filter(|e| !e.seeded) {
            violations.add(
                "edges",
                format!("{} is not seeded: leave it to proposals", edge.id),
            );
        }
    }
    check_topology(&edges, &mut violations);
    draft.scope.check(kind_of, &mut violations);
    if draft.narrative.trim().is_empty() || draft.narrative.len() > MAX_NARRATIVE_BYTES {
        violations.add(
            "narrative",
            format!("write 1 to {MAX_NARRATIVE_BYTES} bytes of why"),
        );
    }
    let edge_ids: BTreeSet<String> = edges.iter().map(|e| e.id.clone()).collect();
    let scope_text = draft.scope.canonical();
    let id = match origin {
        Origin::Seed => draft.id.unwrap_or_default(),
        Origin::Proposal => content_id(&edge_ids, &scope_text),
    };
    check_id(&id, model, &mut violations);
    if let Some(twin) = twin_of(&edge_ids, &scope_text, model) {
        violations.add("edges", format!("the same edges and scope as {}", twin.id));
    }
    let (mediators, outcomes) = bundle(edges);
    let prior = match origin {
        Origin::Seed => draft.prior.unwrap_or(PriorBin::Even),
        Origin::Proposal => PriorBin::Even,
    };
    violations.finish(Mechanism {
        id,
        edges: edge_ids,
        mediators,
        outcomes,
        scope: draft.scope,
        narrative: draft.narrative,
        prior,
        status: MechanismStatus::Active,
    })
}

/// The mechanism that says the same already: a proposal of it adds nothing.
#[must_use]
pub fn twin<'a>(draft: &MechanismDraft, model: &'a CausalModel) -> Option<&'a Mechanism> {
    let edges = draft.edges.iter().cloned().collect();
    twin_of(&edges, &draft.scope.canonical(), model)
}

fn twin_of<'a>(
    edges: &BTreeSet<String>,
    scope: &str,
    model: &'a CausalModel,
) -> Option<&'a Mechanism> {
    let same = |m: &&Mechanism| m.edges == *edges && m.scope.canonical() == scope;
    model.mechanisms().find(same)
}

fn check_id(id: &str, model: &CausalModel, violations: &mut Violations) {
    let well_formed = id.strip_prefix("M_").is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
    });
    if !well_formed || id.len() > MAX_ID_BYTES {
        violations.add(
            "id",
            format!("write M_ and letters, digits or '_', at most {MAX_ID_BYTES}"),
        );
    } else if model.mechanism(id).is_some() {
        violations.add("id", "is taken");
    }
}

fn known_edges<'a>(
    ids: &[String],
    model: &'a CausalModel,
    violations: &mut Violations,
) -> Vec<&'a Edge> {
    if ids.is_empty() || ids.len() > MAX_EDGES {
        violations.add("edges", format!("name 1 to {MAX_EDGES} edges"));
    }
    let mut seen = BTreeSet::new();
    let mut edges = Vec::new();
    for (i, id) in ids.iter().enumerate().take(MAX_EDGES) {
        if !seen.insert(id) {
            violations.add(format!("edges[{i}]"), format!("{id:.120?} is repeated"));
        } else if let Some(edge) = model.edge(id) {
            edges.push(edge);
        } else {
            let near = crate::violation::nearest(id, model.edges().map(|e| e.id.as_str()))
                .map_or_else(String::new, |n| format!("; did you mean {n:?}?"));
            violations.add(
                format!("edges[{i}]"),
                format!("{id:.120?} is no edge{near}"),
            );
        }
    }
    edges
}

/// No dangling V, one X→V→Y path at least, all parts connected.
fn check_topology(edges: &[&Edge], violations: &mut Violations) {
    let into: BTreeSet<Mediator> = edges
        .iter()
        .filter_map(|e| e.ends.destination_mediator())
        .collect();
    let out_of: BTreeSet<Mediator> = edges
        .iter()
        .filter_map(|e| e.ends.source_mediator())
        .collect();
    for v in into.symmetric_difference(&out_of) {
        violations.add(
            "edges",
            format!("{v} dangles: it needs an edge in and an edge out"),
        );
    }
    // Mediators form no circle, so a V with a way in and a way out lies on a path from X to Y.
    if into.intersection(&out_of).next().is_none() && !edges.is_empty() {
        violations.add(
            "edges",
            "no complete path from a feature through a mediator to an outcome",
        );
    }
    if !weakly_connected(edges) {
        violations.add(
            "edges",
            "falls into parts that share no variable: propose them separately",
        );
    }
}

fn weakly_connected(edges: &[&Edge]) -> bool {
    let Some((first, rest)) = edges.split_first() else {
        return true;
    };
    let mut reached = BTreeSet::from([first.ends.source(), first.ends.destination()]);
    let mut left: Vec<&Edge> = rest.to_vec();
    loop {
        let before = left.len();
        left.retain(|e| {
            let touches =
                reached.contains(e.ends.source()) || reached.contains(e.ends.destination());
            if touches {
                reached.extend([e.ends.source(), e.ends.destination()]);
            }
            !touches
        });
        if left.is_empty() || left.len() == before {
            return left.is_empty();
        }
    }
}

/// `M_` and 8 hex digits of a stable hash of the sorted edges and the canonical scope.
fn content_id(edges: &BTreeSet<String>, scope: &str) -> String {
    let mut hash = Sha256::new();
    for id in edges {
        hash.update(id.as_bytes());
        hash.update([0]);
    }
    hash.update(scope.as_bytes());
    let digest = hash.finalize();
    let hex: String = digest.iter().take(4).map(|b| format!("{b:02x}")).collect();
    format!("M_{hex}")
}
