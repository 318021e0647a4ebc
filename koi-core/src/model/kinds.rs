//! Kinds of layers as numbers that can be summed without allocation.
//!
//! All members are per layer; the number of layers of the kind is [`LayerKind::layers`]. How they
//! are added up over a split is [`super::arithmetic`] and [`super::cache`]. Spec §4.

use serde::{Deserialize, Serialize};

/// How a layer mixes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MixerKind {
    /// Softmax attention that sees every earlier token.
    Full,
    /// Softmax attention over the newest tokens.
    Sliding,
    /// Softmax attention inside the current chunk.
    Chunked,
    /// Multi-head latent attention.
    Latent,
    /// Latent attention over the tokens that an index selects.
    SparseLatent,
    /// Linear attention with a state per sequence.
    Linear,
    /// Mamba, first or second form, with a state per sequence.
    Mamba,
    /// The layer mixes nothing.
    None,
}

impl MixerKind {
    /// Whether one latent serves all heads.
    #[must_use]
    pub const fn is_latent(self) -> bool {
        matches!(self, Self::Latent | Self::SparseLatent)
    }

    /// The name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full attention",
            Self::Sliding => "sliding window",
            Self::Chunked => "chunked attention",
            Self::Latent => "latent attention (MLA)",
            Self::SparseLatent => "sparse latent attention (MLA with index)",
            Self::Linear => "linear attention",
            Self::Mamba => "Mamba",
            Self::None => "no attention",
        }
    }
}

/// What follows the mixer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MlpKind {
    /// One MLP for all tokens.
    Dense,
    /// Routed experts, with or without a shared one.
    Routed,
    /// Routed experts beside a dense MLP.
    RoutedAndDense,
    /// Nothing.
    None,
}

impl MlpKind {
    /// The name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense MLP",
            Self::Routed => "routed MLP",
            Self::RoutedAndDense => "routed and dense MLP",
            Self::None => "no MLP",
        }
    }

    /// Whether the layer has routed experts.
    #[must_use]
    pub const fn is_routed(self) -> bool {
        matches!(self, Self::Routed | Self::RoutedAndDense)
    }
}

/// Weights that are split alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WeightSum {
    /// Matrix weights in the checkpoint's quantized format, or all of them where it has none.
    pub linear_params: u64,
    /// Matrix weights that a quantized checkpoint leaves in its base format.
    pub kept_params: u64,
    /// Bytes of both as stored, scales and zero points included.
    pub stored_bytes: u64,
}

impl WeightSum {
    /// Matrix weights.
    #[must_use]
    pub const fn params(&self) -> u64 {
        self.linear_params + self.kept_params
    }
}

/// Weights of one layer by how tensor parallelism treats them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LayerWeights {
    /// Divided by tp.
    pub split: WeightSum,
    /// Key and value projections: divided down to one head, replicated from there on.
    pub kv: WeightSum,
    /// Whole on every shard.
    pub replicated: WeightSum,
    /// Routed experts, all of them; divided by tp or spread over expert parallelism.
    pub experts: WeightSum,
    /// Norms, biases, routers and the like, in the base format and counted whole on every shard.
    pub small_params: u64,
}

/// One kind of layer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LayerKind {
    /// Layers of this kind.
    pub layers: u32,
    /// How it mixes tokens.
    pub mixer: MixerKind,
    /// What follows.
    pub mlp: MlpKind,
    /// Query heads, or heads of the state; 0 without a mixer.
    pub heads: u32,
    /// Heads of the cache: key/value heads, 1 for a latent, 0 where nothing is cached per token.
    pub kv_heads: u32,
    /// Width of one head.
    pub head_dim: u32,
    /// Heads by which a state's input is grouped, where it has groups.
    pub state_groups: Option<u32>,
    /// Width of the dense MLP.
    pub dense_width: Option<u32>,
    /// Tokens that are kept at most.
    pub window: Option<u32>,
    /// Tokens that are read at most, where more are kept.
    pub read_limit: Option<u32>,
    /// Cached elements per token and head of the cache.
    pub kv_elements_per_head: u32,
    /// Bytes of an index per token, whole on every shard.
    pub index_bytes_per_token: u32,
    /// Bytes of state per sequence, of any length.
    pub state_bytes: u64,
    /// Operations per pair of a new token and a token it attends to, while decoding.
    pub decode_pair_flops: f64,
    /// The same while prefilling; other than decoding only for a latent, which prefill unfolds.
    pub prefill_pair_flops: f64,
    /// Operations of the index per pair of a new token and any earlier token.
    pub index_pair_flops: f64,
    /// Operations per token on the state.
    pub state_flops: f64,
    /// Whether the attention projections are in the quantized format.
    pub attention_quantized: bool,
    /// Whether the dense or shared MLP is.
    pub mlp_quantized: bool,
    /// Whether the routed experts are.
    pub experts_quantized: bool,
    /// Weights.
    pub weights: LayerWeights,
}

impl LayerKind {
    /// Cached elements of one token in one layer over all heads.
    #[must_use]
    pub fn kv_elements(&self) -> f64 {
        f64::from(self.kv_heads) * f64::from(self.kv_elements_per_head)
    }

    /// Cached elements of one token in one layer on one of `tp` shards: a head is never cut.
    #[must_use]
    pub fn kv_elements_per_shard(&self, tp: u32) -> f64 {
        f64::from(self.kv_heads.div_ceil(tp.max(1))) * f64::from(self.kv_elements_per_head)
    }

    /// Tokens that are kept of a context.
    #[must_use]
    pub fn kept_tokens(&self, context: f64) -> f64 {
        self.window.map_or(context, |w| context.min(f64::from(w)))
    }

    /// Tokens that a new token reads of a context.
    #[must_use]
    pub fn read_tokens(&self, context: f64) -> f64 {
        let kept = self.kept_tokens(context);
        self.read_limit.map_or(kept, |n| kept.min(f64::from(n)))
    }
}

/// Part of a model by what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Input embedding, positions and the norm on them included.
    Embedding,
    /// Attention projections.
    Attention,
    /// Linear attention and Mamba.
    Recurrent,
    /// MLPs of layers that are not routed.
    DenseMlp,
    /// Routed experts.
    RoutedExperts,
    /// Always-active experts.
    SharedExperts,
    /// Routers.
    Router,
    /// Norms.
    Norms,
    /// Output head, where it is a matrix of its own.
    Head,
}

impl Part {
    /// Every part, in the order of the model.
    pub const ALL: [Self; 9] = [
        Self::Embedding,
        Self::Attention,
        Self::Recurrent,
        Self::DenseMlp,
        Self::RoutedExperts,
        Self::SharedExperts,
        Self::Router,
        Self::Norms,
        Self::Head,
    ];

    /// The name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Attention => "attention",
            Self::Recurrent => "recurrent",
            Self::DenseMlp => "dense MLP",
            Self::RoutedExperts => "routed experts",
            Self::SharedExperts => "shared experts",
            Self::Router => "router",
            Self::Norms => "norms",
            Self::Head => "head",
        }
    }
}

/// Parameters and bytes of one part, over all layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartSum {
    /// Which part.
    pub part: Part,
    /// Parameters.
    pub params: u64,
    /// Parameters that one token passes through.
    pub active_params: u64,
    /// Parameters in the quantized format.
    pub quantized_params: u64,
    /// Bytes as stored.
    pub stored_bytes: u64,
}
