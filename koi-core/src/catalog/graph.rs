//! The whole catalog at once: rows, edges, mechanisms, and that they form one graph.
//!
//! Not the graph itself: [`crate::causal`] builds it. layout-and-style 4.3, rule 6.

use std::collections::BTreeSet;

use super::{Catalog, CatalogText};
use crate::causal::graph::id_kind;
use crate::causal::{CausalModel, EdgeEnds};
use crate::validation::UpdateTable;
use crate::variables::Mediator;
use crate::violation::{FieldViolation, Violations};

/// Loads and checks everything that a catalog consists of.
///
/// # Errors
/// Every problem of every file at once; edges and mechanisms are checked when the rows are sound.
pub fn check_all(text: &CatalogText<'_>) -> Result<(Catalog, CausalModel), Vec<FieldViolation>> {
    let catalog = Catalog::load(text)?;
    let mut problems = Violations::default();
    let model = CausalModel::of_text(text, &|name| id_kind(&catalog, name))?;
    check_mediators(&model, &mut problems);
    check_sources(&catalog, &model, &mut problems);
    check_effects(&catalog, &model, &mut problems);
    check_updates(text, &mut problems);
    problems.finish((catalog, model))
}

/// The tables that say how far evidence moves a belief.
fn check_updates(text: &CatalogText<'_>, problems: &mut Violations) {
    const FILE: &str = "beta_updates.toml";
    let found = text.files().find(|(path, _)| *path == FILE);
    match found.map(|(_, text)| UpdateTable::parse(text)) {
        None => problems.add(FILE, "is missing"),
        Some(Err(found)) => {
            for problem in found {
                let named = problem.field == FILE;
                let field = if named { String::new() } else { problem.field };
                problems.extend(FILE, vec![FieldViolation { field, ..problem }]);
            }
        }
        Some(Ok(_)) => {}
    }
}

/// Over seeded edges alone every mediator has a way in and, over mediators if need be, a way out to
/// an outcome.
fn check_mediators(model: &CausalModel, problems: &mut Violations) {
    let into: BTreeSet<Mediator> = model
        .seeded_edges()
        .filter_map(|e| e.ends.destination_mediator())
        .collect();
    let mut out: BTreeSet<Mediator> = model
        .seeded_edges()
        .filter(|e| e.ends.outcome().is_some())
        .filter_map(|e| e.ends.source_mediator())
        .collect();
    for _ in Mediator::ALL {
        let reaching: Vec<Mediator> = model
            .seeded_edges()
            .filter_map(|e| match e.ends {
                EdgeEnds::MediatorToMediator(from, to) if out.contains(&to) => Some(from),
                _ => None,
            })
            .collect();
        out.extend(reaching);
    }
    for mediator in Mediator::ALL {
        let at = format!("edges.toml.{}", mediator.name());
        if !into.contains(&mediator) {
            problems.add(&*at, "no seeded edge leads into it");
        }
        if !out.contains(&mediator) {
            problems.add(at, "no path of seeded edges leads from it to an outcome");
        }
    }
}

/// A variable that cannot be set moves nothing.
fn check_sources(catalog: &Catalog, model: &CausalModel, problems: &mut Violations) {
    for edge in model.edges() {
        let EdgeEnds::FeatureToMediator(feature, _) = &edge.ends else {
            continue;
        };
        let row = catalog.feature(feature);
        if row.is_some_and(|row| row.status != super::Status::Active) {
            problems.add(
                format!("edges.toml.{}", edge.id),
                format!("{feature} is not active, so nothing can move it"),
            );
        }
    }
}

/// What a term shows in first is a mediator that the graph says the knob moves.
fn check_effects(catalog: &Catalog, model: &CausalModel, problems: &mut Violations) {
    let moves: BTreeSet<(&str, Mediator)> = model
        .edges()
        .filter_map(|edge| match &edge.ends {
            EdgeEnds::FeatureToMediator(feature, mediator) => Some((feature.as_str(), *mediator)),
            _ => None,
        })
        .collect();
    for row in catalog.features() {
        for effect in catalog.effects_of(&row.id) {
            let first = effect.term.shows_in();
            if !first.iter().any(|m| moves.contains(&(row.id.as_str(), *m))) {
                let names: Vec<&str> = first.iter().map(|m| m.name()).collect();
                problems.add(
                    format!("edges.toml.{}", row.id),
                    format!(
                        "its effect {} shows in {}, and no edge leads there",
                        effect.term.name(),
                        names.join(" or ")
                    ),
                );
            }
        }
    }
}
