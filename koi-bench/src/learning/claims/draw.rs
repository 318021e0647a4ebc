//! Drawing: which setting, mediator and outcome a claim of each kind is made of.

use std::collections::{BTreeMap, BTreeSet};

use koi_core::catalog::Value;
use koi_core::causal::CausalModel;
use koi_core::causal::edge::Sign;
use koi_core::causal::mechanism::Mechanism;
use koi_core::rng::Rng;
use koi_core::validation::residual::Variable;
use koi_core::variables::{Mediator, Outcome};

use super::super::hidden::{Hidden, REACHABLE};
use super::super::knobs::Knob;
use super::super::physics::{Direction, Physics, WORKLOAD};
use super::{Counts, Kind, Link, Path};

/// Claims as they are drawn from what the finite differences say.
pub(super) struct Draw<'a> {
    catalog_model: &'a CausalModel,
    physics: &'a Physics,
    knobs: &'a [Knob],
    rng: Rng,
    n_places: usize,
    /// Edges that claims of the study use, with their sign.
    used: BTreeMap<String, &'static str>,
    pub(super) paths: Vec<Path>,
    pub(super) hidden: Vec<Hidden>,
    false_sources: BTreeSet<(String, String)>,
}

impl<'a> Draw<'a> {
    pub(super) fn new(
        catalog_model: &'a CausalModel,
        physics: &'a Physics,
        knobs: &'a [Knob],
        (rng, n_places): (Rng, usize),
    ) -> Self {
        Self {
            catalog_model,
            physics,
            knobs,
            rng,
            n_places,
            used: BTreeMap::new(),
            paths: Vec::new(),
            hidden: Vec::new(),
            false_sources: BTreeSet::new(),
        }
    }
}

impl Draw<'_> {
    /// Draws every kind; returns the seeds of the catalog that are true.
    pub(super) fn all(&mut self, counts: Counts) -> Vec<String> {
        let seeds = self.true_seeds();
        self.one_place(counts.of_each_false);
        self.no_feature_effect(counts.of_each_false);
        self.no_mediator_effect(counts.of_each_false);
        self.wrong_sign(counts.of_each_false);
        self.other_mediator(counts.of_each_false);
        self.true_paths(counts.of_true.saturating_sub(seeds.len()));
        seeds
    }

    /// Direction that the truth gives an edge by the names of its ends.
    fn truth(&self, from: &str, to: &str) -> Direction {
        variable(to).map_or(Direction::Unclear, |v| self.physics.direction(from, v))
    }

    fn holds(&self, edge: &koi_core::causal::edge::Edge) -> bool {
        let direction = self.truth(edge.ends.source(), edge.ends.destination());
        match edge.sign {
            Sign::Positive => direction == Direction::Positive,
            Sign::Negative => direction == Direction::Negative,
            Sign::NonMonotone => matches!(
                direction,
                Direction::Positive | Direction::Negative | Direction::Mixed
            ),
        }
    }

    /// True when the study can move the source.
    fn moves(&self, source: &str) -> bool {
        let is_knob = self.knobs.iter().any(|k| k.id == source);
        is_knob || WORKLOAD.contains(&source) || Mediator::from_name(source).is_some()
    }

    /// Seeds all of whose movable edges hold, with a whole path among them.
    fn true_seeds(&self) -> Vec<String> {
        let is_true = |m: &&Mechanism| {
            let edges: Vec<_> = m
                .edges
                .iter()
                .filter_map(|id| self.catalog_model.edge(id))
                .collect();
            let moved: Vec<_> = edges
                .iter()
                .filter(|e| self.moves(e.ends.source()))
                .collect();
            let has_in = moved.iter().any(|e| e.ends.source_mediator().is_none());
            let has_out = moved.iter().any(|e| e.ends.outcome().is_some());
            has_in && has_out && moved.iter().all(|e| self.holds(e))
        };
        self.catalog_model
            .mechanisms()
            .filter(is_true)
            .map(|m| m.id.clone())
            .collect()
    }

    fn link(&self, from: &str, to: &str, sign: &'static str) -> Link {
        Link {
            from: from.to_owned(),
            to: to.to_owned(),
            sign,
        }
    }

    /// A sign that claims nothing new about an edge which already has one.
    fn agrees(&self, link: &Link) -> bool {
        let stated = self
            .catalog_model
            .edge(&link.id())
            .map(|e| sign_text(e.sign));
        let used = self.used.get(&link.id()).copied();
        stated.is_none_or(|s| s == link.sign) && used.is_none_or(|s| s == link.sign)
    }

    fn accept(&mut self, path: Path) -> bool {
        let is_new = !self.paths.iter().any(|p| p.links == path.links);
        if !is_new || !path.links.iter().all(|l| self.agrees(l)) {
            return false;
        }
        for link in &path.links {
            self.used.insert(link.id(), link.sign);
        }
        self.paths.push(path);
        true
    }

    /// Links from a mediator to an outcome that hold in the truth.
    fn held_out(&self) -> Vec<Link> {
        let mut links = Vec::new();
        for v in Mediator::ALL {
            for y in Outcome::ALL {
                if let Some(sign) = sign_of(self.truth(v.name(), y.name())) {
                    links.push(self.link(v.name(), y.name(), sign));
                }
            }
        }
        links
    }

    /// Links from a setting to a mediator that hold in the truth.
    fn held_in(&self) -> Vec<Link> {
        let mut links = Vec::new();
        for knob in self.knobs {
            for v in Mediator::ALL {
                let direction = self.truth(knob.id, v.name());
                let sign = if is_word(knob) {
                    (direction != Direction::Nothing && direction != Direction::Unclear)
                        .then_some("non-monotone")
                } else {
                    sign_of(direction)
                };
                if let Some(sign) = sign {
                    links.push(self.link(knob.id, v.name(), sign));
                }
            }
        }
        links
    }

    /// Links from a setting to a mediator that have no effect, in either direction of the claim.
    fn empty_in(&mut self) -> Vec<Link> {
        let mut links = Vec::new();
        for knob in self.knobs {
            for v in Mediator::ALL {
                if self.truth(knob.id, v.name()) == Direction::Nothing {
                    let sign = self.any_sign(knob);
                    links.push(self.link(knob.id, v.name(), sign));
                }
            }
        }
        links
    }

    fn any_sign(&mut self, knob: &Knob) -> &'static str {
        if is_word(knob) {
            "non-monotone"
        } else if self.rng.below(2) == 0 {
            "+"
        } else {
            "-"
        }
    }

    /// Pairs of links that meet in a mediator, in random order.
    fn meet(&mut self, into: Vec<Link>, out: &[Link]) -> Vec<[Link; 2]> {
        let mut pairs: Vec<[Link; 2]> = into
            .into_iter()
            .flat_map(|i| {
                let meets: Vec<[Link; 2]> = out
                    .iter()
                    .filter(|o| o.from == i.to)
                    .map(|o| [i.clone(), o.clone()])
                    .collect();
                meets
            })
            .collect();
        self.rng.shuffle(&mut pairs);
        pairs
    }

    /// Takes pairs until there are enough; no false edge twice.
    fn take(&mut self, kind: Kind, pairs: Vec<[Link; 2]>, false_link: usize, wanted: usize) {
        let mut left = wanted;
        for links in pairs {
            if left == 0 {
                return;
            }
            let key = (links[false_link].from.clone(), links[false_link].to.clone());
            if self.false_sources.contains(&key) {
                continue;
            }
            let path = Path {
                kind,
                links,
                false_link: Some(false_link),
            };
            if self.accept(path) {
                self.false_sources.insert(key);
                left -= 1;
            }
        }
    }

    fn no_feature_effect(&mut self, wanted: usize) {
        let (into, out) = (self.empty_in(), self.held_out());
        let pairs = self.meet(into, &out);
        self.take(Kind::NoFeatureEffect, pairs, 0, wanted);
    }

    fn no_mediator_effect(&mut self, wanted: usize) {
        let mut out = Vec::new();
        for v in Mediator::ALL {
            for y in Outcome::ALL {
                if self.truth(v.name(), y.name()) == Direction::Nothing {
                    let sign = if self.rng.below(2) == 0 { "+" } else { "-" };
                    let stated = self
                        .catalog_model
                        .edge(&format!("{}->{}", v.name(), y.name()));
                    let sign = stated.map_or(sign, |e| sign_text(e.sign));
                    out.push(self.link(v.name(), y.name(), sign));
                }
            }
        }
        let into = self.held_in();
        let pairs = self.meet(into, &out);
        self.take(Kind::NoMediatorEffect, pairs, 1, wanted);
    }

    fn wrong_sign(&mut self, wanted: usize) {
        let flip = |links: Vec<Link>| -> Vec<Link> {
            links
                .into_iter()
                .filter(|l| l.sign != "non-monotone")
                .map(|l| Link {
                    sign: if l.sign == "+" { "-" } else { "+" },
                    ..l
                })
                .collect()
        };
        let (into, out) = (self.held_in(), self.held_out());
        let pairs = self.meet(flip(into), &out);
        self.take(Kind::WrongSign, pairs, 0, wanted);
    }

    fn other_mediator(&mut self, wanted: usize) {
        let (into, out) = (self.empty_in(), self.held_out());
        let mut pairs = self.meet(into, &out);
        // The setting moves the outcome all the same.
        pairs.retain(|[i, o]| {
            !matches!(
                self.truth(&i.from, &o.to),
                Direction::Nothing | Direction::Unclear
            )
        });
        self.take(Kind::OtherMediator, pairs, 0, wanted);
    }

    fn one_place(&mut self, wanted: usize) {
        let mut into = Vec::new();
        for knob in self.knobs.iter().filter(|k| !is_word(k)) {
            for v in REACHABLE {
                let is_empty = self.truth(knob.id, v.name()) == Direction::Nothing;
                // A setting that moves nothing at all elsewhere, so that the hidden effect is the only one.
                let is_idle = self.physics.is_idle(knob.id);
                if is_empty && is_idle {
                    into.push(self.link(knob.id, v.name(), "+"));
                }
            }
        }
        let out = self.held_out();
        let pairs = self.meet(into, &out);
        let before = self.paths.len();
        let mut seen = BTreeSet::new();
        let pairs: Vec<[Link; 2]> = pairs
            .into_iter()
            // One hidden effect per setting: two would be told apart by nobody.
            .filter(|[i, _]| seen.insert(i.from.clone()))
            .collect();
        self.take(Kind::OnePlace, pairs, 0, wanted);
        for path in &self.paths[before..] {
            let link = &path.links[0];
            let knob = self.knobs.iter().find(|k| k.id == link.from);
            let mediator = Mediator::from_name(&link.to);
            let Some((knob, mediator)) = knob.zip(mediator) else {
                continue;
            };
            let span = super::super::hidden::distance(
                &knob.levels[0],
                knob.levels.last().unwrap_or(&knob.levels[0]),
            );
            self.hidden.push(Hidden {
                place: self.rng.below(self.n_places),
                knob: knob.id,
                mediator,
                from: base_level(knob),
                slope: 0.5 / span.abs().max(0.5),
            });
        }
    }

    /// Paths of held catalog edges, then of any held links.
    fn true_paths(&mut self, wanted: usize) {
        let (into, out) = (self.held_in(), self.held_out());
        let mut pairs = self.meet(into, &out);
        // Those of the catalog first; the order among equals is that of the draw.
        pairs.sort_by_key(|links| {
            let stated = |l: &Link| self.catalog_model.edge(&l.id()).is_some();
            !links.iter().all(stated)
        });
        let mut left = wanted;
        for links in pairs {
            if left == 0 {
                return;
            }
            let path = Path {
                kind: Kind::True,
                links,
                false_link: None,
            };
            left -= usize::from(self.accept(path));
        }
    }
}

fn base_level(knob: &Knob) -> Value {
    super::super::knobs::base_draft(1)
        .0
        .get(knob.id)
        .cloned()
        .unwrap_or_else(|| knob.levels[0].clone())
}

fn is_word(knob: &Knob) -> bool {
    matches!(knob.levels[0], Value::Text(_))
}

fn variable(name: &str) -> Option<Variable> {
    Mediator::from_name(name)
        .map(Variable::V)
        .or_else(|| Outcome::from_name(name).map(Variable::Y))
}

const fn sign_of(direction: Direction) -> Option<&'static str> {
    match direction {
        Direction::Positive => Some("+"),
        Direction::Negative => Some("-"),
        Direction::Mixed | Direction::Nothing | Direction::Unclear => None,
    }
}

const fn sign_text(sign: Sign) -> &'static str {
    match sign {
        Sign::Positive => "+",
        Sign::Negative => "-",
        Sign::NonMonotone => "non-monotone",
    }
}
