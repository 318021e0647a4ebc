//! From a shape and its formats to [`ModelFacts`]: pieces summed by part and by kind of layer.
//!
//! Not read from the config: everything here follows from [`Shape`]. Spec §4.

use std::collections::BTreeMap;

use super::kinds::{LayerKind, LayerWeights, MixerKind, MlpKind, Part, PartSum, WeightSum};
use super::modules::{Module, Piece, Share, visit_layer};
use super::plan::{LatentPlan, LayerPlan, Mixer, Mlp, WindowKind};
use super::quantization::Quantization;
use super::shape::Shape;
use super::totals::Totals;
use super::{ModelFacts, WeightDtype};
use crate::violation::FieldViolation;

/// What is told beside the numbers.
#[derive(Debug, Default)]
pub(super) struct Provenance {
    pub(super) sources: BTreeMap<String, String>,
    pub(super) notes: Vec<FieldViolation>,
}

/// The facts of a shape.
pub(super) fn assemble(
    shape: &Shape,
    quantization: &Quantization,
    state_dtype: Option<WeightDtype>,
    provenance: Provenance,
) -> ModelFacts {
    let mut sums = PartSums::new(quantization);
    let (kinds, order) = layer_kinds(shape, quantization, state_dtype, &mut sums);
    sums.tables(shape);
    let parts = sums.finish(shape);
    let first_dense = shape.layers.iter().find_map(|layer| match layer.mlp {
        Mlp::Dense { width } | Mlp::RoutedAndDense { width } => Some(width),
        Mlp::None | Mlp::Routed => None,
    });
    let attention = kinds.iter().find(|k| k.kv_heads > 0);
    let total = |pick: fn(&PartSum) -> u64| parts.iter().map(pick).sum();
    let facts = quantization.facts.clone();
    let totals = Totals::of(&kinds);
    ModelFacts {
        architecture: shape.architecture,
        layers: u32::try_from(shape.layers.len()).unwrap_or(u32::MAX),
        hidden: shape.hidden,
        heads: shape.heads,
        kv_heads: attention.map_or(shape.kv_heads, |k| k.kv_heads),
        head_dim: attention.map_or(shape.head_dim, |k| k.head_dim),
        intermediate: first_dense.or(shape.intermediate).unwrap_or(0),
        vocab: shape.vocab,
        tied_embeddings: shape.tied,
        moe: shape.moe,
        max_position: shape.max_position,
        params_total: total(|p| p.params),
        params_active: total(|p| p.active_params),
        native_weight_dtype: facts.as_ref().map_or(quantization.base, |f| f.weight_dtype),
        quantization_group: facts.as_ref().and_then(|f| f.group),
        base_dtype: quantization.base,
        quantization: facts,
        kinds,
        order,
        parts,
        totals,
        sources: provenance.sources,
        notes: provenance.notes,
    }
    .with_rules()
}

/// Kinds in order of first appearance, and which kind each layer is.
fn layer_kinds(
    shape: &Shape,
    quantization: &Quantization,
    state_dtype: Option<WeightDtype>,
    sums: &mut PartSums<'_>,
) -> (Vec<LayerKind>, Vec<u16>) {
    let mut kinds: Vec<LayerKind> = vec![];
    let mut order = vec![];
    let layers_differ = quantization.layers_differ();
    // Layers of one plan weigh the same unless the quantization tells layers apart.
    let mut built: Vec<(LayerPlan, usize)> = vec![];
    for (layer, plan) in (0_u32..).zip(&shape.layers) {
        let known = built
            .iter()
            .find(|(seen, _)| seen == plan)
            .map(|(_, at)| *at);
        let weights = sums.layer(shape, plan, layer);
        let at = match known.filter(|_| !layers_differ) {
            Some(at) => at,
            None => {
                let kind = describe(shape, plan, quantization.base, state_dtype, weights);
                let at = kinds.iter().position(|k| same_but_count(k, &kind));
                at.unwrap_or_else(|| {
                    kinds.push(kind);
                    kinds.len() - 1
                })
            }
        };
        if known.is_none() {
            built.push((*plan, at));
        }
        if let Some(kind) = kinds.get_mut(at) {
            kind.layers += 1;
        }
        order.push(u16::try_from(at).unwrap_or(u16::MAX));
    }
    if kinds.len() == 1 {
        order.clear();
    }
    (kinds, order)
}

fn same_but_count(a: &LayerKind, b: &LayerKind) -> bool {
    LayerKind { layers: 0, ..*a } == LayerKind { layers: 0, ..*b }
}

/// A layer's kind without its count.
fn describe(
    shape: &Shape,
    plan: &LayerPlan,
    base: WeightDtype,
    state_dtype: Option<WeightDtype>,
    built: BuiltLayer,
) -> LayerKind {
    let (mlp, dense_width) = match plan.mlp {
        Mlp::None => (MlpKind::None, None),
        Mlp::Dense { width } => (MlpKind::Dense, Some(width)),
        Mlp::Routed => (
            MlpKind::Routed,
            shape.moe.and_then(|m| m.shared_intermediate),
        ),
        Mlp::RoutedAndDense { width } => (MlpKind::RoutedAndDense, Some(width)),
    };
    let mut kind = LayerKind {
        layers: 0,
        mixer: MixerKind::None,
        mlp,
        heads: 0,
        kv_heads: 0,
        head_dim: 0,
        state_groups: None,
        dense_width,
        window: None,
        read_limit: None,
        kv_elements_per_head: 0,
        index_bytes_per_token: 0,
        state_bytes: 0,
        decode_pair_flops: 0.0,
        prefill_pair_flops: 0.0,
        index_pair_flops: 0.0,
        state_flops: 0.0,
        attention_quantized: built.attention_quantized,
        mlp_quantized: built.mlp_quantized,
        experts_quantized: built.experts_quantized,
        weights: built.weights,
    };
    describe_mixer(&mut kind, plan.mixer, base, state_dtype);
    kind
}

/// Cache, state and operations of a mixer.
///
/// # Formula
/// A pair of tokens costs 4·a·d over heads (scores and values). A latent costs 2·a·(2·c+r) where it
/// is read as it is (decoding) and 2·a·(n+r+v) where it is unfolded (prefill). A state of s numbers
/// costs about 6·s a token: decay, update and read, a multiplication and an addition each.
fn describe_mixer(
    kind: &mut LayerKind,
    mixer: Mixer,
    base: WeightDtype,
    state_dtype: Option<WeightDtype>,
) {
    let base_bytes = base.activation_bytes() as u64;
    let state_bytes = state_dtype.map_or(base_bytes, |d| d.activation_bytes() as u64);
    let recurrent = |kind: &mut LayerKind, state: u64, conv: u64| {
        kind.state_bytes = state * state_bytes + conv * base_bytes;
        kind.state_flops = 6.0 * state as f64;
    };
    match mixer {
        Mixer::None => {}
        Mixer::Heads(plan) => {
            kind.mixer = match plan.window {
                None => MixerKind::Full,
                Some((WindowKind::Sliding, _)) => MixerKind::Sliding,
                Some((WindowKind::Chunked, _)) => MixerKind::Chunked,
            };
            (kind.heads, kind.head_dim) = (plan.heads, plan.head_dim);
            kind.window = plan.window.map(|(_, tokens)| tokens);
            if plan.caches {
                kind.kv_heads = plan.kv_heads;
                kind.kv_elements_per_head = 2 * plan.head_dim;
            }
            let flops = 4.0 * f64::from(plan.heads) * f64::from(plan.head_dim);
            (kind.decode_pair_flops, kind.prefill_pair_flops) = (flops, flops);
        }
        Mixer::Latent(plan) => describe_latent(kind, &plan),
        Mixer::Mamba2(plan) => {
            kind.mixer = MixerKind::Mamba;
            (kind.heads, kind.head_dim) = (plan.heads, plan.head_dim);
            kind.state_groups = Some(plan.groups);
            let inner = u64::from(plan.heads) * u64::from(plan.head_dim);
            let width = inner + 2 * u64::from(plan.groups) * u64::from(plan.state);
            let conv = width * u64::from(plan.kernel.saturating_sub(1));
            recurrent(kind, inner * u64::from(plan.state), conv);
        }
        Mixer::Mamba1(plan) => {
            kind.mixer = MixerKind::Mamba;
            (kind.heads, kind.head_dim) = (plan.inner, 1);
            let inner = u64::from(plan.inner);
            let conv = inner * u64::from(plan.kernel.saturating_sub(1));
            recurrent(kind, inner * u64::from(plan.state), conv);
        }
        Mixer::Delta(plan) => {
            kind.mixer = MixerKind::Linear;
            (kind.heads, kind.head_dim) = (plan.value_heads, plan.value_dim);
            kind.state_groups = Some(plan.key_heads);
            let values = u64::from(plan.value_heads) * u64::from(plan.value_dim);
            let width = values + 2 * u64::from(plan.key_heads) * u64::from(plan.key_dim);
            let conv = width * u64::from(plan.kernel.saturating_sub(1));
            recurrent(kind, values * u64::from(plan.key_dim), conv);
        }
    }
}

/// A latent, and the index that selects what is read of it.
fn describe_latent(kind: &mut LayerKind, plan: &LatentPlan) {
    let heads = f64::from(plan.heads);
    kind.mixer = MixerKind::Latent;
    kind.heads = plan.heads;
    kind.kv_heads = 1;
    kind.head_dim = plan.nope_dim + plan.rope_dim;
    kind.kv_elements_per_head = plan.kv_rank + plan.rope_dim;
    let read = 2.0 * f64::from(plan.kv_rank) + f64::from(plan.rope_dim);
    kind.decode_pair_flops = 2.0 * heads * read;
    let unfolded = plan.nope_dim + plan.rope_dim + plan.value_dim;
    kind.prefill_pair_flops = 2.0 * heads * f64::from(unfolded);
    if let Some((index_heads, dim, selected)) = plan.index {
        kind.mixer = MixerKind::SparseLatent;
        kind.read_limit = Some(selected);
        // An 8-bit key and a 32-bit scale for every 128 elements of it.
        kind.index_bytes_per_token = dim + 4 * dim.div_ceil(128);
        kind.index_pair_flops = 2.0 * f64::from(index_heads) * f64::from(dim);
    }
}

/// Weights of one layer and which of its parts are quantized.
#[derive(Debug, Clone, Copy, Default)]
struct BuiltLayer {
    weights: LayerWeights,
    attention_quantized: bool,
    mlp_quantized: bool,
    experts_quantized: bool,
}

/// Sums by part while layers are visited.
struct PartSums<'a> {
    quantization: &'a Quantization,
    sums: BTreeMap<Part, PartSum>,
}

impl<'a> PartSums<'a> {
    const fn new(quantization: &'a Quantization) -> Self {
        let sums = BTreeMap::new();
        Self { quantization, sums }
    }

    fn add(&mut self, part: Part, params: u64, quantized: u64, bytes: u64) {
        let sum = self.sums.entry(part).or_insert(PartSum {
            part,
            params: 0,
            active_params: 0,
            quantized_params: 0,
            stored_bytes: 0,
        });
        sum.params += params;
        sum.quantized_params += quantized;
        sum.stored_bytes += bytes;
    }

    fn base_bytes(&self, params: u64) -> u64 {
        params * self.quantization.base.activation_bytes() as u64
    }

    /// Adds a layer and returns its weights.
    fn layer(&mut self, shape: &Shape, plan: &LayerPlan, layer: u32) -> BuiltLayer {
        let mut built = BuiltLayer::default();
        let mut pieces = vec![];
        visit_layer(shape, plan, &mut |piece| pieces.push(piece));
        for piece in pieces {
            match piece {
                Piece::Small(part, params) => {
                    built.weights.small_params += params;
                    self.add(part, params, 0, self.base_bytes(params));
                }
                Piece::Matrix(module) => self.matrix(&module, layer, &mut built),
            }
        }
        built
    }

    fn matrix(&mut self, module: &Module, layer: u32, built: &mut BuiltLayer) {
        let params = module.params();
        let covered = self.quantization.covers(layer, module);
        let is_quantized = covered && self.quantization.facts.is_some();
        let bytes = if is_quantized {
            self.quantization
                .bytes(module.rows, module.cols, module.count)
        } else {
            self.base_bytes(params)
        };
        let sum: &mut WeightSum = match module.share {
            Share::Split => &mut built.weights.split,
            Share::KvHeads => &mut built.weights.kv,
            Share::Replicated => &mut built.weights.replicated,
            Share::Experts => &mut built.weights.experts,
        };
        if covered {
            sum.linear_params += params;
        } else {
            sum.kept_params += params;
        }
        sum.stored_bytes += bytes;
        let flag = match module.part {
            Part::RoutedExperts => &mut built.experts_quantized,
            Part::DenseMlp | Part::SharedExperts => &mut built.mlp_quantized,
            Part::Embedding
            | Part::Attention
            | Part::Recurrent
            | Part::Router
            | Part::Norms
            | Part::Head => &mut built.attention_quantized,
        };
        *flag |= is_quantized;
        let quantized = if is_quantized { params } else { 0 };
        self.add(module.part, params, quantized, bytes);
    }

    /// Embedding, positions, head and the last norm.
    fn tables(&mut self, shape: &Shape) {
        let spec = shape.architecture.spec();
        let hidden = u64::from(shape.hidden);
        let vocabulary = u64::from(shape.vocab) * hidden;
        let norm = hidden * if shape.biases.norm { 2 } else { 1 };
        let extra = if spec.embedding_norm { norm } else { 0 };
        let table = vocabulary + u64::from(shape.position_rows) * hidden + extra;
        self.add(Part::Embedding, table, 0, self.base_bytes(table));
        if spec.final_norm {
            self.add(Part::Norms, norm, 0, self.base_bytes(norm));
        }
        if shape.tied {
            return;
        }
        if self.quantization.covers_head() {
            let bytes = self.quantization.bytes(u64::from(shape.vocab), hidden, 1);
            self.add(Part::Head, vocabulary, vocabulary, bytes);
        } else {
            self.add(Part::Head, vocabulary, 0, self.base_bytes(vocabulary));
        }
        if spec.head_bias {
            let bias = u64::from(shape.vocab);
            self.add(Part::Head, bias, 0, self.base_bytes(bias));
        }
    }

    /// The sums in the order of the model, with what one token passes through.
    fn finish(self, shape: &Shape) -> Vec<PartSum> {
        let with_active = |mut sum: PartSum| {
            sum.active_params = match shape.moe.filter(|_| sum.part == Part::RoutedExperts) {
                Some(moe) => sum.params / u64::from(moe.experts) * u64::from(moe.experts_per_token),
                None => sum.params,
            };
            sum
        };
        self.sums
            .into_values()
            .filter(|s| s.params > 0)
            .map(with_active)
            .collect()
    }
}
