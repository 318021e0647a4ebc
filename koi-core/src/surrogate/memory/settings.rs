//! What settings beyond the main ones add to device memory, take from it, or cap.
//!
//! Mechanisms, not factors: adapters have a rank, offloaded layers a size, an override a number of
//! blocks. With every setting at its default each function gives what it was given. Spec §4.

use crate::configuration::{EngineShape, ShapeEffects, Term};
use crate::model::{CacheShape, KvDtype, LayerKind, ModelFacts, WeightDtype, WindowBytes};

/// Bytes that captured graphs hold; engines of this generation report 0.5 to 1 GiB.
const GRAPH_BYTES: f64 = 0.7e9;
/// Largest batch that engines capture by themselves, which those bytes are for.
const USUAL_CAPTURED_SEQUENCES: f64 = 512.0;
/// Beyond this multiple graphs share their memory.
const MOST_GRAPH_RATIO: f64 = 8.0;
/// Adapters are kept in 16 bits.
const ADAPTER_BYTES: f64 = 2.0;
/// Share of uncaptured launches from which there are no graphs to hold.
const UNCAPTURED_SHARE: f64 = 0.5;

/// Weights on the fullest device: the model's own, what settings add, less what stays in host
/// memory.
pub(super) fn weight_bytes(model: &ModelFacts, shape: &EngineShape) -> f64 {
    let own = model.weight_bytes_per_gpu(shape.weight_dtype, shape.tp, shape.pp);
    if shape.effects.is_neutral() {
        return own;
    }
    let added =
        adapter_bytes(model, shape) + draft_bytes(model, shape, own) + copies_bytes(model, shape);
    own + added - offloaded_bytes(model, shape)
}

/// Weights of the fullest device that cross the bus in every step.
///
/// # Formula
/// min(own, asked + own · n/g), n of every group of g layers
pub(in crate::surrogate) fn offloaded_bytes(model: &ModelFacts, shape: &EngineShape) -> f64 {
    let asked = shape.effects.get(Term::OffloadBytes);
    let share = offloaded_layer_share(&shape.effects);
    if asked <= 0.0 && share <= 0.0 {
        return 0.0;
    }
    let own = model.weight_bytes_per_gpu(shape.weight_dtype, shape.tp, shape.pp);
    (asked + own * share).min(own)
}

/// Share of the layers that stay in host memory.
pub(in crate::surrogate) fn offloaded_layer_share(effects: &ShapeEffects) -> f64 {
    let group = effects.get(Term::OffloadGroupLayers);
    if group >= 1.0 {
        (effects.get(Term::OffloadLayersOfGroup) / group).min(1.0)
    } else {
        0.0
    }
}

/// Room for adapters beside the projections of attention and dense MLPs.
///
/// # Formula
/// slots · rank · b · Σ layers of (in + out) over their matrices, divided among shards on the side
/// that the matrix is cut; fully sharded, on both
fn adapter_bytes(model: &ModelFacts, shape: &EngineShape) -> f64 {
    let slots = shape.effects.get(Term::LoraSlots);
    if slots <= 0.0 {
        return 0.0;
    }
    let tp = f64::from(shape.tp.max(1));
    let is_sharded = shape.effects.get(Term::LoraSharded) > 0.5;
    let whole = if is_sharded { tp } else { 1.0 };
    let hidden = f64::from(model.hidden);
    let of_layer = |kind: &LayerKind| {
        let head = f64::from(kind.head_dim);
        let (queries, all) = (
            f64::from(kind.heads) * head,
            f64::from(kind.heads + 2 * kind.kv_heads) * head,
        );
        let width = kind.dense_width.map_or(0.0, f64::from);
        let mlp = if width > 0.0 { 3.0 * hidden } else { 0.0 };
        let elements = (4.0 * hidden + mlp) / whole + (queries + all + 3.0 * width) / tp;
        f64::from(kind.layers) * elements
    };
    let elements: f64 = model.kinds.iter().map(of_layer).sum();
    let stage = f64::from(model.layers.div_ceil(shape.pp)) / f64::from(model.layers);
    slots * shape.effects.get(Term::LoraRank) * ADAPTER_BYTES * elements * stage
}

/// Weights of a draft: some layers of the target's width, or a share of the target.
fn draft_bytes(model: &ModelFacts, shape: &EngineShape, own: f64) -> f64 {
    let layers = f64::from(model.layers.div_ceil(shape.pp).max(1));
    let share =
        shape.effects.get(Term::DraftLayers) / layers + shape.effects.get(Term::DraftModelShare);
    own * share * draft_ratio(shape)
}

/// How much more of the draft one device holds and reads than it would of a target as large.
pub(in crate::surrogate) fn draft_ratio(shape: &EngineShape) -> f64 {
    let shards = shape.effects.get(Term::DraftShards);
    if shards >= 1.0 {
        f64::from(shape.tp.max(1)) / shards
    } else {
        1.0
    }
}

/// Further copies of experts, spread over the ranks.
fn copies_bytes(model: &ModelFacts, shape: &EngineShape) -> f64 {
    let copies = shape.effects.get(Term::RedundantExperts);
    let (Some(moe), true) = (model.moe, copies > 0.0) else {
        return 0.0;
    };
    let (few, all) = (
        model.linear_bytes_touched(shape.weight_dtype, 1.0),
        model.linear_bytes_touched(shape.weight_dtype, f64::INFINITY),
    );
    let idle = 1.0 - f64::from(moe.experts_per_token) / f64::from(moe.experts.max(1));
    let expert = if idle > 0.0 {
        (all - few) / idle / f64::from(moe.experts.max(1))
    } else {
        0.0
    };
    copies * expert / f64::from(shape.ep.max(1)) / f64::from(shape.pp.max(1))
}

/// Captured graphs.
pub(super) fn graph_bytes(shape: &EngineShape) -> f64 {
    let effects = &shape.effects;
    if shape.enforce_eager || effects.get(Term::EagerLaunchShare) > UNCAPTURED_SHARE {
        return 0.0;
    }
    if !effects.is_set(Term::CapturedSequences) {
        return GRAPH_BYTES;
    }
    let ratio = effects.get(Term::CapturedSequences) / USUAL_CAPTURED_SEQUENCES;
    GRAPH_BYTES * ratio.min(MOST_GRAPH_RATIO)
}

/// Tokens whose activations a step holds.
pub(super) fn step_tokens(shape: &EngineShape) -> f64 {
    let prompts = shape.effects.get(Term::PromptBatchTokens);
    let sequences = f64::from(shape.max_num_seqs);
    f64::from(shape.max_num_batched_tokens).min(prompts.max(sequences))
}

/// Shards among which the residual stream is divided.
pub(super) fn residual_shards(shape: &EngineShape) -> f64 {
    if shape.effects.get(Term::ResidualSharded) > 0.5 {
        f64::from(shape.tp.max(1))
    } else {
        1.0
    }
}

/// The cache of one sequence on the fullest device.
pub(super) fn cache_shape(model: &ModelFacts, shape: &EngineShape) -> CacheShape {
    let mut cache = model.cache_shape(shape.kv_dtype, shape.tp, shape.pp);
    let effects = &shape.effects;
    if effects.is_neutral() {
        return cache;
    }
    if effects.get(Term::WindowsKept) > 0.5 {
        cache.full_bytes_per_token += cache.window.bytes_per_token;
        cache.window = WindowBytes::default();
    }
    let shards = effects.get(Term::ContextShards);
    cache.full_bytes_per_token /= shards;
    cache.window.bytes_per_token /= shards;
    cache.state_bytes *= state_ratio(model, effects);
    cache
}

/// Bytes of one token on the fullest device.
pub(super) fn token_bytes(model: &ModelFacts, shape: &EngineShape) -> f64 {
    model.kv_bytes_per_token_per_gpu(shape.kv_dtype, shape.tp, shape.pp)
        / shape.effects.get(Term::ContextShards)
}

/// Bytes of state in the formats that are set over those of the model's own.
///
/// # Formula
/// Σ (s·bₛ + c·b_c) / Σ state, s = operations / 6 numbers of state, c those of the convolution
pub(in crate::surrogate) fn state_ratio(model: &ModelFacts, effects: &ShapeEffects) -> f64 {
    let all = effects.get(Term::ConvolutionElementBytes);
    let state = effects.get(Term::StateElementBytes);
    if all <= 0.0 && state <= 0.0 {
        return 1.0;
    }
    let base = model.kv_element_bytes(KvDtype::Auto);
    let (mut was, mut is) = (0.0, 0.0);
    for kind in model.kinds.iter().filter(|k| k.state_flops > 0.0) {
        let numbers = kind.state_flops / 6.0;
        let stored = kind.state_bytes as f64;
        // The convolution is small, so what a number takes is seen from the whole.
        let wide = WeightDtype::Fp32.activation_bytes();
        let own = if stored / numbers >= wide { wide } else { base };
        let convolution = (stored - numbers * own).max(0.0) / base;
        let or_own = |bytes: f64, otherwise: f64| if bytes > 0.0 { bytes } else { otherwise };
        let of_state = or_own(state, or_own(all, own));
        let layers = f64::from(kind.layers);
        was += layers * stored;
        is += layers * (numbers * of_state + convolution * or_own(all, base));
    }
    if was > 0.0 { is / was } else { 1.0 }
}

/// The pool where `free` bytes are left: an override replaces it, a limit cuts it.
pub(super) fn pool_bytes(free: f64, token_bytes: f64, shape: &EngineShape) -> f64 {
    let effects = &shape.effects;
    let blocks = effects.get(Term::KvPoolBlocks);
    let bytes = effects.get(Term::KvPoolBytes);
    let asked = if blocks.is_finite() {
        blocks * f64::from(shape.block_size.max(1)) * token_bytes
    } else if bytes.is_finite() {
        bytes
    } else {
        free
    };
    let limit = effects.get(Term::KvPoolTokens);
    if limit.is_finite() {
        asked.min(limit * token_bytes)
    } else {
        asked
    }
}
