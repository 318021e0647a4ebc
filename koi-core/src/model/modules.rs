//! The matrices of one layer, one by one: sizes, names in a checkpoint, how they are split.
//!
//! The one place where an architecture's parameter count is written down. Bytes are
//! [`super::quantization`], sums are [`super::assemble`]. Spec §4.

use super::kinds::Part;
use super::plan::{
    DeltaPlan, HeadsPlan, LatentPlan, LayerPlan, Mamba1Plan, Mamba2Plan, Mixer, Mlp,
};
use super::shape::{QueryKeyNorm, Shape};
use super::spec::{Keys, MlpForm, MoeSpec, Spec};

/// How tensor parallelism treats a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    Split,
    KvHeads,
    Replicated,
    Experts,
}

/// One matrix, or several alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Module {
    pub(super) part: Part,
    pub(super) share: Share,
    /// Names below the layer under which checkpoints store it, alone or fused with others.
    pub(super) names: Keys,
    /// Output elements.
    pub(super) rows: u64,
    /// Input elements.
    pub(super) cols: u64,
    pub(super) count: u64,
}

impl Module {
    pub(super) const fn params(&self) -> u64 {
        self.rows * self.cols * self.count
    }
}

/// What a layer is made of.
pub(super) enum Piece {
    /// A matrix that a quantization method may change.
    Matrix(Module),
    /// Numbers that stay in the base format.
    Small(Part, u64),
}

const QUERY: Keys = &["self_attn.q_proj", "self_attn.qkv_proj", "attention.wqkv"];
const KEY_VALUE: Keys = &["self_attn.k_proj", "self_attn.v_proj", "self_attn.qkv_proj"];
const OUTPUT: Keys = &["self_attn.o_proj", "attention.wo", "mixer.o_proj"];
const MLP: Keys = &[
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
    "mlp.gate_up_proj",
    "feed_forward.down_proj",
    "mixer.up_proj",
];
const EXPERTS: Keys = &[
    "mlp.experts",
    "feed_forward.experts",
    "block_sparse_moe.experts",
];
const SHARED: Keys = &[
    "mlp.shared_experts",
    "mlp.shared_expert",
    "feed_forward.shared_expert",
];

/// Calls `emit` for every piece of a layer.
pub(super) fn visit_layer(shape: &Shape, plan: &LayerPlan, emit: &mut dyn FnMut(Piece)) {
    let spec = shape.architecture.spec();
    match plan.mixer {
        Mixer::None => {}
        Mixer::Heads(heads) => visit_heads(shape, &heads, emit),
        Mixer::Latent(latent) => visit_latent(shape, &latent, emit),
        Mixer::Mamba2(mamba) => visit_mamba2(shape, &mamba, emit),
        Mixer::Mamba1(mamba) => visit_mamba1(shape, &mamba, emit),
        Mixer::Delta(delta) => visit_delta(shape, &delta, emit),
    }
    visit_mlp(shape, spec, plan.mlp, emit);
    visit_norms(shape, plan, emit);
}

fn matrix(part: Part, share: Share, names: Keys, (rows, cols): (u64, u64)) -> Piece {
    let count = 1;
    Piece::Matrix(Module {
        part,
        share,
        names,
        rows,
        cols,
        count,
    })
}

/// Attention over heads.
///
/// # Formula
/// H·(a·d·(1+gate) + 2·k·d) + a·d·H, a query heads, k key/value heads of width d
fn visit_heads(shape: &Shape, plan: &HeadsPlan, emit: &mut dyn FnMut(Piece)) {
    let part = Part::Attention;
    let hidden = u64::from(shape.hidden);
    let head = u64::from(plan.head_dim);
    let query = u64::from(plan.heads) * head;
    let kv = u64::from(plan.kv_heads) * head;
    let gate = if plan.gated { 2 } else { 1 };
    let kv_matrices: u64 = match (plan.caches, plan.value_is_key) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => 2,
    };
    emit(matrix(part, Share::Split, QUERY, (gate * query, hidden)));
    if kv_matrices > 0 {
        let rows = kv_matrices * kv;
        emit(matrix(part, Share::KvHeads, KEY_VALUE, (rows, hidden)));
    }
    emit(matrix(part, Share::Split, OUTPUT, (hidden, query)));
    let mut bias = 0;
    if shape.biases.qkv {
        bias += gate * query + kv_matrices * kv;
    }
    if shape.biases.output {
        bias += hidden;
    }
    // gpt-oss has one learned sink per head.
    if shape.architecture == super::Architecture::GptOss {
        bias += u64::from(plan.heads);
    }
    emit(Piece::Small(part, bias));
    let norm = match shape.qk_norm {
        QueryKeyNorm::None => 0,
        QueryKeyNorm::Head if plan.caches => 2 * head,
        QueryKeyNorm::Head => head,
        QueryKeyNorm::Whole => query + kv,
    };
    emit(Piece::Small(Part::Norms, norm));
}

/// Latent attention: queries and keys/values through low ranks, with their norms.
fn visit_latent(shape: &Shape, plan: &LatentPlan, emit: &mut dyn FnMut(Piece)) {
    let part = Part::Attention;
    let hidden = u64::from(shape.hidden);
    let heads = u64::from(plan.heads);
    let query = heads * u64::from(plan.nope_dim + plan.rope_dim);
    let rank = u64::from(plan.kv_rank);
    let down = rank + u64::from(plan.rope_dim);
    let up = heads * u64::from(plan.nope_dim + plan.value_dim);
    let value = heads * u64::from(plan.value_dim);
    let query_input = plan.query_rank.map_or(hidden, u64::from);
    let mut norms = rank;
    if plan.query_rank.is_some() {
        let names: Keys = &["self_attn.q_a_proj", "self_attn.fused_qkv_a_proj"];
        emit(matrix(
            part,
            Share::Replicated,
            names,
            (query_input, hidden),
        ));
        norms += query_input;
    }
    let names: Keys = &["self_attn.q_b_proj", "self_attn.q_proj"];
    emit(matrix(part, Share::Split, names, (query, query_input)));
    let names: Keys = &["self_attn.kv_a_proj_with_mqa", "self_attn.fused_qkv_a_proj"];
    emit(matrix(part, Share::Replicated, names, (down, hidden)));
    emit(matrix(
        part,
        Share::Split,
        &["self_attn.kv_b_proj"],
        (up, rank),
    ));
    emit(matrix(part, Share::Split, OUTPUT, (hidden, value)));
    if shape.biases.qkv && plan.query_rank.is_some() {
        emit(Piece::Small(part, query_input + down + hidden));
    }
    emit(Piece::Small(Part::Norms, norms));
    if let Some((index_heads, dim, _)) = plan.index {
        let (index_heads, dim) = (u64::from(index_heads), u64::from(dim));
        let names: Keys = &["self_attn.indexer.wq_b"];
        emit(matrix(
            part,
            Share::Replicated,
            names,
            (index_heads * dim, query_input),
        ));
        emit(matrix(
            part,
            Share::Replicated,
            &["self_attn.indexer.wk"],
            (dim, hidden),
        ));
        let names: Keys = &["self_attn.indexer.weights_proj", "self_attn.indexers_proj"];
        emit(matrix(
            part,
            Share::Replicated,
            names,
            (index_heads, hidden),
        ));
        emit(Piece::Small(Part::Norms, 2 * dim));
    }
}

/// Mamba-2: one input projection for gate, x, B, C and dt; a causal convolution over x, B, C.
fn visit_mamba2(shape: &Shape, plan: &Mamba2Plan, emit: &mut dyn FnMut(Piece)) {
    let part = Part::Recurrent;
    let hidden = u64::from(shape.hidden);
    let heads = u64::from(plan.heads);
    let inner = heads * u64::from(plan.head_dim);
    let groups = 2 * u64::from(plan.groups) * u64::from(plan.state);
    let conv = (inner + groups) * (u64::from(plan.kernel) + u64::from(plan.conv_bias));
    let names: Keys = &["mixer.in_proj", "mamba.in_proj"];
    emit(matrix(
        part,
        Share::Split,
        names,
        (2 * inner + groups + heads, hidden),
    ));
    emit(matrix(
        part,
        Share::Split,
        &["mixer.out_proj", "mamba.out_proj"],
        (hidden, inner),
    ));
    // A, D and the bias of dt per head; the gated norm over the inner width.
    emit(Piece::Small(part, conv + 3 * heads));
    emit(Piece::Small(Part::Norms, inner));
}

/// Mamba as in Jamba, with norms on dt, B and C.
fn visit_mamba1(shape: &Shape, plan: &Mamba1Plan, emit: &mut dyn FnMut(Piece)) {
    let part = Part::Recurrent;
    let hidden = u64::from(shape.hidden);
    let (inner, state) = (u64::from(plan.inner), u64::from(plan.state));
    let rank = u64::from(plan.rank);
    let low = rank + 2 * state;
    emit(matrix(
        part,
        Share::Split,
        &["mamba.in_proj"],
        (2 * inner, hidden),
    ));
    emit(matrix(part, Share::Split, &["mamba.x_proj"], (low, inner)));
    emit(matrix(
        part,
        Share::Split,
        &["mamba.dt_proj"],
        (inner, rank),
    ));
    emit(matrix(
        part,
        Share::Split,
        &["mamba.out_proj"],
        (hidden, inner),
    ));
    let conv = inner * (u64::from(plan.kernel) + 1);
    // The bias of dt, A and D.
    emit(Piece::Small(part, conv + inner + inner * state + inner));
    emit(Piece::Small(Part::Norms, low));
}

/// Gated delta rule: projections to queries, keys, values, gate, and two numbers per value head.
fn visit_delta(shape: &Shape, plan: &DeltaPlan, emit: &mut dyn FnMut(Piece)) {
    let part = Part::Recurrent;
    let hidden = u64::from(shape.hidden);
    let value_heads = u64::from(plan.value_heads);
    let keys = u64::from(plan.key_heads) * u64::from(plan.key_dim);
    let values = value_heads * u64::from(plan.value_dim);
    let names: Keys = &[
        "linear_attn.in_proj_qkvz",
        "linear_attn.in_proj_qkv",
        "linear_attn.in_proj_z",
    ];
    emit(matrix(
        part,
        Share::Split,
        names,
        (2 * keys + 2 * values, hidden),
    ));
    let names: Keys = &[
        "linear_attn.in_proj_ba",
        "linear_attn.in_proj_b",
        "linear_attn.in_proj_a",
    ];
    emit(matrix(part, Share::Split, names, (2 * value_heads, hidden)));
    emit(matrix(
        part,
        Share::Split,
        &["linear_attn.out_proj"],
        (hidden, values),
    ));
    let conv = (2 * keys + values) * u64::from(plan.kernel);
    emit(Piece::Small(part, conv + 2 * value_heads));
    emit(Piece::Small(Part::Norms, u64::from(plan.value_dim)));
}

fn mlp_matrices(
    (part, share, names): (Part, Share, Keys),
    form: MlpForm,
    (width, hidden, count): (u64, u64, u64),
    emit: &mut dyn FnMut(Piece),
) {
    let up = form.matrices() - 1;
    let one = |rows, cols, count| {
        Piece::Matrix(Module {
            part,
            share,
            names,
            rows,
            cols,
            count,
        })
    };
    emit(one(width, hidden, up * count));
    emit(one(hidden, width, count));
}

/// The MLP: dense, routed, or both.
fn visit_mlp(shape: &Shape, spec: &Spec, mlp: Mlp, emit: &mut dyn FnMut(Piece)) {
    let hidden = u64::from(shape.hidden);
    let mut dense = |width: u32, part: Part| {
        let width = u64::from(width);
        mlp_matrices(
            (part, Share::Split, MLP),
            spec.mlp,
            (width, hidden, 1),
            emit,
        );
        if shape.biases.mlp {
            let bias = (spec.mlp.matrices() - 1) * width + hidden;
            emit(Piece::Small(part, bias));
        }
    };
    match mlp {
        Mlp::None => return,
        Mlp::Dense { width } => return dense(width, Part::DenseMlp),
        Mlp::RoutedAndDense { width } => dense(width, Part::SharedExperts),
        Mlp::Routed => {}
    }
    if let (Some(moe), Some(form)) = (shape.moe, spec.moe) {
        visit_routed(hidden, &moe, &form, emit);
    }
}

fn visit_routed(hidden: u64, moe: &super::MoeFacts, spec: &MoeSpec, emit: &mut dyn FnMut(Piece)) {
    let experts = u64::from(moe.experts);
    let width = u64::from(moe.expert_intermediate);
    let kind = (Part::RoutedExperts, Share::Experts, EXPERTS);
    mlp_matrices(kind, spec.form, (width, hidden, experts), emit);
    if spec.expert_bias {
        let bias = (spec.form.matrices() - 1) * width + hidden;
        emit(Piece::Small(Part::RoutedExperts, experts * bias));
    }
    if let Some(shared) = moe.shared_intermediate {
        let kind = (Part::SharedExperts, Share::Split, SHARED);
        mlp_matrices(kind, spec.form, (u64::from(shared), hidden, 1), emit);
    }
    let mut router = experts * (hidden + u64::from(spec.router_extra));
    if spec.router_scale {
        router += hidden;
    }
    if spec.shared_gate && moe.shared_intermediate.is_some() {
        router += hidden;
    }
    emit(Piece::Small(Part::Router, router));
}

/// Pre- and post-norms. A sub-layer that is not there has none.
fn visit_norms(shape: &Shape, plan: &LayerPlan, emit: &mut dyn FnMut(Piece)) {
    let mut n = if shape.norms_per_layer == 1 {
        1
    } else {
        u64::from(shape.norms_per_layer / 2) * plan.sub_layers()
    };
    // The routed and the dense MLP of Gemma 4 have norms of their own, and each layer one scalar.
    let mut extra = 0;
    if matches!(plan.mlp, Mlp::RoutedAndDense { .. }) {
        n += 3;
    }
    if shape.architecture == super::Architecture::Gemma4 {
        extra = 1;
    }
    let per_norm = u64::from(shape.hidden) * if shape.biases.norm { 2 } else { 1 };
    emit(Piece::Small(Part::Norms, n * per_norm + extra));
}
