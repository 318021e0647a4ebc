//! Does each seeded edge say what the surrogate's finite differences say? Random feasible points,
//! one end moved, everything else as it was.
//!
//! An edge agrees when at least 20 points moved its destination and at least three quarters of them
//! in the claimed direction (a non-monotone edge: when at least 20 moved). A seeded edge that does not
//! has an `exception` with the reason in its row, one that does has none, and an edge that is not
//! seeded is moved at fewer than 20 points. Spec §5; white paper V1, Edges.

mod points;

use std::collections::BTreeMap;

use super::knobs::{Scene, Settings};
use crate::catalog::{CatalogText, Feature, SetBy, check_all};
use crate::causal::{Edge, EdgeEnds, Sign};
use crate::rng::Rng;
use crate::variables::{Mediator, MediatorValues, Outcome};
use points::{Aim, Scenes, row, running, with_more};

/// Points that must have moved for a verdict.
const POINTS: u32 = 20;
/// Moved points after which a knob's edge is judged, and any other.
const ENOUGH: [u32; 2] = [3 * POINTS, 5 * POINTS];
/// Draws before an edge counts as one the surrogate does not follow, and how many come before they
/// are aimed.
const DRAWS: u32 = 2_000;
const PLAIN_DRAWS: u32 = 1_000;
/// Share of moved points that must move as claimed.
const AGREEING_SHARE: f64 = 0.75;
/// Smallest relative difference that counts; no counter shows less.
const VISIBLE: f64 = 1e-4;
/// Share of the seeded edges that must agree, and how many there must be.
const AGREEING_EDGES: f64 = 0.9;
const SEEDED_EDGES: usize = 150;

/// What the differences of one edge came to.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    with: u32,
    against: u32,
}

impl Tally {
    const fn moved(self) -> u32 {
        self.with + self.against
    }

    fn agrees(self, sign: Sign) -> bool {
        let share = f64::from(self.with) / f64::from(self.moved().max(1));
        self.moved() >= POINTS && (sign == Sign::NonMonotone || share >= AGREEING_SHARE)
    }

    /// Counts a point; whether it moved.
    fn count(&mut self, sign: Sign, direction: f64, (before, after): (f64, f64)) -> bool {
        if (after - before).abs() <= VISIBLE * before.abs().max(after.abs()) {
            return false;
        }
        let claimed = if sign == Sign::Negative { -1.0 } else { 1.0 };
        if sign == Sign::NonMonotone || claimed * direction * (after - before) > 0.0 {
            self.with += 1;
        } else {
            self.against += 1;
        }
        true
    }
}

fn planner_edge(edge: &Edge, row: &Feature, to: Mediator, scenes: &Scenes) -> Tally {
    let mut rng = Rng::stream(11, &edge.id);
    let (mut tally, mut aim) = (Tally::default(), Aim::at(row, scenes));
    for i in 0..DRAWS {
        let Some(point) = aim.draw(i >= PLAIN_DRAWS, &mut rng) else {
            continue;
        };
        let both = point.both(to);
        if both.is_some_and(|both| tally.count(edge.sign, point.direction, both)) {
            aim.remember(&point);
        }
        if tally.moved() >= ENOUGH[0] {
            break;
        }
    }
    tally
}

/// Differences of an edge whose source is no knob: `pair` gives the destination before and after.
fn other_edge(
    edge: &Edge,
    scenes: &Scenes,
    pair: impl Fn(&Scene, &mut Rng) -> Option<(f64, f64)>,
) -> Tally {
    let mut rng = Rng::stream(12, &edge.id);
    let (mut tally, mut moved) = (Tally::default(), Vec::<Scene>::new());
    for i in 0..DRAWS {
        let aims: &[Scene] = if i < PLAIN_DRAWS { &[] } else { &moved };
        let scene = scenes.draw_again(aims, &mut rng);
        let both = pair(&scene, &mut rng);
        if both.is_some_and(|both| tally.count(edge.sign, 1.0, both)) {
            moved.push(scene);
        }
        if tally.moved() >= ENOUGH[1] {
            break;
        }
    }
    tally
}

fn mediator_at(scene: &Scene, to: Mediator) -> Option<f64> {
    scene.predict(scene.shape(&Settings::new())?)?.get(to)
}

fn workload_edge(edge: &Edge, to: Mediator, scenes: &Scenes) -> Tally {
    other_edge(edge, scenes, |scene, _| {
        let more = with_more(edge.ends.source(), scene)?;
        mediator_at(scene, to).zip(mediator_at(&more, to))
    })
}

/// Any mixture of experts beside any dense model.
fn experts_edge(edge: &Edge, to: Mediator, scenes: &Scenes) -> Tally {
    other_edge(edge, scenes, |dense, rng| {
        let mixture = scenes.draw(rng);
        let is_pair = dense.model.moe.is_none() && mixture.model.moe.is_some();
        is_pair.then_some(())?;
        mediator_at(dense, to).zip(mediator_at(&mixture, to))
    })
}

fn outcome_edge(edge: &Edge, from: Mediator, to: Outcome, scenes: &Scenes) -> Tally {
    other_edge(edge, scenes, |scene, _| {
        let (shape, plain) = running(scene)?;
        let value = plain.mediators.get(from)?;
        let held = |v: f64| {
            let mut held = MediatorValues::absent();
            held.set(from, Some(v));
            scene.predict_given(shape, &held)?.outcomes.get(to)
        };
        held(value).zip(held(value + 0.1 * value.abs().max(0.01)))
    })
}

fn tally(edge: &Edge, scenes: &Scenes) -> Tally {
    match &edge.ends {
        EdgeEnds::FeatureToMediator(feature, to) => match row(feature).set_by {
            SetBy::Planner => planner_edge(edge, row(feature), *to, scenes),
            SetBy::Model => experts_edge(edge, *to, scenes),
            _ => workload_edge(edge, *to, scenes),
        },
        EdgeEnds::MediatorToOutcome(from, to) => outcome_edge(edge, *from, *to, scenes),
        EdgeEnds::MediatorToMediator(..) => Tally::default(),
    }
}

/// What is wrong with an edge's row, given its differences.
fn problem(edge: &Edge, tally: Tally) -> Option<&'static str> {
    let is_followed = tally.moved() >= POINTS;
    match (edge.seeded, tally.agrees(edge.sign), &edge.exception) {
        (true, true, Some(_)) => Some("agrees: take the exception away"),
        (true, false, None) => Some("does not agree, and no exception says why"),
        (false, ..) if is_followed => Some("is followed: let it be seeded"),
        _ => None,
    }
}

#[test]
fn edges_say_what_the_surrogate_says() {
    let (_, model) = check_all(&CatalogText::embedded()).unwrap();
    let scenes = Scenes::new();
    let tallies: BTreeMap<&str, (&Edge, Tally)> = model
        .edges()
        .map(|edge| (edge.id.as_str(), (edge, tally(edge, &scenes))))
        .collect();
    let seeded = || tallies.values().filter(|(edge, _)| edge.seeded);
    let (n, agreeing) = (
        seeded().count(),
        seeded().filter(|(e, t)| t.agrees(e.sign)).count(),
    );
    println!("{agreeing} of {n} seeded edges agree");
    for (edge, t) in seeded().filter(|(e, t)| !t.agrees(e.sign)) {
        let reason = edge.exception.as_deref().unwrap_or("no reason");
        let (with, against) = (t.with, t.against);
        println!("{} {with} with, {against} against: {reason}", edge.id);
    }
    let wrong: Vec<String> = tallies
        .values()
        .filter_map(|(e, t)| Some(format!("{} {}: {t:?}", e.id, problem(e, *t)?)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(n >= SEEDED_EDGES, "only {n} are seeded");
    assert!(agreeing as f64 >= AGREEING_EDGES * n as f64, "{agreeing}");
}
