//! Bytes of the KV cache and of recurrent state, by context length, and what attention reads and
//! computes. No allocation: predictions call these for every candidate.
//!
//! Not how an engine cuts a pool into blocks: that is [`crate::surrogate::MemoryBreakdown`]. Spec §4.

use serde::{Deserialize, Serialize};

use super::kinds::{LayerKind, MixerKind};
use super::{KvDtype, ModelFacts};

/// Layers that keep at most so many tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct WindowBytes {
    /// Tokens kept at most; 0 where no layer forgets.
    pub tokens: f64,
    /// Bytes of one token over these layers.
    pub bytes_per_token: f64,
}

/// What the cache of one sequence takes on the fullest GPU of a split.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CacheShape {
    /// Bytes of one token in layers that keep every token.
    pub full_bytes_per_token: f64,
    /// Layers that forget; those of one model have one window.
    pub window: WindowBytes,
    /// Bytes of state of a sequence of any length.
    pub state_bytes: f64,
}

impl CacheShape {
    /// Bytes of a sequence of `context` tokens.
    ///
    /// # Formula
    /// full·n + window·min(n, w) + state
    #[must_use]
    pub fn bytes(&self, context: f64) -> f64 {
        let kept = self.window.bytes_per_token * context.min(self.window.tokens);
        self.full_bytes_per_token * context + kept + self.state_bytes
    }

    /// Bytes of one token while no layer has forgotten anything.
    #[must_use]
    pub fn bytes_per_new_token(&self) -> f64 {
        self.full_bytes_per_token + self.window.bytes_per_token
    }

    /// Share of its cache that a sequence of `context` tokens holds, against one of whose tokens no
    /// layer has forgotten any; above 1 where state comes on top.
    ///
    /// # Formula
    /// bytes(n) / (n · bytes of a new token)
    #[must_use]
    pub fn held_share(&self, context: f64) -> f64 {
        let whole = self.bytes_per_new_token() * context;
        let forgets = self.window.bytes_per_token > 0.0 && context > self.window.tokens;
        if whole > 0.0 && (forgets || self.state_bytes > 0.0) {
            self.bytes(context) / whole
        } else {
            1.0
        }
    }

    fn add(&mut self, kind: &LayerKind, n: f64, element_bytes: f64, tp: u32) {
        let token =
            kind.kv_elements_per_shard(tp) * element_bytes + f64::from(kind.index_bytes_per_token);
        match kind.window {
            None => self.full_bytes_per_token += n * token,
            Some(window) => {
                self.window.tokens = self.window.tokens.max(f64::from(window));
                self.window.bytes_per_token += n * token;
            }
        }
        self.state_bytes += n * kind.state_bytes as f64 / f64::from(tp);
    }
}

impl ModelFacts {
    /// Bytes of one cached element.
    #[must_use]
    pub fn kv_element_bytes(&self, dtype: KvDtype) -> f64 {
        dtype.bytes(self.base_dtype.activation_bytes())
    }

    /// KV-cache bytes of one token over the whole model, while no layer has forgotten anything.
    #[must_use]
    pub fn kv_bytes_per_token(&self, dtype: KvDtype) -> f64 {
        self.kv_bytes_per_token_per_gpu(dtype, 1, 1)
    }

    /// The same on the fullest GPU of a tp × pp split.
    #[must_use]
    pub fn kv_bytes_per_token_per_gpu(&self, dtype: KvDtype, tp: u32, pp: u32) -> f64 {
        let (tp, bytes) = (tp.max(1), self.kv_element_bytes(dtype));
        let layer = |kind: &LayerKind| {
            kind.kv_elements_per_shard(tp) * bytes + f64::from(kind.index_bytes_per_token)
        };
        if pp <= 1 {
            return self
                .kinds
                .iter()
                .map(|k| f64::from(k.layers) * layer(k))
                .sum();
        }
        self.fullest_stage(pp, layer, |_| 0.0)
    }

    /// What the cache of a sequence takes on the fullest GPU of a tp × pp split.
    #[must_use]
    pub fn cache_shape(&self, dtype: KvDtype, tp: u32, pp: u32) -> CacheShape {
        let (tp, bytes) = (tp.max(1), self.kv_element_bytes(dtype));
        let mut shape = CacheShape::default();
        if pp <= 1 || self.order.is_empty() {
            for kind in &self.kinds {
                let n = if pp <= 1 {
                    kind.layers
                } else {
                    self.layers.div_ceil(pp)
                };
                shape.add(kind, f64::from(n), bytes, tp);
            }
            return shape;
        }
        let mut at = 0_usize;
        for stage in 0..pp {
            let n = super::arithmetic::stage_layers(self.layers, pp, stage) as usize;
            let mut here = CacheShape::default();
            let order = self.order.get(at..(at + n).min(self.order.len()));
            for kind in order.unwrap_or_default() {
                if let Some(kind) = self.kinds.get(usize::from(*kind)) {
                    here.add(kind, 1.0, bytes, tp);
                }
            }
            at += n;
            // One long sequence decides which stage is the fullest.
            let longest = f64::from(self.max_position);
            if stage == 0 || here.bytes(longest) > shape.bytes(longest) {
                shape = here;
            }
        }
        shape
    }

    /// Bytes of cache and state that one sequence of `context` tokens takes over the whole model.
    #[must_use]
    pub fn kv_bytes_of_context(&self, context: f64, dtype: KvDtype) -> f64 {
        self.cache_shape(dtype, 1, 1).bytes(context)
    }

    /// Bytes of cache and state that one decode step of one sequence reads on one of `tp` shards,
    /// over all stages.
    ///
    /// # Formula
    /// Σ layers · (elements/shard · b · tokens read + index · n) + state/tp
    #[must_use]
    pub fn kv_bytes_read_per_step(&self, context: f64, dtype: KvDtype, tp: u32) -> f64 {
        let (tp, bytes) = (tp.max(1), self.kv_element_bytes(dtype));
        let layer = |kind: &LayerKind| {
            let cache = kind.kv_elements_per_shard(tp) * bytes * mean_read(kind, context);
            let index = f64::from(kind.index_bytes_per_token) * context;
            f64::from(kind.layers) * (cache + index + kind.state_bytes as f64 / f64::from(tp))
        };
        self.kinds.iter().map(layer).sum()
    }

    /// Operations of attention and recurrent state for one decoded token that attends to `context`
    /// tokens, over the whole model.
    #[must_use]
    pub fn decode_attention_flops(&self, context: f64) -> f64 {
        self.mixing_flops(context, |kind| kind.decode_pair_flops)
    }

    /// The same for one prompt token that attends to `context` tokens.
    #[must_use]
    pub fn prefill_attention_flops(&self, context: f64) -> f64 {
        self.mixing_flops(context, |kind| kind.prefill_pair_flops)
    }

    fn mixing_flops(&self, context: f64, pair: fn(&LayerKind) -> f64) -> f64 {
        let layer = |kind: &LayerKind| {
            f64::from(kind.layers)
                * (pair(kind) * mean_read(kind, context)
                    + kind.index_pair_flops * context
                    + kind.state_flops)
        };
        self.kinds.iter().map(layer).sum()
    }
}

/// Tokens that a new token reads of a context, on average: a chunk is half full.
fn mean_read(kind: &LayerKind, context: f64) -> f64 {
    match (kind.mixer, kind.window) {
        (MixerKind::Chunked, Some(w)) if context > f64::from(w) => f64::from(w) / 2.0,
        _ => kind.read_tokens(context),
    }
}
