//! Choosing the next step: running sequences first, then the waiting queue in order of arrival.
//! When blocks run out the newest running sequence is preempted and recomputed later.

use koi_core::time::{MICROS_PER_SECOND, UtcMicros};

use super::{EngineSim, Sequence, Step};
use crate::truth::StepLoad;

impl EngineSim {
    /// Starts the next step; `None` when there is nothing to compute.
    ///
    /// # Panics
    /// When the previous step was not finished.
    pub fn begin_step(&mut self, now: UtcMicros) -> Option<Step> {
        assert!(
            self.step_began.is_none(),
            "a step is finished before the next one begins"
        );
        let mut budget = self.config.max_num_batched_tokens;
        let preempted = self.schedule_running(&mut budget);
        if !preempted {
            self.schedule_waiting(now, &mut budget);
        }
        if self.in_step.is_empty() {
            return None;
        }
        let load = self.step_load();
        let elapsed = self.last_step.map_or(0.0, |last| now.seconds_since(last));
        let mut cost = self.truth.mean_cost(&load);
        cost.seconds *= self.noise.factor(elapsed);
        self.step_began = Some(now);
        self.last_step = Some(now);
        let micros = (cost.seconds * MICROS_PER_SECOND as f64).max(1.0) as i64;
        Some(Step {
            ends: UtcMicros(now.0 + micros),
            load,
            cost,
        })
    }

    /// Gives every running sequence its next tokens; true if one had to be preempted.
    fn schedule_running(&mut self, budget: &mut u32) -> bool {
        let mut preempted = false;
        let mut index = 0;
        while index < self.running.len() && *budget > 0 {
            let id = self.running[index];
            let tokens = self
                .at_once(self.sequences[&id].n_uncomputed())
                .min(*budget);
            while !self.extend(id, tokens) {
                preempted = true;
                let victim = self
                    .running
                    .pop()
                    .expect("invariant: running holds at least `id`");
                self.preempt(victim);
                if victim == id {
                    return true;
                }
            }
            self.in_step.push((id, tokens));
            *budget -= tokens;
            index += 1;
        }
        preempted
    }

    fn schedule_waiting(&mut self, now: UtcMicros, budget: &mut u32) {
        while *budget > 0 && self.running.len() < self.config.max_num_seqs as usize {
            let Some(id) = self.waiting.front().copied() else {
                return;
            };
            let Some(tokens) = self.admit(id, *budget) else {
                return;
            };
            self.waiting.pop_front();
            self.running.push(id);
            self.in_step.push((id, tokens));
            *budget -= tokens;
            let sequence = self.sequence_mut(id);
            sequence.scheduled.get_or_insert(now);
        }
    }

    /// Gives a waiting sequence its cached and its first new blocks; the number of tokens to
    /// compute now, or `None` when there is no room yet.
    fn admit(&mut self, id: u64, budget: u32) -> Option<u32> {
        let sequence = &self.sequences[&id];
        let total = sequence.chain.tokens();
        let block_size = self.config.block_size;
        // The last token is always computed: its output is the next token.
        let usable = ((total - 1) / block_size) as usize;
        let hits = if self.config.prefix_caching {
            self.pool.lookup(&sequence.chain.links()[..usable])
        } else {
            Vec::new()
        };
        let cached = hits.len() as u32 * block_size;
        let left = self.at_once(total - cached);
        if left > budget && !self.config.chunked_prefill {
            return None;
        }
        let tokens = left.min(budget);
        let wanted = (cached + tokens).div_ceil(block_size) - hits.len() as u32;
        if wanted + self.pool.n_free_among(&hits) > self.pool.n_free() {
            return None;
        }
        self.pool.touch(&hits);
        let sequence = self.sequence_mut(id);
        sequence.computed = cached;
        sequence.n_cached_blocks = hits.len();
        sequence.blocks = hits;
        if sequence.cached_prompt_tokens.is_none() {
            sequence.cached_prompt_tokens = Some(cached);
            self.metrics.prefix_cache_queries += u64::from(total);
            self.metrics.prefix_cache_hits += u64::from(cached);
        }
        let extended = self.extend(id, tokens);
        assert!(extended, "the free blocks were counted before");
        Some(tokens)
    }

    /// Makes room for `tokens` more; false, and nothing taken, when there are too few free blocks.
    fn extend(&mut self, id: u64, tokens: u32) -> bool {
        let block_size = self.config.block_size;
        let prefix_caching = self.config.prefix_caching;
        let Self {
            pool, sequences, ..
        } = self;
        let sequence = sequences
            .get_mut(&id)
            .expect("invariant: scheduled ids are live");
        let end = sequence.computed + tokens;
        let missing = end
            .div_ceil(block_size)
            .saturating_sub(sequence.blocks.len() as u32);
        if missing > pool.n_free() {
            return false;
        }
        sequence
            .blocks
            .extend((0..missing).filter_map(|_| pool.take()));
        let full = (end / block_size) as usize;
        if prefix_caching {
            for index in sequence.n_cached_blocks..full {
                pool.cache(sequence.blocks[index], sequence.chain.links()[index]);
            }
        }
        sequence.n_cached_blocks = sequence.n_cached_blocks.max(full);
        true
    }

    /// How many of these tokens one sequence may compute in one step.
    const fn at_once(&self, tokens: u32) -> u32 {
        let limit = self.config.long_prefill_token_threshold;
        if limit > 0 && limit < tokens {
            limit
        } else {
            tokens
        }
    }

    fn preempt(&mut self, id: u64) {
        let sequence = self.sequence_mut(id);
        sequence.computed = 0;
        sequence.n_cached_blocks = 0;
        sequence.preemptions += 1;
        let blocks = std::mem::take(&mut sequence.blocks);
        self.pool.release(&blocks);
        self.waiting.push_front(id);
        self.metrics.num_preemptions += 1;
    }

    fn step_load(&self) -> StepLoad {
        let mut load = StepLoad::default();
        for (id, tokens) in &self.in_step {
            let sequence = &self.sequences[id];
            if sequence.is_decoding() {
                load.decode_seqs += 1;
                load.decode_context += u64::from(sequence.computed + 1);
            } else {
                let tokens_f = f64::from(*tokens);
                load.prefill_tokens += tokens;
                load.prefill_seqs += 1;
                load.prefill_context += tokens_f * (f64::from(sequence.computed) + tokens_f / 2.0);
            }
        }
        load
    }

    pub(super) fn sequence_mut(&mut self, id: u64) -> &mut Sequence {
        self.sequences
            .get_mut(&id)
            .expect("invariant: queued and running ids are live")
    }
}

impl Sequence {
    const fn n_uncomputed(&self) -> u32 {
        self.chain.tokens() - self.computed
    }

    /// Whether only the newest token is left to compute.
    const fn is_decoding(&self) -> bool {
        self.generated > 0 && self.n_uncomputed() == 1
    }
}
