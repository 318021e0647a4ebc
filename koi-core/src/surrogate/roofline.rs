//! Time of one step of one pipeline stage: the slower of arithmetic and memory, plus links and
//! overhead.
//!
//! Not the schedule: how steps follow each other is [`super::operating_point`]. Spec §4.

use super::Deployment;
use crate::model::comm_bytes_per_token;

/// Time that each sequence adds to a step, fitted on H100; taken to be sampling and bookkeeping.
const SEQUENCE_OVERHEAD_SECONDS: f64 = 15e-6;

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
}

/// Where the time of one step goes, in seconds; operations and bytes are per GPU.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StepCost {
    pub(super) seconds: f64,
    pub(super) compute_bound_seconds: f64,
    pub(super) bandwidth_bound_seconds: f64,
    pub(super) comm_seconds: f64,
    pub(super) overhead_seconds: f64,
    pub(super) flops: f64,
    pub(super) bytes: f64,
}

impl StepCost {
    fn add_roofline(
        &mut self,
        flops: f64,
        flops_per_second: f64,
        bytes: f64,
        bytes_per_second: f64,
    ) {
        let (compute, memory) = (flops / flops_per_second, bytes / bytes_per_second);
        if compute > memory {
            self.compute_bound_seconds += compute;
        } else {
            self.bandwidth_bound_seconds += memory;
        }
        self.flops += flops;
        self.bytes += bytes;
    }
}

/// Constants of one deployment's steps, computed once per prediction.
#[derive(Debug, Clone, Copy)]
pub(super) struct StageModel {
    /// Operations per token in linear layers of one stage, on one GPU.
    linear_flops_per_token: f64,
    /// Bytes per linear weight, over shards and stages.
    linear_bytes_factor: f64,
    attention_flops_per_token_context: f64,
    kv_bytes_per_token: f64,
    head_flops_per_row: f64,
    head_bytes: f64,
    linear_flops_per_second: f64,
    attention_flops_per_second: f64,
    bytes_per_second: f64,
    allreduce_seconds_per_token: f64,
    allreduce_latency_seconds: f64,
    hand_over_seconds_per_token: f64,
    overhead_seconds: f64,
}

impl StageModel {
    pub(super) fn of(deployment: &Deployment<'_>) -> Self {
        let Deployment {
            model, gpu, shape, ..
        } = deployment;
        let fit = gpu.fit;
        let dtype = model.served_dtype(shape.weight_dtype);
        let (tp, layers) = (f64::from(shape.tp), f64::from(model.layers));
        let stage_layers = f64::from(model.layers.div_ceil(shape.pp));
        let stage_share = stage_layers / layers;
        let vocabulary = model.vocabulary_params() as f64;
        let heads_width = f64::from(model.heads) * f64::from(model.head_dim);
        let activation = dtype.activation_bytes();
        let link = gpu.best_link().1 * fit.link_fraction;
        let stage_comm = comm_bytes_per_token(
            model.layers.div_ceil(shape.pp),
            model.hidden,
            activation,
            shape.tp,
            1,
        );
        let all_reduces = if shape.tp > 1 {
            2.0 * stage_layers
        } else {
            0.0
        };
        // The constant is for two shards; every doubling adds half of it.
        let latency_us = fit.allreduce_latency_us * (1.0 + tp.log2()) / 2.0;
        let hand_over = if shape.pp > 1 {
            f64::from(model.hidden) * activation / link
        } else {
            0.0
        };
        Self {
            linear_flops_per_token: 2.0 * model.linear_params(true) as f64 * stage_share / tp,
            linear_bytes_factor: dtype.bytes_per_weight() * stage_share / tp,
            attention_flops_per_token_context: 4.0 * stage_layers * heads_width / tp,
            kv_bytes_per_token: model.kv_bytes_per_token_per_gpu(
                shape.kv_dtype,
                shape.tp,
                shape.pp,
            ),
            head_flops_per_row: 2.0 * vocabulary / tp,
            head_bytes: vocabulary * activation / tp,
            linear_flops_per_second: gpu.peak_for(dtype) * fit.compute_fraction,
            attention_flops_per_second: gpu.peak_flops.bf16 * fit.compute_fraction,
            bytes_per_second: gpu.bandwidth_bytes_per_second * fit.bandwidth_fraction,
            allreduce_seconds_per_token: stage_comm / link,
            allreduce_latency_seconds: all_reduces * latency_us * 1e-6,
            hand_over_seconds_per_token: hand_over,
            overhead_seconds: dispatch_overhead_seconds(deployment),
        }
    }

    /// Time of one step of one stage.
    ///
    /// # Formula
    /// Σ over linear layers, attention and head of max(flops/F, bytes/B) + links + overhead
    pub(super) fn step(&self, deployment: &Deployment<'_>, work: StepWork) -> StepCost {
        let tokens = work.decode_seqs + work.prefill_tokens;
        let mut cost = StepCost::default();
        let weights = deployment.model.linear_params_touched(tokens) * self.linear_bytes_factor;
        cost.add_roofline(
            tokens * self.linear_flops_per_token,
            self.linear_flops_per_second,
            weights,
            self.bytes_per_second,
        );
        let decode_pairs = work.decode_seqs * work.decode_context;
        let prefill_pairs = work.prefill_tokens * work.prefill_context;
        cost.add_roofline(
            prefill_pairs * self.attention_flops_per_token_context,
            self.attention_flops_per_second,
            0.0,
            self.bytes_per_second,
        );
        cost.add_roofline(
            decode_pairs * self.attention_flops_per_token_context,
            self.attention_flops_per_second,
            (decode_pairs + work.prefill_tokens) * self.kv_bytes_per_token,
            self.bytes_per_second,
        );
        // One row of logits per generating sequence; a chunk in flight adds at most one more.
        let rows = work.decode_seqs + work.prefill_tokens.min(1.0);
        cost.add_roofline(
            rows * self.head_flops_per_row,
            self.linear_flops_per_second,
            self.head_bytes,
            self.bytes_per_second,
        );
        cost.comm_seconds = self.allreduce_latency_seconds
            + tokens * (self.allreduce_seconds_per_token + self.hand_over_seconds_per_token);
        cost.overhead_seconds =
            self.overhead_seconds + work.decode_seqs * SEQUENCE_OVERHEAD_SECONDS;
        cost.seconds = cost.compute_bound_seconds
            + cost.bandwidth_bound_seconds
            + cost.comm_seconds
            + cost.overhead_seconds;
        cost
    }
}

/// Time of a step beyond the roofline: scheduling and sampling, and launches without graphs.
pub(super) fn dispatch_overhead_seconds(deployment: &Deployment<'_>) -> f64 {
    let fit = deployment.gpu.fit;
    let layers = f64::from(deployment.model.layers.div_ceil(deployment.shape.pp));
    let launches = if deployment.shape.enforce_eager {
        layers * fit.eager_layer_overhead_us * 1e-6
    } else {
        0.0
    };
    fit.step_overhead_ms * 1e-3 + launches
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
    let cost = StageModel::of(deployment).step(deployment, work);
    f64::from(deployment.shape.pp) * (cost.seconds - cost.overhead_seconds) * 1e3
}
