//! Parameter, weight, KV-cache and communication arithmetic of one model.
//!
//! Not time: bytes and counts only. White paper V1, Appendix C (per_tok_comm_bytes,
//! pipeline_bubble_fraction); spec §3 and §4.

use super::{KvDtype, ModelFacts, MoeFacts, WeightDtype};

/// KV-cache bytes of one token on the fullest GPU of a split.
///
/// # Formula
/// 2 · ⌈L/pp⌉ · ⌈K/tp⌉ · d · b: a KV head is never cut, so from tp > K on heads are replicated.
///
/// # Units
/// `element_bytes` is bytes per cached element; the result is bytes per token.
#[must_use]
pub fn kv_bytes_per_token_of(
    (layers, kv_heads, head_dim): (u32, u32, u32),
    element_bytes: f64,
    tp: u32,
    pp: u32,
) -> f64 {
    let stage_layers = f64::from(layers.div_ceil(pp.max(1)));
    let heads = f64::from(kv_heads.div_ceil(tp.max(1)));
    2.0 * stage_layers * heads * f64::from(head_dim) * element_bytes
}

/// Bytes that one shard sends per token.
///
/// # Formula
/// 4·L·H·b·(tp−1)/tp + (pp−1)·H·b: two ring all-reduces a layer, one hand-over per stage border.
///
/// # Source
/// Spec §3, per_tok_comm_bytes.
#[must_use]
pub fn comm_bytes_per_token(layers: u32, hidden: u32, bytes: f64, tp: u32, pp: u32) -> f64 {
    let (l, h, t) = (f64::from(layers), f64::from(hidden), f64::from(tp.max(1)));
    4.0 * l * h * bytes * (t - 1.0) / t + (f64::from(pp.max(1)) - 1.0) * h * bytes
}

/// Share of stage time lost to pipeline fill and drain.
///
/// # Formula
/// (pp−1)/(m+pp−1), m = micro-batches in flight
#[must_use]
pub fn pipeline_bubble_fraction(pp: u32, micro_batches: f64) -> f64 {
    let gap = f64::from(pp.max(1)) - 1.0;
    gap / (micro_batches.max(1.0) + gap)
}

impl MoeFacts {
    /// Parameters of one routed expert.
    fn expert_params(&self, hidden: u64) -> u64 {
        3 * hidden * u64::from(self.expert_intermediate)
    }

    /// Parameters of the always-active part of one routed layer, router excluded.
    fn shared_params(&self, hidden: u64) -> u64 {
        self.shared_intermediate
            .map_or(0, |width| 3 * hidden * u64::from(width))
    }
}

impl ModelFacts {
    /// Attention projections of one layer that tensor parallelism divides exactly (Q and O).
    #[must_use]
    pub fn query_output_params_per_layer(&self) -> u64 {
        2 * u64::from(self.hidden) * u64::from(self.heads) * u64::from(self.head_dim)
    }

    /// Key and value projections of one layer.
    #[must_use]
    pub fn kv_projection_params_per_layer(&self) -> u64 {
        2 * u64::from(self.hidden) * u64::from(self.kv_heads) * u64::from(self.head_dim)
    }

    /// Linear weights of all MLPs; with `per_token`, only those that one token touches.
    #[must_use]
    pub fn mlp_params(&self, per_token: bool) -> u64 {
        let hidden = u64::from(self.hidden);
        let dense_layer = 3 * hidden * u64::from(self.intermediate);
        let Some(moe) = self.moe else {
            return u64::from(self.layers) * dense_layer;
        };
        let experts = if per_token {
            moe.experts_per_token
        } else {
            moe.experts
        };
        let routed = u64::from(experts) * moe.expert_params(hidden) + moe.shared_params(hidden);
        u64::from(moe.sparse_layers) * routed
            + u64::from(self.layers - moe.sparse_layers) * dense_layer
    }

    /// Linear weights outside embeddings; with `per_token`, only those that one token touches.
    #[must_use]
    pub fn linear_params(&self, per_token: bool) -> u64 {
        let attention =
            self.query_output_params_per_layer() + self.kv_projection_params_per_layer();
        u64::from(self.layers) * attention + self.mlp_params(per_token)
    }

    /// Linear weights read when `tokens` tokens go through together: experts are read once each.
    ///
    /// # Formula
    /// A routed expert is touched with probability 1 − (1 − k/E)^n for n independent tokens.
    #[must_use]
    pub fn linear_params_touched(&self, tokens: f64) -> f64 {
        let Some(moe) = self.moe else {
            return self.linear_params(true) as f64;
        };
        let share = f64::from(moe.experts_per_token) / f64::from(moe.experts);
        let touched = 1.0 - (1.0 - share).powf(tokens.max(1.0));
        let expert = moe.expert_params(u64::from(self.hidden)) as f64;
        let routed_all = f64::from(moe.sparse_layers) * f64::from(moe.experts) * expert;
        self.linear_params(false) as f64 - routed_all * (1.0 - touched)
    }

    /// Parameters of one vocabulary matrix.
    #[must_use]
    pub fn vocabulary_params(&self) -> u64 {
        u64::from(self.vocab) * u64::from(self.hidden)
    }

    /// Embedding and output head together.
    #[must_use]
    pub fn embedding_params(&self) -> u64 {
        if self.tied_embeddings {
            self.vocabulary_params()
        } else {
            2 * self.vocabulary_params()
        }
    }

    /// Bytes of all weights; embeddings, head, norms, biases and routers stay unquantized.
    #[must_use]
    pub fn weight_bytes(&self, choice: WeightDtype) -> u64 {
        let dtype = self.served_dtype(choice);
        let linear = self.linear_params(false);
        let rest = self.params_total.saturating_sub(linear) as f64;
        (linear as f64 * dtype.bytes_per_weight() + rest * dtype.activation_bytes()).ceil() as u64
    }

    /// Weight bytes on the fullest GPU of a tp × pp split, replicated KV projections included.
    #[must_use]
    pub fn weight_bytes_per_gpu(&self, choice: WeightDtype, tp: u32, pp: u32) -> f64 {
        let dtype = self.served_dtype(choice);
        let (tp_f, layers) = (f64::from(tp.max(1)), f64::from(self.layers));
        let kv_share = f64::from(self.kv_heads.div_ceil(tp.max(1))) / f64::from(self.kv_heads);
        let kv = layers * self.kv_projection_params_per_layer() as f64;
        let split = self.linear_params(false) as f64 - kv;
        let stage = f64::from(self.layers.div_ceil(pp.max(1))) / layers;
        let linear = stage * (split / tp_f + kv * kv_share) * dtype.bytes_per_weight();
        let vocabulary = if pp > 1 {
            self.vocabulary_params()
        } else {
            self.embedding_params()
        } as f64;
        linear + vocabulary / tp_f * dtype.activation_bytes()
    }

    /// KV-cache bytes of one token over the whole model.
    #[must_use]
    pub fn kv_bytes_per_token(&self, dtype: KvDtype) -> f64 {
        self.kv_bytes_per_token_per_gpu(dtype, 1, 1)
    }

    /// KV-cache bytes of one token on the fullest GPU of a tp × pp split.
    #[must_use]
    pub fn kv_bytes_per_token_per_gpu(&self, dtype: KvDtype, tp: u32, pp: u32) -> f64 {
        let bytes = dtype.bytes(self.native_weight_dtype.activation_bytes());
        kv_bytes_per_token_of((self.layers, self.kv_heads, self.head_dim), bytes, tp, pp)
    }
}
