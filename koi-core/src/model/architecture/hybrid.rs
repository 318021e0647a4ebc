//! Decoders in which only some layers keep keys and values; the others keep a state of fixed size.
//!
//! Source of every row: the public model and config classes of the `transformers` library and, for
//! models with code of their own, the model repository, read November 2026.

use crate::model::spec::{
    Bias, HeadDim, KvDefault, Layout, MlpForm, MoeSpec, QkNorm, Shared, Sparse, Spec, Width,
};

const ATTENTION_BIAS: Bias = Bias::Flag(&["attention_bias"], false);

pub(super) const QWEN3_NEXT: Spec = Spec {
    model_types: &["qwen3_next"],
    class: "Qwen3NextConfig",
    layout: Layout::LinearInterval(4),
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    qk_norm: QkNorm::Head,
    kv_heads: KvDefault::Required,
    head_dim: HeadDim::Fixed(256),
    moe: Some(MoeSpec {
        shared: Shared::Width(&["shared_expert_intermediate_size"]),
        shared_gate: true,
        layers: Sparse::Step,
        ..MoeSpec::BASE
    }),
    ..Spec::BASE
};

pub(super) const QWEN3_5: Spec = Spec {
    model_types: &["qwen3_5_text", "qwen3_5"],
    class: "Qwen3_5TextConfig",
    moe: None,
    ..QWEN3_NEXT
};

pub(super) const QWEN3_5_MOE: Spec = Spec {
    model_types: &["qwen3_5_moe_text", "qwen3_5_moe"],
    class: "Qwen3_5MoeTextConfig",
    width: Width::None,
    moe: Some(MoeSpec {
        shared: Shared::Width(&["shared_expert_intermediate_size"]),
        shared_gate: true,
        ..MoeSpec::BASE
    }),
    ..QWEN3_NEXT
};

pub(super) const NEMOTRON_H: Spec = Spec {
    model_types: &["nemotron_h"],
    class: "NemotronHConfig",
    layout: Layout::PatternString,
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    mlp: MlpForm::Plain,
    mlp_bias: Bias::Flag(&["mlp_bias"], false),
    norms_per_layer: 1,
    kv_heads: KvDefault::Required,
    head_dim: HeadDim::Fixed(128),
    ..Spec::BASE
};

pub(super) const BAMBA: Spec = Spec {
    model_types: &["bamba"],
    class: "BambaConfig",
    layout: Layout::MambaOrder,
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    mlp_bias: Bias::Flag(&["mlp_bias"], false),
    kv_heads: KvDefault::Required,
    ..Spec::BASE
};

pub(super) const GRANITE_MOE_HYBRID: Spec = Spec {
    model_types: &["granitemoehybrid"],
    class: "GraniteMoeHybridConfig",
    mlp_bias: Bias::Never,
    moe: Some(MoeSpec {
        width: &[],
        shared: Shared::Width(&["shared_intermediate_size"]),
        ..MoeSpec::BASE
    }),
    ..BAMBA
};

pub(super) const JAMBA: Spec = Spec {
    model_types: &["jamba"],
    class: "JambaConfig",
    layout: Layout::Period,
    kv_heads: KvDefault::Required,
    moe: Some(MoeSpec {
        width: &[],
        layers: Sparse::Period,
        ..MoeSpec::BASE
    }),
    ..Spec::BASE
};
