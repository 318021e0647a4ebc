//! What each layer is made of, in order, before any parameter is counted.
//!
//! Not where the numbers come from: [`super::layers_json`] reads the order and [`super::shape`] the
//! widths.

/// Which older tokens a layer forgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowKind {
    /// The newest so many tokens.
    Sliding,
    /// Tokens of the current chunk.
    Chunked,
}

/// Attention over keys and values per head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeadsPlan {
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) head_dim: u32,
    pub(super) window: Option<(WindowKind, u32)>,
    /// The query projection also makes a gate of the output.
    pub(super) gated: bool,
    /// Values are the keys: one projection for both.
    pub(super) value_is_key: bool,
    /// False where the layer uses another layer's keys and values.
    pub(super) caches: bool,
}

/// Multi-head latent attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LatentPlan {
    pub(super) heads: u32,
    pub(super) query_rank: Option<u32>,
    pub(super) kv_rank: u32,
    pub(super) nope_dim: u32,
    pub(super) rope_dim: u32,
    pub(super) value_dim: u32,
    /// Heads, head size and selected tokens of the index.
    pub(super) index: Option<(u32, u32, u32)>,
}

/// Mamba-2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mamba2Plan {
    pub(super) heads: u32,
    pub(super) head_dim: u32,
    pub(super) groups: u32,
    pub(super) state: u32,
    pub(super) kernel: u32,
    pub(super) conv_bias: bool,
}

/// Mamba as in Jamba.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mamba1Plan {
    pub(super) inner: u32,
    pub(super) state: u32,
    pub(super) rank: u32,
    pub(super) kernel: u32,
}

/// Gated delta rule: linear attention with a matrix of state per value head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeltaPlan {
    pub(super) key_heads: u32,
    pub(super) key_dim: u32,
    pub(super) value_heads: u32,
    pub(super) value_dim: u32,
    pub(super) kernel: u32,
}

/// How a layer mixes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mixer {
    None,
    Heads(HeadsPlan),
    Latent(LatentPlan),
    Mamba2(Mamba2Plan),
    Mamba1(Mamba1Plan),
    Delta(DeltaPlan),
}

/// What follows the mixer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mlp {
    None,
    Dense { width: u32 },
    Routed,
    RoutedAndDense { width: u32 },
}

/// One layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LayerPlan {
    pub(super) mixer: Mixer,
    pub(super) mlp: Mlp,
}

impl LayerPlan {
    /// Sub-layers that a pre-norm stands before.
    pub(super) const fn sub_layers(&self) -> u64 {
        let mixer = !matches!(self.mixer, Mixer::None) as u64;
        let mlp = !matches!(self.mlp, Mlp::None) as u64;
        mixer + mlp
    }
}
