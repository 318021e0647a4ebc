//! Bounds and side effects of a schedule that settings beyond the main ones give.
//!
//! With every setting at its default each bound is the main setting's own. Spec §4.

use super::{Machine, Point, Traffic};
use crate::configuration::Term;
use crate::surrogate::roofline::StepWork;
use crate::surrogate::speculation::Guessing;

impl Machine<'_> {
    /// Time of a request's blocks on their way from host memory.
    pub(in crate::surrogate) fn loading_seconds(&self, traffic: &Traffic) -> f64 {
        let bytes = traffic.loaded_tokens * self.kv_bytes_per_token();
        bytes / self.deployment.gpu.pcie_bytes_per_second
    }

    /// Cache bytes of one token on one device.
    pub(in crate::surrogate) const fn kv_bytes_per_token(&self) -> f64 {
        self.stage.kv_bytes_per_token()
    }

    /// What guessing ahead does with so many live requests.
    pub(in crate::surrogate) fn guessing_at(&self, live: f64) -> Guessing {
        self.guessing.at(live)
    }

    /// Overhead of a steady state's decode step that depends on what is in it.
    pub(in crate::surrogate) fn overhead_of_seconds(
        &self,
        traffic: &Traffic,
        point: &Point,
    ) -> f64 {
        self.stage.overhead_of_seconds(StepWork {
            decode_seqs: point.live / point.micro_batches,
            decode_context: traffic.context,
            guesses_per_sequence: self.guessing.at(point.live).tokens,
            ..StepWork::default()
        })
    }

    /// Sequences that may be live.
    pub(super) fn slots(&self) -> f64 {
        let shape = &self.deployment.shape;
        f64::from(shape.max_num_seqs)
            .min(shape.effects.get(Term::ActiveSequences))
            .min(shape.effects.get(Term::RequestsInFlight).max(1.0))
    }

    /// Tokens that a step may hold.
    pub(super) fn step_tokens(&self) -> f64 {
        let shape = &self.deployment.shape;
        f64::from(shape.max_num_batched_tokens).min(shape.effects.get(Term::StepTokens))
    }

    /// Tokens of one prompt that a step computes at most: all there is room for, unless settings
    /// bound it, or forbid to cut a prompt.
    pub(super) fn most_of_one_prompt(&self, traffic: &Traffic, live: f64, budget: f64) -> f64 {
        let shape = &self.deployment.shape;
        if !shape.chunked_prefill {
            return budget.max(traffic.computed);
        }
        let limit = shape.effects.get(Term::ChunkTokens);
        if shape.effects.get(Term::ChunkFairShare) < 0.5 || !limit.is_finite() {
            return budget.min(limit);
        }
        // Prompts under way if each takes the bound in every step.
        let iterations = (traffic.computed / budget.min(limit)).max(1.0);
        let under_way = live * iterations / (traffic.output - 1.0 + iterations);
        budget.min(limit.max(budget / under_way.max(1.0)))
    }

    /// Prompt tokens of a full step: whole prompts where they may not be cut.
    pub(super) fn prompt_tokens_per_step(&self, traffic: &Traffic, budget: f64) -> f64 {
        if self.deployment.shape.chunked_prefill {
            return budget;
        }
        (budget / traffic.computed).floor().max(1.0) * traffic.computed
    }
}
