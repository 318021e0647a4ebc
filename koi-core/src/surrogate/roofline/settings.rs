//! What settings beyond the main ones do to the time of a step.
//!
//! Computed once per prediction, and only where some setting is not at its default; then every step
//! passes through [`StepSettings::amend`]. Spec §4.

use super::{StageModel, StepCost, StepWork, Work};
use crate::configuration::{ShapeEffects, Term};
use crate::surrogate::Deployment;
use crate::surrogate::constants::EngineConstants;
use crate::surrogate::memory;
use crate::surrogate::rates::Rates;
use crate::surrogate::speculation::Guessing;

/// Batches this much beyond the largest captured one are launched kernel by kernel throughout.
const CAPTURE_RAMP: f64 = 0.1;
/// Multiprocessors of a device whose data sheet does not say.
const USUAL_UNITS: f64 = 108.0;

/// Constants of one deployment's settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepSettings {
    /// Launching a whole step kernel by kernel, beyond what is launched so anyway.
    uncaptured_seconds: f64,
    captured_sequences: f64,
    captured_tokens: f64,
    exposed: f64,
    parts: Parts,
    host: HostWeights,
    splits: Splits,
    draft: Draft,
    /// State beyond the model's own format, per sequence.
    state_bytes: f64,
}

/// Steps cut in parts, of which one computes while the other sends.
#[derive(Debug, Clone, Copy)]
struct Parts {
    exposed: f64,
    decode_tokens: f64,
    prefill_tokens: f64,
    count: f64,
}

/// Weights that cross the bus.
#[derive(Debug, Clone, Copy)]
struct HostWeights {
    seconds: f64,
    /// Share of a step's time that hides the transfer.
    hiding_share: f64,
}

/// Decode attention cut in parts so that every multiprocessor has one.
#[derive(Debug, Clone, Copy)]
struct Splits {
    /// Parts per sequence over multiprocessors, as set and as engines choose; nil where nothing is.
    set: [f64; 2],
    usual: [f64; 2],
}

/// Passes of a draft.
#[derive(Debug, Clone, Copy)]
struct Draft {
    passes: f64,
    bytes: f64,
    flops_per_token: f64,
    pass_seconds: f64,
}

impl StepWork {
    /// Tokens that pass through the model.
    pub(in crate::surrogate) fn tokens(&self) -> f64 {
        self.decode_tokens() + self.prefill_tokens
    }

    pub(super) fn decode_tokens(&self) -> f64 {
        self.decode_seqs * (1.0 + self.guesses_per_sequence)
    }
}

impl StageModel<'_> {
    /// Cache bytes of one token on one device of the largest stage.
    pub(in crate::surrogate) const fn kv_bytes_per_token(&self) -> f64 {
        self.kv_bytes_per_token
    }

    /// Overhead of a decode step that depends on what is in it: launches that no captured graph
    /// covers, passes of a draft.
    pub(in crate::surrogate) fn overhead_of_seconds(&self, work: StepWork) -> f64 {
        self.settings.as_ref().map_or(0.0, |s| {
            let draft = if work.guesses_per_sequence > 0.0 {
                s.draft.passes * s.draft.pass_seconds
            } else {
                0.0
            };
            s.uncaptured_seconds(work.decode_seqs, work.decode_context) + draft
        })
    }
}

impl StepSettings {
    pub(super) fn of(
        deployment: &Deployment<'_>,
        stage: &StageModel<'_>,
        layer_seconds: f64,
    ) -> Option<Self> {
        let (model, shape) = (deployment.model, &deployment.shape);
        let effects = &shape.effects;
        if effects.is_neutral() {
            return None;
        }
        let layers = f64::from(model.layers.div_ceil(shape.pp));
        let eager = layers * deployment.gpu.fit.eager_layer_overhead_us * 1e-6;
        let launched = if shape.enforce_eager {
            1.0
        } else {
            effects.get(Term::EagerLaunchShare)
        };
        let state = model.totals.state_bytes / f64::from(shape.tp) * stage.stage_share;
        Some(Self {
            uncaptured_seconds: eager * (1.0 - launched),
            captured_sequences: effects.get(Term::CapturedSequences),
            captured_tokens: effects.get(Term::CapturedTokens),
            exposed: effects.get(Term::ExposedCommFactor),
            parts: Parts::of(effects),
            host: HostWeights::of(deployment),
            splits: Splits::of(deployment),
            draft: Draft::of(deployment, stage, layers, layer_seconds),
            state_bytes: state * (memory::state_ratio(model, effects) - 1.0),
        })
    }

    /// Launches of a step that no captured graph covers.
    fn uncaptured_seconds(&self, sequences: f64, context: f64) -> f64 {
        let beyond = (sequences / self.captured_sequences - 1.0) / CAPTURE_RAMP;
        let is_long = context > self.captured_tokens;
        let share = if is_long { 1.0 } else { beyond.clamp(0.0, 1.0) };
        self.uncaptured_seconds * share
    }

    /// Changes a step's cost; its total is formed afterwards.
    pub(super) fn amend(&self, cost: &mut StepCost, work: StepWork, stage: &StageModel<'_>) {
        let rates = &stage.rates;
        let idle = 1.0 / self.splits.fill(work.decode_seqs) - 1.0;
        cost.bandwidth_bound_seconds += cost.cache_seconds * idle;
        cost.cache_seconds *= 1.0 + idle;
        let state = work.decode_seqs * self.state_bytes;
        cost.bytes += state;
        cost.bandwidth_bound_seconds += state / rates.cache_bytes;
        cost.overhead_seconds += self.uncaptured_seconds(work.decode_seqs, work.decode_context);
        cost.comm_seconds *= self.exposed;
        self.parts.amend(cost, work, stage);
        if work.guesses_per_sequence > 0.0 {
            self.draft.amend(cost, work, rates);
        }
        self.host.amend(cost);
    }
}

impl Parts {
    fn of(effects: &ShapeEffects) -> Self {
        Self {
            exposed: effects.get(Term::HalvesExposedFactor),
            decode_tokens: effects.get(Term::HalvesDecodeTokens),
            prefill_tokens: effects.get(Term::HalvesPrefillTokens),
            count: effects.get(Term::StepParts).max(2.0),
        }
    }

    /// Each part reads all weights, and the link time of all but one is hidden.
    fn amend(&self, cost: &mut StepCost, work: StepWork, stage: &StageModel<'_>) {
        let tokens = work.tokens();
        let least = if work.prefill_tokens > 0.0 {
            self.prefill_tokens
        } else {
            self.decode_tokens
        };
        if self.exposed >= 1.0 || tokens < least {
            return;
        }
        let again = (self.count - 1.0) * stage.dense_bytes;
        cost.bytes += again;
        cost.bandwidth_bound_seconds += again / stage.rates.weight_bytes;
        // More parts leave less of the last one's link time in the open.
        cost.comm_seconds *= self.exposed * 2.0 / self.count;
    }
}

impl HostWeights {
    fn of(deployment: &Deployment<'_>) -> Self {
        let effects = &deployment.shape.effects;
        let bytes = memory::offloaded_bytes(deployment.model, &deployment.shape);
        let share = memory::offloaded_layer_share(effects);
        let is_fetched = match effects.get(Term::OffloadPrefetch) {
            asked if asked >= 0.0 => asked > 0.5,
            _ => share > 0.0,
        };
        let own = deployment.model.weight_bytes_per_gpu(
            deployment.shape.weight_dtype,
            deployment.shape.tp,
            deployment.shape.pp,
        );
        let ahead = effects.get(Term::OffloadPrefetchLayers);
        Self {
            seconds: bytes / deployment.gpu.pcie_bytes_per_second,
            hiding_share: if is_fetched {
                (ahead * bytes / own.max(1.0)).min(1.0)
            } else {
                0.0
            },
        }
    }

    /// What of the transfer the step's own time does not hide.
    ///
    /// # Formula
    /// max(0, bytes/bus − share · t), share = layers ahead · offloaded share of the layers
    fn amend(&self, cost: &mut StepCost) {
        if self.seconds > 0.0 {
            let hidden = self.hiding_share * cost.sum();
            cost.bandwidth_bound_seconds += (self.seconds - hidden).max(0.0);
        }
    }
}

impl Splits {
    fn of(deployment: &Deployment<'_>) -> Self {
        let effects = &deployment.shape.effects;
        let units = deployment.gpu.compute_units.map_or(USUAL_UNITS, f64::from);
        let heads = deployment
            .model
            .kv_heads
            .div_ceil(deployment.shape.tp.max(1));
        let per_part = f64::from(heads) / units;
        let terms = [Term::GraphSplits, Term::SequenceSplits];
        Self {
            set: terms.map(|t| effects.get(t) * per_part),
            usual: terms.map(|t| t.neutral() * per_part),
        }
    }

    /// Busy share of the device while it reads the cache, relative to the engine's own choice.
    ///
    /// # Formula
    /// min(1, n·heads·parts/units) over the same with the usual parts
    fn fill(&self, sequences: f64) -> f64 {
        let n = sequences.max(1.0);
        let ratio = |(set, usual): (f64, f64)| (n * set).min(1.0) / (n * usual).min(1.0);
        self.set.into_iter().zip(self.usual).map(ratio).product()
    }
}

impl Draft {
    fn of(
        deployment: &Deployment<'_>,
        stage: &StageModel<'_>,
        layers: f64,
        layer_seconds: f64,
    ) -> Self {
        let effects = &deployment.shape.effects;
        let draft_layers = effects.get(Term::DraftLayers);
        let share = draft_layers / layers + effects.get(Term::DraftModelShare);
        let head = if draft_layers > 0.0 { 1.0 } else { 0.0 };
        let ratio = memory::draft_ratio(&deployment.shape);
        let flops = stage.dense_flops_per_token + stage.expert_flops_per_token;
        // A draft on one shard alone has nobody to wait for.
        let alone = effects.get(Term::DraftShards) <= 1.0 && effects.is_set(Term::DraftShards);
        let links = if alone {
            0.0
        } else {
            stage.allreduce_latency_seconds * share
        };
        Self {
            passes: Guessing::of(effects).passes,
            bytes: (stage.dense_bytes * share + stage.head_bytes * head) * ratio,
            flops_per_token: (flops * share + stage.head_flops_per_row * head) * ratio,
            pass_seconds: layers * share * layer_seconds + links,
        }
    }

    fn amend(&self, cost: &mut StepCost, work: StepWork, rates: &Rates) {
        let cache_seconds = cost.cache_seconds;
        cost.add_roofline(Work {
            flops: self.passes * work.decode_seqs * self.flops_per_token,
            flops_per_second: rates.linear_flops,
            bytes: self.passes * self.bytes,
            bytes_per_second: rates.weight_bytes,
        });
        cost.cache_seconds = cache_seconds;
        cost.overhead_seconds += self.passes * self.pass_seconds;
    }
}

/// Small kernels of one layer, in microseconds.
pub(super) fn layer_overhead_us(deployment: &Deployment<'_>, engine: &EngineConstants) -> f64 {
    let (model, shape) = (deployment.model, &deployment.shape);
    let effects = &shape.effects;
    let mut us = engine.layer_overhead_us * effects.get(Term::LayerOverheadFactor);
    if effects.is_set(Term::QuantizedLayerOverheadFactor)
        && model.served_dtype(shape.weight_dtype).bytes_per_weight() < 2.0
    {
        us *= effects.get(Term::QuantizedLayerOverheadFactor);
    }
    us + effects.get(Term::LayerOverheadUs)
}
