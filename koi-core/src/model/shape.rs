//! The shape of a model: every number that the arithmetic needs, read and checked.
//!
//! Explicit numbers win over derived ones, `null` means absent. Which layer is of which kind is
//! [`super::layers_json`]; counting is [`super::assemble`].

mod positions;

use super::layers_json::read_layers;
use super::moe_json::read_moe;
use super::plan::LayerPlan;
use super::reader::Reader;
use super::spec::{AttentionForm, HeadDim, Keys, KvDefault, Layout, QkNorm, Spec, Width};
use super::{Architecture, MoeFacts};

/// Bounds far above every published model; they keep every later product inside u64.
pub(super) const MAX_LAYERS: u32 = 1_024;
pub(super) const MAX_HEADS: u32 = 4_096;
pub(super) const MAX_HEAD_DIM: u32 = 8_192;
pub(super) const MAX_WIDTH: u32 = 1 << 18;
const MAX_VOCAB: u32 = 1 << 22;
pub(super) const MAX_POSITION: u32 = 1 << 27;

pub(super) const LAYERS: Keys = &["num_hidden_layers", "n_layers", "n_layer", "num_layers"];
pub(super) const HIDDEN: Keys = &["hidden_size", "n_embd", "d_model", "n_embed"];
pub(super) const HEADS: Keys = &["num_attention_heads", "n_head", "n_heads"];
pub(super) const KV_HEADS: Keys = &[
    "num_key_value_heads",
    "num_kv_heads",
    "multi_query_group_num",
    "n_head_kv",
];
const HEAD_DIM: Keys = &["head_dim", "attention_head_dim", "kv_channels"];
pub(super) const WIDTH: Keys = &["intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner"];
const VOCAB: Keys = &["vocab_size", "padded_vocab_size"];
const POSITIONS: Keys = &[
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
];

/// Which projections have biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Biases {
    pub(super) qkv: bool,
    pub(super) output: bool,
    pub(super) mlp: bool,
    pub(super) norm: bool,
}

/// Norms on queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryKeyNorm {
    None,
    Head,
    Whole,
}

/// The shape.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shape {
    pub(super) architecture: Architecture,
    pub(super) hidden: u32,
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) head_dim: u32,
    /// Width of the dense MLP where there is one.
    pub(super) intermediate: Option<u32>,
    pub(super) vocab: u32,
    pub(super) max_position: u32,
    pub(super) tied: bool,
    /// Rows of the learned position table.
    pub(super) position_rows: u32,
    pub(super) biases: Biases,
    pub(super) qk_norm: QueryKeyNorm,
    pub(super) norms_per_layer: u32,
    pub(super) moe: Option<MoeFacts>,
    pub(super) layers: Vec<LayerPlan>,
}

/// The numbers that layers are built from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Basics {
    pub(super) layers: u32,
    pub(super) hidden: u32,
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) head_dim: u32,
    pub(super) intermediate: Option<u32>,
    pub(super) max_position: u32,
}

/// Reads the shape; problems are in the reader.
pub(super) fn read_shape(reader: &mut Reader<'_>, architecture: Architecture) -> Option<Shape> {
    let spec = architecture.spec();
    let class = spec.class_shape.filter(|_| reader.is_nested());
    let mut number = |fact: &str, keys: Keys, max: u32, default: Option<u32>| match default {
        Some(n) => reader.or_default(fact, keys, (1, max), n),
        None => reader.required(fact, keys, max),
    };
    let layers = number("layers", LAYERS, MAX_LAYERS, class.map(|c| c.layers));
    let hidden = number("hidden", HIDDEN, MAX_WIDTH, class.map(|c| c.hidden));
    let heads = number("heads", HEADS, MAX_HEADS, class.map(|c| c.heads));
    let vocab = number("vocab", VOCAB, MAX_VOCAB, class.map(|c| c.vocab));
    let max_position = number("max_position", POSITIONS, MAX_POSITION, spec.max_position)
        .map(|stated| positions::stretched(reader, stated, MAX_POSITION));
    let intermediate = read_intermediate(reader, spec, hidden, class.map(|c| c.intermediate));
    let kv_heads = read_kv_heads(reader, spec, heads, class.map(|c| c.kv_heads));
    let head_dim = read_head_dim(reader, spec, hidden, heads);
    let moe = read_moe(reader, spec, layers, intermediate.flatten());
    let tied = reader.flag_or("tied_embeddings", &["tie_word_embeddings"], spec.tied);
    let biases = Biases {
        qkv: reader.bias("qkv_bias", spec.qkv_bias),
        output: reader.bias("output_bias", spec.output_bias),
        mlp: reader.bias("mlp_bias", spec.mlp_bias),
        norm: reader.bias("norm_bias", spec.norm_bias),
    };
    let qk_norm = read_qk_norm(reader, spec.qk_norm);
    let norms_per_layer = read_norms(reader, spec);
    let position_rows = read_position_rows(reader, spec, max_position);
    refuse_unmodelled(reader, hidden);
    let basics = Basics {
        layers: layers?,
        hidden: hidden?,
        heads: heads?,
        kv_heads: kv_heads?,
        head_dim: head_dim?,
        intermediate: intermediate?,
        max_position: max_position?,
    };
    let plans = read_layers(reader, spec, &basics, moe.as_ref().ok()?.as_ref());
    Some(Shape {
        architecture,
        hidden: basics.hidden,
        heads: basics.heads,
        kv_heads: basics.kv_heads,
        head_dim: basics.head_dim,
        intermediate: basics.intermediate,
        vocab: vocab?,
        max_position: basics.max_position,
        tied,
        position_rows,
        biases,
        qk_norm,
        norms_per_layer,
        moe: moe.ok()?.map(|m| m.facts),
        layers: plans?,
    })
}

/// The outer `None` is a problem that was reported; the inner one is a model without a dense MLP.
fn read_intermediate(
    reader: &mut Reader<'_>,
    spec: &Spec,
    hidden: Option<u32>,
    class: Option<u32>,
) -> Option<Option<u32>> {
    let fact = "intermediate";
    if reader.find_any(WIDTH).is_some() {
        return reader.optional(fact, WIDTH, (1, MAX_WIDTH)).map(Some);
    }
    if let Some(width) = class {
        return reader
            .or_default(fact, WIDTH, (1, MAX_WIDTH), width)
            .map(Some);
    }
    match spec.width {
        Width::Required => reader.required(fact, WIDTH, MAX_WIDTH).map(Some),
        Width::PerLayer | Width::None => Some(None),
        Width::Times(default) => {
            let times = match reader.find_any(&["expansion_ratio", "ffn_mult"]) {
                Some(_) => reader.optional(fact, &["expansion_ratio", "ffn_mult"], (1, 64))?,
                None => {
                    let rule = format!(
                        "{default} × hidden, rule of {} (no width field)",
                        spec.class
                    );
                    reader.source(fact, rule);
                    default
                }
            };
            let width = hidden?.checked_mul(times).filter(|w| *w <= MAX_WIDTH);
            if width.is_none() {
                let field = WIDTH.first().copied().unwrap_or_default();
                let message = format!("{times} × hidden exceeds {MAX_WIDTH}");
                reader.violations.add(field, message);
            }
            width.map(Some)
        }
    }
}

fn read_kv_heads(
    reader: &mut Reader<'_>,
    spec: &Spec,
    heads: Option<u32>,
    class: Option<u32>,
) -> Option<u32> {
    let fact = "kv_heads";
    let key = KV_HEADS.first().copied().unwrap_or_default();
    let is_given = reader.find_any(KV_HEADS).is_some();
    if spec.layout == Layout::Blocks && !is_given {
        reader.source(fact, "block_configs or num_key_value_heads_per_layer");
        return heads;
    }
    let kv = match (spec.kv_heads, class) {
        // StarCoder, and Falcon's older form, which ignores the number where it has one head for all queries.
        (KvDefault::MultiQueryFlag, _)
            if !new_form(reader) && reader.flag_or(fact, &["multi_query"], true) =>
        {
            Some(1)
        }
        _ if is_given => reader.optional(fact, KV_HEADS, (1, MAX_HEADS)),
        (_, Some(n)) | (KvDefault::Fixed(n), None) => {
            reader.or_default(fact, KV_HEADS, (1, MAX_HEADS), n)
        }
        (KvDefault::Heads, None) => {
            reader.source(
                fact,
                format!("num_attention_heads (no {key}), rule of {}", spec.class),
            );
            heads
        }
        (KvDefault::MultiQueryFlag, None) => {
            let message = "no number of key/value heads: as many as query heads, rule of the class";
            reader.source(fact, message);
            heads
        }
        (KvDefault::Required, None) => reader.required(fact, KV_HEADS, MAX_HEADS),
    };
    let (kv, heads) = (kv?, heads?);
    if !heads.is_multiple_of(kv) {
        let message =
            format!("the checkpoint is broken: {heads} query heads are not a multiple of {kv}");
        reader.violations.add(key, message);
        return None;
    }
    Some(kv)
}

fn read_head_dim(
    reader: &mut Reader<'_>,
    spec: &Spec,
    hidden: Option<u32>,
    heads: Option<u32>,
) -> Option<u32> {
    let fact = "head_dim";
    // Latent attention says its own sizes; a head_dim beside them is the rotary part or nothing.
    if spec.attention != AttentionForm::Heads {
        return Some(1);
    }
    if reader.find_any(HEAD_DIM).is_some() {
        return reader.optional(fact, HEAD_DIM, (1, MAX_HEAD_DIM));
    }
    if let HeadDim::Fixed(n) = spec.head_dim {
        return reader.or_default(fact, HEAD_DIM, (1, MAX_HEAD_DIM), n);
    }
    let (hidden, heads) = (hidden?, heads?);
    if !hidden.is_multiple_of(heads) {
        let message = format!(
            "the checkpoint is broken: hidden_size {hidden} is not a multiple of {heads} heads and head_dim is absent"
        );
        reader.violations.add(fact, message);
        return None;
    }
    reader.source(fact, "hidden_size / num_attention_heads");
    Some(hidden / heads)
}

/// Falcon's newer form, in which attention and MLP have a norm each.
fn new_form(reader: &mut Reader<'_>) -> bool {
    reader.flag_or(
        "new_decoder_architecture",
        &["new_decoder_architecture"],
        false,
    )
}

fn read_norms(reader: &mut Reader<'_>, spec: &Spec) -> u32 {
    if spec.class != "FalconConfig" || new_form(reader) {
        return spec.norms_per_layer;
    }
    let parallel = reader.flag_or("parallel_attn", &["parallel_attn"], true);
    if parallel { 1 } else { spec.norms_per_layer }
}

fn read_qk_norm(reader: &mut Reader<'_>, norm: QkNorm) -> QueryKeyNorm {
    let mut flagged = |keys: Keys, default: bool, form: QueryKeyNorm| {
        if reader.flag_or("qk_norm", keys, default) {
            form
        } else {
            QueryKeyNorm::None
        }
    };
    match norm {
        QkNorm::None => QueryKeyNorm::None,
        QkNorm::Head => QueryKeyNorm::Head,
        QkNorm::Whole => QueryKeyNorm::Whole,
        QkNorm::HeadFlag(keys, default) => flagged(keys, default, QueryKeyNorm::Head),
        QkNorm::WholeFlag(keys, default) => flagged(keys, default, QueryKeyNorm::Whole),
    }
}

/// MPT has a position table only without ALiBi, and says so inside `attn_config`.
fn read_position_rows(reader: &mut Reader<'_>, spec: &Spec, positions: Option<u32>) -> u32 {
    let positions = positions.unwrap_or(0);
    if let Some(extra) = spec.learned_positions {
        reader.source(
            "position_rows",
            format!("max_position + {extra}, rule of {}", spec.class),
        );
        return positions + extra;
    }
    if spec.model_types.first() != Some(&"mpt") {
        return 0;
    }
    let alibi = reader
        .find("attn_config")
        .and_then(|(_, config)| config.get("alibi").and_then(serde_json::Value::as_bool));
    if alibi.is_none() {
        reader.default_used("position_rows", "attn_config.alibi", true);
    } else {
        reader.source("position_rows", "attn_config.alibi");
    }
    if alibi == Some(false) { positions } else { 0 }
}

/// Fields that change the parameter count in ways not written down here.
fn refuse_unmodelled(reader: &mut Reader<'_>, hidden: Option<u32>) {
    let not_modelled = [
        (
            "hidden_size_per_layer_input",
            0,
            "embeddings of their own in every layer",
        ),
        ("num_zero_experts", 0, "experts that do nothing"),
    ];
    for (key, harmless, what) in not_modelled {
        if let Some((path, value)) = reader.find(key)
            && value.as_u64() != Some(harmless)
        {
            let message = format!("{what} are not modelled; only {harmless} is");
            reader.violations.add(path, message);
        }
    }
    if let (Some((path, value)), Some(hidden)) = (reader.find("word_embed_proj_dim"), hidden)
        && value.as_u64() != Some(u64::from(hidden))
    {
        let message =
            format!("an embedding of another width than hidden ({hidden}) is not modelled");
        reader.violations.add(path, message);
    }
    if let Some((path, value)) = reader.find("is_encoder_decoder")
        && value.as_bool() == Some(true)
    {
        reader.violations.add(
            path,
            "encoder-decoder models are not modelled; serve a decoder",
        );
    }
}
