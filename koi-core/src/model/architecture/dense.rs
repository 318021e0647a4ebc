//! Dense decoders of the Llama shape and what each changes.
//!
//! Source of every row: the public model and config classes of the `transformers` library and, for
//! models with code of their own, the model repository, read November 2026.

use crate::model::spec::{
    Bias, ClassShape, HeadDim, KvDefault, Layout, MlpForm, QkNorm, Spec, Width,
};

const ATTENTION_BIAS: Bias = Bias::Flag(&["attention_bias"], false);

pub(super) const LLAMA: Spec = Spec {
    model_types: &["llama", "aquila"],
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    mlp_bias: Bias::Flag(&["mlp_bias"], false),
    class_shape: Some(ClassShape {
        layers: 32,
        hidden: 4096,
        heads: 32,
        kv_heads: 32,
        intermediate: 11_008,
        vocab: 32_000,
    }),
    ..Spec::BASE
};

pub(super) const MISTRAL: Spec = Spec {
    model_types: &["mistral", "ministral"],
    class: "MistralConfig",
    layout: Layout::Window(Some(4096)),
    kv_heads: KvDefault::Fixed(8),
    class_shape: Some(ClassShape {
        layers: 32,
        hidden: 4096,
        heads: 32,
        kv_heads: 8,
        intermediate: 14_336,
        vocab: 32_000,
    }),
    ..Spec::BASE
};

pub(super) const QWEN2: Spec = Spec {
    model_types: &[
        "qwen2",
        "qwen2_vl",
        "qwen2_5_vl",
        "qwen2_vl_text",
        "qwen2_5_vl_text",
    ],
    class: "Qwen2Config",
    layout: Layout::UpperLayers,
    qkv_bias: Bias::Always,
    kv_heads: KvDefault::Required,
    ..Spec::BASE
};

pub(super) const QWEN3: Spec = Spec {
    model_types: &["qwen3", "qwen3_vl_text"],
    class: "Qwen3Config",
    layout: Layout::UpperLayers,
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    qk_norm: QkNorm::Head,
    kv_heads: KvDefault::Required,
    head_dim: HeadDim::Fixed(128),
    ..Spec::BASE
};

pub(super) const PHI3: Spec = Spec {
    model_types: &["phi3"],
    class: "Phi3Config",
    layout: Layout::Window(None),
    ..Spec::BASE
};

pub(super) const INTERNLM2: Spec = Spec {
    model_types: &["internlm2"],
    class: "InternLM2Config",
    qkv_bias: Bias::Flag(&["bias"], true),
    output_bias: Bias::Flag(&["bias"], true),
    ..Spec::BASE
};

pub(super) const BAICHUAN: Spec = Spec {
    model_types: &["baichuan"],
    class: "BaichuanConfig",
    ..Spec::BASE
};

pub(super) const STABLELM: Spec = Spec {
    model_types: &["stablelm", "stablelm_epoch"],
    class: "StableLmConfig",
    qkv_bias: Bias::Flag(&["use_qkv_bias"], false),
    norm_bias: Bias::Always,
    ..Spec::BASE
};

pub(super) const STARCODER2: Spec = Spec {
    model_types: &["starcoder2"],
    class: "Starcoder2Config",
    layout: Layout::Window(None),
    qkv_bias: Bias::Flag(&["use_bias"], true),
    output_bias: Bias::Flag(&["use_bias"], true),
    mlp: MlpForm::Plain,
    mlp_bias: Bias::Flag(&["use_bias"], true),
    norm_bias: Bias::Always,
    tied: true,
    kv_heads: KvDefault::Fixed(2),
    ..Spec::BASE
};

pub(super) const OLMO2: Spec = Spec {
    model_types: &["olmo2"],
    class: "Olmo2Config",
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    qk_norm: QkNorm::Whole,
    ..Spec::BASE
};

pub(super) const OLMO3: Spec = Spec {
    model_types: &["olmo3"],
    class: "Olmo3Config",
    layout: Layout::EveryNth(4),
    ..OLMO2
};

pub(super) const SMOLLM3: Spec = Spec {
    model_types: &["smollm3"],
    class: "SmolLM3Config",
    tied: true,
    kv_heads: KvDefault::Fixed(4),
    class_shape: None,
    ..LLAMA
};

pub(super) const ERNIE4_5: Spec = Spec {
    model_types: &["ernie4_5"],
    class: "Ernie4_5Config",
    qkv_bias: Bias::Flag(&["use_bias"], false),
    output_bias: Bias::Flag(&["use_bias"], false),
    mlp_bias: Bias::Flag(&["use_bias"], false),
    tied: true,
    kv_heads: KvDefault::Required,
    head_dim: HeadDim::Fixed(128),
    ..Spec::BASE
};

pub(super) const COHERE: Spec = Spec {
    model_types: &["cohere"],
    class: "CohereConfig",
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    qk_norm: QkNorm::WholeFlag(&["use_qk_norm"], false),
    norms_per_layer: 1,
    tied: true,
    ..Spec::BASE
};

pub(super) const COHERE2: Spec = Spec {
    model_types: &["cohere2"],
    class: "Cohere2Config",
    layout: Layout::EveryNth(4),
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    norms_per_layer: 1,
    tied: true,
    ..Spec::BASE
};

pub(super) const GEMMA: Spec = Spec {
    model_types: &["gemma"],
    class: "GemmaConfig",
    qkv_bias: ATTENTION_BIAS,
    output_bias: ATTENTION_BIAS,
    tied: true,
    kv_heads: KvDefault::Fixed(16),
    head_dim: HeadDim::Fixed(256),
    ..Spec::BASE
};

pub(super) const GEMMA2: Spec = Spec {
    model_types: &["gemma2"],
    class: "Gemma2Config",
    layout: Layout::Alternating,
    norms_per_layer: 4,
    kv_heads: KvDefault::Fixed(4),
    ..GEMMA
};

pub(super) const GEMMA3: Spec = Spec {
    model_types: &["gemma3_text", "gemma3"],
    class: "Gemma3TextConfig",
    layout: Layout::EveryNth(6),
    qk_norm: QkNorm::Head,
    max_position: Some(131_072),
    class_shape: Some(ClassShape {
        layers: 26,
        hidden: 2304,
        heads: 8,
        kv_heads: 4,
        intermediate: 9216,
        vocab: 262_208,
    }),
    ..GEMMA2
};

pub(super) const GRANITE: Spec = Spec {
    model_types: &["granite"],
    class: "GraniteConfig",
    class_shape: None,
    ..LLAMA
};

pub(super) const GLM: Spec = Spec {
    model_types: &["glm"],
    class: "GlmConfig",
    norms_per_layer: 2,
    ..GLM4
};

pub(super) const GLM4: Spec = Spec {
    model_types: &["glm4"],
    class: "Glm4Config",
    qkv_bias: ATTENTION_BIAS,
    norms_per_layer: 4,
    kv_heads: KvDefault::Fixed(2),
    head_dim: HeadDim::Fixed(128),
    ..Spec::BASE
};

pub(super) const SEED_OSS: Spec = Spec {
    model_types: &["seed_oss"],
    class: "SeedOssConfig",
    qkv_bias: Bias::Flag(&["attention_bias"], true),
    output_bias: Bias::Flag(&["attention_out_bias"], false),
    kv_heads: KvDefault::Fixed(8),
    head_dim: HeadDim::Fixed(128),
    ..Spec::BASE
};

pub(super) const DECI: Spec = Spec {
    model_types: &["nemotron-nas", "deci"],
    class: "DeciLMConfig",
    layout: Layout::Blocks,
    kv_heads: KvDefault::Heads,
    width: Width::PerLayer,
    class_shape: None,
    ..LLAMA
};
