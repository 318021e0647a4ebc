//! The routed part of a mixture of experts, from its config.json.
//!
//! Which layers are routed is decided here; what a routed layer weighs is [`super::modules`].

use super::MoeFacts;
use super::reader::Reader;
use super::shape::{MAX_LAYERS, MAX_WIDTH};
use super::spec::{Keys, MoeSpec, Shared, Sparse, Spec};

const MAX_EXPERTS: u32 = 4_096;
const EXPERTS: Keys = &["num_experts", "num_local_experts", "n_routed_experts"];
const USED: Keys = &[
    "num_experts_per_tok",
    "top_k_experts",
    "experts_per_token",
    "num_experts_per_token",
    "moe_topk",
];

/// The routed part and the layers that have it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Moe {
    pub(super) facts: MoeFacts,
    pub(super) is_routed: Vec<bool>,
    /// Width of the MLP in layers that are not routed, where it is not `intermediate_size`.
    pub(super) dense_width: Option<u32>,
}

/// A problem was found and is in the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reported;

/// The routed part, for architectures that have one and configs that use it.
pub(super) fn read_moe(
    reader: &mut Reader<'_>,
    spec: &Spec,
    layers: Option<u32>,
    intermediate: Option<u32>,
) -> Result<Option<Moe>, Reported> {
    let Some(moe) = spec.moe else {
        return refuse_experts(reader, spec);
    };
    if moe.optional && reader.find_any(EXPERTS).is_none() {
        return Ok(None);
    }
    read_routed(reader, &moe, layers, intermediate)
        .map(Some)
        .ok_or(Reported)
}

/// Experts in an architecture without any: the config is not what its `model_type` says.
fn refuse_experts(reader: &mut Reader<'_>, spec: &Spec) -> Result<Option<Moe>, Reported> {
    let Some((path, value)) = reader.find_any(EXPERTS) else {
        return Ok(None);
    };
    if value.as_u64().is_some_and(|n| n <= 1) {
        return Ok(None);
    }
    let name = spec.model_types.first().copied().unwrap_or_default();
    let message = format!("{name} has no experts; the checkpoint is of another model_type");
    reader.violations.add(path, message);
    Err(Reported)
}

fn read_routed(
    reader: &mut Reader<'_>,
    spec: &MoeSpec,
    layers: Option<u32>,
    intermediate: Option<u32>,
) -> Option<Moe> {
    let experts = reader.required("moe.experts", EXPERTS, MAX_EXPERTS);
    let used = reader.required("moe.experts_per_token", USED, MAX_EXPERTS);
    let width = if spec.width.is_empty() {
        copy_source(reader, "moe.expert_intermediate");
        intermediate
    } else {
        reader.required("moe.expert_intermediate", spec.width, MAX_WIDTH)
    };
    let shared = read_shared(reader, spec.shared, width);
    let is_routed = read_routed_layers(reader, spec.layers, layers?);
    let dense_width = read_dense_width(reader, spec, is_routed.as_deref());
    let (experts, used, is_routed) = (experts?, used?, is_routed?);
    if used > experts {
        let message = format!("{used} exceeds the {experts} experts");
        reader.violations.add("num_experts_per_tok", message);
        return None;
    }
    let facts = MoeFacts {
        experts,
        experts_per_token: used,
        expert_intermediate: width?,
        shared_intermediate: shared?,
        sparse_layers: u32::try_from(is_routed.iter().filter(|r| **r).count()).ok()?,
    };
    Some(Moe {
        facts,
        is_routed,
        dense_width: dense_width?,
    })
}

fn copy_source(reader: &mut Reader<'_>, fact: &str) {
    if let Some(source) = reader.sources.get("intermediate").cloned() {
        reader.source(fact, source);
    }
}

/// Width of the always-active part; the outer `None` is a reported problem.
fn read_shared(
    reader: &mut Reader<'_>,
    shared: Shared,
    expert_width: Option<u32>,
) -> Option<Option<u32>> {
    let fact = "moe.shared_intermediate";
    match shared {
        Shared::None | Shared::Dense => Some(None),
        Shared::Width(keys) => {
            if reader.find_any(keys).is_none() {
                return reader.required(fact, keys, MAX_WIDTH).map(Some);
            }
            let width = reader.optional(fact, keys, (0, MAX_WIDTH))?;
            Some((width > 0).then_some(width))
        }
        Shared::One => {
            reader.source(
                fact,
                "one shared expert of the routed experts' width, rule of the class",
            );
            Some(Some(expert_width?))
        }
        Shared::Count(keys) => {
            // The classes build no shared expert when the count is null.
            let Some(_) = reader.find_any(keys) else {
                return Some(None);
            };
            let count = reader.optional(fact, keys, (0, 4_096))?;
            if count > 0
                && let Some(source) = reader.sources.get(fact).cloned()
            {
                reader.source(fact, format!("{source} × the routed experts' width"));
            }
            let width = count.checked_mul(expert_width?)?;
            if width > MAX_WIDTH {
                let message = format!("shared experts of width {width} exceed {MAX_WIDTH}");
                reader.violations.add(keys.first().copied()?, message);
                return None;
            }
            Some((width > 0).then_some(width))
        }
    }
}

/// Width of the dense layers where a field of its own says it.
fn read_dense_width(
    reader: &mut Reader<'_>,
    spec: &MoeSpec,
    is_routed: Option<&[bool]>,
) -> Option<Option<u32>> {
    let has_dense = is_routed?.iter().any(|routed| !routed);
    if spec.dense_width.is_empty() || !has_dense {
        return Some(None);
    }
    reader
        .required("moe.dense_width", spec.dense_width, MAX_WIDTH)
        .map(Some)
}

/// Which layers are routed.
fn read_routed_layers(reader: &mut Reader<'_>, rule: Sparse, layers: u32) -> Option<Vec<bool>> {
    let fact = "moe.sparse_layers";
    let mut step = |keys: Keys, default: u32, min: u32| {
        reader.or_default(fact, keys, (min, MAX_LAYERS), default)
    };
    let mut routed: Vec<bool> = match rule {
        Sparse::All => vec![true; layers as usize],
        Sparse::Step => {
            let step = step(&["decoder_sparse_step"], 1, 1)?;
            (0..layers).map(|l| (l + 1).is_multiple_of(step)).collect()
        }
        Sparse::Interleave => {
            let step = step(&["interleave_moe_layer_step"], 1, 1)?;
            (0..layers).map(|l| (l + 1).is_multiple_of(step)).collect()
        }
        Sparse::FirstDense => {
            let freq = step(&["moe_layer_freq"], 1, 1)?;
            let first = read_first_dense(reader)?;
            let is = |l: u32| l >= first && l.is_multiple_of(freq);
            (0..layers).map(is).collect()
        }
        Sparse::Period => {
            let period = step(&["expert_layer_period"], 2, 1)?;
            let offset = step(&["expert_layer_offset"], 1, 0)?;
            (0..layers).map(|l| l % period == offset % period).collect()
        }
    };
    apply_lists(reader, &mut routed)?;
    let count = routed.iter().filter(|r| **r).count();
    if count == 0 {
        let message = "leaves no routed layer in a mixture of experts";
        reader.violations.add(sparse_field(rule), message);
        return None;
    }
    let rule = sparse_field(rule);
    reader.source(fact, format!("{rule}: {count} of {layers} layers"));
    Some(routed)
}

/// Classes disagree about the default, so the field must be there.
fn read_first_dense(reader: &mut Reader<'_>) -> Option<u32> {
    let keys: Keys = &["first_k_dense_replace"];
    if reader.find_any(keys).is_none() {
        reader.missing(keys, format!("a whole number from 0 to {MAX_LAYERS}"));
        return None;
    }
    reader.optional("moe.first_dense", keys, (0, MAX_LAYERS))
}

/// Layers that lists name as dense (`mlp_only_layers`) or as routed (`moe_layers`).
fn apply_lists(reader: &mut Reader<'_>, routed: &mut [bool]) -> Option<()> {
    let last = u32::try_from(routed.len()).ok()?.saturating_sub(1);
    if reader.find("mlp_only_layers").is_some() {
        for layer in reader.numbers(&["mlp_only_layers"], routed.len(), last)? {
            *routed.get_mut(layer as usize)? = false;
        }
    }
    if reader.find("moe_layers").is_some() {
        let listed = reader.numbers(&["moe_layers"], routed.len(), last)?;
        for (layer, is) in (0_u32..).zip(routed.iter_mut()) {
            *is = listed.contains(&layer);
        }
    }
    Some(())
}

const fn sparse_field(rule: Sparse) -> &'static str {
    match rule {
        Sparse::All => "every layer",
        Sparse::Step => "decoder_sparse_step",
        Sparse::FirstDense => "first_k_dense_replace and moe_layer_freq",
        Sparse::Interleave => "interleave_moe_layer_step",
        Sparse::Period => "expert_layer_period and expert_layer_offset",
    }
}
