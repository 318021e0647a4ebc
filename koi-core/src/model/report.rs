//! A model's facts as one document for people and programs: sizes, bytes, legal splits, sources.
//!
//! Nothing is computed here that [`ModelFacts`] does not say; this is the shape that
//! `koi model show` prints.

use serde::Serialize;

use super::splits::VOCABULARY_PADDING;
use super::{KvDtype, LayerKind, ModelFacts, PartSum, WeightDtype};
use crate::violation::FieldViolation;

/// Tensor-parallel widths that a report tries.
const TP_TRIED: [u32; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 64];
/// Pipeline depths that a report tries.
const PP_TRIED: [u32; 8] = [1, 2, 3, 4, 5, 6, 8, 16];
/// Formats of a report's table of weight bytes.
const DTYPES: [WeightDtype; 3] = [WeightDtype::Auto, WeightDtype::Bf16, WeightDtype::Fp8];
/// Context lengths of a report's table of cache bytes.
const CONTEXTS: [u32; 4] = [1_024, 8_192, 32_768, 131_072];

/// How the model would be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportChoices {
    /// Tensor-parallel width.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Format of the weights.
    pub weight_dtype: WeightDtype,
    /// Format of the cache.
    pub kv_dtype: KvDtype,
}

/// A number of bytes under a name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NamedBytes {
    /// Format, or context in tokens.
    pub name: String,
    /// Bytes over the whole model.
    pub bytes: f64,
    /// Bytes on the fullest GPU of the chosen split.
    pub bytes_per_gpu: f64,
}

/// Cache and state of one kind of layer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CacheRow {
    /// Kind in words.
    pub kind: String,
    /// Layers of the kind.
    pub layers: u32,
    /// Bytes per token over these layers.
    pub kv_bytes_per_token: f64,
    /// Tokens kept at most; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<u32>,
    /// Bytes per sequence over these layers, of any length.
    pub state_bytes_per_sequence: f64,
}

/// A split that is not legal, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The width or depth.
    pub n: u32,
    /// Every reason.
    pub reasons: Vec<String>,
}

/// What a legal split costs beyond the division.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// The width or depth.
    pub n: u32,
    /// What to know.
    pub text: String,
}

/// Legal and refused splits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Splits {
    /// Legal numbers among those tried.
    pub legal: Vec<u32>,
    /// What to know of legal ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
    /// The others.
    pub refused: Vec<Refused>,
}

/// The document.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelReport {
    /// The facts, with every source and note.
    pub facts: ModelFacts,
    /// Rows of the vocabulary after the engine's padding.
    pub padded_vocabulary: u32,
    /// All weights as stored.
    pub weight_bytes_as_stored: u64,
    /// KV bytes of one token over the whole model in the chosen format, no layer forgetting yet.
    pub kv_bytes_per_token: f64,
    /// The same on the fullest GPU of the chosen split.
    pub kv_bytes_per_token_per_gpu: f64,
    /// Bytes of recurrent state of one sequence over the whole model.
    pub state_bytes_per_sequence: f64,
    /// Parameters and stored bytes by part.
    pub parts: Vec<PartSum>,
    /// Weight bytes as stored and in other formats that the checkpoint can be served in.
    pub weight_bytes: Vec<NamedBytes>,
    /// Cache and state by kind of layer.
    pub cache: Vec<CacheRow>,
    /// Cache and state of one sequence by its length.
    pub sequence_bytes: Vec<NamedBytes>,
    /// Tensor parallelism, experts cut.
    pub tp: Splits,
    /// Tensor parallelism with experts spread over the group; absent for dense models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tp_with_expert_parallel: Option<Splits>,
    /// Pipeline parallelism.
    pub pp: Splits,
}

impl ModelReport {
    /// The report of a model under these choices.
    ///
    /// # Errors
    /// Problems of the choices: a split that is not legal, a format that cannot be served.
    pub fn of(facts: ModelFacts, choices: ReportChoices) -> Result<Self, Vec<FieldViolation>> {
        check(&facts, choices)?;
        let ep = facts.moe.is_some();
        let kv = |tp, pp| facts.kv_bytes_per_token_per_gpu(choices.kv_dtype, tp, pp);
        Ok(Self {
            padded_vocabulary: facts.vocab.next_multiple_of(VOCABULARY_PADDING),
            weight_bytes_as_stored: facts.weight_bytes(WeightDtype::Auto),
            kv_bytes_per_token: kv(1, 1),
            kv_bytes_per_token_per_gpu: kv(choices.tp, choices.pp),
            state_bytes_per_sequence: facts.totals.state_bytes,
            parts: facts.parts.clone(),
            weight_bytes: weight_rows(&facts, choices),
            cache: facts
                .kinds
                .iter()
                .map(|k| cache_row(&facts, k, choices))
                .collect(),
            sequence_bytes: sequence_rows(&facts, choices),
            tp: splits(
                &TP_TRIED,
                |tp| facts.split_refusals(tp, 1),
                |tp| tp_remark(&facts, tp),
            ),
            tp_with_expert_parallel: ep.then(|| {
                let refusals = |tp: u32| {
                    let mut reasons = facts.split_refusals(tp, tp.max(2));
                    reasons.extend(facts.legal_ep(tp, tp).err());
                    reasons
                };
                splits(&TP_TRIED, refusals, |_| None)
            }),
            pp: splits(
                &PP_TRIED,
                |pp| facts.legal_pp(pp).err().into_iter().collect(),
                |pp| pp_remark(&facts, pp),
            ),
            facts,
        })
    }
}

fn check(facts: &ModelFacts, choices: ReportChoices) -> Result<(), Vec<FieldViolation>> {
    let mut found = crate::violation::Violations::default();
    let spread = facts.moe.is_some()
        && facts.legal_ep(choices.tp, choices.tp).is_ok()
        && facts.legal_split(choices.tp, choices.tp).is_ok();
    if !spread {
        for reason in facts.split_refusals(choices.tp, 1) {
            found.add("tp", reason);
        }
    }
    if let Err(reason) = facts.legal_pp(choices.pp) {
        found.add("pp", reason);
    }
    if let Err(reason) = facts.servable(choices.weight_dtype) {
        found.add("weight_dtype", reason);
    }
    found.finish(())
}

fn splits(
    tried: &[u32],
    reasons_of: impl Fn(u32) -> Vec<String>,
    remark_of: impl Fn(u32) -> Option<String>,
) -> Splits {
    let mut splits = Splits::default();
    for n in tried.iter().copied() {
        let reasons = reasons_of(n);
        if reasons.is_empty() {
            splits.legal.push(n);
            splits
                .remarks
                .extend(remark_of(n).map(|text| Remark { n, text }));
        } else {
            splits.refused.push(Refused { n, reasons });
        }
    }
    splits
}

/// Heads of the cache that are on more than one shard.
fn tp_remark(facts: &ModelFacts, tp: u32) -> Option<String> {
    let caching = facts.kinds.iter().filter(|k| k.kv_heads > 0);
    let kind = caching.min_by_key(|k| k.kv_heads)?;
    let copies = tp / kind.kv_heads;
    if copies <= 1 {
        return None;
    }
    Some(if kind.mixer.is_latent() {
        "the latent cache is whole on every shard".to_owned()
    } else {
        format!(
            "each of the {} key/value heads is on {copies} shards; the cache stops shrinking",
            kind.kv_heads
        )
    })
}

fn pp_remark(facts: &ModelFacts, pp: u32) -> Option<String> {
    let uneven = !facts.layers.is_multiple_of(pp);
    uneven.then(|| {
        let (each, layers) = (facts.layers / pp, facts.layers);
        format!(
            "stages of {each} and {} of the {layers} layers; plans take equal stages only",
            each + 1
        )
    })
}

fn weight_rows(facts: &ModelFacts, choices: ReportChoices) -> Vec<NamedBytes> {
    let mut dtypes = DTYPES.to_vec();
    if !dtypes.contains(&choices.weight_dtype) {
        dtypes.push(choices.weight_dtype);
    }
    let same_as_stored = |d: &WeightDtype| *d != WeightDtype::Auto && facts.is_native(*d);
    let row = |dtype: WeightDtype| NamedBytes {
        name: match dtype {
            WeightDtype::Auto => format!("as stored ({})", facts.native_weight_dtype.name()),
            other => other.name().to_owned(),
        },
        bytes: facts.weight_bytes(dtype) as f64,
        bytes_per_gpu: facts.weight_bytes_per_gpu(dtype, choices.tp, choices.pp),
    };
    let servable = |d: &WeightDtype| facts.servable(*d).is_ok() && !same_as_stored(d);
    dtypes.into_iter().filter(servable).map(row).collect()
}

fn cache_row(facts: &ModelFacts, kind: &LayerKind, choices: ReportChoices) -> CacheRow {
    let layers = f64::from(kind.layers);
    let element = facts.kv_element_bytes(choices.kv_dtype);
    let token = kind.kv_elements() * element + f64::from(kind.index_bytes_per_token);
    CacheRow {
        kind: format!("{}, {}", kind.mixer.name(), kind.mlp.name()),
        layers: kind.layers,
        kv_bytes_per_token: layers * token,
        window_tokens: kind.window,
        state_bytes_per_sequence: layers * kind.state_bytes as f64,
    }
}

fn sequence_rows(facts: &ModelFacts, choices: ReportChoices) -> Vec<NamedBytes> {
    let here = facts.cache_shape(choices.kv_dtype, choices.tp, choices.pp);
    let whole = facts.cache_shape(choices.kv_dtype, 1, 1);
    let row = |tokens: u32| NamedBytes {
        name: tokens.to_string(),
        bytes: whole.bytes(f64::from(tokens)),
        bytes_per_gpu: here.bytes(f64::from(tokens)),
    };
    let legal = CONTEXTS.into_iter().filter(|n| *n < facts.max_position);
    legal.chain([facts.max_position]).map(row).collect()
}
