//! One iteration of a steady state: its tokens, and its cost with and without prompts.

use crate::surrogate::roofline::StepCost;
use crate::surrogate::speculation::Guessing;

/// How the tokens of a steady state spread over iterations.
#[derive(Debug, Clone, Copy)]
pub(super) struct IterationPlan {
    pub(super) budget: f64,
    pub(super) prefill_iterations: f64,
    pub(super) lifetime: f64,
    pub(super) prefill_mean: f64,
    pub(super) chunk: f64,
    pub(super) decode_seqs: f64,
    pub(super) guessing: Guessing,
}

/// The cost of a step that is `b` with this chance and `a` else.
pub(super) fn mix(a: StepCost, b: StepCost, share_of_b: f64) -> StepCost {
    let blend = |x: f64, y: f64| x + share_of_b * (y - x);
    StepCost {
        seconds: blend(a.seconds, b.seconds),
        compute_bound_seconds: blend(a.compute_bound_seconds, b.compute_bound_seconds),
        bandwidth_bound_seconds: blend(a.bandwidth_bound_seconds, b.bandwidth_bound_seconds),
        cache_seconds: blend(a.cache_seconds, b.cache_seconds),
        expert_seconds: blend(a.expert_seconds, b.expert_seconds),
        comm_seconds: blend(a.comm_seconds, b.comm_seconds),
        overhead_seconds: blend(a.overhead_seconds, b.overhead_seconds),
        flops: blend(a.flops, b.flops),
        bytes: blend(a.bytes, b.bytes),
    }
}
