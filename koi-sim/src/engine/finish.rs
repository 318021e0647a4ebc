//! The end of a step: new tokens, finished requests, and what vLLM counts about both.

use koi_core::time::UtcMicros;

use super::{EngineSim, FinishReason, Sequence, TokenEvent};
use crate::vocabulary::answer_token;

impl EngineSim {
    /// Ends the step in progress; the tokens it produced, in scheduling order.
    pub fn finish_step(&mut self, now: UtcMicros) -> Vec<TokenEvent> {
        self.step_began = None;
        let scheduled = std::mem::take(&mut self.in_step);
        let mut events = Vec::with_capacity(scheduled.len());
        let mut iteration_tokens = 0_u64;
        for (id, tokens) in scheduled {
            let sequence = self.sequence_mut(id);
            sequence.computed += tokens;
            if sequence.computed < sequence.chain.tokens() {
                continue;
            }
            let event = sequence.add_token();
            iteration_tokens += 1 + self.observe_token(now, id);
            events.push(event);
            if let Some(reason) = event.finish {
                self.retire(now, id, reason);
            }
        }
        if !events.is_empty() {
            self.metrics
                .iteration_tokens
                .observe(iteration_tokens as f64);
        }
        self.running.retain(|id| self.sequences.contains_key(id));
        events
    }

    /// Counts one token; the prompt tokens that were computed for it if it is the first one.
    fn observe_token(&mut self, now: UtcMicros, id: u64) -> u64 {
        let Self {
            sequences, metrics, ..
        } = self;
        let sequence = sequences
            .get_mut(&id)
            .expect("invariant: scheduled ids are live");
        metrics.generation_tokens += 1;
        let previous = std::mem::replace(&mut sequence.last_token, now);
        if sequence.first_token.is_some() {
            metrics
                .inter_token_latency_s
                .observe(now.seconds_since(previous).max(0.0));
            return 0;
        }
        sequence.first_token = Some(now);
        let ttft = now.seconds_since(sequence.request.arrival).max(0.0);
        metrics.time_to_first_token_s.observe(ttft);
        let prompt = u64::from(sequence.request.prompt.tokens());
        let cached = u64::from(sequence.cached_prompt_tokens.unwrap_or(0));
        metrics.prompt_tokens += prompt;
        metrics.prompt_tokens_cached += cached;
        prompt - cached
    }

    fn retire(&mut self, now: UtcMicros, id: u64, reason: FinishReason) {
        let sequence = self
            .sequences
            .remove(&id)
            .expect("invariant: scheduled ids are live");
        self.pool.release(&sequence.blocks);
        let metrics = &mut self.metrics;
        match reason {
            FinishReason::Stop => metrics.finished_stop += 1,
            FinishReason::Length => metrics.finished_length += 1,
        }
        let request = &sequence.request;
        let prompt = request.prompt.tokens();
        let generated = f64::from(sequence.generated);
        metrics.request_prompt_tokens.observe(f64::from(prompt));
        metrics.request_generation_tokens.observe(generated);
        metrics.request_max_num_generation_tokens.observe(generated);
        metrics.request_params_n.observe(1.0);
        metrics
            .request_params_max_tokens
            .observe(f64::from(request.max_tokens));
        let computed = prompt - sequence.cached_prompt_tokens.unwrap_or(0);
        metrics
            .request_prefill_kv_computed_tokens
            .observe(f64::from(computed));
        metrics
            .request_num_preemptions
            .observe(f64::from(sequence.preemptions));
        self.observe_phases(now, &sequence);
    }

    fn observe_phases(&mut self, now: UtcMicros, sequence: &Sequence) {
        let scheduled = sequence.scheduled.unwrap_or(sequence.queued);
        let first = sequence.first_token.unwrap_or(now);
        let span = |from: UtcMicros, to: UtcMicros| to.seconds_since(from).max(0.0);
        let decode = span(first, sequence.last_token);
        let gaps = f64::from(sequence.generated.saturating_sub(1));
        let metrics = &mut self.metrics;
        metrics
            .e2e_request_latency_s
            .observe(span(sequence.request.arrival, now));
        metrics
            .request_queue_time_s
            .observe(span(sequence.queued, scheduled));
        metrics
            .request_inference_time_s
            .observe(span(scheduled, sequence.last_token));
        metrics
            .request_prefill_time_s
            .observe(span(scheduled, first));
        metrics.request_decode_time_s.observe(decode);
        metrics
            .request_time_per_output_token_s
            .observe(decode / gaps.max(1.0));
    }
}

impl Sequence {
    /// Appends the token that the step produced.
    fn add_token(&mut self) -> TokenEvent {
        let position = self.generated;
        self.chain
            .push(answer_token(self.request.answer_seed, position));
        self.generated += 1;
        let finish = if self.generated >= self.request.max_tokens {
            Some(FinishReason::Length)
        } else if self
            .request
            .natural_end
            .is_some_and(|end| self.generated >= end)
        {
            Some(FinishReason::Stop)
        } else {
            None
        };
        let cached_prompt_tokens = self.cached_prompt_tokens.unwrap_or(0);
        TokenEvent {
            id: self.request.id,
            position,
            cached_prompt_tokens,
            finish,
        }
    }
}
