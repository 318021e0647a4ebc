//! What vLLM V1 counts about itself, as state. Its text form is the engine binary's business.

use serde::{Deserialize, Serialize};

use crate::histogram::{
    Histogram, ITERATION_TOKENS_EDGES, PARAMS_N_EDGES, PREEMPTION_EDGES, REQUEST_LATENCY_EDGES_S,
    TOKEN_LATENCY_EDGES_S, TTFT_EDGES_S, token_count_edges,
};

/// Counters, gauges and histograms of one engine. Names are vLLM's without the prefix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineMetrics {
    /// `num_requests_running`.
    pub num_requests_running: u64,
    /// `num_requests_waiting`.
    pub num_requests_waiting: u64,
    /// `kv_cache_usage_perc`, a fraction in spite of its name.
    pub kv_cache_usage_fraction: f64,
    /// `prefix_cache_queries_total`, in tokens.
    pub prefix_cache_queries: u64,
    /// `prefix_cache_hits_total`, in tokens.
    pub prefix_cache_hits: u64,
    /// `num_preemptions_total`.
    pub num_preemptions: u64,
    /// `prompt_tokens_total`.
    pub prompt_tokens: u64,
    /// `prompt_tokens_cached_total`.
    pub prompt_tokens_cached: u64,
    /// `generation_tokens_total`.
    pub generation_tokens: u64,
    /// `request_success_total` by stop.
    pub finished_stop: u64,
    /// `request_success_total` by length.
    pub finished_length: u64,
    /// `request_prompt_tokens`.
    pub request_prompt_tokens: Histogram,
    /// `request_generation_tokens`.
    pub request_generation_tokens: Histogram,
    /// `iteration_tokens_total`.
    pub iteration_tokens: Histogram,
    /// `request_max_num_generation_tokens`.
    pub request_max_num_generation_tokens: Histogram,
    /// `request_params_n`.
    pub request_params_n: Histogram,
    /// `request_params_max_tokens`.
    pub request_params_max_tokens: Histogram,
    /// `time_to_first_token_seconds`.
    pub time_to_first_token_s: Histogram,
    /// `inter_token_latency_seconds`.
    pub inter_token_latency_s: Histogram,
    /// `request_time_per_output_token_seconds`.
    pub request_time_per_output_token_s: Histogram,
    /// `e2e_request_latency_seconds`.
    pub e2e_request_latency_s: Histogram,
    /// `request_queue_time_seconds`.
    pub request_queue_time_s: Histogram,
    /// `request_inference_time_seconds`.
    pub request_inference_time_s: Histogram,
    /// `request_prefill_time_seconds`.
    pub request_prefill_time_s: Histogram,
    /// `request_decode_time_seconds`.
    pub request_decode_time_s: Histogram,
    /// `request_num_preemptions`.
    pub request_num_preemptions: Histogram,
    /// `request_prefill_kv_computed_tokens`.
    pub request_prefill_kv_computed_tokens: Histogram,
}

impl EngineMetrics {
    /// Everything at zero; the token edges depend on the longest sequence.
    #[must_use]
    pub fn new(max_model_len: u32) -> Self {
        let tokens = || Histogram::new(&token_count_edges(max_model_len));
        let phase = || Histogram::new(&REQUEST_LATENCY_EDGES_S);
        Self {
            num_requests_running: 0,
            num_requests_waiting: 0,
            kv_cache_usage_fraction: 0.0,
            prefix_cache_queries: 0,
            prefix_cache_hits: 0,
            num_preemptions: 0,
            prompt_tokens: 0,
            prompt_tokens_cached: 0,
            generation_tokens: 0,
            finished_stop: 0,
            finished_length: 0,
            request_prompt_tokens: tokens(),
            request_generation_tokens: tokens(),
            iteration_tokens: Histogram::new(&ITERATION_TOKENS_EDGES),
            request_max_num_generation_tokens: tokens(),
            request_params_n: Histogram::new(&PARAMS_N_EDGES),
            request_params_max_tokens: tokens(),
            time_to_first_token_s: Histogram::new(&TTFT_EDGES_S),
            inter_token_latency_s: Histogram::new(&TOKEN_LATENCY_EDGES_S),
            request_time_per_output_token_s: Histogram::new(&TOKEN_LATENCY_EDGES_S),
            e2e_request_latency_s: phase(),
            request_queue_time_s: phase(),
            request_inference_time_s: phase(),
            request_prefill_time_s: phase(),
            request_decode_time_s: phase(),
            request_num_preemptions: Histogram::new(&PREEMPTION_EDGES),
            request_prefill_kv_computed_tokens: tokens(),
        }
    }
}
