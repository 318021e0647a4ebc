//! What keeps a row from being a question.

use super::{LoadKind, MeasuredRow};
use crate::model::ModelFacts;
use crate::surrogate::EngineGeneration;

/// Largest number of devices and requests that is reasoned about.
const MAX_COUNT: f64 = 1e6;
/// Most devices of one deployment, and longest mean length in tokens.
const MAX_GPUS: u64 = 10_000;
const MAX_TOKENS: f64 = 1e7;

/// A request must end before the model's positions do: engines refuse it.
///
/// Compiled engines take their lengths when they are built and compute positions beyond the
/// checkpoint's: the published tables of TensorRT-LLM have gpt-j-6b and llama-7b at 4,096 tokens.
pub(super) fn check_context(
    tokens: f64,
    model: &ModelFacts,
    generation: EngineGeneration,
) -> Result<(), String> {
    let longest = model.max_position;
    if tokens <= f64::from(longest) || generation == EngineGeneration::TensorrtCompiled {
        return Ok(());
    }
    Err(format!(
        "not supported: prompt + answer, {tokens} tokens, exceed {longest} (max_position_embeddings)"
    ))
}

/// Everything that a row lacks.
pub(super) fn of(row: &MeasuredRow) -> Vec<String> {
    let mut out = Vec::new();
    let mut need = |is_there: bool, what: &str| {
        if !is_there {
            out.push(what.to_owned());
        }
    };
    let sane = |x: Option<f64>| x.is_some_and(|x| x > 0.0 && x <= MAX_TOKENS);
    need(
        !row.is_disaggregated,
        "prompts and generation on separate devices are not modelled",
    );
    for (name, tokens) in [("isl", row.isl), ("osl", row.osl)] {
        let why = match tokens {
            None => format!("{name} is not given"),
            Some(_) => format!("{name} must be above 0 and at most {MAX_TOKENS}"),
        };
        need(sane(tokens), &why);
    }
    let why = format!("load_kind is not given: {}", LoadKind::NAMES.join(", "));
    need(row.load_kind.is_some(), &why);
    let needs_load = row.load_kind.is_some_and(LoadKind::needs_load);
    need(
        !needs_load || sane(row.load),
        "concurrency_or_rate is not given",
    );
    need(
        row.load.is_none_or(|l| l <= MAX_COUNT),
        "concurrency_or_rate is absurd",
    );
    let known = EngineGeneration::of(&row.engine, row.engine_version.as_deref(), row.year);
    let why = format!(
        "engine {:?} is not known: {}",
        start(&row.engine),
        EngineGeneration::ENGINES.join(", ")
    );
    need(known.is_some(), &why);
    let version = row.engine_version.as_deref().unwrap_or_default();
    let why = format!("engine_version {:?} is no version", start(version));
    need(is_version(version), &why);
    let kv = row.kv_dtype.as_deref().unwrap_or_default();
    let why = format!(
        "kv_dtype {:?} is not known: auto, fp16, bf16 or fp8",
        start(kv)
    );
    need(KV_DTYPES.contains(&kv), &why);
    let widths = [row.tp, row.pp, row.dp].map(|w| u64::from(w.unwrap_or(1).max(1)));
    let needed = widths.into_iter().fold(1, u64::saturating_mul);
    let there = row.num_gpus.map_or(MAX_GPUS, u64::from).min(MAX_GPUS);
    let why = format!("tp · pp · dp = {needed} devices are more than the {there} there can be");
    need(needed <= there, &why);
    let gpus = [row.num_gpus, row.tp];
    need(
        gpus.into_iter().flatten().any(|n| n > 0),
        "neither num_gpus nor tp is given",
    );
    out
}

fn start(text: &str) -> String {
    text.chars().take(40).collect()
}

/// What a cache format may be called.
const KV_DTYPES: [&str; 8] = [
    "",
    "auto",
    "fp16",
    "bf16",
    "fp16/bf16",
    "fp8",
    "fp8_e4m3",
    "fp8_e5m2",
];

/// Versions are numbers, or builds between them; none is fine.
fn is_version(text: &str) -> bool {
    let is_build = ["dev", "nightly", "main", "latest"]
        .iter()
        .any(|word| text.contains(word));
    text.is_empty()
        || is_build
        || text
            .trim_start_matches('v')
            .starts_with(|c: char| c.is_ascii_digit())
}
