//! Does each seeded edge say what the surrogate's finite differences say? Random feasible points,
//! one end moved, everything else as it was.
//!
//! An edge agrees when at least 20 points moved its destination and nine in ten of them in the
//! claimed direction (a non-monotone edge: when at least 20 moved). The rest is listed with the
//! reason in `configs/catalog/edge_exceptions.toml`. Spec §5; white paper V1, Edges.

use std::collections::BTreeMap;

use super::knobs::{Scene, Settings, alternatives, scenes};
use crate::catalog::{Catalog, CatalogText, Domain, Feature, SetBy, Value, check_all};
use crate::causal::{Edge, EdgeEnds, Sign};
use crate::configuration::EngineShape;
use crate::rng::Rng;
use crate::surrogate::Prediction;
use crate::variables::{Mediator, MediatorValues, Outcome};

/// Points that must have moved for a verdict.
const POINTS: u32 = 20;
/// Draws before an edge counts as one the surrogate does not follow.
const DRAWS: u32 = 2_000;
/// Share of moved points that must move as claimed.
const AGREEING_SHARE: f64 = 0.9;
/// Smallest relative difference that is not rounding.
const ROUNDING: f64 = 1e-9;

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

    fn count(&mut self, sign: Sign, direction: f64, before: f64, after: f64) {
        if (after - before).abs() <= ROUNDING * before.abs().max(after.abs()) {
            return;
        }
        let claimed = if sign == Sign::Negative { -1.0 } else { 1.0 };
        if sign == Sign::NonMonotone || claimed * direction * (after - before) > 0.0 {
            self.with += 1;
        } else {
            self.against += 1;
        }
    }
}

/// Open loads from light to heavy, on one device and on several of either link.
fn open_scenes() -> Vec<Scene> {
    let long = ("max_model_len", 8_192);
    let shards = |n| [("tp", n), long];
    let staged = [("tp", 2), ("pp", 2), long];
    vec![
        Scene::open("Llama-3.1-8B", "H100", 0.3, &[long]),
        Scene::open("Llama-3.1-8B", "L40S", 4.0, &[long]),
        Scene::open("Llama-3.1-70B", "H100", 4.0, &shards(4)),
        Scene::open("Llama-3.1-70B", "L40S", 1.5, &shards(8)),
        Scene::open("Llama-3.1-70B", "H100", 3.0, &staged),
        Scene::open("Qwen3-30B-A3B", "H100", 10.0, &shards(4)),
    ]
}

/// A point: a scene with its load moved at random, and an engine.
fn point(scenes: &[Scene], rng: &mut Rng) -> Scene {
    let mut scene = scenes[rng.below(scenes.len())].clone();
    let mut factor = |spread: f64| (spread * (2.0 * rng.unit() - 1.0)).exp();
    scene.rate *= factor(1.0);
    let (prompt, output) = (factor(0.4), factor(0.4));
    scene.concurrency = scene
        .concurrency
        .map(|n| ((f64::from(n) * factor(0.7)) as u32).max(1));
    scene
        .workload
        .isl
        .scale_to_mean(scene.workload.isl.mean * prompt);
    scene
        .workload
        .osl
        .scale_to_mean(scene.workload.osl.mean * output);
    scene.workload.shared_prefix_tokens *= prompt;
    scene
}

/// How a knob's two values compare: 1 when the second is more. Names have no order; to set what was
/// absent is more, where absence means that the thing is off.
fn direction(row: &Feature, from: Option<&Value>, to: &Value) -> Option<f64> {
    let number = |value: &Value| match value {
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        Value::Int(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        Value::Text(_) => None,
    };
    match (from, &row.domain) {
        (Some(from), _) => match (number(from), number(to)) {
            (Some(a), Some(b)) => Some((b - a).signum()),
            _ => Some(1.0),
        },
        (None, Domain::Choice(_) | Domain::Text { .. }) => Some(1.0),
        (None, _) => None,
    }
}

/// Two settings of a knob at a point, and which way the second goes.
fn two_settings(row: &Feature, scene: &Scene, rng: &mut Rng) -> Option<(Settings, Settings, f64)> {
    let engine = ["vllm", "sglang"][rng.below(2)];
    let mut base: Settings = [("engine_name".to_owned(), engine.into())].into();
    scene.needed(row, &mut base);
    let values = alternatives(row);
    if rng.unit() < 0.5 {
        base.insert(row.id.clone(), values[rng.below(values.len())].clone());
    }
    let to = values[rng.below(values.len())].clone();
    let before = base.get(&row.id).or(scene.settings.get(&row.id));
    let before = before.or(row.default.as_ref());
    if before == Some(&to) {
        return None;
    }
    let direction = direction(row, before, &to)?;
    let mut with = base.clone();
    with.insert(row.id.clone(), to);
    Some((base, with, direction))
}

fn planner_edge(edge: &Edge, row: &Feature, to: Mediator, scenes: &[Scene]) -> Tally {
    let mut rng = Rng::stream(11, &edge.id);
    let mut tally = Tally::default();
    for _ in 0..DRAWS {
        let scene = point(scenes, &mut rng);
        let Some((base, with, direction)) = two_settings(row, &scene, &mut rng) else {
            continue;
        };
        let of = |settings: &Settings| scene.predict(scene.shape(settings)?)?.get(to);
        if let Some((before, after)) = of(&base).zip(of(&with)) {
            tally.count(edge.sign, direction, before, after);
        }
        if tally.moved() >= 3 * POINTS {
            break;
        }
    }
    tally
}

/// The scene with more of a workload feature; `None` where the scene has no such thing.
fn with_more(feature: &str, scene: &Scene) -> Option<Scene> {
    const MORE: f64 = 1.1;
    let mut more = scene.clone();
    let workload = &mut more.workload;
    match feature {
        "isl_token_avg" => workload.isl.scale_to_mean(workload.isl.mean * MORE),
        "osl_token_avg" => workload.osl.scale_to_mean(workload.osl.mean * MORE),
        "request_arrival_rate" if scene.concurrency.is_none() => more.rate *= MORE,
        "shared_prefix_length_avg" => workload.shared_prefix_tokens *= MORE,
        "workload_prefix_concentration" => workload.prefix_concentration *= MORE,
        _ => return None,
    }
    Some(more)
}

fn workload_edge(edge: &Edge, to: Mediator, scenes: &[Scene]) -> Tally {
    let mut rng = Rng::stream(12, &edge.id);
    let mut tally = Tally::default();
    for _ in 0..DRAWS {
        let scene = point(scenes, &mut rng);
        let Some(more) = with_more(edge.ends.source(), &scene) else {
            continue;
        };
        let of = |scene: &Scene| scene.predict(scene.shape(&Settings::new())?)?.get(to);
        if let Some((before, after)) = of(&scene).zip(of(&more)) {
            tally.count(edge.sign, 1.0, before, after);
        }
        if tally.moved() >= 5 * POINTS {
            break;
        }
    }
    tally
}

/// Any mixture of experts beside any dense model.
fn experts_edge(edge: &Edge, to: Mediator, scenes: &[Scene]) -> Tally {
    let mut rng = Rng::stream(13, &edge.id);
    let mut tally = Tally::default();
    for _ in 0..DRAWS {
        let (a, b) = (point(scenes, &mut rng), point(scenes, &mut rng));
        if a.model.moe.is_some() || b.model.moe.is_none() {
            continue;
        }
        let of = |scene: &Scene| scene.predict(scene.shape(&Settings::new())?)?.get(to);
        if let Some((before, after)) = of(&a).zip(of(&b)) {
            tally.count(edge.sign, 1.0, before, after);
        }
        if tally.moved() >= 5 * POINTS {
            break;
        }
    }
    tally
}

fn outcome_edge(edge: &Edge, from: Mediator, to: Outcome, scenes: &[Scene]) -> Tally {
    let mut rng = Rng::stream(14, &edge.id);
    let mut tally = Tally::default();
    for _ in 0..DRAWS {
        let scene = point(scenes, &mut rng);
        let Some((shape, plain)) = running(&scene) else {
            continue;
        };
        let Some(value) = plain.mediators.get(from) else {
            continue;
        };
        let held = |v: f64| {
            let mut held = MediatorValues::absent();
            held.set(from, Some(v));
            scene.predict_given(shape, &held)?.outcomes.get(to)
        };
        let more = value + 0.1 * value.abs().max(0.01);
        if let Some((before, after)) = held(value).zip(held(more)) {
            tally.count(edge.sign, 1.0, before, after);
        }
        if tally.moved() >= 5 * POINTS {
            break;
        }
    }
    tally
}

fn running(scene: &Scene) -> Option<(EngineShape, Prediction)> {
    let shape = scene.shape(&Settings::new())?;
    let prediction = scene.predict_given(shape, &MediatorValues::absent())?;
    Some((shape, prediction))
}

fn tally(edge: &Edge, scenes: &[Scene]) -> Tally {
    match &edge.ends {
        EdgeEnds::FeatureToMediator(feature, to) => {
            let row = Catalog::embedded().feature(feature).unwrap();
            match row.set_by {
                SetBy::Planner => planner_edge(edge, row, *to, scenes),
                SetBy::Model => experts_edge(edge, *to, scenes),
                _ => workload_edge(edge, *to, scenes),
            }
        }
        EdgeEnds::MediatorToOutcome(from, to) => outcome_edge(edge, *from, *to, scenes),
        EdgeEnds::MediatorToMediator(..) => Tally::default(),
    }
}

#[test]
fn edges_say_what_the_surrogate_says() {
    let (_, model) = check_all(&CatalogText::embedded()).unwrap();
    let scenes: Vec<Scene> = scenes().into_iter().chain(open_scenes()).collect();
    let tallies: BTreeMap<&str, (Sign, Tally)> = model
        .edges()
        .map(|edge| (edge.id.as_str(), (edge.sign, tally(edge, &scenes))))
        .collect();
    let agreeing = tallies.values().filter(|(s, t)| t.agrees(*s)).count();
    println!("{agreeing} of {} edges agree", tallies.len());
    for (id, (sign, t)) in tallies.iter().filter(|(_, (s, t))| !t.agrees(*s)) {
        println!("{id} {sign:?}: {} with, {} against", t.with, t.against);
    }
    assert!(agreeing as f64 >= 0.9 * tallies.len() as f64, "{agreeing}");
}
