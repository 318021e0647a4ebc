//! How many knobs the prediction follows, that each moves what the catalog says it moves, and that
//! defaults change nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::{facts, lengths, online_slo, profile, workload};
use crate::catalog::check_all;
use crate::catalog::{Catalog, CatalogText, Condition, Domain, Feature, Operator, SetBy, Value};
use crate::causal::EdgeEnds;
use crate::configuration::{ConfigurationDraft, EngineShape, Term};
use crate::job::{JobClass, LengthStats, Workload};
use crate::model::ModelFacts;
use crate::surrogate::{Answer, Demand, Deployment, Prediction, predict_given};
use crate::variables::{Mediator, MediatorValues};

/// Fewest knobs that must move a mediator.
const LEAST_MOVERS: usize = 90;

pub(super) type Settings = BTreeMap<String, Value>;

/// One place and load where some knobs matter.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) model: ModelFacts,
    pub(super) gpu: &'static str,
    pub(super) settings: Settings,
    pub(super) workload: Workload,
    pub(super) rate: f64,
    pub(super) concurrency: Option<u32>,
}

fn shipped(name: &str) -> ModelFacts {
    match name {
        "gpt-oss-20b" => ModelFacts::from_config_json(include_str!(
            "../../../../configs/models/gpt-oss-20b.json"
        )),
        "Qwen3.5" => ModelFacts::from_config_json(include_str!(
            "../../../../configs/models/Qwen3.5-397B-A17B.json"
        )),
        other => return facts(other),
    }
    .unwrap()
}

fn settings(entries: &[(&str, u32)]) -> Settings {
    entries
        .iter()
        .map(|(id, n)| ((*id).to_owned(), (*n).into()))
        .collect()
}

fn spread(mean: f64) -> LengthStats {
    LengthStats {
        mean,
        p50: 0.8 * mean,
        p95: 2.2 * mean,
        p99: 3.0 * mean,
    }
}

fn shared(isl: LengthStats, osl: LengthStats, prefix: f64) -> Workload {
    Workload {
        shared_prefix_tokens: prefix,
        prefix_concentration: 0.8,
        multi_turn_ratio: 0.2,
        ..workload(isl, osl)
    }
}

impl Scene {
    fn closed(model: &str, gpu: &'static str, n: u32, entries: &[(&str, u32)]) -> Self {
        Self {
            model: shipped(model),
            gpu,
            settings: settings(entries),
            workload: shared(spread(1_000.0), lengths(250.0), 605.0),
            rate: 0.0,
            concurrency: Some(n),
        }
    }

    pub(super) fn open(model: &str, gpu: &'static str, rate: f64, entries: &[(&str, u32)]) -> Self {
        Self {
            rate,
            concurrency: None,
            ..Self::closed(model, gpu, 1, entries)
        }
    }

    pub(super) fn about(self, workload: Workload) -> Self {
        Self { workload, ..self }
    }

    /// Fixed lengths, and prompts that share a prefix.
    pub(super) fn sharing(prompt: f64, output: f64, prefix: f64) -> Workload {
        shared(lengths(prompt), lengths(output), prefix)
    }

    pub(super) fn predict(&self, shape: EngineShape) -> Option<MediatorValues> {
        Some(
            self.predict_given(shape, &MediatorValues::absent())?
                .mediators,
        )
    }

    /// Prediction with some mediators held; `None` where nothing runs.
    pub(super) fn predict_given(
        &self,
        shape: EngineShape,
        held: &MediatorValues,
    ) -> Option<Prediction> {
        let deployment = Deployment {
            model: &self.model,
            gpu: Catalog::embedded().gpu_type(self.gpu).unwrap(),
            shape,
            n_replicas: 1,
            price_usd_per_hour_per_replica: Some(3.0),
        };
        let slo = online_slo();
        let demand = Demand {
            workload: &self.workload,
            class: JobClass::Online,
            slo: &slo,
            rate_rps_per_replica: self.rate,
            batch_concurrency: self.concurrency,
        };
        match predict_given(&deployment, &demand, profile(), held) {
            Answer::Prediction(p) => Some(p),
            Answer::DoesNotFit(_) | Answer::Unsupported(_) => None,
        }
    }

    /// The view of these settings beside the scene's own; `None` where they are not legal.
    pub(super) fn shape(&self, more: &Settings) -> Option<EngineShape> {
        let mut all = self.settings.clone();
        all.extend(more.clone());
        let configuration = Catalog::embedded()
            .configuration(ConfigurationDraft(all))
            .ok()?;
        Some(configuration.shape())
    }

    /// What must be set beside the scene's own settings for a row to apply.
    pub(super) fn needed(&self, row: &Feature, out: &mut Settings) {
        for Condition { feature, op, value } in &row.applies {
            let about = Catalog::embedded().feature(feature).unwrap();
            let stands = out.get(feature).or_else(|| self.settings.get(feature));
            let stands = stands.or(about.default.as_ref());
            let condition = Condition {
                feature: feature.clone(),
                op: *op,
                value: value.clone(),
            };
            if about.set_by != SetBy::Planner || condition.holds_for(stands) {
                continue;
            }
            let chosen = match (op, feature.as_str()) {
                (Operator::Set, "speculative_method") => "eagle".into(),
                (Operator::Set, _) => alternatives(about).pop().unwrap(),
                _ => value.clone(),
            };
            out.insert(feature.clone(), chosen);
            self.needed(about, out);
        }
    }
}

pub(super) fn scenes() -> Vec<Scene> {
    let long = || shared(lengths(7_000.0), lengths(400.0), 6_500.0);
    let tight = &[("max_model_len", 8_192)];
    vec![
        Scene::closed("Llama-3.1-8B", "H100", 64, &[("max_model_len", 16_384)]),
        Scene::open("Llama-3.1-8B", "H100", 12.0, &[("max_model_len", 16_384)]),
        Scene::closed("Llama-3.1-8B", "A10G", 96, tight).about(long()),
        Scene::closed("Llama-3.1-8B", "L4", 24, tight).about(long()),
        Scene::closed("Llama-3.1-8B", "H100", 1, &[("max_model_len", 65_536)]).about(shared(
            lengths(60_000.0),
            lengths(200.0),
            0.0,
        )),
        Scene::closed(
            "Llama-3.1-8B",
            "H100",
            512,
            &[("max_model_len", 4_096), ("max_num_seqs", 1_024)],
        )
        .about(workload(lengths(900.0), lengths(50.0))),
        Scene::closed(
            "Llama-3.1-70B",
            "H100",
            96,
            &[("tp", 4), ("max_model_len", 8_192)],
        ),
        Scene::closed(
            "Llama-3.1-70B",
            "H100",
            96,
            &[("tp", 2), ("pp", 2), ("max_model_len", 8_192)],
        ),
        Scene::closed(
            "Qwen3-30B-A3B",
            "H100",
            256,
            &[("tp", 8), ("ep", 8), ("max_model_len", 8_192)],
        ),
        Scene::closed(
            "Qwen3.5",
            "H200",
            64,
            &[("tp", 8), ("max_model_len", 16_384)],
        ),
        Scene::closed(
            "gpt-oss-20b",
            "L40S",
            512,
            &[("max_model_len", 32_768), ("max_num_seqs", 512)],
        )
        .about(workload(lengths(20_000.0), lengths(4_000.0))),
        Scene::closed("Llama-3.1-8B", "H100", 64, &[("max_model_len", 8_192)])
            .about(workload(lengths(8_160.0), lengths(250.0))),
        Scene::closed("Llama-3.1-8B", "A10G", 8, &[("max_model_len", 20_000)]).about(shared(
            lengths(17_000.0),
            lengths(200.0),
            14_000.0,
        )),
        offloading("cpu_offload_gb", 4),
        offloading("offload_group_size", 8),
        fp8(),
    ]
}

fn offloading(setting: &str, n: u32) -> Scene {
    let entries = [(setting, n), ("max_model_len", 8_192)];
    Scene::closed("Llama-3.1-8B", "H100", 16, &entries)
}

fn fp8() -> Scene {
    let mut scene = Scene::closed("Llama-3.1-8B", "H100", 8, &[("max_model_len", 8_192)]);
    scene
        .settings
        .insert("weight_dtype".to_owned(), "fp8".into());
    scene
}

/// Legal values of a knob, its default left out.
pub(super) fn alternatives(row: &Feature) -> Vec<Value> {
    let whole = [
        1,
        2,
        3,
        4,
        8,
        16,
        32,
        64,
        256,
        900,
        2_048,
        10_000,
        100_000,
        3_000_000_000,
        12_000_000_000,
    ];
    let values: Vec<Value> = match &row.domain {
        Domain::Bool => vec![Value::Bool(true), Value::Bool(false)],
        Domain::Int { .. } => whole.into_iter().map(Value::Int).collect(),
        Domain::IntChoice(choices) => choices.iter().copied().map(Value::Int).collect(),
        Domain::Float { .. } => [0.2, 0.5, 0.97, 1.5, 4.0, 16.0].map(Value::Float).to_vec(),
        Domain::Choice(choices) => choices.iter().cloned().map(Value::Text).collect(),
        Domain::Text { .. } => vec!["a-draft".into()],
    };
    let legal =
        |value: &Value| row.default.as_ref() != Some(value) && row.domain.accept(value).is_ok();
    values.into_iter().filter(legal).collect()
}

/// Mediators that differ by more than rounding.
fn moved(before: &MediatorValues, after: &MediatorValues) -> BTreeSet<Mediator> {
    let differs = |m: &Mediator| match (before.get(*m), after.get(*m)) {
        (Some(a), Some(b)) => (a - b).abs() > 1e-9 * a.abs().max(b.abs()),
        (None, None) => false,
        _ => true,
    };
    Mediator::ALL.into_iter().filter(differs).collect()
}

/// Mediators that a knob moves in any scene, on any engine that has it.
fn moved_by(row: &Feature, scenes: &[Scene]) -> BTreeSet<Mediator> {
    let mut all = BTreeSet::new();
    for scene in scenes {
        for engine in ["vllm", "sglang"] {
            let mut base: Settings = [("engine_name".to_owned(), engine.into())].into();
            scene.needed(row, &mut base);
            let Some(before) = scene.shape(&base).and_then(|shape| scene.predict(shape)) else {
                continue;
            };
            for value in alternatives(row) {
                let mut with = base.clone();
                with.insert(row.id.clone(), value);
                let after = scene.shape(&with).and_then(|shape| scene.predict(shape));
                all.extend(after.iter().flat_map(|after| moved(&before, after)));
            }
        }
    }
    all
}

/// What the catalog's graph says each knob moves.
fn named() -> BTreeMap<String, BTreeSet<Mediator>> {
    let (_, model) = check_all(&CatalogText::embedded()).unwrap();
    let mut named: BTreeMap<String, BTreeSet<Mediator>> = BTreeMap::new();
    for edge in model.edges() {
        if let EdgeEnds::FeatureToMediator(feature, mediator) = &edge.ends {
            named.entry(feature.clone()).or_default().insert(*mediator);
        }
    }
    named
}

#[test]
fn the_prediction_follows_enough_knobs_and_where_the_catalog_says() {
    let (scenes, named) = (scenes(), named());
    for scene in &scenes {
        let shape = scene.shape(&Settings::new()).unwrap();
        assert!(scene.predict(shape).is_some(), "{} does not run", scene.gpu);
    }
    let (mut movers, mut silent, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for row in Catalog::embedded()
        .knobs()
        .filter(|row| row.id != "engine_name")
    {
        let moved = moved_by(row, &scenes);
        let effects = Catalog::embedded().effects_of(&row.id);
        for effect in effects {
            let first = effect.term.shows_in();
            if !first.iter().any(|m| moved.contains(m)) {
                wrong.push(format!("{} does not show in {first:?}", row.id));
            }
        }
        if moved.is_empty() {
            silent.push(row.id.clone());
            continue;
        }
        let said = named.get(&row.id).cloned().unwrap_or_default();
        let shown: Vec<&str> = moved.intersection(&said).map(|m| m.name()).collect();
        if shown.is_empty() {
            wrong.push(format!("{} moves {moved:?}, not {said:?}", row.id));
        }
        movers.push(format!("{} ({})", row.id, shown.join(", ")));
    }
    println!(
        "{} knobs move a mediator: {}",
        movers.len(),
        movers.join("; ")
    );
    println!("{} do not: {}", silent.len(), silent.join(", "));
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(movers.len() >= LEAST_MOVERS, "only {}", movers.len());
}

#[test]
fn defaults_change_nothing_anywhere() {
    let is_default = |id: &String| Catalog::embedded().effects_of(id).is_empty();
    let all = scenes();
    for scene in all.iter().filter(|s| s.settings.keys().all(is_default)) {
        let plain = scene.shape(&Settings::new()).unwrap();
        assert!(plain.effects.is_neutral());
        let before = scene.predict(plain).unwrap();
        // Every step passes through the settings when one term is set; one that binds nowhere must
        // leave every number as it was.
        let mut through = plain;
        through.effects.add(Term::ActiveSequences, 1e12);
        assert!(!through.effects.is_neutral());
        let after = scene.predict(through).unwrap();
        for mediator in Mediator::ALL {
            let (a, b) = (before.get(mediator), after.get(mediator));
            assert_eq!(a.is_some(), b.is_some(), "{mediator}");
            let (a, b) = (a.unwrap_or(0.0), b.unwrap_or(0.0));
            assert!((a - b).abs() <= 1e-12 * a.abs(), "{mediator}: {a} {b}");
        }
        for row in Catalog::embedded().knobs() {
            let Some(default) = &row.default else {
                continue;
            };
            let mut base = Settings::new();
            scene.needed(row, &mut base);
            let mut with = base.clone();
            with.entry(row.id.clone())
                .or_insert_with(|| default.clone());
            let (Some(before), Some(after)) = (scene.shape(&base), scene.shape(&with)) else {
                continue;
            };
            if !scene.settings.contains_key(&row.id) {
                assert_eq!(before, after, "{}", row.id);
            }
        }
    }
}
