//! Decoders from before the Llama shape: biases everywhere, plain MLPs, learned or no positions.
//!
//! Source of every row: the public model and config classes of the `transformers` library and, for
//! models with code of their own, the model repository, read November 2026.

use crate::model::spec::{Bias, KvDefault, MlpForm, Spec, Width};

/// Biases on every projection and norm, a plain MLP of four times the width.
const BIASED: Spec = Spec {
    qkv_bias: Bias::Always,
    output_bias: Bias::Always,
    mlp: MlpForm::Plain,
    mlp_bias: Bias::Always,
    norm_bias: Bias::Always,
    width: Width::Times(4),
    ..Spec::BASE
};

pub(super) const OPT: Spec = Spec {
    model_types: &["opt"],
    class: "OPTConfig",
    qkv_bias: Bias::Flag(&["enable_bias"], true),
    output_bias: Bias::Flag(&["enable_bias"], true),
    mlp_bias: Bias::Flag(&["enable_bias"], true),
    tied: true,
    width: Width::Required,
    // The table has two rows more than positions.
    learned_positions: Some(2),
    ..BIASED
};

pub(super) const GPTJ: Spec = Spec {
    model_types: &["gptj"],
    class: "GPTJConfig",
    qkv_bias: Bias::Never,
    output_bias: Bias::Never,
    norms_per_layer: 1,
    head_bias: true,
    ..BIASED
};

pub(super) const GPT2: Spec = Spec {
    model_types: &["gpt2"],
    class: "GPT2Config",
    tied: true,
    learned_positions: Some(0),
    ..BIASED
};

pub(super) const GPT_BIGCODE: Spec = Spec {
    model_types: &["gpt_bigcode"],
    class: "GPTBigCodeConfig",
    kv_heads: KvDefault::MultiQueryFlag,
    ..GPT2
};

pub(super) const GPT_NEOX: Spec = Spec {
    model_types: &["gpt_neox"],
    class: "GPTNeoXConfig",
    qkv_bias: Bias::Flag(&["attention_bias"], true),
    output_bias: Bias::Flag(&["attention_bias"], true),
    width: Width::Required,
    ..BIASED
};

pub(super) const PHI: Spec = Spec {
    model_types: &["phi", "phi-msft"],
    class: "PhiConfig",
    norms_per_layer: 1,
    head_bias: true,
    ..BIASED
};

pub(super) const FALCON: Spec = Spec {
    model_types: &["falcon", "RefinedWeb", "RefinedWebModel"],
    class: "FalconConfig",
    qkv_bias: Bias::Flag(&["bias"], false),
    output_bias: Bias::Flag(&["bias"], false),
    mlp_bias: Bias::Flag(&["bias"], false),
    tied: true,
    kv_heads: KvDefault::MultiQueryFlag,
    max_position: Some(2048),
    ..BIASED
};

pub(super) const MPT: Spec = Spec {
    model_types: &["mpt"],
    class: "MptConfig",
    qkv_bias: Bias::Never,
    output_bias: Bias::Never,
    mlp_bias: Bias::Never,
    norm_bias: Bias::Never,
    tied: true,
    ..BIASED
};

pub(super) const BLOOM: Spec = Spec {
    model_types: &["bloom"],
    class: "BloomConfig",
    tied: true,
    max_position: Some(2048),
    embedding_norm: true,
    ..BIASED
};

pub(super) const CHATGLM: Spec = Spec {
    model_types: &["chatglm"],
    class: "ChatGLMConfig",
    qkv_bias: Bias::Flag(&["add_qkv_bias", "add_bias_linear"], false),
    output_bias: Bias::Flag(&["add_bias_linear"], false),
    mlp_bias: Bias::Flag(&["add_bias_linear"], false),
    ..Spec::BASE
};
