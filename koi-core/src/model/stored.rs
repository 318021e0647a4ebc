//! Facts as stored: newer rows hold everything, older ones lack the layer kinds, which follow from
//! what they hold.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::assemble::{Provenance, assemble};
use super::kinds::{LayerKind, PartSum};
use super::plan::{HeadsPlan, LayerPlan, Mixer, Mlp};
use super::quantization::{Quantization, QuantizationFacts};
use super::shape::{Biases, QueryKeyNorm, Shape};
use super::spec::{Bias, QkNorm};
use super::totals::Totals;
use super::{Architecture, ModelFacts, MoeFacts, WeightDtype};
use crate::violation::FieldViolation;

/// The wire form of [`ModelFacts`].
#[derive(Debug, Deserialize)]
pub(super) struct StoredFacts {
    architecture: Architecture,
    layers: u32,
    hidden: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    intermediate: u32,
    vocab: u32,
    tied_embeddings: bool,
    moe: Option<MoeFacts>,
    max_position: u32,
    params_total: u64,
    params_active: u64,
    native_weight_dtype: WeightDtype,
    quantization_group: Option<u32>,
    base_dtype: Option<WeightDtype>,
    quantization: Option<QuantizationFacts>,
    #[serde(default)]
    kinds: Vec<LayerKind>,
    #[serde(default)]
    order: Vec<u16>,
    #[serde(default)]
    parts: Vec<PartSum>,
    sources: BTreeMap<String, String>,
    #[serde(default)]
    notes: Vec<FieldViolation>,
}

impl From<StoredFacts> for ModelFacts {
    fn from(stored: StoredFacts) -> Self {
        if stored.kinds.is_empty() {
            return stored.rebuilt();
        }
        Self {
            architecture: stored.architecture,
            layers: stored.layers,
            hidden: stored.hidden,
            heads: stored.heads,
            kv_heads: stored.kv_heads,
            head_dim: stored.head_dim,
            intermediate: stored.intermediate,
            vocab: stored.vocab,
            tied_embeddings: stored.tied_embeddings,
            moe: stored.moe,
            max_position: stored.max_position,
            params_total: stored.params_total,
            params_active: stored.params_active,
            native_weight_dtype: stored.native_weight_dtype,
            quantization_group: stored.quantization_group,
            base_dtype: stored.base_dtype.unwrap_or(WeightDtype::Bf16),
            quantization: stored.quantization,
            totals: Totals::of(&stored.kinds),
            kinds: stored.kinds,
            order: stored.order,
            parts: stored.parts,
            sources: stored.sources,
            notes: stored.notes,
        }
    }
}

impl StoredFacts {
    /// Rows from before layer kinds: plain attention over heads, one MLP width, biases and norms as
    /// the architecture has them by default.
    fn rebuilt(self) -> ModelFacts {
        let spec = self.architecture.spec();
        let default = |bias: Bias| match bias {
            Bias::Never => false,
            Bias::Always => true,
            Bias::Flag(_, default) => default,
        };
        let mixer = Mixer::Heads(HeadsPlan {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            window: None,
            gated: false,
            value_is_key: false,
            caches: true,
        });
        let dense = Mlp::Dense {
            width: self.intermediate,
        };
        let n_dense = self
            .moe
            .map_or(self.layers, |m| self.layers.saturating_sub(m.sparse_layers));
        let layer = |at: u32| LayerPlan {
            mixer,
            mlp: if at < n_dense { dense } else { Mlp::Routed },
        };
        let shape = Shape {
            architecture: self.architecture,
            hidden: self.hidden,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            intermediate: Some(self.intermediate),
            vocab: self.vocab,
            max_position: self.max_position,
            tied: self.tied_embeddings,
            position_rows: 0,
            biases: Biases {
                qkv: default(spec.qkv_bias),
                output: default(spec.output_bias),
                mlp: default(spec.mlp_bias),
                norm: default(spec.norm_bias),
            },
            qk_norm: match spec.qk_norm {
                QkNorm::Head => QueryKeyNorm::Head,
                QkNorm::Whole => QueryKeyNorm::Whole,
                QkNorm::None | QkNorm::HeadFlag(..) | QkNorm::WholeFlag(..) => QueryKeyNorm::None,
            },
            norms_per_layer: spec.norms_per_layer,
            moe: self.moe,
            layers: (0..self.layers).map(layer).collect(),
        };
        let quantization = Quantization::legacy(self.native_weight_dtype, self.quantization_group);
        let provenance = Provenance {
            sources: self.sources,
            notes: self.notes,
        };
        ModelFacts {
            params_total: self.params_total,
            params_active: self.params_active,
            ..assemble(&shape, &quantization, None, provenance)
        }
    }
}
