//! Layers that forget: sliding windows, chunks, and which layers have them.

use serde_json::Value;

use super::full_heads;
use crate::model::json_text::shown;
use crate::model::plan::{HeadsPlan, Mixer, WindowKind};
use crate::model::reader::Reader;
use crate::model::shape::{Basics, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_POSITION};
use crate::model::spec::{Keys, Layout};

const WINDOW: Keys = &["sliding_window", "sliding_window_size"];
const CHUNK: Keys = &["attention_chunk_size"];

/// What one layer sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Full,
    Sliding,
    Chunk,
}

/// Attention of every layer.
pub(super) fn read_windowed(
    reader: &mut Reader<'_>,
    layout: Layout,
    basics: &Basics,
) -> Option<Vec<Mixer>> {
    let sights = match reader.find("layer_types") {
        Some((path, list)) => listed(reader, &path, list, basics.layers)?,
        None => by_rule(reader, layout, basics.layers)?,
    };
    let sliding = window_of(reader, &sights, Sight::Sliding, layout)?;
    let chunk = window_of(reader, &sights, Sight::Chunk, layout)?;
    let (global, shared) = global_layers(reader, basics)?;
    let n_caching = basics.layers.saturating_sub(shared);
    let seen = |sight: Sight| match sight {
        Sight::Full => (global, None),
        Sight::Sliding => (
            full_heads(basics),
            sliding.map(|w| (WindowKind::Sliding, w)),
        ),
        Sight::Chunk => (full_heads(basics), chunk.map(|w| (WindowKind::Chunked, w))),
    };
    // A window as long as the context forgets nothing.
    let longest = basics.max_position;
    let mixers = (0..).zip(sights).map(|(layer, sight): (u32, Sight)| {
        let (heads, window) = seen(sight);
        Mixer::Heads(HeadsPlan {
            window: window.filter(|(_, tokens)| *tokens < longest),
            caches: layer < n_caching,
            ..heads
        })
    });
    Some(mixers.collect())
}

/// `layer_types`: one word a layer.
fn listed(reader: &mut Reader<'_>, path: &str, list: &Value, layers: u32) -> Option<Vec<Sight>> {
    let words = list
        .as_array()
        .filter(|words| words.len() == layers as usize);
    let Some(words) = words else {
        let message = format!("must be a list of {layers} words, one for each layer");
        reader.violations.add(path, message);
        return None;
    };
    let mut sights = vec![];
    for word in words {
        sights.push(match word.as_str() {
            Some("full_attention" | "attention") => Sight::Full,
            Some("sliding_attention") => Sight::Sliding,
            Some("chunked_attention") => Sight::Chunk,
            _ => {
                let got = shown(&word.to_string());
                let message = format!(
                    "{got} is not modelled here; full_attention, sliding_attention and chunked_attention are"
                );
                reader.violations.add(path, message);
                return None;
            }
        });
    }
    reader.source("layer_kinds", path);
    Some(sights)
}

/// The rule of the architecture.
fn by_rule(reader: &mut Reader<'_>, layout: Layout, layers: u32) -> Option<Vec<Sight>> {
    let fact = "layer_kinds";
    let pick = |is_full: &dyn Fn(u32) -> bool, other: Sight| -> Vec<Sight> {
        let sight = |l| if is_full(l) { Sight::Full } else { other };
        (0..layers).map(sight).collect()
    };
    let sights = match layout {
        Layout::Window(default) => {
            let window = reader.find_any(WINDOW).is_some();
            let by_class = default.is_some() && !reader.is_null(WINDOW);
            let rule = if window || by_class {
                "sliding_window in every layer, rule of the class"
            } else {
                "full attention everywhere (no sliding_window)"
            };
            reader.source(fact, rule);
            pick(&|_| !window && !by_class, Sight::Sliding)
        }
        Layout::Alternating => {
            reader.source(
                fact,
                "even layers slide, odd ones are full, rule of the class",
            );
            pick(&|l| l % 2 == 1, Sight::Sliding)
        }
        Layout::EveryNth(default) => {
            let keys: Keys = &["sliding_window_pattern", "_sliding_window_pattern"];
            let n = reader.or_default(fact, keys, (1, MAX_LAYERS), default)?;
            pick(&|l| (l + 1).is_multiple_of(n), Sight::Sliding)
        }
        Layout::UpperLayers => {
            if reader.flag_or(fact, &["use_sliding_window"], false) {
                let keys: Keys = &["max_window_layers"];
                let first = reader.or_default(fact, keys, (0, MAX_LAYERS), 28)?;
                pick(&|l| l < first, Sight::Sliding)
            } else {
                pick(&|_| true, Sight::Sliding)
            }
        }
        Layout::Chunks => chunks(reader, layers)?,
        Layout::Full
        | Layout::LinearInterval(_)
        | Layout::PatternString
        | Layout::Blocks
        | Layout::MambaOrder
        | Layout::Period => {
            reader.source(fact, "full attention everywhere, rule of the class");
            pick(&|_| true, Sight::Sliding)
        }
    };
    Some(sights)
}

/// Llama 4: layers without rotary positions see everything.
fn chunks(reader: &mut Reader<'_>, layers: u32) -> Option<Vec<Sight>> {
    let list = match reader.find("no_rope_layers") {
        Some(_) => reader.numbers(&["no_rope_layers"], layers as usize, 1)?,
        None => vec![],
    };
    let sight = |has_rope: bool| if has_rope { Sight::Chunk } else { Sight::Full };
    if list.is_empty() {
        let keys: Keys = &["no_rope_layer_interval"];
        let n = reader.or_default("layer_kinds", keys, (1, MAX_LAYERS), 4)?;
        return Some(
            (0..layers)
                .map(|l| sight(!(l + 1).is_multiple_of(n)))
                .collect(),
        );
    }
    if list.len() != layers as usize {
        let message = format!("must have {layers} entries, one for each layer, or none");
        reader.violations.add("no_rope_layers", message);
        return None;
    }
    reader.source("layer_kinds", "no_rope_layers");
    Some(
        list.into_iter()
            .map(|has_rope| sight(has_rope == 1))
            .collect(),
    )
}

/// The window of the layers of one sight; the outer `None` is a reported problem.
fn window_of(
    reader: &mut Reader<'_>,
    sights: &[Sight],
    sight: Sight,
    layout: Layout,
) -> Option<Option<u32>> {
    if !sights.contains(&sight) {
        return Some(None);
    }
    let (fact, keys) = match sight {
        Sight::Chunk => ("attention_chunk", CHUNK),
        Sight::Full | Sight::Sliding => ("sliding_window", WINDOW),
    };
    if reader.is_null(keys) && reader.find_any(keys).is_none() {
        let field = keys.first().copied().unwrap_or_default();
        if sight == Sight::Chunk {
            reader.source(fact, format!("{field} is null: nothing is forgotten"));
            return Some(None);
        }
        let message = "is null, but layers slide; write the window in tokens";
        reader.violations.add(field, message);
        return None;
    }
    match layout {
        Layout::Window(Some(default)) => reader
            .or_default(fact, keys, (1, MAX_POSITION), default)
            .map(Some),
        _ => reader.required(fact, keys, MAX_POSITION).map(Some),
    }
}

/// Heads of the layers that see everything, where they differ from the others, and how many layers
/// at the end use the keys and values of earlier ones.
fn global_layers(reader: &mut Reader<'_>, basics: &Basics) -> Option<(HeadsPlan, u32)> {
    let plain = full_heads(basics);
    let mut number = |key: Keys, max: u32, fallback: u32| match reader.find_any(key) {
        Some(_) => reader.optional(key.first().copied()?, key, (1, max)),
        None => Some(fallback),
    };
    let head_dim = number(&["global_head_dim"], MAX_HEAD_DIM, plain.head_dim)?;
    let kv_heads = number(&["num_global_key_value_heads"], MAX_HEADS, plain.kv_heads)?;
    let keys: Keys = &["attention_k_eq_v"];
    let value_is_key =
        reader.find_any(keys).is_some() && reader.flag_or("value_is_key", keys, false);
    let keys: Keys = &["num_kv_shared_layers"];
    let shared = match reader.find_any(keys) {
        Some(_) => reader.optional("kv_shared_layers", keys, (0, basics.layers))?,
        None => 0,
    };
    if !plain.heads.is_multiple_of(kv_heads) {
        let message = format!(
            "{} query heads are not a multiple of {kv_heads}",
            plain.heads
        );
        reader.violations.add("num_global_key_value_heads", message);
        return None;
    }
    let global = HeadsPlan {
        kv_heads,
        head_dim,
        value_is_key,
        ..plain
    };
    Some((global, shared))
}
