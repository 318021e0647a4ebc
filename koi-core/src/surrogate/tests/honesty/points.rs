//! Where the differences are taken: scenes, loads and values at random. Where such draws move a
//! destination too rarely, half of the later ones lie near what moved, whichever way it moved.

use super::super::knobs::{Scene, Settings, alternatives, scenes};
use crate::catalog::{Catalog, Domain, Feature, Value};
use crate::configuration::EngineShape;
use crate::rng::Rng;
use crate::surrogate::Prediction;
use crate::variables::{Mediator, MediatorValues};

/// Loads that arrive by themselves and loops of a fixed number, drawn equally often.
pub(super) struct Scenes {
    open: Vec<Scene>,
    closed: Vec<Scene>,
}

impl Scenes {
    pub(super) fn new() -> Self {
        let all = scenes().into_iter().chain(more());
        let (closed, open) = all.partition(|scene| scene.concurrency.is_some());
        Self { open, closed }
    }

    /// Any scene, or one near those in which something moved.
    pub(super) fn draw_again(&self, moved: &[Scene], rng: &mut Rng) -> Scene {
        if is_near(moved, rng) {
            near(&moved[rng.below(moved.len())], rng, 0.3)
        } else {
            self.draw(rng)
        }
    }

    /// A scene, its load and lengths moved at random.
    pub(super) fn draw(&self, rng: &mut Rng) -> Scene {
        let of = [&self.open, &self.closed][rng.below(2)];
        near(&of[rng.below(of.len())], rng, 1.0)
    }
}

/// Open loads from light to heavy, on one device and on several of either link, and places where
/// rarer knobs matter.
fn more() -> Vec<Scene> {
    let long = ("max_model_len", 8_192);
    let shards = |n| [("tp", n), long];
    let experts = [("tp", 8), ("ep", 8), long];
    let prefix = |scene: Scene| scene.about(Scene::sharing(17_000.0, 200.0, 14_000.0));
    let mut fp8 = Scene::open("Llama-3.1-70B", "H100", 2.0, &shards(4));
    fp8.settings.insert("weight_dtype".to_owned(), "fp8".into());
    vec![
        Scene::open("Llama-3.1-8B", "H100", 0.3, &[long]),
        Scene::open("Llama-3.1-8B", "L40S", 4.0, &[long]),
        Scene::open("Llama-3.1-70B", "H100", 4.0, &shards(4)),
        Scene::open("Llama-3.1-70B", "L40S", 1.5, &shards(8)),
        Scene::open("Llama-3.1-70B", "H100", 3.0, &[("tp", 2), ("pp", 2), long]),
        Scene::open("Llama-3.1-70B", "H100", 0.2, &[("pp", 4), long]),
        Scene::open("Qwen3-30B-A3B", "H100", 10.0, &shards(4)),
        Scene::open("Qwen3-30B-A3B", "H100", 20.0, &experts),
        Scene::open("Qwen3.5", "H200", 3.0, &shards(8)),
        prefix(Scene::open(
            "Llama-3.1-8B",
            "A10G",
            0.2,
            &[("max_model_len", 20_000)],
        )),
        fp8,
    ]
}

/// Whether a draw lies near one that moved: half of them, where there are any.
fn is_near<T>(moved: &[T], rng: &mut Rng) -> bool {
    !moved.is_empty() && rng.unit() < 0.5
}

/// A scene with its load and lengths changed by a factor; `spread` 1 is up to e of the load and 1.5
/// of the lengths.
fn near(scene: &Scene, rng: &mut Rng, spread: f64) -> Scene {
    let mut scene = scene.clone();
    let mut factor = |most: f64| (spread * most * (2.0 * rng.unit() - 1.0)).exp();
    scene.rate *= factor(1.0);
    let (prompt, output) = (factor(0.4), factor(0.4));
    let more = factor(0.7);
    scene.concurrency = scene
        .concurrency
        .map(|n| ((f64::from(n) * more) as u32).max(1));
    let workload = &mut scene.workload;
    workload.isl.scale_to_mean(workload.isl.mean * prompt);
    workload.osl.scale_to_mean(workload.osl.mean * output);
    workload.shared_prefix_tokens *= prompt;
    scene
}

/// One point of a knob: a scene, both settings, and which way the second goes.
pub(super) struct Point {
    pub(super) scene: Scene,
    before: Settings,
    after: Settings,
    pub(super) direction: f64,
}

impl Point {
    /// A mediator before and after; `None` where one of the two does not run or does not say.
    pub(super) fn both(&self, of: Mediator) -> Option<(f64, f64)> {
        let at = |settings: &Settings| {
            let shape = self.scene.shape(settings)?;
            self.scene.predict(shape)?.get(of)
        };
        at(&self.before).zip(at(&self.after))
    }
}

/// Draws points of one knob.
pub(super) struct Aim<'a> {
    scenes: &'a Scenes,
    row: &'a Feature,
    values: Vec<Value>,
    moved: Vec<(Scene, Option<Value>, Value)>,
}

impl<'a> Aim<'a> {
    pub(super) fn at(row: &'a Feature, scenes: &'a Scenes) -> Self {
        let mut values = alternatives(row);
        match row.domain {
            Domain::Int { min, .. } => values.push(Value::Int(min)),
            Domain::Float { min, .. } => values.push(Value::Float(min)),
            _ => {}
        }
        Self {
            scenes,
            row,
            values,
            moved: Vec::new(),
        }
    }

    /// A point, `aimed` at those that moved or not; `None` where the draw gave no two different
    /// settings.
    pub(super) fn draw(&self, aimed: bool, rng: &mut Rng) -> Option<Point> {
        let moved: &[_] = if aimed { &self.moved } else { &[] };
        let (scene, from, to) = if is_near(moved, rng) {
            let (scene, from, to) = &moved[rng.below(moved.len())];
            let from = from.as_ref().map(|value| self.value_near(value, rng));
            (near(scene, rng, 0.3), from, self.value_near(to, rng))
        } else {
            let from = self.value(rng);
            let keeps_default = self.row.default.is_some() && rng.unit() < 0.5;
            let from = Some(from).filter(|_| !keeps_default && !self.is_choice());
            (self.scenes.draw(rng), from, self.value(rng))
        };
        let engine = ["vllm", "sglang"][rng.below(2)];
        let mut before: Settings = [("engine_name".to_owned(), engine.into())].into();
        scene.needed(self.row, &mut before);
        if let Some(from) = from {
            before.insert(self.row.id.clone(), from);
        }
        let stands = before
            .get(&self.row.id)
            .or(scene.settings.get(&self.row.id));
        let stands = stands.or(self.row.default.as_ref());
        let direction = direction(self.row, stands, &to).filter(|_| stands != Some(&to))?;
        let mut after = before.clone();
        after.insert(self.row.id.clone(), to);
        Some(Point {
            scene,
            before,
            after,
            direction,
        })
    }

    pub(super) fn remember(&mut self, point: &Point) {
        let id = &self.row.id;
        if let Some(to) = point.after.get(id) {
            let from = point.before.get(id).cloned();
            self.moved.push((point.scene.clone(), from, to.clone()));
        }
    }

    /// Whether to be unset is a value of its own: a name or a switch without a default.
    fn is_choice(&self) -> bool {
        let is_named = matches!(self.row.domain, Domain::Choice(_) | Domain::Text { .. });
        is_named && self.row.default.is_none()
    }

    fn value(&self, rng: &mut Rng) -> Value {
        let log_uniform = |min: f64, max: f64, rng: &mut Rng| {
            let (low, high) = (min.max(1e-2).ln(), max.max(1e-2).ln());
            (low + rng.unit() * (high - low)).exp()
        };
        match self.row.domain {
            Domain::Int { min, max } if rng.unit() < 0.5 => {
                let x = log_uniform((min as f64).max(1.0), max as f64, rng);
                Value::Int((x as i64).clamp(min, max))
            }
            Domain::Float { min, max } if rng.unit() < 0.5 => {
                Value::Float(log_uniform(min, max, rng).clamp(min, max))
            }
            _ => self.values[rng.below(self.values.len())].clone(),
        }
    }

    /// A value up to twice or half as large; names and switches are drawn anew.
    fn value_near(&self, value: &Value, rng: &mut Rng) -> Value {
        let factor = (0.7 * (2.0 * rng.unit() - 1.0)).exp();
        match (value, &self.row.domain) {
            (Value::Int(n), Domain::Int { min, max }) => {
                Value::Int(((*n as f64 * factor) as i64).clamp(*min, *max))
            }
            (Value::Float(x), Domain::Float { min, max }) => {
                Value::Float((x * factor).clamp(*min, *max))
            }
            _ => self.values[rng.below(self.values.len())].clone(),
        }
    }
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

/// The scene with more of a workload feature; `None` where the scene has no such thing.
pub(super) fn with_more(feature: &str, scene: &Scene) -> Option<Scene> {
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

/// A scene's own settings, and what comes of them.
pub(super) fn running(scene: &Scene) -> Option<(EngineShape, Prediction)> {
    let shape = scene.shape(&Settings::new())?;
    let prediction = scene.predict_given(shape, &MediatorValues::absent())?;
    Some((shape, prediction))
}

/// A planner's, workload's or model's row.
pub(super) fn row(feature: &str) -> &'static Feature {
    Catalog::embedded().feature(feature).unwrap()
}
