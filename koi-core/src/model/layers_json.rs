//! Which layer is of which kind: explicit lists first, then the rule of the architecture.
//!
//! What a kind weighs is [`super::modules`]; recurrent layers' sizes are [`super::recurrent_json`].

mod explicit;
mod windows;

use super::moe_json::Moe;
use super::plan::{HeadsPlan, LatentPlan, LayerPlan, Mixer, Mlp};
use super::reader::Reader;
use super::recurrent_json::{read_delta, read_mamba1, read_mamba2};
use super::shape::{Basics, MAX_HEAD_DIM, MAX_HEADS, MAX_WIDTH};
use super::spec::{AttentionForm, Layout, Shared, Spec};

/// The layers in order; `None` when a problem was reported.
pub(super) fn read_layers(
    reader: &mut Reader<'_>,
    spec: &Spec,
    basics: &Basics,
    moe: Option<&Moe>,
) -> Option<Vec<LayerPlan>> {
    if spec.layout == Layout::PatternString {
        return explicit::pattern_string(reader, basics);
    }
    if spec.layout == Layout::Blocks {
        return explicit::blocks(reader, basics);
    }
    let mixers = read_mixers(reader, spec, basics)?;
    let mlps = (0..basics.layers as usize).map(|layer| mlp_of(spec, basics, moe, layer));
    let layers: Option<Vec<LayerPlan>> = mixers
        .into_iter()
        .zip(mlps)
        .map(|(mixer, mlp)| Some(LayerPlan { mixer, mlp: mlp? }))
        .collect();
    if layers.is_none() {
        reader.missing(
            &["intermediate_size"],
            "the width of the dense layers".to_owned(),
        );
    }
    layers
}

/// The MLP of one layer; `None` when its width is not known.
fn mlp_of(spec: &Spec, basics: &Basics, moe: Option<&Moe>, layer: usize) -> Option<Mlp> {
    let Some(moe) = moe else {
        return Some(Mlp::Dense {
            width: basics.intermediate?,
        });
    };
    let is_routed = moe.is_routed.get(layer).copied().unwrap_or(true);
    if !is_routed {
        let width = moe.dense_width.or(basics.intermediate)?;
        return Some(Mlp::Dense { width });
    }
    match spec.moe.map(|m| m.shared) {
        Some(Shared::Dense) => Some(Mlp::RoutedAndDense {
            width: basics.intermediate?,
        }),
        _ => Some(Mlp::Routed),
    }
}

/// Attention over heads that sees everything.
pub(super) const fn full_heads(basics: &Basics) -> HeadsPlan {
    HeadsPlan {
        heads: basics.heads,
        kv_heads: basics.kv_heads,
        head_dim: basics.head_dim,
        window: None,
        gated: false,
        value_is_key: false,
        caches: true,
    }
}

fn read_mixers(reader: &mut Reader<'_>, spec: &Spec, basics: &Basics) -> Option<Vec<Mixer>> {
    let everywhere = |mixer: Mixer| Some(vec![mixer; basics.layers as usize]);
    if spec.attention != AttentionForm::Heads {
        let indexed = spec.attention == AttentionForm::IndexedLatent;
        let latent = read_latent(reader, basics, indexed)?;
        reader.source(
            "layer_kinds",
            "latent attention everywhere, rule of the class",
        );
        return everywhere(Mixer::Latent(latent));
    }
    match spec.layout {
        Layout::LinearInterval(default) => {
            let delta = Mixer::Delta(read_delta(reader)?);
            let gate = reader.flag_or("attention_gate", &["attn_output_gate"], true);
            let full = Mixer::Heads(HeadsPlan {
                gated: gate,
                ..full_heads(basics)
            });
            let is_full = explicit::linear_order(reader, basics.layers, default)?;
            Some(
                is_full
                    .into_iter()
                    .map(|f| if f { full } else { delta })
                    .collect(),
            )
        }
        Layout::Period => {
            let mamba = Mixer::Mamba1(read_mamba1(reader, basics.hidden)?);
            let full = Mixer::Heads(full_heads(basics));
            let is_full = explicit::period_order(reader, basics.layers)?;
            Some(
                is_full
                    .into_iter()
                    .map(|f| if f { full } else { mamba })
                    .collect(),
            )
        }
        Layout::MambaOrder => {
            let mamba = Mixer::Mamba2(read_mamba2(reader)?);
            let full = Mixer::Heads(full_heads(basics));
            let is_full = explicit::mamba_order(reader, basics.layers)?;
            Some(
                is_full
                    .into_iter()
                    .map(|f| if f { full } else { mamba })
                    .collect(),
            )
        }
        Layout::Full
        | Layout::Window(_)
        | Layout::Alternating
        | Layout::EveryNth(_)
        | Layout::UpperLayers
        | Layout::Chunks => windows::read_windowed(reader, spec.layout, basics),
        // Read before: these two say the whole layer.
        Layout::PatternString | Layout::Blocks => None,
    }
}

fn read_latent(reader: &mut Reader<'_>, basics: &Basics, indexed: bool) -> Option<LatentPlan> {
    let kv_rank = reader.required("kv_lora_rank", &["kv_lora_rank"], MAX_WIDTH);
    let nope_dim = reader.required("qk_nope_head_dim", &["qk_nope_head_dim"], MAX_HEAD_DIM);
    let rope_dim = reader.required("qk_rope_head_dim", &["qk_rope_head_dim"], MAX_HEAD_DIM);
    let value_dim = reader.required("v_head_dim", &["v_head_dim"], MAX_HEAD_DIM);
    let query_rank = if reader.find("q_lora_rank").is_some() {
        Some(reader.optional("q_lora_rank", &["q_lora_rank"], (1, MAX_WIDTH))?)
    } else {
        if !reader.is_null(&["q_lora_rank"]) {
            reader.missing(
                &["q_lora_rank"],
                "the rank, or null for a full query".to_owned(),
            );
            return None;
        }
        reader.source(
            "q_lora_rank",
            "q_lora_rank is null: a full query projection",
        );
        None
    };
    let index = if indexed {
        let heads = reader.required("index_n_heads", &["index_n_heads"], MAX_HEADS);
        let dim = reader.required("index_head_dim", &["index_head_dim"], MAX_HEAD_DIM);
        let top = reader.required("index_topk", &["index_topk"], super::shape::MAX_POSITION);
        Some((heads?, dim?, top?))
    } else {
        None
    };
    let (nope_dim, rope_dim) = (nope_dim?, rope_dim?);
    let sum = nope_dim + rope_dim;
    if let Some(stated) = reader.optional("qk_head_dim", &["qk_head_dim"], (1, 2 * MAX_HEAD_DIM))
        && stated != sum
    {
        let message = format!("is {stated}, but qk_nope_head_dim + qk_rope_head_dim is {sum}");
        reader.violations.add("qk_head_dim", message);
        return None;
    }
    reader.source("head_dim", "qk_nope_head_dim + qk_rope_head_dim");
    reader.source(
        "kv_heads",
        "one latent of kv_lora_rank + qk_rope_head_dim for all heads",
    );
    Some(LatentPlan {
        heads: basics.heads,
        query_rank,
        kv_rank: kv_rank?,
        nope_dim,
        rope_dim,
        value_dim: value_dim?,
        index,
    })
}
