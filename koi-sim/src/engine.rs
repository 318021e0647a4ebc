//! One engine: continuous batching with chunked prefill over a paged KV cache, as vLLM V1 does it.
//!
//! It holds no clock: a shell calls [`EngineSim::begin_step`], lets the step's duration pass and
//! calls [`EngineSim::finish_step`]. Requests may come and go in between.

mod finish;
mod schedule;

use std::collections::{BTreeMap, VecDeque};

use koi_core::time::UtcMicros;

use crate::blocks::{BlockId, BlockPool};
use crate::metrics::EngineMetrics;
use crate::prompt::TokenChain;
use crate::truth::{StepCost, StepLoad, StepNoise, Truth};

/// Settings of one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// KV blocks; one is never handed out, as in vLLM.
    pub n_blocks: u32,
    /// Tokens per block.
    pub block_size: u32,
    /// Most sequences in one step.
    pub max_num_seqs: u32,
    /// Most tokens in one step.
    pub max_num_batched_tokens: u32,
    /// Longest sequence.
    pub max_model_len: u32,
    /// Most tokens of one prompt in one step; 0 for no such limit.
    pub long_prefill_token_threshold: u32,
    /// Whether prompts reuse cached blocks.
    pub prefix_caching: bool,
    /// Whether a prompt may be computed over several steps.
    pub chunked_prefill: bool,
    /// Seed of noise and drift.
    pub seed: u64,
}

/// Settings that no engine can run with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineConfigError {
    /// A size is zero.
    #[error("{0} must be 1 or more")]
    Zero(&'static str),
    /// One sequence of full length must fit the cache.
    #[error(
        "the model's max seq len ({max_model_len}) is larger than the maximum number of tokens that can be stored in KV cache ({capacity})"
    )]
    CacheTooSmall {
        /// Longest sequence.
        max_model_len: u32,
        /// Tokens that the cache holds.
        capacity: u64,
    },
    /// Without chunks a whole prompt must fit one step.
    #[error(
        "max_num_batched_tokens ({max_num_batched_tokens}) is smaller than max_model_len ({max_model_len}) and chunked prefill is off"
    )]
    BatchTooSmall {
        /// Tokens per step.
        max_num_batched_tokens: u32,
        /// Longest sequence.
        max_model_len: u32,
    },
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Unique among live requests.
    pub id: u64,
    /// When the API server got it.
    pub arrival: UtcMicros,
    /// Prompt.
    pub prompt: TokenChain,
    /// Most tokens to generate; cut so that the sequence fits the longest length.
    pub max_tokens: u32,
    /// Length at which the answer ends by itself; `None` to run to `max_tokens`.
    pub natural_end: Option<u32>,
    /// Seed of the answer's words.
    pub answer_seed: u64,
}

/// A request that was not taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Empty prompt.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// No room for a single new token.
    #[error("the prompt has {tokens} tokens, the longest sequence is {max_model_len}")]
    PromptTooLong {
        /// Prompt length.
        tokens: u32,
        /// Longest sequence.
        max_model_len: u32,
    },
    /// No tokens asked for.
    #[error("max_tokens must be 1 or more")]
    NoTokens,
    /// Another live request has this id.
    #[error("request {0} exists")]
    Duplicate(u64),
    /// The chain was cut for another block size.
    #[error("the prompt's block size is not the engine's")]
    WrongBlockSize,
}

/// Why a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The answer ended by itself.
    Stop,
    /// `max_tokens` was reached.
    Length,
}

/// One new token of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenEvent {
    /// Request.
    pub id: u64,
    /// Position in the answer, from 0.
    pub position: u32,
    /// Prompt tokens that came from the prefix cache.
    pub cached_prompt_tokens: u32,
    /// Set with the last token.
    pub finish: Option<FinishReason>,
}

/// A step in progress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// When it ends.
    pub ends: UtcMicros,
    /// What it computes.
    pub load: StepLoad,
    /// Its cost; `seconds` includes noise and drift.
    pub cost: StepCost,
}

#[derive(Debug)]
struct Sequence {
    request: Request,
    /// Prompt and answer so far.
    chain: TokenChain,
    computed: u32,
    generated: u32,
    blocks: Vec<BlockId>,
    n_cached_blocks: usize,
    cached_prompt_tokens: Option<u32>,
    queued: UtcMicros,
    scheduled: Option<UtcMicros>,
    first_token: Option<UtcMicros>,
    last_token: UtcMicros,
    preemptions: u32,
}

/// One engine's state.
#[derive(Debug)]
pub struct EngineSim {
    config: EngineConfig,
    truth: Truth,
    noise: StepNoise,
    pool: BlockPool,
    sequences: BTreeMap<u64, Sequence>,
    waiting: VecDeque<u64>,
    running: Vec<u64>,
    /// Tokens per sequence of the step in progress.
    in_step: Vec<(u64, u32)>,
    step_began: Option<UtcMicros>,
    last_step: Option<UtcMicros>,
    metrics: EngineMetrics,
}

impl EngineSim {
    /// An idle engine.
    ///
    /// # Errors
    /// When the settings contradict each other.
    pub fn new(config: EngineConfig, truth: Truth) -> Result<Self, EngineConfigError> {
        config.check()?;
        Ok(Self {
            truth,
            noise: StepNoise::new(config.seed),
            pool: BlockPool::new(config.n_blocks - 1),
            sequences: BTreeMap::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            in_step: Vec::new(),
            step_began: None,
            last_step: None,
            metrics: EngineMetrics::new(config.max_model_len),
            config,
        })
    }

    /// Settings.
    #[must_use]
    pub const fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The truth it runs on.
    #[must_use]
    pub const fn truth(&self) -> &Truth {
        &self.truth
    }

    /// Requests that are not finished.
    #[must_use]
    pub fn n_unfinished(&self) -> usize {
        self.sequences.len()
    }

    /// Blocks that nobody refers to, and all that can be handed out.
    #[must_use]
    pub fn blocks_free_and_total(&self) -> (u32, u32) {
        (self.pool.n_free(), self.pool.n_blocks())
    }

    /// Counters and histograms so far, with the gauges of this moment.
    #[must_use]
    pub fn metrics(&self) -> EngineMetrics {
        let mut metrics = self.metrics.clone();
        metrics.num_requests_running = self.running.len() as u64;
        metrics.num_requests_waiting = self.waiting.len() as u64;
        metrics.kv_cache_usage_fraction = self.pool.usage_fraction();
        metrics
    }

    /// Queues a request.
    ///
    /// # Errors
    /// When it can never run; nothing changes then.
    pub fn submit(&mut self, now: UtcMicros, mut request: Request) -> Result<(), SubmitError> {
        let tokens = request.prompt.tokens();
        let room = self.config.max_model_len.saturating_sub(tokens);
        match (tokens, room, request.max_tokens) {
            (0, _, _) => return Err(SubmitError::EmptyPrompt),
            (_, 0, _) => {
                let max_model_len = self.config.max_model_len;
                return Err(SubmitError::PromptTooLong {
                    tokens,
                    max_model_len,
                });
            }
            (_, _, 0) => return Err(SubmitError::NoTokens),
            _ => {}
        }
        if request.prompt.block_size() != self.config.block_size {
            return Err(SubmitError::WrongBlockSize);
        }
        if self.sequences.contains_key(&request.id) {
            return Err(SubmitError::Duplicate(request.id));
        }
        request.max_tokens = request.max_tokens.min(room);
        self.waiting.push_back(request.id);
        self.sequences
            .insert(request.id, Sequence::new(request, now));
        Ok(())
    }

    /// Forgets a request and frees its blocks; true if it was live. Not counted as finished, as in
    /// vLLM 0.32.
    pub fn cancel(&mut self, id: u64) -> bool {
        let Some(sequence) = self.sequences.remove(&id) else {
            return false;
        };
        self.pool.release(&sequence.blocks);
        self.waiting.retain(|waiting| *waiting != id);
        self.running.retain(|running| *running != id);
        self.in_step.retain(|(scheduled, _)| *scheduled != id);
        true
    }

    /// Forgets every request.
    pub fn cancel_all(&mut self) {
        let ids: Vec<u64> = self.sequences.keys().copied().collect();
        for id in ids {
            self.cancel(id);
        }
    }
}

impl EngineConfig {
    fn check(&self) -> Result<(), EngineConfigError> {
        let sizes = [
            ("block_size", self.block_size),
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("max_model_len", self.max_model_len),
            ("num_gpu_blocks", self.n_blocks),
        ];
        if let Some((name, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(EngineConfigError::Zero(name));
        }
        let Self {
            max_model_len,
            max_num_batched_tokens,
            ..
        } = *self;
        let capacity = u64::from(self.n_blocks - 1) * u64::from(self.block_size);
        if capacity < u64::from(max_model_len) {
            return Err(EngineConfigError::CacheTooSmall {
                max_model_len,
                capacity,
            });
        }
        if !self.chunked_prefill && max_num_batched_tokens < max_model_len {
            return Err(EngineConfigError::BatchTooSmall {
                max_num_batched_tokens,
                max_model_len,
            });
        }
        Ok(())
    }
}

impl Sequence {
    fn new(request: Request, now: UtcMicros) -> Self {
        Self {
            chain: request.prompt.clone(),
            request,
            computed: 0,
            generated: 0,
            blocks: Vec::new(),
            n_cached_blocks: 0,
            cached_prompt_tokens: None,
            queued: now,
            scheduled: None,
            first_token: None,
            last_token: now,
            preemptions: 0,
        }
    }
}

#[cfg(test)]
mod tests;
