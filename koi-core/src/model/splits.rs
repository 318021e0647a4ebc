//! Which splits over GPUs a model allows, with the reason and the numbers where it does not.
//!
//! Not whether a split fits a device: that is [`crate::surrogate::MemoryBreakdown`]. Spec §11, C6.

use super::kinds::{LayerKind, MixerKind};
use super::{ModelFacts, WeightDtype};

/// Engines pad the vocabulary to a multiple of this before they split it.
pub(super) const VOCABULARY_PADDING: u32 = 64;

/// Takes the problems of a split.
type Report<'a> = &'a mut dyn FnMut(String);

impl ModelFacts {
    /// Whether the model can be split over `tp` shards, experts cut like everything else.
    ///
    /// # Errors
    /// The reason, naming the numbers, when it cannot.
    pub fn legal_tp(&self, tp: u32) -> Result<(), String> {
        self.legal_split(tp, 1)
    }

    /// Whether the model can be split over `tp` shards with experts spread over `ep` of them:
    /// experts that are spread are not cut.
    ///
    /// # Errors
    /// The first reason, naming the numbers, when it cannot.
    pub fn legal_split(&self, tp: u32, ep: u32) -> Result<(), String> {
        let mut first = None;
        self.check_split(tp, ep, &mut |reason| {
            first.get_or_insert(reason);
        });
        first.map_or(Ok(()), Err)
    }

    /// Every reason against a split over `tp` shards.
    #[must_use]
    pub fn split_refusals(&self, tp: u32, ep: u32) -> Vec<String> {
        let mut all = vec![];
        self.check_split(tp, ep, &mut |reason| all.push(reason));
        all.dedup();
        all
    }

    fn check_split(&self, tp: u32, ep: u32, report: Report<'_>) {
        if tp == 0 {
            return report("tp must be at least 1".to_owned());
        }
        for kind in &self.kinds {
            check_heads(kind, tp, report);
        }
        // The engine pads the vocabulary before it splits it.
        let vocabulary = self.vocab.next_multiple_of(VOCABULARY_PADDING);
        check_divides("the padded vocabulary", vocabulary, tp, report);
        for kind in &self.kinds {
            self.check_attention_tiles(kind, tp, report);
            if let Some(width) = kind.dense_width {
                self.check_width("an MLP width", width, kind.mlp_quantized, tp, report);
            }
        }
        if let Some(moe) = self.moe
            && ep <= 1
        {
            let quantized = self.kinds.iter().any(|k| k.experts_quantized);
            let width = moe.expert_intermediate;
            self.check_width("an expert's width", width, quantized, tp, report);
        }
    }

    /// Divisibility, quantization groups and kernel tiles of one MLP width.
    fn check_width(&self, what: &str, width: u32, is_quantized: bool, tp: u32, report: Report<'_>) {
        if !width.is_multiple_of(tp) {
            return report(format!("tp={tp} does not divide {what} ({width})"));
        }
        if !is_quantized || tp == 1 || self.native_weight_dtype == WeightDtype::Mxfp4 {
            return;
        }
        let part = width / tp;
        let group = self.quantization_group.unwrap_or(1);
        if !part.is_multiple_of(group) {
            return report(format!(
                "tp={tp} cuts through a quantization group: width {width} / {tp} is not a multiple of {group}"
            ));
        }
        self.check_tile(what, part, tp, report);
    }

    /// Kernel tiles of queries and of keys and values.
    fn check_attention_tiles(&self, kind: &LayerKind, tp: u32, report: Report<'_>) {
        let is_heads = matches!(
            kind.mixer,
            MixerKind::Full | MixerKind::Sliding | MixerKind::Chunked
        );
        if !kind.attention_quantized || tp == 1 || !is_heads || !kind.heads.is_multiple_of(tp) {
            return;
        }
        let query = kind.heads / tp * kind.head_dim;
        let group = self.quantization_group.unwrap_or(1);
        if self.native_weight_dtype != WeightDtype::Mxfp4 && !query.is_multiple_of(group) {
            return report(format!(
                "tp={tp} cuts through a quantization group: {query} query elements a shard are not a multiple of {group}"
            ));
        }
        self.check_tile("the queries", query, tp, report);
        let rows = self.quantization.as_ref().map_or(1, |q| q.tile_rows);
        let kv = kind.kv_heads.div_ceil(tp) * kind.head_dim;
        if !kv.is_multiple_of(rows) {
            report(format!(
                "tp={tp} leaves {kv} key elements a shard, not a multiple of the kernel's {rows}"
            ));
        }
    }

    fn check_tile(&self, what: &str, part: u32, tp: u32, report: Report<'_>) {
        let Some(q) = &self.quantization else {
            return;
        };
        let tile = q.tile_rows.max(q.tile_cols);
        if !part.is_multiple_of(q.tile_rows) || !part.is_multiple_of(q.tile_cols) {
            report(format!(
                "tp={tp} leaves {part} of {what} a shard, not a multiple of the {} kernel's tile {tile}",
                q.weight_dtype.name()
            ));
        }
    }

    /// Whether an engine serves the checkpoint with weights of this format: it quantizes float
    /// checkpoints to fp8 on the fly, and nothing else into anything else.
    ///
    /// # Errors
    /// Both formats, when it does not.
    pub fn servable(&self, choice: WeightDtype) -> Result<(), String> {
        let native = self.native_weight_dtype;
        let is_float = matches!(
            native,
            WeightDtype::Fp32 | WeightDtype::Bf16 | WeightDtype::Fp16
        );
        let ok = match choice {
            WeightDtype::Auto => true,
            WeightDtype::Fp32 | WeightDtype::Bf16 | WeightDtype::Fp16 => is_float,
            WeightDtype::Fp8 => is_float || native == WeightDtype::Fp8,
            WeightDtype::Int8 | WeightDtype::Int4 | WeightDtype::Mxfp4 | WeightDtype::Nvfp4 => {
                native == choice
            }
        };
        if ok {
            return Ok(());
        }
        Err(format!(
            "{} weights cannot be served as {}",
            native.name(),
            choice.name()
        ))
    }

    /// Whether the model can be cut into `pp` stages.
    ///
    /// # Errors
    /// The reason, naming the numbers, when it cannot.
    pub fn legal_pp(&self, pp: u32) -> Result<(), String> {
        if pp == 0 || pp > self.layers {
            return Err(format!(
                "pp={pp} must be between 1 and the {} layers",
                self.layers
            ));
        }
        Ok(())
    }

    /// Whether experts can be spread over `ep` shards of a tensor-parallel group of `tp`.
    ///
    /// # Errors
    /// The reason, naming the numbers, when they cannot.
    pub fn legal_ep(&self, ep: u32, tp: u32) -> Result<(), String> {
        let Some(moe) = self.moe else {
            let dense = || format!("ep={ep} needs a mixture of experts; this model is dense");
            return (ep == 1).then_some(()).ok_or_else(dense);
        };
        if ep != 1 && ep != tp {
            return Err(format!(
                "ep={ep} must be 1 or equal to tp={tp}: the engine spreads experts over the whole group"
            ));
        }
        if ep > moe.experts {
            return Err(format!("ep={ep} exceeds the {} experts", moe.experts));
        }
        Ok(())
    }
}

fn check_divides(what: &str, n: u32, tp: u32, report: Report<'_>) {
    if !n.is_multiple_of(tp) {
        report(format!("tp={tp} does not divide {what} ({n})"));
    }
}

/// Heads of queries, of keys and values, and of states.
fn check_heads(kind: &LayerKind, tp: u32, report: Report<'_>) {
    match kind.mixer {
        MixerKind::None => {}
        MixerKind::Full | MixerKind::Sliding | MixerKind::Chunked => {
            check_divides("the query heads", kind.heads, tp, report);
            let kv = kind.kv_heads;
            if kv > 0 && !kv.is_multiple_of(tp) && !tp.is_multiple_of(kv) {
                report(format!(
                    "tp={tp} neither divides the {kv} key/value heads nor is a multiple of them"
                ));
            }
        }
        MixerKind::Latent | MixerKind::SparseLatent => {
            check_divides("the query heads", kind.heads, tp, report);
        }
        MixerKind::Mamba => check_divides("the Mamba heads", kind.heads, tp, report),
        MixerKind::Linear => {
            check_divides("the linear attention's value heads", kind.heads, tp, report);
            let groups = kind.state_groups.unwrap_or(tp);
            check_divides("the linear attention's key heads", groups, tp, report);
        }
    }
}
