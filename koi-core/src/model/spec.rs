//! What an architecture's code says beyond its config.json: biases, norms, layer order, defaults.
//!
//! The rows themselves are in [`super::architecture`]; how they are used is [`super::shape`],
//! [`super::plan`] and [`super::modules`]. Spec §2.

/// Field names under which a number may stand, the preferred one first.
pub(super) type Keys = &'static [&'static str];

/// Whether a projection has a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bias {
    Never,
    Always,
    /// A flag of the config; the second is the class's default.
    Flag(Keys, bool),
}

/// Norms on queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QkNorm {
    None,
    /// One weight per element of a head, shared by the heads.
    Head,
    /// One weight per element of the whole projection.
    Whole,
    /// Per head, when the flag is set; the second is the class's default.
    HeadFlag(Keys, bool),
    /// Whole projection, when the flag is set.
    WholeFlag(Keys, bool),
}

/// The two matrices of a plain MLP, or three of a gated one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MlpForm {
    Gated,
    Plain,
}

impl MlpForm {
    /// Matrices of hidden × width.
    pub(super) const fn matrices(self) -> u64 {
        match self {
            Self::Gated => 3,
            Self::Plain => 2,
        }
    }
}

/// Where key/value heads come from when no field says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KvDefault {
    /// The field must be there.
    Required,
    /// As many as query heads: plain multi-head attention.
    Heads,
    /// A number in the class.
    Fixed(u32),
    /// One with `multi_query` (but for Falcon's newer form), else the field or as many as query
    /// heads.
    MultiQueryFlag,
}

/// Where the head size comes from when no field says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadDim {
    /// hidden / heads.
    Divide,
    /// A number in the class.
    Fixed(u32),
}

/// Where the MLP width comes from when no field says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// The field must be there.
    Required,
    /// A multiple of the hidden size.
    Times(u32),
    /// Layers say it themselves.
    PerLayer,
    /// There is no dense MLP.
    None,
}

/// Order of attention kinds over the layers, where `layer_types` does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Full attention everywhere.
    Full,
    /// The window, if the config has one, everywhere; the second is the class's default window.
    Window(Option<u32>),
    /// Even layers see a window, odd ones everything.
    Alternating,
    /// Every n-th layer sees everything; the number is the class's default n.
    EveryNth(u32),
    /// Qwen: a window from `max_window_layers` on, when `use_sliding_window` is set.
    UpperLayers,
    /// Llama 4: chunks, and every n-th layer (default 4) sees everything.
    Chunks,
    /// Linear attention, and every n-th layer full attention.
    LinearInterval(u32),
    /// A string of `M`, `-`, `*`, `E`, one mixer a layer.
    PatternString,
    /// `block_configs` or `num_key_value_heads_per_layer`.
    Blocks,
    /// Mamba-2, and attention where `layer_types` or `attn_layer_indices` says so.
    MambaOrder,
    /// Mamba, and attention by `attn_layer_period` and `attn_layer_offset`.
    Period,
}

/// How attention projects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttentionForm {
    Heads,
    /// Multi-head latent attention.
    Latent,
    /// Latent attention that reads only the tokens an index selects.
    IndexedLatent,
}

/// Which layers are routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sparse {
    All,
    /// `decoder_sparse_step` and `mlp_only_layers`.
    Step,
    /// `first_k_dense_replace` and `moe_layer_freq`.
    FirstDense,
    /// `interleave_moe_layer_step`.
    Interleave,
    /// `expert_layer_period` and `expert_layer_offset`.
    Period,
}

/// The always-active part of a routed layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shared {
    None,
    /// A width of its own.
    Width(Keys),
    /// So many experts of the routed experts' width.
    Count(Keys),
    /// One of the routed experts' width.
    One,
    /// The dense MLP runs beside the routed one.
    Dense,
}

/// The routed part of an architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MoeSpec {
    /// Without an expert count the model is dense.
    pub(super) optional: bool,
    /// Width of one expert; empty: `intermediate_size`.
    pub(super) width: Keys,
    /// Width of the MLP in dense layers; empty: `intermediate_size`.
    pub(super) dense_width: Keys,
    pub(super) shared: Shared,
    /// A gate of hidden × 1 on the shared part.
    pub(super) shared_gate: bool,
    /// Numbers per expert that the router has beside its matrix.
    pub(super) router_extra: u32,
    /// Numbers per hidden element that the router has beside its matrix.
    pub(super) router_scale: bool,
    pub(super) expert_bias: bool,
    pub(super) form: MlpForm,
    pub(super) layers: Sparse,
}

impl MoeSpec {
    pub(super) const BASE: Self = Self {
        optional: false,
        width: &["moe_intermediate_size"],
        dense_width: &[],
        shared: Shared::None,
        shared_gate: false,
        router_extra: 0,
        router_scale: false,
        expert_bias: false,
        form: MlpForm::Gated,
        layers: Sparse::All,
    };
}

/// Shape numbers of the config class, used only inside a nested config that was written as a
/// difference to its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClassShape {
    pub(super) layers: u32,
    pub(super) hidden: u32,
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) intermediate: u32,
    pub(super) vocab: u32,
}

/// One architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spec {
    /// `model_type` values; the first is the one that is shown and stored.
    pub(super) model_types: Keys,
    /// Config class, named when one of its defaults is used.
    pub(super) class: &'static str,
    pub(super) attention: AttentionForm,
    pub(super) layout: Layout,
    pub(super) qkv_bias: Bias,
    pub(super) output_bias: Bias,
    pub(super) qk_norm: QkNorm,
    pub(super) mlp: MlpForm,
    pub(super) mlp_bias: Bias,
    pub(super) norms_per_layer: u32,
    pub(super) norm_bias: Bias,
    pub(super) final_norm: bool,
    /// Default of `tie_word_embeddings`.
    pub(super) tied: bool,
    /// The output head has a bias.
    pub(super) head_bias: bool,
    pub(super) kv_heads: KvDefault,
    pub(super) head_dim: HeadDim,
    pub(super) width: Width,
    /// Longest context in the class, where configs may leave it out.
    pub(super) max_position: Option<u32>,
    /// Rows of a learned position table beyond `max_position`; `None`: no table.
    pub(super) learned_positions: Option<u32>,
    /// A norm on the embeddings.
    pub(super) embedding_norm: bool,
    pub(super) moe: Option<MoeSpec>,
    pub(super) class_shape: Option<ClassShape>,
}

impl Spec {
    /// Llama: what most decoders share; rows say what differs.
    pub(super) const BASE: Self = Self {
        model_types: &["llama"],
        class: "LlamaConfig",
        attention: AttentionForm::Heads,
        layout: Layout::Full,
        qkv_bias: Bias::Never,
        output_bias: Bias::Never,
        qk_norm: QkNorm::None,
        mlp: MlpForm::Gated,
        mlp_bias: Bias::Never,
        norms_per_layer: 2,
        norm_bias: Bias::Never,
        final_norm: true,
        tied: false,
        head_bias: false,
        kv_heads: KvDefault::Heads,
        head_dim: HeadDim::Divide,
        width: Width::Required,
        max_position: None,
        learned_positions: None,
        embedding_norm: false,
        moe: None,
        class_shape: None,
    };
}
