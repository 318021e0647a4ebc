//! Mixtures of experts.
//!
//! Source of every row: the public model and config classes of the `transformers` library and, for
//! models with code of their own, the model repository, read November 2026.

use crate::model::spec::{
    AttentionForm, Bias, HeadDim, KvDefault, Layout, MoeSpec, QkNorm, Shared, Sparse, Spec, Width,
};

const ATTENTION_BIAS: Bias = Bias::Flag(&["attention_bias"], false);

pub(super) const MIXTRAL: Spec = Spec {
    model_types: &["mixtral"],
    class: "MixtralConfig",
    layout: Layout::Window(None),
    kv_heads: KvDefault::Fixed(8),
    moe: Some(MoeSpec {
        width: &[],
        ..MoeSpec::BASE
    }),
    ..Spec::BASE
};

pub(super) const QWEN2_MOE: Spec = Spec {
    model_types: &["qwen2_moe"],
    class: "Qwen2MoeConfig",
    layout: Layout::UpperLayers,
    qkv_bias: Bias::Always,
    kv_heads: KvDefault::Required,
    moe: Some(MoeSpec {
        shared: Shared::Width(&["shared_expert_intermediate_size"]),
        shared_gate: true,
        layers: Sparse::Step,
        ..MoeSpec::BASE
    }),
    ..Spec::BASE
};

pub(super) const QWEN3_MOE: Spec = Spec {
    model_types: &["qwen3_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text"],
    class: "Qwen3MoeConfig",
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    qk_norm: QkNorm::Head,
    head_dim: HeadDim::Fixed(128),
    moe: Some(MoeSpec {
        layers: Sparse::Step,
        ..MoeSpec::BASE
    }),
    ..QWEN2_MOE
};

pub(super) const MINICPM: Spec = Spec {
    model_types: &["minicpm"],
    class: "MiniCPMConfig",
    tied: true,
    moe: Some(MoeSpec {
        optional: true,
        width: &[],
        ..MoeSpec::BASE
    }),
    ..Spec::BASE
};

pub(super) const OLMOE: Spec = Spec {
    model_types: &["olmoe"],
    class: "OlmoeConfig",
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    qk_norm: QkNorm::Whole,
    moe: Some(MoeSpec {
        width: &[],
        ..MoeSpec::BASE
    }),
    ..Spec::BASE
};

pub(super) const PHIMOE: Spec = Spec {
    model_types: &["phimoe"],
    class: "PhimoeConfig",
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    norm_bias: Bias::Always,
    head_bias: true,
    ..MIXTRAL
};

pub(super) const GRANITE_MOE: Spec = Spec {
    model_types: &["granitemoe"],
    class: "GraniteMoeConfig",
    layout: Layout::Full,
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    kv_heads: KvDefault::Heads,
    ..MIXTRAL
};

const COUNTED_SHARED: MoeSpec = MoeSpec {
    shared: Shared::Count(&["n_shared_experts"]),
    layers: Sparse::FirstDense,
    ..MoeSpec::BASE
};

pub(super) const DEEPSEEK: Spec = Spec {
    model_types: &["deepseek"],
    class: "DeepseekConfig",
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    moe: Some(COUNTED_SHARED),
    ..Spec::BASE
};

pub(super) const DEEPSEEK_V2: Spec = Spec {
    model_types: &["deepseek_v2"],
    class: "DeepseekV2Config",
    attention: AttentionForm::Latent,
    ..DEEPSEEK
};

pub(super) const DEEPSEEK_V3: Spec = Spec {
    model_types: &["deepseek_v3", "kimi_k2"],
    class: "DeepseekV3Config",
    moe: Some(MoeSpec {
        router_extra: 1,
        ..COUNTED_SHARED
    }),
    ..DEEPSEEK_V2
};

pub(super) const DEEPSEEK_V32: Spec = Spec {
    model_types: &["deepseek_v32"],
    class: "DeepseekV32Config",
    attention: AttentionForm::IndexedLatent,
    ..DEEPSEEK_V3
};

pub(super) const GLM_MOE_DSA: Spec = Spec {
    model_types: &["glm_moe_dsa"],
    class: "GlmMoeDsaConfig",
    ..DEEPSEEK_V32
};

pub(super) const GLM4_MOE: Spec = Spec {
    model_types: &["glm4_moe", "glm4v_moe_text"],
    class: "Glm4MoeConfig",
    qkv_bias: ATTENTION_BIAS,
    qk_norm: QkNorm::HeadFlag(&["use_qk_norm"], false),
    kv_heads: KvDefault::Required,
    head_dim: HeadDim::Divide,
    moe: Some(MoeSpec {
        router_extra: 1,
        ..COUNTED_SHARED
    }),
    ..Spec::BASE
};

pub(super) const LLAMA4: Spec = Spec {
    model_types: &["llama4_text", "llama4"],
    class: "Llama4TextConfig",
    layout: Layout::Chunks,
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    kv_heads: KvDefault::Required,
    moe: Some(MoeSpec {
        width: &[],
        dense_width: &["intermediate_size_mlp"],
        shared: Shared::One,
        layers: Sparse::Interleave,
        ..MoeSpec::BASE
    }),
    ..Spec::BASE
};

pub(super) const GPT_OSS: Spec = Spec {
    model_types: &["gpt_oss"],
    class: "GptOssConfig",
    layout: Layout::Alternating,
    qkv_bias: Bias::Flag(&["attention_bias"], true),
    output_bias: Bias::Flag(&["attention_bias"], true),
    kv_heads: KvDefault::Fixed(8),
    head_dim: HeadDim::Fixed(64),
    moe: Some(MoeSpec {
        width: &[],
        router_extra: 1,
        expert_bias: true,
        ..MoeSpec::BASE
    }),
    ..Spec::BASE
};

pub(super) const MINIMAX_M2: Spec = Spec {
    model_types: &["minimax_m2"],
    class: "MiniMaxM2Config",
    qk_norm: QkNorm::WholeFlag(&["use_qk_norm"], true),
    kv_heads: KvDefault::Required,
    moe: Some(MoeSpec {
        width: &[],
        router_extra: 1,
        ..MoeSpec::BASE
    }),
    ..Spec::BASE
};

pub(super) const GEMMA4: Spec = Spec {
    model_types: &["gemma4_text", "gemma4"],
    class: "Gemma4TextConfig",
    layout: Layout::EveryNth(6),
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    qk_norm: QkNorm::Head,
    norms_per_layer: 4,
    tied: true,
    kv_heads: KvDefault::Required,
    head_dim: HeadDim::Fixed(256),
    width: Width::Required,
    moe: Some(MoeSpec {
        optional: true,
        shared: Shared::Dense,
        router_extra: 1,
        router_scale: true,
        ..MoeSpec::BASE
    }),
    ..Spec::BASE
};
