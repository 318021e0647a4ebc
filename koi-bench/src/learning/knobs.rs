//! The settings that the study's stand-in planner turns, and legal ways of turning them.
//!
//! Two groups: settings that the hidden truth knows, and settings of which neither the truth nor the
//! surrogate knows an effect. Claims about the latter are false, and nobody is told so.

use koi_core::catalog::{Catalog, Value};
use koi_core::configuration::{Configuration, ConfigurationDraft};
use koi_core::rng::Rng;

/// One setting and the levels it is turned to.
#[derive(Debug, Clone)]
pub(super) struct Knob {
    /// Catalog id.
    pub(super) id: &'static str,
    /// Levels in order.
    pub(super) levels: Vec<Value>,
    /// How often it is drawn.
    weight: usize,
}

/// Most settings that one swap turns.
const MAX_TURNED: usize = 4;
/// Draws of one setting before a swap turns fewer.
const MAX_DRAWS: usize = 8;

fn ints(id: &'static str, levels: &[i64], weight: usize) -> Knob {
    Knob {
        id,
        levels: levels.iter().map(|n| Value::Int(*n)).collect(),
        weight,
    }
}

fn words(id: &'static str, levels: &[&str], weight: usize) -> Knob {
    Knob {
        id,
        levels: levels
            .iter()
            .map(|w| Value::Text((*w).to_owned()))
            .collect(),
        weight,
    }
}

fn floats(id: &'static str, levels: &[f64], weight: usize) -> Knob {
    Knob {
        id,
        levels: levels.iter().map(|x| Value::Float(*x)).collect(),
        weight,
    }
}

fn flag(id: &'static str, weight: usize) -> Knob {
    Knob {
        id,
        levels: vec![Value::Bool(false), Value::Bool(true)],
        weight,
    }
}

/// All settings that swaps turn.
pub(super) fn knobs() -> Vec<Knob> {
    vec![
        ints("tp", &[1, 2, 4, 8], 3),
        ints("pp", &[1, 2], 1),
        ints("max_num_seqs", &[16, 32, 64, 128, 256], 3),
        ints(
            "max_num_batched_tokens",
            &[1024, 2048, 4096, 8192, 16_384],
            3,
        ),
        floats("gpu_memory_utilization", &[0.65, 0.75, 0.85, 0.92], 2),
        ints("block_size", &[16, 32, 64], 2),
        words("kvcache_dtype", &["auto", "fp8"], 2),
        words("weight_dtype", &["auto", "fp8"], 2),
        flag("prefix_cache_enabled", 2),
        flag("enforce_eager", 2),
        flag("async_scheduling", 2),
        flag("disable_custom_all_reduce", 2),
        words("scheduling_policy", &["fcfs", "priority"], 2),
        ints("api_server_count", &[1, 2, 4], 2),
        words(
            "structured_outputs_backend",
            &["auto", "xgrammar", "guidance"],
            2,
        ),
        flag("log_requests", 2),
        flag("inductor_graph_partition", 2),
        flag("flashinfer_autotune", 2),
        flag("sleep_mode_enabled", 2),
        floats("swap_space_gib", &[2.0, 4.0, 8.0, 16.0], 2),
    ]
}

/// Where every setting starts.
pub(super) fn base_draft(tp: u32) -> ConfigurationDraft {
    let values: [(&str, Value); 21] = [
        ("engine_name", Value::Text("vllm".to_owned())),
        ("tp", Value::Int(i64::from(tp))),
        ("pp", Value::Int(1)),
        ("max_num_seqs", Value::Int(128)),
        ("max_num_batched_tokens", Value::Int(8192)),
        ("gpu_memory_utilization", Value::Float(0.92)),
        ("block_size", Value::Int(16)),
        ("kvcache_dtype", Value::Text("auto".to_owned())),
        ("weight_dtype", Value::Text("auto".to_owned())),
        ("prefix_cache_enabled", Value::Bool(true)),
        ("enforce_eager", Value::Bool(false)),
        ("async_scheduling", Value::Bool(true)),
        ("disable_custom_all_reduce", Value::Bool(false)),
        ("scheduling_policy", Value::Text("fcfs".to_owned())),
        ("api_server_count", Value::Int(1)),
        ("structured_outputs_backend", Value::Text("auto".to_owned())),
        ("log_requests", Value::Bool(false)),
        ("inductor_graph_partition", Value::Bool(false)),
        ("flashinfer_autotune", Value::Bool(false)),
        ("sleep_mode_enabled", Value::Bool(false)),
        ("swap_space_gib", Value::Float(4.0)),
    ];
    let mut draft = ConfigurationDraft::default();
    for (id, value) in values {
        draft.0.insert(id.to_owned(), value);
    }
    draft.0.insert(
        "max_model_len".to_owned(),
        Value::Int(super::fleet::LONGEST),
    );
    draft
}

/// The configuration with one setting at another level; `None` where the catalog refuses it.
pub(super) fn with(
    catalog: &Catalog,
    from: &Configuration,
    id: &str,
    level: &Value,
) -> Option<Configuration> {
    let mut draft = from.to_draft();
    draft.0.insert(id.to_owned(), level.clone());
    catalog.configuration(draft).ok()
}

/// A configuration in which one setting is turned.
pub(super) fn turned_one(
    catalog: &Catalog,
    knobs: &[Knob],
    from: &Configuration,
    rng: &mut Rng,
) -> Configuration {
    turned_some(catalog, knobs, from, (1, rng))
}

/// A configuration in which a few settings are turned.
pub(super) fn turned(
    catalog: &Catalog,
    knobs: &[Knob],
    from: &Configuration,
    rng: &mut Rng,
) -> Configuration {
    let wanted = 1 + rng.below(MAX_TURNED);
    turned_some(catalog, knobs, from, (wanted, rng))
}

fn turned_some(
    catalog: &Catalog,
    knobs: &[Knob],
    from: &Configuration,
    (wanted, rng): (usize, &mut Rng),
) -> Configuration {
    let urn: Vec<usize> = knobs
        .iter()
        .enumerate()
        .flat_map(|(i, k)| std::iter::repeat_n(i, k.weight))
        .collect();
    let mut configuration = from.clone();
    let mut turned = Vec::new();
    for _ in 0..MAX_DRAWS {
        if turned.len() == wanted {
            break;
        }
        let knob = &knobs[urn[rng.below(urn.len())]];
        let level = &knob.levels[rng.below(knob.levels.len())];
        let is_new = configuration.get(knob.id) != Some(level) && !turned.contains(&knob.id);
        if let Some(next) = is_new
            .then(|| with(catalog, &configuration, knob.id, level))
            .flatten()
        {
            turned.push(knob.id);
            configuration = next;
        }
    }
    configuration
}
