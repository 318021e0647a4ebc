//! What is particular about a prediction, as dimensionless numbers: the ground on which the learned
//! members stand.
//!
//! Derived from the analytic member's workings and the question alone, never from a measured value.
//! Sizes are logarithms and times are ratios, so that a device or model which was never measured
//! still lies near others. Spec §4, members 2 and 3.

use super::Evaluation;
use super::constants::Maker;
use super::engine_generation::EngineGeneration;
use super::queueing::Load;
use crate::catalog::Link;

/// Names of the features, in order.
pub const FEATURES: [&str; COUNT] = [
    "log_live",
    "log_concurrency",
    "log_prompt",
    "log_output",
    "log_tp",
    "is_pipelined",
    "compute_share",
    "weight_reading_share",
    "cache_reading_share",
    "expert_share",
    "link_share",
    "overhead_share",
    "log_prompt_per_step",
    "prompt_share",
    "log_slot_wait",
    "is_routed",
    "bytes_per_weight",
    "is_amd",
    "is_intel",
    "has_nvlink",
    "log_weight_bytes_per_gpu",
    "log_query_group",
    "log_balance",
    "log_slots_taken",
    "log_slots",
    "log_step",
    "is_open",
    "is_backlogged",
    "is_vllm_v0",
    "is_vllm_v1",
    "is_tensorrt_compiled",
    "is_tensorrt_pytorch",
    "is_tensorrt_preview",
    "is_sglang",
    "is_sglang_early",
    "is_llama_cpp",
    "is_deepspeed_mii",
    "is_deepspeed",
];

/// How many features there are.
pub const COUNT: usize = 38;

/// Features that the forests may split on. The others would let a tree recognise a model or a device
/// rather than a situation, and what it learned of one would be wrong for the next.
#[must_use]
pub fn is_for_forests(feature: usize) -> bool {
    const IDENTIFYING: [&str; 6] = [
        "bytes_per_weight",
        "log_weight_bytes_per_gpu",
        "log_query_group",
        "log_balance",
        "log_slots",
        "log_step",
    ];
    FEATURES
        .get(feature)
        .is_some_and(|name| !IDENTIFYING.contains(name))
}

/// Where the engines' indicators begin.
const FIRST_ENGINE: usize = COUNT - EngineGeneration::ALL.len();

/// Whether requests arrive by themselves.
#[must_use]
pub fn is_open(situation: &Situation) -> bool {
    let feature = FEATURES.iter().position(|name| *name == "is_open");
    feature
        .and_then(|i| situation.get(i))
        .is_some_and(|x| *x > 0.5)
}

/// One prediction's features.
pub type Situation = [f64; COUNT];

fn log(value: f64) -> f64 {
    value.max(1e-9).ln()
}

fn flag(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}

/// The features of an evaluation.
pub(super) fn of(evaluation: &Evaluation<'_>) -> Situation {
    let Evaluation {
        machine,
        traffic,
        memory,
        envelope,
        load,
        point,
        wait,
        pace: _,
        arrivals_rps: _,
    } = evaluation;
    let (model, gpu) = (machine.deployment.model, machine.deployment.gpu);
    let shape = machine.deployment.shape;
    let cost = point.cost;
    let of_step = |seconds: f64| seconds / cost.seconds.max(1e-12);
    let prompt = machine.prompt_service_seconds(traffic, point);
    let prompts = point.chunk_fraction * (point.chunk_seconds - point.decode_seconds);
    let concurrency = match load {
        Load::Closed { concurrency } => *concurrency,
        Load::Open { .. } | Load::Backlogged | Load::Saturated => point.live,
    };
    let slot_wait = wait.map_or(0.0, |w| w.queue_seconds);
    let maker = Maker::of(gpu);
    let mut out = [0.0; COUNT];
    let head = [
        log(point.live),
        log(concurrency),
        log(traffic.prompt),
        log(traffic.output),
        log(f64::from(shape.tp)),
        flag(shape.pp > 1),
        of_step(cost.compute_bound_seconds),
        of_step(cost.bandwidth_bound_seconds - cost.cache_seconds),
        of_step(cost.cache_seconds),
        of_step(cost.expert_seconds),
        of_step(cost.comm_seconds),
        of_step(cost.overhead_seconds),
        log(prompt / point.decode_seconds),
        prompts / point.iteration_seconds,
        log(1.0 + slot_wait / prompt.max(1e-9)),
        flag(model.moe.is_some()),
        model.served_dtype(shape.weight_dtype).bytes_per_weight(),
        flag(maker == Maker::Amd),
        flag(maker == Maker::Intel),
        flag(gpu.best_link().0 == Link::Nvlink),
        log(memory.weights_bytes / 1e9),
        log(f64::from(model.heads) / f64::from(model.kv_heads.max(1))),
        log(gpu.bandwidth_bytes_per_second / gpu.peak_flops.bf16 * 1e3),
        log(concurrency / envelope.live_max),
        log(envelope.live_max),
        log(point.decode_seconds * 1e3),
        flag(matches!(load, Load::Open { .. } | Load::Saturated)),
        flag(*load == Load::Backlogged),
    ];
    for (slot, value) in out.iter_mut().zip(head) {
        *slot = value;
    }
    let engine = FIRST_ENGINE + machine.profile.generation.index();
    if let Some(slot) = out.get_mut(engine) {
        *slot = 1.0;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_indicators_are_named_as_the_generations_are() {
        for generation in EngineGeneration::ALL {
            let name = FEATURES[FIRST_ENGINE + generation.index()];
            assert_eq!(name, format!("is_{}", generation.name()));
        }
    }
}
