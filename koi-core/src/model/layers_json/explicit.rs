//! Layers that a config lists one by one: pattern strings, blocks, intervals and periods.

use serde_json::Value;

use super::full_heads;
use crate::model::json_text::shown;
use crate::model::plan::{HeadsPlan, LayerPlan, Mixer, Mlp, WindowKind};
use crate::model::reader::{Reader, whole_number};
use crate::model::recurrent_json::read_mamba2;
use crate::model::shape::{Basics, MAX_HEADS, MAX_LAYERS, MAX_POSITION, MAX_WIDTH};
use crate::model::spec::Keys;

/// `hybrid_override_pattern`: `M` is Mamba-2, `*` attention, `-` an MLP.
pub(super) fn pattern_string(reader: &mut Reader<'_>, basics: &Basics) -> Option<Vec<LayerPlan>> {
    let key = "hybrid_override_pattern";
    let Some((path, value)) = reader.find(key) else {
        let what = format!("{} letters of M, * and -", basics.layers);
        reader.missing(&["hybrid_override_pattern"], what);
        return None;
    };
    let pattern = value.as_str().unwrap_or_default();
    let n = pattern.chars().count();
    if n != basics.layers as usize {
        let message = format!("has {n} letters for {} layers", basics.layers);
        reader.violations.add(path, message);
        return None;
    }
    let mamba = Mixer::Mamba2(read_mamba2(reader)?);
    let attention = Mixer::Heads(full_heads(basics));
    let width = basics.intermediate?;
    let mut layers = vec![];
    for letter in pattern.chars() {
        let (mixer, mlp) = match letter {
            'M' => (mamba, Mlp::None),
            '*' => (attention, Mlp::None),
            '-' => (Mixer::None, Mlp::Dense { width }),
            other => {
                let message = format!("{other:?} layers are not modelled; M, * and - are");
                reader.violations.add(path, message);
                return None;
            }
        };
        layers.push(LayerPlan { mixer, mlp });
    }
    reader.source("layer_kinds", path);
    Some(layers)
}

/// `block_configs`, or `num_key_value_heads_per_layer` beside one width.
pub(super) fn blocks(reader: &mut Reader<'_>, basics: &Basics) -> Option<Vec<LayerPlan>> {
    if let Some((path, value)) = reader.find("block_configs") {
        let blocks = value
            .as_array()
            .filter(|b| b.len() == basics.layers as usize);
        let Some(blocks) = blocks else {
            let message = format!("must be a list of {} blocks", basics.layers);
            reader.violations.add(path, message);
            return None;
        };
        reader.source("layer_kinds", path.clone());
        reader.source("intermediate", format!("{path}[].ffn"));
        let blocks = blocks.iter().enumerate();
        return blocks
            .map(|(i, block)| one_block(reader, basics, &format!("{path}[{i}]"), block))
            .collect();
    }
    let keys: Keys = &["num_key_value_heads_per_layer"];
    let Some(width) = basics.intermediate else {
        reader.missing(
            &["block_configs"],
            "a list of blocks, or intermediate_size".to_owned(),
        );
        return None;
    };
    let mlp = Mlp::Dense { width };
    if reader.find_any(keys).is_none() {
        let mixer = Mixer::Heads(full_heads(basics));
        reader.source(
            "layer_kinds",
            "full attention everywhere, rule of the class",
        );
        return Some(vec![LayerPlan { mixer, mlp }; basics.layers as usize]);
    }
    let per_layer = reader.numbers(keys, MAX_LAYERS as usize, MAX_HEADS)?;
    let is_legal = |kv: &u32| *kv > 0 && basics.heads.is_multiple_of(*kv);
    if per_layer.len() != basics.layers as usize || !per_layer.iter().all(is_legal) {
        let message = format!(
            "must have {} entries, each a divisor of the {} query heads",
            basics.layers, basics.heads
        );
        reader
            .violations
            .add("num_key_value_heads_per_layer", message);
        return None;
    }
    reader.source("layer_kinds", "num_key_value_heads_per_layer");
    let layer = |kv_heads| {
        let mixer = Mixer::Heads(HeadsPlan {
            kv_heads,
            ..full_heads(basics)
        });
        LayerPlan { mixer, mlp }
    };
    Some(per_layer.into_iter().map(layer).collect())
}

fn one_block(
    reader: &mut Reader<'_>,
    basics: &Basics,
    path: &str,
    block: &Value,
) -> Option<LayerPlan> {
    let part = |name: &str| block.get(name).unwrap_or(&Value::Null);
    let is_set = |v: &Value, key: &str| v.get(key).and_then(Value::as_bool) == Some(true);
    let (attention, ffn) = (part("attention"), part("ffn"));
    for (name, v) in [("attention", attention), ("ffn", ffn)] {
        if is_set(v, "replace_with_linear") {
            let field = format!("{path}.{name}.replace_with_linear");
            reader
                .violations
                .add(field, "a linear stand-in is not modelled");
            return None;
        }
    }
    let mixer = if is_set(attention, "no_op") {
        Mixer::None
    } else {
        let group = attention.get("n_heads_in_group").and_then(whole_number);
        let group = group.filter(|g| *g > 0 && basics.heads.is_multiple_of(*g));
        let Some(group) = group else {
            let message = format!("must divide the {} query heads", basics.heads);
            let field = format!("{path}.attention.n_heads_in_group");
            reader.violations.add(field, message);
            return None;
        };
        let window = attention.get("window_length").and_then(whole_number);
        Mixer::Heads(HeadsPlan {
            kv_heads: basics.heads / group,
            window: window
                .filter(|w| (1..MAX_POSITION).contains(w) && *w < basics.max_position)
                .map(|w| (WindowKind::Sliding, w)),
            ..full_heads(basics)
        })
    };
    let mlp = if is_set(ffn, "no_op") {
        Mlp::None
    } else {
        let width = block_width(ffn, basics.hidden);
        let Some(width) = width.filter(|w| (1..=MAX_WIDTH).contains(w)) else {
            let message = "needs ffn_mult or intermediate_size, a number above 0";
            reader.violations.add(format!("{path}.ffn"), message);
            return None;
        };
        Mlp::Dense { width }
    };
    Some(LayerPlan { mixer, mlp })
}

/// Width of a block: stated, or ⅔·2·mult·hidden rounded up to a multiple of 256.
fn block_width(ffn: &Value, hidden: u32) -> Option<u32> {
    if let Some(stated) = ffn.get("intermediate_size").and_then(whole_number) {
        return Some(stated);
    }
    let mult = ffn.get("ffn_mult").and_then(Value::as_f64)?;
    let width = (2.0 * mult * f64::from(hidden) / 3.0).floor();
    // The bound makes the conversion exact.
    (1.0..=f64::from(MAX_WIDTH))
        .contains(&width)
        .then(|| (width as u32).next_multiple_of(256))
}

/// Which layers are full attention beside linear ones.
pub(super) fn linear_order(
    reader: &mut Reader<'_>,
    layers: u32,
    default: u32,
) -> Option<Vec<bool>> {
    let Some((path, list)) = reader.find("layer_types") else {
        let keys: Keys = &["full_attention_interval"];
        let n = reader.or_default("layer_kinds", keys, (1, MAX_LAYERS), default)?;
        return Some((0..layers).map(|l| (l + 1).is_multiple_of(n)).collect());
    };
    two_words(
        reader,
        (path, list),
        layers,
        ["full_attention", "linear_attention"],
    )
}

/// Which layers are attention beside Mamba.
pub(super) fn mamba_order(reader: &mut Reader<'_>, layers: u32) -> Option<Vec<bool>> {
    for key in ["layer_types", "layers_block_type"] {
        if let Some((path, list)) = reader.find(key) {
            return two_words(reader, (path, list), layers, ["attention", "mamba"]);
        }
    }
    let keys: Keys = &["attn_layer_indices"];
    if reader.find_any(keys).is_none() {
        reader.missing(keys, "the numbers of the attention layers".to_owned());
        return None;
    }
    let listed = reader.numbers(keys, layers as usize, layers.saturating_sub(1))?;
    reader.source("layer_kinds", "attn_layer_indices");
    Some((0..layers).map(|l| listed.contains(&l)).collect())
}

/// A list with one of two words for each layer; true for the first.
fn two_words(
    reader: &mut Reader<'_>,
    (path, list): (String, &Value),
    layers: u32,
    [yes, no]: [&str; 2],
) -> Option<Vec<bool>> {
    let word = |v: &Value| match v.as_str() {
        Some(text) if text == yes => Ok(true),
        Some(text) if text == no => Ok(false),
        _ => Err(format!(
            "{} is not modelled here; {yes} and {no} are",
            shown(&v.to_string())
        )),
    };
    let words = list.as_array().filter(|w| w.len() == layers as usize);
    let order = match words {
        None => Err(format!(
            "must be a list of {layers} words, one for each layer"
        )),
        Some(words) => words
            .iter()
            .map(word)
            .collect::<Result<Vec<bool>, String>>(),
    };
    match order {
        Ok(order) => {
            reader.source("layer_kinds", path);
            Some(order)
        }
        Err(message) => {
            reader.violations.add(path, message);
            None
        }
    }
}

/// Jamba: attention where the layer number is the offset modulo the period.
pub(super) fn period_order(reader: &mut Reader<'_>, layers: u32) -> Option<Vec<bool>> {
    let fact = "layer_kinds";
    let period = reader.or_default(fact, &["attn_layer_period"], (1, MAX_LAYERS), 8)?;
    let offset = reader.or_default(fact, &["attn_layer_offset"], (0, MAX_LAYERS), 4)?;
    reader.source(fact, "attn_layer_period and attn_layer_offset");
    Some((0..layers).map(|l| l % period == offset % period).collect())
}
