//! The mechanisms of the study: true ones from the catalog, false ones drawn from the closed world.
//!
//! Drawn by seed from what the finite differences say; admitted by the one gate, as proposals with an id
//! of their content, so that nothing tells S1–S4 which is which. Edges that the catalog lacks are added
//! to the study's own graph through the same loader.

mod draw;

use std::collections::BTreeSet;

use anyhow::anyhow;
use koi_core::catalog::{Catalog, CatalogText};
use koi_core::causal::CausalModel;
use koi_core::causal::graph::id_kind;
use koi_core::causal::mechanism::MechanismDraft;
use koi_core::causal::scope::Scope;
use koi_core::lifecycle::{Origin, admit};
use koi_core::rng::Rng;
use serde::Serialize;

use super::hidden::Hidden;
use super::knobs::Knob;
use super::physics::Physics;
use draw::Draw;

/// What a claim is in the truth. Printed, never shown to S1–S4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Every edge holds.
    True,
    /// The setting does not move the mediator.
    NoFeatureEffect,
    /// The mediator does not move the outcome.
    NoMediatorEffect,
    /// An edge points the wrong way.
    WrongSign,
    /// The effect exists in one place.
    OnePlace,
    /// The outcome moves, by another mediator.
    OtherMediator,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::True,
        Self::NoFeatureEffect,
        Self::NoMediatorEffect,
        Self::WrongSign,
        Self::OnePlace,
        Self::OtherMediator,
    ];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::NoFeatureEffect => "no X->V effect",
            Self::NoMediatorEffect => "no V->Y effect",
            Self::WrongSign => "wrong sign",
            Self::OnePlace => "one environment",
            Self::OtherMediator => "other mediator",
        }
    }

    /// The bar of the belief: at least, or at most.
    pub(super) fn is_met(self, confidence: f64) -> bool {
        match self {
            Self::True => confidence >= 0.9,
            Self::OnePlace => confidence <= 0.35,
            _ => confidence <= 0.2,
        }
    }
}

/// One mechanism of the study.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) id: String,
    pub(super) kind: Kind,
    /// Whether it is a seed of the catalog as it stands.
    pub(super) is_seed: bool,
    /// Edges by id.
    pub(super) edges: Vec<String>,
    /// What the finite differences say of each.
    pub(super) truth: Vec<String>,
    /// The edge that is false, where one is.
    pub(super) false_edge: Option<String>,
}

/// Graph, claims and what the truth hides.
pub(super) struct Claims {
    pub(super) model: CausalModel,
    pub(super) claims: Vec<Claim>,
    pub(super) hidden: Vec<Hidden>,
}

/// How many of each kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub(super) of_true: usize,
    pub(super) of_each_false: usize,
}

/// One edge of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    from: String,
    to: String,
    sign: &'static str,
}

impl Link {
    fn id(&self) -> String {
        format!("{}->{}", self.from, self.to)
    }

    fn row(&self) -> String {
        format!(
            "\n[[edge]]\nfrom = {:?}\nto = {:?}\nsign = {:?}\nprior = \"EVEN\"\ndoc = \"A claim.\"\n",
            self.from, self.to, self.sign
        )
    }
}

/// A path that is to become a mechanism.
#[derive(Debug, Clone)]
struct Path {
    kind: Kind,
    links: [Link; 2],
    false_link: Option<usize>,
}

/// Draws the claims of a seed.
pub(super) fn draw(
    catalog: &Catalog,
    physics: &Physics,
    knobs: &[Knob],
    (n_places, counts): (usize, Counts),
    seed: u64,
) -> anyhow::Result<Claims> {
    let catalog_model =
        CausalModel::embedded(catalog).map_err(|problems| anyhow!("{problems:?}"))?;
    let rng = Rng::stream(seed, "learning.claims");
    let mut draw = Draw::new(&catalog_model, physics, knobs, (rng, n_places));
    let seeds = draw.all(counts);
    let drawn = (seeds, draw.paths, draw.hidden);
    let mut claims = build(catalog, &catalog_model, drawn)?;
    for claim in &mut claims.claims {
        claim.truth = claim.edges.iter().map(|e| physics.describe(e)).collect();
    }
    Ok(claims)
}

fn build(
    catalog: &Catalog,
    catalog_model: &CausalModel,
    (seeds, paths, hidden): (Vec<String>, Vec<Path>, Vec<Hidden>),
) -> anyhow::Result<Claims> {
    let kind_of = |name: &str| id_kind(catalog, name);
    let mut edges = CatalogText::embedded()
        .file("edges.toml")
        .unwrap_or_default()
        .to_owned();
    let new: BTreeSet<&Link> = paths
        .iter()
        .flat_map(|p| &p.links)
        .filter(|l| catalog_model.edge(&l.id()).is_none())
        .collect();
    for link in new {
        edges.push_str(&link.row());
    }
    let mut model = CausalModel::load(&edges, &[("none.toml", "mechanism = []")], &kind_of)
        .map_err(|problems| anyhow!("{problems:?}"))?;
    let mut claims = Vec::new();
    for mechanism in catalog_model.mechanisms().filter(|m| seeds.contains(&m.id)) {
        claims.push(Claim {
            id: mechanism.id.clone(),
            kind: Kind::True,
            is_seed: true,
            edges: mechanism.edges.iter().cloned().collect(),
            truth: Vec::new(),
            false_edge: None,
        });
        model.insert(mechanism.clone());
    }
    for path in paths {
        let edges: Vec<String> = path.links.iter().map(Link::id).collect();
        let draft = MechanismDraft {
            id: None,
            edges: edges.clone(),
            scope: Scope::default(),
            narrative: "A claim of the study.".to_owned(),
            prior: None,
        };
        let Ok(mechanism) = admit(draft, Origin::Proposal, &model, &kind_of) else {
            continue;
        };
        claims.push(Claim {
            id: mechanism.id.clone(),
            kind: path.kind,
            is_seed: false,
            truth: Vec::new(),
            false_edge: path.false_link.and_then(|i| edges.get(i).cloned()),
            edges,
        });
        model.insert(mechanism);
    }
    Ok(Claims {
        model,
        claims,
        hidden,
    })
}

#[cfg(test)]
mod tests {
    use koi_core::params::Params;

    use super::super::fleet::fleet;
    use super::super::knobs::knobs;
    use super::*;

    fn of_seed(seed: u64) -> Claims {
        let catalog = Catalog::embedded();
        let fleet = fleet(catalog, &Params::default(), (12, 6), seed).unwrap();
        let knobs = knobs();
        let physics = Physics::of(catalog, &fleet, &knobs, seed);
        let counts = Counts {
            of_true: 12,
            of_each_false: 4,
        };
        draw(catalog, &physics, &knobs, (6, counts), seed).unwrap()
    }

    #[test]
    fn every_kind_is_drawn_and_no_id_tells_which_it_is() {
        let claims = of_seed(1);
        for kind in Kind::ALL {
            let n = claims.claims.iter().filter(|c| c.kind == kind).count();
            let least = if kind == Kind::True { 12 } else { 4 };
            assert!(n >= least, "{} of {}", n, kind.title());
        }
        for claim in claims.claims.iter().filter(|c| !c.is_seed) {
            let id = claim.id.strip_prefix("M_").unwrap();
            assert!(id.len() == 8 && id.bytes().all(|c| c.is_ascii_hexdigit()));
            assert!(claims.model.mechanism(&claim.id).is_some());
        }
        let one_place = claims.claims.iter().filter(|c| c.kind == Kind::OnePlace);
        assert_eq!(one_place.count(), claims.hidden.len());
    }
}
