//! The hidden performance truth: how long a step of an engine takes, per environment.
//!
//! Table-driven, with its own interference, noise and drift. It is deliberately not the surrogate's
//! formula, and nothing of it is visible to planner code.

mod kernels;
pub mod tables;

use crate::memory::{Sharding, kv_bytes_per_token};
use crate::model::{Precision, SimModel};
use crate::rng::{SimRng, digest};
use kernels::KernelLuck;
use tables::{GpuTable, at};

/// What one engine is made of, as far as speed depends on it.
#[derive(Debug, Clone)]
pub struct TruthInput<'a> {
    /// Catalog id of the GPU type.
    pub gpu_type: &'a str,
    /// Environment as `market/cloud/region/zone/gpu_type`.
    pub environment: &'a str,
    /// Model.
    pub model: &'a SimModel,
    /// Number format the weights are served in.
    pub precision: Precision,
    /// Bytes of one cached value.
    pub kv_value_bytes: f64,
    /// Devices.
    pub cut: Sharding,
    /// Settings of the engine.
    pub switches: Switches,
}

/// Settings of an engine that change how long a step takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switches {
    /// Whether graphs are off.
    pub eager: bool,
    /// Whether experts are spread over devices instead of being cut.
    pub expert_parallel: bool,
    /// Whether the next step is scheduled while the device computes this one.
    pub async_scheduling: bool,
    /// Whether the engine's own all-reduce is used for small messages.
    pub custom_all_reduce: bool,
}

impl Default for Switches {
    /// vLLM's defaults.
    fn default() -> Self {
        Self {
            eager: false,
            expert_parallel: false,
            async_scheduling: true,
            custom_all_reduce: true,
        }
    }
}

/// The work of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepLoad {
    /// Prompt tokens computed.
    pub prefill_tokens: u32,
    /// Sequences they belong to.
    pub prefill_seqs: u32,
    /// Σ over those tokens of the context each attends to.
    pub prefill_context: f64,
    /// Sequences that get one more token.
    pub decode_seqs: u32,
    /// Σ of their contexts in tokens.
    pub decode_context: u64,
}

/// What a step costs on the mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepCost {
    /// Seconds.
    pub seconds: f64,
    /// Share of the peak arithmetic rate used, 0..=1.
    pub tensor_active_fraction: f64,
    /// Share of the peak memory bandwidth used, 0..=1.
    pub memory_bandwidth_fraction: f64,
    /// Bytes each device sends to its peers.
    pub link_bytes_per_device: f64,
}

/// No truth is known for this engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TruthError {
    /// No table for the GPU type.
    #[error("no simulated performance for GPU type {0:?}")]
    UnknownGpu(String),
    /// The cut has no devices.
    #[error("tensor and pipeline width must be 1 or more")]
    NoDevices,
}

/// Multipliers of one place on the times of its GPU type.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PlaceFactors {
    arithmetic: f64,
    memory: f64,
    network: f64,
    host: f64,
}

impl PlaceFactors {
    /// Fixed by the environment's name; spot capacity is a little slower.
    fn of(environment: &str) -> Self {
        let mut rng = SimRng::new(digest(environment.as_bytes()));
        let mut factor = |spread: f64| (spread * rng.normal().clamp(-1.8, 1.8)).exp();
        let spot = if environment.starts_with("spot/") {
            1.04
        } else {
            1.0
        };
        Self {
            arithmetic: factor(0.07) * spot,
            memory: factor(0.05),
            network: factor(0.15) * spot,
            host: factor(0.18) * spot,
        }
    }
}

/// The step-time function of one engine.
#[derive(Debug, Clone)]
pub struct Truth {
    gpu: &'static GpuTable,
    place: PlaceFactors,
    model: SimModel,
    precision: Precision,
    kv_bytes_per_token: f64,
    cut: Sharding,
    switches: Switches,
    kernels: KernelLuck,
}

impl Truth {
    /// The truth of one engine.
    ///
    /// # Errors
    /// When the GPU type has no table, or the cut no devices.
    pub fn new(input: &TruthInput<'_>) -> Result<Self, TruthError> {
        if input.cut.tensor == 0 || input.cut.pipeline == 0 {
            return Err(TruthError::NoDevices);
        }
        let gpu = tables::gpu_table(input.gpu_type)
            .ok_or_else(|| TruthError::UnknownGpu(input.gpu_type.to_owned()))?;
        Ok(Self {
            gpu,
            place: PlaceFactors::of(input.environment),
            model: input.model.clone(),
            precision: input.precision,
            kv_bytes_per_token: kv_bytes_per_token(input.model, input.kv_value_bytes, input.cut),
            cut: input.cut,
            switches: input.switches,
            kernels: KernelLuck::of(input),
        })
    }

    /// Watts above idle of a device that works at these shares of its peaks.
    #[must_use]
    pub fn extra_power_w(&self, busy: f64, sm_active: f64, memory_bandwidth: f64) -> f64 {
        let level = 0.22 * busy + 0.38 * memory_bandwidth.sqrt() * busy + 0.62 * sm_active.sqrt();
        self.gpu.dynamic_power_w * level.clamp(0.0, 1.0)
    }

    /// Mean cost of a step, before noise and drift.
    ///
    /// With pipeline stages the step is cut into as many micro-batches as there are sequences to
    /// fill them; a sequence's next token needs a round through all stages.
    #[must_use]
    pub fn mean_cost(&self, load: &StepLoad) -> StepCost {
        let seqs = load.prefill_seqs + load.decode_seqs;
        let parts = f64::from(self.cut.pipeline.min(seqs.max(1)));
        let part = PartLoad::of(load, parts);
        let work_ms = (self.weights_ms(part.tokens) + self.attention_ms(&part))
            * part.mixing()
            * self.kernels.factor(part.tokens);
        let collective_ms = self.collective_ms(part.tokens);
        let hops_ms = f64::from(self.cut.pipeline - 1) * 0.09 * self.place.network;
        let layer_us = if self.switches.eager {
            self.gpu.layer_us.1
        } else {
            self.gpu.layer_us.0
        };
        let layers_ms = f64::from(self.model.layers) * layer_us / 1000.0;
        let seqs = f64::from(seqs.max(1));
        let scheduling = if self.switches.async_scheduling {
            1.0
        } else {
            1.9
        };
        let host_ms =
            (self.gpu.host_ms + at(tables::SEQUENCE_HOST_MS, seqs)) * scheduling + layers_ms;
        let seconds = (work_ms + collective_ms + hops_ms + host_ms * self.place.host) / 1000.0;
        self.cost(load, seconds)
    }

    /// Milliseconds of passing tokens through the weights of one device.
    fn weights_ms(&self, tokens: f64) -> f64 {
        let tensor = f64::from(self.cut.tensor);
        let width = f64::from(self.model.hidden_size) / tensor;
        let dense = self.pass_ms(tokens, self.model.dense_params / tensor / 1e9);
        let dense = dense * at(tables::SHARD_SLOWDOWN, width);
        let Some(experts) = self.model.experts else {
            return dense;
        };
        let count = f64::from(experts.count);
        let share = f64::from(experts.per_token) / count;
        let touched = count * (1.0 - (1.0 - share).powf(tokens));
        let tokens_each = (tokens * share).max(1.0);
        let gparams = touched * experts.params_each * f64::from(experts.layers) / tensor / 1e9;
        // Spread experts are whole but unevenly loaded; cut ones have narrow matrices.
        let penalty = if self.switches.expert_parallel {
            1.0 + 0.32 * (1.0 - 1.0 / tensor)
        } else {
            at(tables::SHARD_SLOWDOWN, width.mul_add(0.5, 256.0))
        };
        dense + self.pass_ms(tokens_each, gparams) * penalty * 1.04
    }

    fn pass_ms(&self, tokens: f64, gparams: f64) -> f64 {
        let curve = self.gpu.pass_ms_per_gparam;
        let format = match self.precision {
            Precision::Half => 1.0,
            Precision::Float32 => at(tables::FLOAT32, tokens),
            Precision::Eight if self.gpu.fast_eight_bit => at(tables::EIGHT_BIT_FAST, tokens),
            Precision::Eight => at(tables::EIGHT_BIT_STORED, tokens),
            Precision::Four => at(tables::FOUR_BIT, tokens),
        };
        // Small passes follow the place's memory, large ones its arithmetic.
        let large = tokens / (tokens + 320.0);
        let place = self.place.memory * (1.0 - large) + self.place.arithmetic * large;
        at(curve, tokens) * gparams * format * place
    }

    fn attention_ms(&self, part: &PartLoad) -> f64 {
        let decode_bytes = part.decode_context * self.kv_bytes_per_token;
        let decode = if part.decode_seqs > 0.0 {
            let rate = at(self.gpu.cache_read_gb_s, part.decode_seqs);
            decode_bytes * f64::from(self.cut.pipeline) / (rate * 1e6) * self.place.memory
        } else {
            0.0
        };
        if part.prefill_tokens <= 0.0 {
            return decode;
        }
        let context = part.prefill_context / part.prefill_tokens;
        let flops = self.attention_flops(part.prefill_context) / f64::from(self.cut.tensor);
        let rate = at(self.gpu.attention_tflops, context) * 1e9;
        decode + flops / rate * self.place.arithmetic
    }

    fn attention_flops(&self, token_contexts: f64) -> f64 {
        let width = f64::from(self.model.attention_width);
        4.0 * token_contexts * width * f64::from(self.model.layers)
    }

    fn collective_ms(&self, tokens: f64) -> f64 {
        if self.cut.tensor == 1 {
            return 0.0;
        }
        let bytes = tokens * f64::from(self.model.hidden_size) * 2.0;
        let width = at(
            tables::collective_width(self.gpu.link),
            f64::from(self.cut.tensor),
        );
        let each = at(tables::all_reduce_us(self.gpu.link), bytes) * width;
        // The library's all-reduce has more latency, and no less bandwidth.
        let own = self.switches.custom_all_reduce;
        let each = if own {
            each
        } else {
            each + tables::LIBRARY_LATENCY_US
        };
        let spread = self.switches.expert_parallel && self.model.experts.is_some();
        let per_layer = if spread { 2.6 } else { 2.0 };
        per_layer * f64::from(self.model.layers) * each * self.place.network / 1000.0
    }

    fn cost(&self, load: &StepLoad, seconds: f64) -> StepCost {
        let devices = f64::from(self.cut.n_devices());
        let tokens = f64::from(load.prefill_tokens + load.decode_seqs);
        let attention = self.attention_flops(load.prefill_context + load.decode_context as f64);
        let flops = (2.0 * tokens * self.model.active_params() + attention) / devices;
        let weights = self
            .model
            .total_params()
            .min(self.model.active_params() * tokens.max(1.0));
        let bytes = weights * self.precision.bytes_per_weight() / devices
            + load.decode_context as f64 * self.kv_bytes_per_token;
        let tensor = f64::from(self.cut.tensor);
        let hidden = f64::from(self.model.hidden_size) * 2.0;
        let reduced = 4.0 * f64::from(self.model.layers) * (tensor - 1.0) / tensor;
        let hops = f64::from(self.cut.pipeline - 1) / f64::from(self.cut.pipeline);
        StepCost {
            seconds,
            tensor_active_fraction: (flops / seconds / (self.gpu.peak_tflops * 1e12)).min(1.0),
            memory_bandwidth_fraction: (bytes / seconds / (self.gpu.peak_gb_s * 1e9)).min(1.0),
            link_bytes_per_device: tokens
                * hidden
                * (reduced / f64::from(self.cut.pipeline) + hops),
        }
    }
}

/// A step's load divided over micro-batches.
struct PartLoad {
    tokens: f64,
    prefill_tokens: f64,
    prefill_context: f64,
    decode_seqs: f64,
    decode_context: f64,
}

impl PartLoad {
    fn of(load: &StepLoad, parts: f64) -> Self {
        Self {
            tokens: (f64::from(load.prefill_tokens + load.decode_seqs) / parts).max(1.0),
            prefill_tokens: f64::from(load.prefill_tokens) / parts,
            prefill_context: load.prefill_context / parts,
            decode_seqs: f64::from(load.decode_seqs) / parts,
            decode_context: load.decode_context as f64 / parts,
        }
    }

    /// Slow-down of a step that mixes prefill with decode.
    fn mixing(&self) -> f64 {
        if self.prefill_tokens <= 0.0 || self.decode_seqs <= 0.0 {
            return 1.0;
        }
        at(
            tables::MIXING_SLOWDOWN,
            1000.0 * self.prefill_tokens / self.tokens,
        )
    }
}

/// Log-normal noise on every step, and a slow drift around 1 (first-order autoregression).
#[derive(Debug, Clone)]
pub struct StepNoise {
    rng: SimRng,
    log_drift: f64,
}

const NOISE_SPREAD: f64 = 0.03;
const DRIFT_SPREAD: f64 = 0.035;
const DRIFT_MEMORY_S: f64 = 180.0;

impl StepNoise {
    /// Dice of one engine; its drift starts where a long run would be.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut rng = SimRng::new(seed);
        let log_drift = DRIFT_SPREAD * rng.normal();
        Self { rng, log_drift }
    }

    /// The multiplier of a step that starts `elapsed_s` after the previous one.
    pub fn factor(&mut self, elapsed_s: f64) -> f64 {
        let memory = (-elapsed_s.max(0.0) / DRIFT_MEMORY_S).exp();
        let fresh = (1.0 - memory * memory).sqrt() * DRIFT_SPREAD * self.rng.normal();
        self.log_drift = memory * self.log_drift + fresh;
        (self.log_drift + NOISE_SPREAD * self.rng.normal()).exp()
    }
}

#[cfg(test)]
mod tests;
