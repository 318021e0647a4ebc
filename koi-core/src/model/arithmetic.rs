//! Parameter, weight and communication arithmetic of one model.
//!
//! Not time, and not the cache: that is [`super::cache`]. White paper V1, Appendix C
//! (per_tok_comm_bytes, pipeline_bubble_fraction); spec §3 and §4.

use super::kinds::{LayerKind, WeightSum};
use super::{ModelFacts, Part, WeightDtype};

/// KV-cache bytes of one token on the fullest GPU of a split of equal layers.
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

/// Layers of one stage.
///
/// # Formula
/// ⌊L/pp⌋, and one more for the L mod pp stages before the last: engines spare the last stage,
/// which has the output head.
#[must_use]
pub const fn stage_layers(layers: u32, pp: u32, stage: u32) -> u32 {
    let pp = if pp == 0 { 1 } else { pp };
    let (each, rest) = (layers / pp, layers % pp);
    let first_longer = pp.saturating_sub(1 + rest);
    let is_longer = rest > 0 && stage >= first_longer && stage + 1 < pp;
    each + is_longer as u32
}

impl ModelFacts {
    /// Share of the routed experts that one token uses; 0 for dense models.
    fn used_share(&self) -> f64 {
        self.moe.map_or(0.0, |moe| {
            f64::from(moe.experts_per_token) / f64::from(moe.experts.max(1))
        })
    }

    /// Share of the routed experts that `tokens` tokens touch together.
    ///
    /// # Formula
    /// 1 − (1 − k/E)^n for n independent tokens
    #[must_use]
    pub fn expert_share_touched(&self, tokens: f64) -> f64 {
        1.0 - (1.0 - self.used_share()).powf(tokens.max(1.0))
    }

    /// Matrix weights outside embeddings; with `per_token`, only those that one token touches.
    #[must_use]
    pub fn linear_params(&self, per_token: bool) -> u64 {
        let t = &self.totals;
        let experts = match self.moe {
            Some(moe) if per_token => {
                t.expert_params / f64::from(moe.experts.max(1)) * f64::from(moe.experts_per_token)
            }
            Some(_) | None => t.expert_params,
        };
        (t.dense_params + experts) as u64
    }

    /// Matrix weights of all MLPs; with `per_token`, only those that one token touches.
    #[must_use]
    pub fn mlp_params(&self, per_token: bool) -> u64 {
        let is_mlp = |part| {
            matches!(
                part,
                Part::DenseMlp | Part::SharedExperts | Part::RoutedExperts
            )
        };
        let parts = self.parts.iter().filter(|p| is_mlp(p.part));
        parts
            .map(|p| if per_token { p.active_params } else { p.params })
            .sum()
    }

    /// Matrix weights read when `tokens` tokens go through together: experts are read once each.
    ///
    /// # Formula
    /// dense + experts · (1 − (1 − k/E)^n)
    #[must_use]
    pub fn linear_params_touched(&self, tokens: f64) -> f64 {
        let t = &self.totals;
        if t.expert_params <= 0.0 {
            return t.dense_params;
        }
        t.dense_params + t.expert_params * self.expert_share_touched(tokens)
    }

    /// Bytes of matrix weights, in the served format, read when `tokens` tokens go through
    /// together; over all shards and stages, embeddings and head apart.
    #[must_use]
    pub fn linear_bytes_touched(&self, choice: WeightDtype, tokens: f64) -> f64 {
        let t = &self.totals;
        let (dense, experts) = if self.is_native(choice) {
            (t.dense_bytes, t.expert_bytes)
        } else {
            let served = choice.bytes_per_weight();
            let base = self.base_dtype.activation_bytes();
            let bytes = |linear: f64, all: f64| linear * served + (all - linear) * base;
            (
                bytes(t.dense_linear_params, t.dense_params),
                bytes(t.expert_linear_params, t.expert_params),
            )
        };
        if experts <= 0.0 {
            return dense;
        }
        dense + experts * self.expert_share_touched(tokens)
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

    /// The sum of one part; `None` when the model has no such part.
    #[must_use]
    pub fn part(&self, part: Part) -> Option<&super::PartSum> {
        self.parts.iter().find(|p| p.part == part)
    }

    /// Whether a choice serves the weights as they are stored.
    #[must_use]
    pub fn is_native(&self, choice: WeightDtype) -> bool {
        choice == WeightDtype::Auto || choice == self.native_weight_dtype
    }

    /// Bytes of weights that are split alike, in the served format.
    fn sum_bytes(&self, sum: &WeightSum, choice: WeightDtype) -> f64 {
        if self.is_native(choice) {
            return sum.stored_bytes as f64;
        }
        sum.linear_params as f64 * choice.bytes_per_weight()
            + sum.kept_params as f64 * self.base_bytes(choice)
    }

    /// Bytes of one number that stays unquantized: the base format, or the format that a float
    /// checkpoint is served in.
    fn base_bytes(&self, choice: WeightDtype) -> f64 {
        match choice {
            WeightDtype::Fp32 | WeightDtype::Bf16 | WeightDtype::Fp16 => choice.activation_bytes(),
            WeightDtype::Auto
            | WeightDtype::Fp8
            | WeightDtype::Int8
            | WeightDtype::Int4
            | WeightDtype::Mxfp4
            | WeightDtype::Nvfp4 => self.base_dtype.activation_bytes(),
        }
    }

    /// Bytes of all weights. As stored: exactly what the checkpoint holds, scales included.
    /// Otherwise embeddings, head, norms, biases and routers stay in the base format.
    #[must_use]
    pub fn weight_bytes(&self, choice: WeightDtype) -> u64 {
        if self.is_native(choice) {
            return self.parts.iter().map(|p| p.stored_bytes).sum();
        }
        let t = &self.totals;
        let linear = t.dense_linear_params + t.expert_linear_params;
        let rest = self.params_total as f64 - linear;
        (linear * choice.bytes_per_weight() + rest * self.base_bytes(choice)).ceil() as u64
    }

    /// Weight bytes on the fullest GPU of a tp × pp split: what cannot be divided is whole on
    /// every shard, and stages differ by their layers, the embedding and the head.
    #[must_use]
    pub fn weight_bytes_per_gpu(&self, choice: WeightDtype, tp: u32, pp: u32) -> f64 {
        let (tp, pp) = (tp.max(1), pp.max(1));
        let base = self.base_bytes(choice);
        let stored = |part: Part| self.part(part).map_or(0.0, |p| p.stored_bytes as f64);
        let table = |part: Part| {
            let params = self.part(part).map_or(0.0, |p| p.params as f64);
            let bytes = if self.is_native(choice) {
                stored(part)
            } else {
                params * base
            };
            bytes / f64::from(tp)
        };
        let embedding = table(Part::Embedding);
        // The last stage needs the tied matrix as its head.
        let head = match self.tied_embeddings {
            true if pp > 1 => embedding,
            true => 0.0,
            false => table(Part::Head),
        };
        let norm = self.final_norm_params() as f64 * base;
        let layer = |kind: &LayerKind| self.layer_bytes(kind, choice, tp, 1.0);
        if pp == 1 {
            let layers = self.kinds.iter().map(|k| f64::from(k.layers) * layer(k));
            return layers.sum::<f64>() + embedding + head + norm;
        }
        self.fullest_stage(pp, layer, |stage| {
            let first = if stage == 0 { embedding } else { 0.0 };
            let last = if stage + 1 == pp { head + norm } else { 0.0 };
            first + last
        })
    }

    /// Weight bytes that the fullest stage reads on one GPU when `tokens` tokens go through
    /// together, embedding and head apart. Cut or spread, an expert's bytes are shared by the group.
    ///
    /// # Formula
    /// Σ layers of (split + experts · touched)/tp + kv · ⌈K/tp⌉/K + replicated + small
    #[must_use]
    pub fn layer_bytes_touched_per_gpu(
        &self,
        choice: WeightDtype,
        tokens: f64,
        tp: u32,
        pp: u32,
    ) -> f64 {
        let (tp, pp) = (tp.max(1), pp.max(1));
        let share = self.expert_share_touched(tokens);
        let layer = |kind: &LayerKind| self.layer_bytes(kind, choice, tp, share);
        if pp == 1 {
            let layers = self.kinds.iter().map(|k| f64::from(k.layers) * layer(k));
            return layers.sum();
        }
        self.fullest_stage(pp, layer, |_| 0.0)
    }

    /// Bytes of one layer on one of `tp` shards, with this share of its experts.
    fn layer_bytes(
        &self,
        kind: &LayerKind,
        choice: WeightDtype,
        tp: u32,
        expert_share: f64,
    ) -> f64 {
        let w = &kind.weights;
        let bytes = |sum: &WeightSum| self.sum_bytes(sum, choice);
        let kv_share = if kind.kv_heads == 0 {
            1.0
        } else {
            f64::from(kind.kv_heads.div_ceil(tp)) / f64::from(kind.kv_heads)
        };
        (bytes(&w.split) + bytes(&w.experts) * expert_share) / f64::from(tp)
            + bytes(&w.kv) * kv_share
            + bytes(&w.replicated)
            + w.small_params as f64 * self.base_bytes(choice)
    }

    /// The norm before the head: what the norms have beyond the layers' small numbers.
    fn final_norm_params(&self) -> u64 {
        let norm = u64::from(self.hidden);
        if self.architecture.spec().norm_bias == super::spec::Bias::Always {
            2 * norm
        } else {
            norm
        }
    }

    /// The largest sum over the stages of a pipeline of what each layer and each stage adds.
    pub(super) fn fullest_stage(
        &self,
        pp: u32,
        layer: impl Fn(&LayerKind) -> f64,
        stage_extra: impl Fn(u32) -> f64,
    ) -> f64 {
        let mut at = 0_usize;
        let mut most = 0.0_f64;
        for stage in 0..pp {
            let n = stage_layers(self.layers, pp, stage);
            let sum: f64 = match (self.order.is_empty(), self.kinds.first()) {
                (true, Some(kind)) => f64::from(n) * layer(kind),
                (true, None) => 0.0,
                (false, _) => {
                    let end = (at + n as usize).min(self.order.len());
                    let here = self.order.get(at..end).unwrap_or_default();
                    let kinds = here.iter().filter_map(|k| self.kinds.get(usize::from(*k)));
                    kinds.map(&layer).sum()
                }
            };
            at += n as usize;
            most = most.max(sum + stage_extra(stage));
        }
        most
    }
}
