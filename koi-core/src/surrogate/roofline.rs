//! Time of one step of one pipeline stage: the slower of arithmetic and memory, plus links and
//! overhead.
//!
//! Not the schedule: how steps follow each other is [`super::operating_point`]. Shares of the peaks
//! and overheads are calibrated constants ([`super::constants`]), the same for every device and one
//! set per engine generation. Spec §4.

mod settings;

use super::Deployment;
use super::constants::{Constants, Maker};
use super::engine_generation::EngineGeneration;
use super::links;
use super::rates::Rates;
use crate::configuration::Term;
use crate::model::{KvDtype, ModelFacts, comm_bytes_per_token};
use settings::{StepSettings, layer_overhead_us};

/// The constants that steps of one engine are timed with.
#[derive(Debug, Clone, Copy)]
pub struct EngineProfile<'a> {
    /// All constants.
    pub constants: &'a Constants,
    /// The engine.
    pub generation: EngineGeneration,
}

impl EngineProfile<'static> {
    /// The constants of this build for a generation.
    #[must_use]
    pub fn embedded(generation: EngineGeneration) -> Self {
        Self {
            constants: Constants::embedded(),
            generation,
        }
    }
}

/// What one step of one stage has to do.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StepWork {
    /// Sequences that generate one token each.
    pub(super) decode_seqs: f64,
    /// Mean context that each of them attends to, in tokens.
    pub(super) decode_context: f64,
    /// Prompt tokens.
    pub(super) prefill_tokens: f64,
    /// Mean context that each prompt token attends to, in tokens.
    pub(super) prefill_context: f64,
    /// Guessed tokens that are checked with each generated one.
    pub(super) guesses_per_sequence: f64,
}

/// Where the time of one step goes, in seconds; operations and bytes are per GPU.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StepCost {
    pub(super) seconds: f64,
    pub(super) compute_bound_seconds: f64,
    pub(super) bandwidth_bound_seconds: f64,
    /// Part of the bandwidth-bound time that reads the KV cache.
    pub(super) cache_seconds: f64,
    /// Part of both bounds that routed experts take.
    pub(super) expert_seconds: f64,
    pub(super) comm_seconds: f64,
    pub(super) overhead_seconds: f64,
    pub(super) flops: f64,
    pub(super) bytes: f64,
}

/// Arithmetic and reading of one group of kernels.
#[derive(Debug, Clone, Copy)]
struct Work {
    flops: f64,
    flops_per_second: f64,
    bytes: f64,
    bytes_per_second: f64,
}

impl StepCost {
    fn sum(&self) -> f64 {
        self.compute_bound_seconds
            + self.bandwidth_bound_seconds
            + self.comm_seconds
            + self.overhead_seconds
    }

    /// Adds kernels that compute and read at once; returns their time.
    ///
    /// # Formula
    /// (c³ + m³)^⅓, c = flops/F, m = bytes/B: near the crossover neither hides fully behind the
    /// other. The root is expanded in the third power of the smaller over the larger, to 0.1 %.
    fn add_roofline(&mut self, work: Work) -> f64 {
        let compute = work.flops / work.flops_per_second;
        let memory = work.bytes / work.bytes_per_second;
        let (larger, smaller) = (compute.max(memory), compute.min(memory));
        let seconds = if larger > 0.0 {
            let cube = (smaller / larger).powi(3);
            larger * (1.0 + cube * (1.0 / 3.0 - 0.0734 * cube))
        } else {
            0.0
        };
        if compute > memory {
            self.compute_bound_seconds += seconds;
        } else {
            self.bandwidth_bound_seconds += seconds;
        }
        self.flops += work.flops;
        self.bytes += work.bytes;
        seconds
    }
}

/// Constants of one deployment's steps, computed once per prediction.
#[derive(Debug, Clone, Copy)]
pub(super) struct StageModel<'a> {
    model: &'a ModelFacts,
    kv_dtype: KvDtype,
    tp: u32,
    /// Share of the layers in the largest stage.
    stage_share: f64,
    rates: Rates,
    /// Operations per token in layers that every token goes through, on one GPU of one stage.
    dense_flops_per_token: f64,
    dense_bytes: f64,
    /// Operations per token in the experts that it is routed to.
    expert_flops_per_token: f64,
    /// Bytes of all routed experts.
    expert_bytes: f64,
    /// Operations that padding the last tile of every expert costs, when all are touched.
    expert_padding_flops: f64,
    /// ln(1 − k/E): how the share of untouched experts falls with every token.
    log_untouched_per_token: f64,
    kv_bytes_per_token: f64,
    /// Shards among which one sequence's cache is divided.
    context_shards: f64,
    /// Times that the cache is read in one step.
    cache_rereads: f64,
    head_flops_per_row: f64,
    head_bytes: f64,
    allreduce_seconds_per_token: f64,
    allreduce_latency_seconds: f64,
    hand_over_seconds_per_token: f64,
    overhead_seconds: f64,
    sequence_seconds: f64,
    /// What settings beyond the main ones do; absent where all are at their defaults.
    settings: Option<StepSettings>,
}

impl<'a> StageModel<'a> {
    pub(super) fn of(deployment: &Deployment<'a>, profile: &EngineProfile<'_>) -> Self {
        let Deployment { model, shape, .. } = deployment;
        let device = &profile.constants.device;
        let engine = profile.constants.engine(profile.generation);
        let rates = Rates::of(deployment, device, engine).under_settings(deployment);
        let dtype = model.served_dtype(shape.weight_dtype);
        let (tp, layers) = (f64::from(shape.tp), f64::from(model.layers));
        let stage_layers = f64::from(model.layers.div_ceil(shape.pp));
        let stage_share = stage_layers / layers;
        let share = stage_share / tp;
        let experts = RoutedWeights::of(deployment);
        let vocabulary = model.vocabulary_params() as f64;
        let activation = dtype.activation_bytes();
        let stage_comm = comm_bytes_per_token(
            model.layers.div_ceil(shape.pp),
            model.hidden,
            activation,
            shape.tp,
            1,
        ) + stage_layers * links::more_bytes_per_token_and_layer(deployment);
        let mut stage = Self {
            model,
            kv_dtype: shape.kv_dtype,
            tp: shape.tp,
            stage_share,
            rates,
            dense_flops_per_token: 2.0 * experts.dense_params * share,
            dense_bytes: experts.dense_bytes * share,
            expert_flops_per_token: 2.0 * experts.active_params * share,
            expert_bytes: experts.all_bytes * share,
            expert_padding_flops: experts.all_params * share * device.expert_tile_tokens,
            log_untouched_per_token: experts.log_untouched_per_token,
            kv_bytes_per_token: model.kv_bytes_per_token_per_gpu(
                shape.kv_dtype,
                shape.tp,
                shape.pp,
            ) / shape.effects.get(Term::ContextShards),
            context_shards: shape.effects.get(Term::ContextShards),
            cache_rereads: cache_rereads(deployment, profile),
            head_flops_per_row: 2.0 * vocabulary / tp,
            head_bytes: vocabulary * activation / tp,
            allreduce_seconds_per_token: stage_comm / rates.link_bytes,
            allreduce_latency_seconds: allreduce_latency(shape.tp, stage_layers, &rates)
                + links::context_latency_seconds(deployment, stage_layers, &rates),
            hand_over_seconds_per_token: if shape.pp > 1 {
                f64::from(model.hidden) * activation / rates.link_bytes
            } else {
                0.0
            },
            overhead_seconds: dispatch_overhead_seconds(deployment, profile),
            sequence_seconds: engine.sequence_overhead_us * 1e-6,
            settings: None,
        };
        let layer_seconds = layer_overhead_us(deployment, engine) * 1e-6;
        stage.settings = StepSettings::of(deployment, &stage, layer_seconds);
        stage
    }

    /// Time of one step of one stage.
    ///
    /// # Formula
    /// Σ over dense layers, experts, attention, cache and head of max(flops/F, bytes/B) + links +
    /// overhead
    pub(super) fn step(&self, work: StepWork) -> StepCost {
        let tokens = work.tokens();
        let rates = &self.rates;
        let mut cost = StepCost::default();
        cost.add_roofline(Work {
            flops: tokens * self.dense_flops_per_token,
            flops_per_second: rates.linear_flops,
            bytes: self.dense_bytes,
            bytes_per_second: rates.weight_bytes,
        });
        if self.expert_bytes > 0.0 {
            let touched = 1.0 - (self.log_untouched_per_token * tokens.max(1.0)).exp();
            cost.expert_seconds = cost.add_roofline(Work {
                flops: tokens * self.expert_flops_per_token + touched * self.expert_padding_flops,
                flops_per_second: rates.expert_flops,
                bytes: self.expert_bytes * touched,
                bytes_per_second: rates.expert_bytes,
            });
        }
        let share = self.stage_share / f64::from(self.tp);
        cost.add_roofline(Work {
            flops: work.prefill_tokens
                * self.model.prefill_attention_flops(work.prefill_context)
                * share,
            flops_per_second: rates.attention_flops,
            bytes: 0.0,
            bytes_per_second: rates.cache_bytes,
        });
        let context = work.decode_context;
        let read = self
            .model
            .kv_bytes_read_per_step(context, self.kv_dtype, self.tp)
            * self.stage_share
            / self.context_shards;
        cost.cache_seconds = cost.add_roofline(Work {
            flops: work.decode_tokens() * self.model.decode_attention_flops(context) * share,
            flops_per_second: rates.attention_flops,
            bytes: work.decode_seqs * read + work.prefill_tokens * self.kv_bytes_per_token,
            bytes_per_second: rates.cache_bytes / self.cache_rereads,
        });
        // One row of logits per generating sequence; a chunk in flight adds at most one more.
        let rows = work.decode_tokens() + work.prefill_tokens.min(1.0);
        cost.add_roofline(Work {
            flops: rows * self.head_flops_per_row,
            flops_per_second: rates.head_flops,
            bytes: self.head_bytes,
            bytes_per_second: rates.weight_bytes,
        });
        cost.comm_seconds = self.allreduce_latency_seconds
            + tokens * (self.allreduce_seconds_per_token + self.hand_over_seconds_per_token);
        cost.overhead_seconds = self.overhead_seconds + work.decode_seqs * self.sequence_seconds;
        if let Some(settings) = &self.settings {
            settings.amend(&mut cost, work, self);
        }
        cost.seconds = cost.sum();
        cost
    }
}

/// Matrix weights by whether a token is routed to them.
#[derive(Debug, Clone, Copy)]
struct RoutedWeights {
    dense_params: f64,
    dense_bytes: f64,
    active_params: f64,
    all_params: f64,
    all_bytes: f64,
    log_untouched_per_token: f64,
}

impl RoutedWeights {
    fn of(deployment: &Deployment<'_>) -> Self {
        let (model, choice) = (deployment.model, deployment.shape.weight_dtype);
        let used = model.linear_params(true) as f64;
        let few_bytes = model.linear_bytes_touched(choice, 1.0);
        let Some(moe) = model.moe.filter(|m| m.experts > m.experts_per_token) else {
            return Self {
                dense_params: used,
                dense_bytes: few_bytes,
                active_params: 0.0,
                all_params: 0.0,
                all_bytes: 0.0,
                log_untouched_per_token: 0.0,
            };
        };
        let (experts, chosen) = (f64::from(moe.experts), f64::from(moe.experts_per_token));
        let idle_share = 1.0 - chosen / experts;
        let idle = model.linear_params(false) as f64 - used;
        let active_params = idle / idle_share * (1.0 - idle_share);
        let all_bytes =
            (model.linear_bytes_touched(choice, f64::INFINITY) - few_bytes) / idle_share;
        Self {
            all_params: idle / idle_share,
            dense_params: used - active_params,
            dense_bytes: few_bytes - all_bytes * (1.0 - idle_share),
            active_params,
            all_bytes,
            log_untouched_per_token: idle_share.ln(),
        }
    }
}

fn allreduce_latency(tp: u32, stage_layers: f64, rates: &Rates) -> f64 {
    if tp <= 1 {
        return 0.0;
    }
    // The constant is for two shards; every doubling adds half of it.
    2.0 * stage_layers * rates.allreduce_seconds * (1.0 + f64::from(tp).log2()) / 2.0
}

/// Grouped query heads share a cached head; kernels that do not exploit it read it more than once.
fn cache_rereads(deployment: &Deployment<'_>, profile: &EngineProfile<'_>) -> f64 {
    let model = deployment.model;
    let group = f64::from(model.heads) / f64::from(model.kv_heads.max(1));
    let engine = profile.constants.engine(profile.generation);
    let is_legacy = !profile.generation.is_current() && Maker::of(deployment.gpu) != Maker::Nvidia;
    let exponent = if is_legacy {
        profile.constants.device.legacy_cache_reread_exponent
    } else {
        engine.cache_reread_exponent
    };
    group.max(1.0).powf(exponent)
}

/// Time of a step beyond the roofline: scheduling and sampling, launches, routing.
pub(super) fn dispatch_overhead_seconds(
    deployment: &Deployment<'_>,
    profile: &EngineProfile<'_>,
) -> f64 {
    let (fit, shape) = (deployment.gpu.fit, &deployment.shape);
    let effects = &shape.effects;
    let layers = f64::from(deployment.model.layers.div_ceil(shape.pp));
    let launched = if shape.enforce_eager {
        1.0
    } else {
        effects.get(Term::EagerLaunchShare)
    };
    let mut more = effects.get(Term::StepOverheadUs);
    if shape.gpus() > 1 {
        more += effects.get(Term::GroupOverheadUs);
    }
    let launches = layers * fit.eager_layer_overhead_us * 1e-6 * launched + more * 1e-6;
    let host = effects.get(Term::StepOverheadFactor);
    if deployment.gpu.is_cpu {
        return fit.step_overhead_ms * 1e-3 * host + launches;
    }
    let engine = profile.constants.engine(profile.generation);
    let routed = deployment
        .model
        .moe
        .map_or(0.0, |m| f64::from(m.sparse_layers.div_ceil(shape.pp)));
    let per_layer = layers * layer_overhead_us(deployment, engine)
        + routed * profile.constants.device.expert_layer_overhead_us;
    engine.step_overhead_ms * 1e-3 * host + per_layer * 1e-6 + launches
}

/// Roofline time of a decode step of one sequence, links included and overhead not: what an
/// observed step time at small batch is compared with.
///
/// # Units
/// `context_tokens` is the sequence's context; the result is in milliseconds.
#[must_use]
pub fn roofline_step_ms(deployment: &Deployment<'_>, context_tokens: f64) -> f64 {
    let work = StepWork {
        decode_seqs: 1.0,
        decode_context: context_tokens,
        ..StepWork::default()
    };
    let profile = EngineProfile::embedded(EngineGeneration::default());
    let cost = StageModel::of(deployment, &profile).step(work);
    f64::from(deployment.shape.pp) * (cost.seconds - cost.overhead_seconds) * 1e3
}
