//! Candidates: models, GPU types, splits and loads drawn by seed; only those that run.

use anyhow::ensure;
use koi_core::catalog::{Catalog, GpuType};
use koi_core::model::{KnownModel, ModelFacts};
use koi_core::surrogate::measured_row::{LoadKind, MeasuredRow, Question};
use koi_core::surrogate::{Answer, EngineProfile};
use koi_sim::rng::SimRng;

const MODELS: [&str; 6] = [
    "llama-3.1-8b",
    "llama-3.1-70b",
    "qwen3-32b",
    "mixtral-8x7b",
    "deepseek-v3",
    "gpt-oss-120b",
];
const GPUS: [&str; 6] = ["H100", "H200", "A100", "L40S", "B200", "MI300X"];
/// Draws per wanted candidate before giving up.
const MAX_DRAWS: usize = 100;

/// One candidate.
pub(super) struct Candidate {
    pub(super) question: Question,
    pub(super) gpu: &'static GpuType,
}

/// So many candidates that fit and are supported.
pub(super) fn drawn(n: usize, seed: u64) -> anyhow::Result<Vec<Candidate>> {
    let models: Vec<(&str, ModelFacts)> = MODELS
        .into_iter()
        .filter_map(|name| Some((name, KnownModel::find(name)?.facts().ok()?)))
        .collect();
    let catalog = Catalog::embedded();
    let gpus: Vec<&GpuType> = GPUS.iter().filter_map(|g| catalog.gpu_type(g)).collect();
    ensure!(
        !models.is_empty() && !gpus.is_empty(),
        "the catalog is empty"
    );
    let mut rng = SimRng::new(seed);
    let mut pick = |len: usize| ((rng.uniform() * len as f64) as usize).min(len - 1);
    let mut found = Vec::with_capacity(n);
    for _ in 0..n * MAX_DRAWS {
        if found.len() == n {
            break;
        }
        let (name, facts) = &models[pick(models.len())];
        let gpu = gpus[pick(gpus.len())];
        let row = row(name, gpu, [pick(4), pick(6), pick(40), pick(2)]);
        let Ok(question) = Question::of(&row, facts, gpu) else {
            continue;
        };
        let profile = EngineProfile::embedded(question.generation);
        if matches!(question.predict(gpu, profile), Answer::Prediction(_)) {
            found.push(Candidate { question, gpu });
        }
    }
    ensure!(found.len() == n, "only {} candidates run", found.len());
    Ok(found)
}

fn row(model: &str, gpu: &GpuType, [tp, length, load, kind]: [usize; 4]) -> MeasuredRow {
    let tp = 1_u32 << tp;
    let load_kind = [LoadKind::RateRps, LoadKind::Concurrency][kind];
    let scale = [0.2, 4.0][kind];
    MeasuredRow {
        model: model.to_owned(),
        gpu_type: gpu.id.clone(),
        num_gpus: Some(tp),
        tp: Some(tp),
        pp: Some(1),
        engine: "vllm".to_owned(),
        engine_version: Some("0.11.0".to_owned()),
        isl: Some(200.0 * (length + 1) as f64),
        osl: Some(100.0 + 50.0 * length as f64),
        load: Some(scale * (load + 1) as f64),
        load_kind: Some(load_kind),
        ..MeasuredRow::default()
    }
}
