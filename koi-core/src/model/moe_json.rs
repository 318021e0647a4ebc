//! The routed part of a mixture of experts, from its config.json.

use serde_json::Value;

use super::config_json::{MAX_LAYERS, MAX_WIDTH};
use super::reader::Reader;
use super::{Architecture, MoeFacts};

const MAX_EXPERTS: u32 = 4_096;

/// The routed part, for architectures that have one.
pub(super) fn read_moe(
    reader: &mut Reader<'_>,
    architecture: Architecture,
    layers: Option<u32>,
    intermediate: Option<u32>,
) -> Option<MoeFacts> {
    let (experts_key, width_key, shared_key) = match architecture {
        Architecture::Mixtral => ("num_local_experts", None, None),
        Architecture::Qwen2Moe => (
            "num_experts",
            Some("moe_intermediate_size"),
            Some("shared_expert_intermediate_size"),
        ),
        Architecture::Qwen3Moe => ("num_experts", Some("moe_intermediate_size"), None),
        Architecture::Llama
        | Architecture::Mistral
        | Architecture::Qwen2
        | Architecture::Qwen3
        | Architecture::Phi3 => return None,
    };
    let experts = reader.required("moe.experts", experts_key, MAX_EXPERTS);
    let used = reader.required("moe.experts_per_token", "num_experts_per_tok", MAX_EXPERTS);
    let width = match width_key {
        Some(key) => reader.required("moe.expert_intermediate", key, MAX_WIDTH),
        None => intermediate,
    };
    let shared = match shared_key {
        Some(key) => Some(reader.required("moe.shared_intermediate", key, MAX_WIDTH)?),
        None => None,
    };
    let sparse_layers = read_sparse_layers(reader, layers?)?;
    let (experts, used) = (experts?, used?);
    if used > experts {
        reader.violations.add(
            "num_experts_per_tok",
            format!("{used} exceeds the {experts} experts"),
        );
        return None;
    }
    Some(MoeFacts {
        experts,
        experts_per_token: used,
        expert_intermediate: width?,
        shared_intermediate: shared,
        sparse_layers,
    })
}

/// Layers that are routed: every `decoder_sparse_step`-th, except those listed as dense.
fn read_sparse_layers(reader: &mut Reader<'_>, layers: u32) -> Option<u32> {
    let step = match reader.find("decoder_sparse_step") {
        Some(_) => reader.optional("moe.sparse_step", "decoder_sparse_step", (1, MAX_LAYERS))?,
        None => 1,
    };
    let dense: Vec<u64> = match reader.find("mlp_only_layers") {
        None => Vec::new(),
        Some((path, value)) => {
            let list = value
                .as_array()
                .filter(|list| list.len() <= MAX_LAYERS as usize);
            let Some(list) = list else {
                reader
                    .violations
                    .add(path, "must be a list of layer numbers");
                return None;
            };
            list.iter().filter_map(Value::as_u64).collect()
        }
    };
    let routed = |l: &u32| (l + 1).is_multiple_of(step) && !dense.contains(&u64::from(*l));
    let count = u32::try_from((0..layers).filter(routed).count()).ok()?;
    if count == 0 {
        reader.violations.add(
            "decoder_sparse_step",
            "leaves no routed layer in a mixture of experts",
        );
        return None;
    }
    Some(count)
}
