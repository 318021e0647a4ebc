//! The vocabulary of effects: every term with its rule, its neutral value, its bounds, and the
//! mediators in which it shows first.

use super::Rule;
use crate::variables::Mediator;

/// More tokens, bytes or sequences than anything real has.
const HUGE: f64 = 1e15;
const INF: f64 = f64::INFINITY;

macro_rules! terms {
    ($($variant:ident => $name:literal, $rule:ident, $neutral:expr, $min:expr, $max:expr, [$($mediator:ident),+], $doc:literal;)+) => {
        /// One quantity of the physics that knobs may change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Term { $(#[doc = $doc] $variant,)+ }

        /// How many terms there are.
        pub const TERM_COUNT: usize = [$(Term::$variant),+].len();

        impl Term {
            /// Every term, in order.
            pub const ALL: [Self; TERM_COUNT] = [$(Self::$variant),+];

            pub(super) const NEUTRAL: [f64; TERM_COUNT] = [$($neutral),+];

            /// The name in the catalog.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $name,)+ } }

            /// What it is, in one sentence.
            #[must_use]
            pub const fn doc(self) -> &'static str { match self { $(Self::$variant => $doc,)+ } }

            /// How contributions meet.
            #[must_use]
            pub const fn rule(self) -> Rule { match self { $(Self::$variant => Rule::$rule,)+ } }

            /// Bounds of one contribution, both included.
            #[must_use]
            pub const fn bounds(self) -> (f64, f64) { match self { $(Self::$variant => ($min, $max),)+ } }

            /// Mediators in which it shows first; more follow from them.
            #[must_use]
            pub const fn shows_in(self) -> &'static [Mediator] {
                match self { $(Self::$variant => &[$(Mediator::$mediator),+],)+ }
            }
        }
    };
}

impl Term {
    /// The value that changes nothing.
    #[must_use]
    pub const fn neutral(self) -> f64 {
        Self::NEUTRAL[self as usize]
    }

    /// The term of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.name() == name)
    }

    /// Whether a contribution is legal.
    #[must_use]
    pub fn accepts(self, value: f64) -> bool {
        let (min, max) = self.bounds();
        (min..=max).contains(&value)
    }

    /// The legal contributions in words.
    #[must_use]
    pub fn range(self) -> String {
        let (min, max) = self.bounds();
        format!("a number from {min} to {max}")
    }
}

terms! {
    // Overheads of a step.
    StepOverheadFactor => "step_overhead_factor", Product, 1.0, 0.01, 100.0, [DispatchOverheadMs],
        "Multiplies the host's time per step.";
    StepOverheadUs => "step_overhead_us", Sum, 0.0, 0.0, 1e5, [DispatchOverheadMs],
        "Adds host time to every step, in microseconds.";
    GroupOverheadUs => "group_overhead_us", Sum, 0.0, 0.0, 1e5, [DispatchOverheadMs],
        "Adds host time to every step of a replica of several devices, in microseconds.";
    LayerOverheadFactor => "layer_overhead_factor", Product, 1.0, 0.05, 20.0,
        [DispatchOverheadMs, MemBandwidthUtilization],
        "Multiplies the time of small kernels per layer.";
    QuantizedLayerOverheadFactor => "quantized_layer_overhead_factor", Product, 1.0, 0.05, 20.0,
        [DispatchOverheadMs, MemBandwidthUtilization],
        "Multiplies the time of small kernels per layer where weights have fewer than 16 bits.";
    LayerOverheadUs => "layer_overhead_us", Sum, 0.0, 0.0, 1e4, [DispatchOverheadMs],
        "Adds kernels to every layer, in microseconds.";
    EagerLaunchShare => "eager_launch_share", Most, 0.0, 0.0, 1.0, [DispatchOverheadMs],
        "Share of a step's launches that no captured graph covers.";
    CapturedSequences => "captured_sequences", Least, INF, 1.0, HUGE,
        [DispatchOverheadMs, VramHeadroomGb],
        "Largest batch with a captured graph; larger ones are launched kernel by kernel.";
    CapturedTokens => "captured_tokens", Least, INF, 1.0, HUGE, [DispatchOverheadMs],
        "Longest context with a captured graph.";
    // Rates of kernels.
    LinearComputeFactor => "linear_compute_factor", Product, 1.0, 0.05, 4.0, [SmUtilization],
        "Multiplies the rate of dense matrix products.";
    ExpertComputeFactor => "expert_compute_factor", Product, 1.0, 0.05, 4.0, [SmUtilization],
        "Multiplies the rate of the experts' matrix products, arithmetic and reading.";
    AttentionComputeFactor => "attention_compute_factor", Product, 1.0, 0.05, 4.0,
        [SmUtilization],
        "Multiplies the rate of attention over prompts.";
    HopperAttentionFactor => "hopper_attention_factor", Product, 1.0, 0.05, 4.0, [SmUtilization],
        "Multiplies the rate of attention over prompts on devices of the Hopper generation.";
    CacheBandwidthFactor => "cache_bandwidth_factor", Product, 1.0, 0.05, 4.0,
        [MemBandwidthUtilization],
        "Multiplies the rate at which the cache is read.";
    GraphSplits => "graph_splits", Alone, 32.0, 1.0, 1024.0, [MemBandwidthUtilization],
        "Most parts of one sequence's decode attention in captured graphs; too few leave multiprocessors idle.";
    SequenceSplits => "sequence_splits", Alone, 8.0, 1.0, 1024.0, [MemBandwidthUtilization],
        "Parts of one sequence's decode attention; too few leave multiprocessors idle.";
    // Links.
    NvlinkLatencyFactor => "nvlink_latency_factor", Product, 1.0, 0.05, 20.0,
        [DecodeStepsPerSec, CommOverheadPct],
        "Multiplies the latency of an all-reduce over NVLink and its like.";
    AllreduceLatencyFactor => "allreduce_latency_factor", Product, 1.0, 0.05, 20.0,
        [DecodeStepsPerSec, CommOverheadPct],
        "Multiplies the latency of an all-reduce.";
    ExposedCommFactor => "exposed_comm_factor", Product, 1.0, 0.05, 1.0, [DecodeStepsPerSec],
        "Multiplies the link time that no computation hides.";
    HalvesExposedFactor => "halves_exposed_factor", Least, 1.0, 0.05, 1.0,
        [DecodeStepsPerSec],
        "The same in steps that are cut in parts, each of which reads the weights again.";
    HalvesDecodeTokens => "halves_decode_tokens", Alone, 32.0, 0.0, HUGE, [DecodeStepsPerSec],
        "Tokens of a pure decode step from which it is cut in parts.";
    HalvesPrefillTokens => "halves_prefill_tokens", Alone, 512.0, 0.0, HUGE,
        [PrefillTokensPerSec],
        "Tokens of a step with prompts from which it is cut in parts.";
    StepParts => "step_parts", Most, 2.0, 0.0, 64.0, [DecodeStepsPerSec],
        "Parts into which such a step is cut.";
    BubbleFactor => "bubble_factor", Product, 1.0, 0.05, 4.0, [PipelineBubbleFraction],
        "Multiplies the time that stages of a pipeline wait for each other.";
    ContextShards => "context_shards", Most, 1.0, 1.0, 64.0, [KvPressureScore, PerTokCommBytes],
        "Shards among which one sequence's cache is divided for decoding.";
    ContextLatencyFactor => "context_latency_factor", Product, 1.0, 0.05, 4.0, [CommOverheadPct],
        "Multiplies the latency of exchanging partial attention among them.";
    QueriesReplicated => "queries_replicated", Most, 0.0, 0.0, 1.0, [PerTokCommBytes],
        "1 where every one of them computes all queries, so that none are sent.";
    // Memory.
    KvPoolBytes => "kv_pool_bytes", Least, INF, 1.0, HUGE, [KvPressureScore, GpuMemUsedFraction],
        "Bytes of the cache pool per device, instead of what is left.";
    KvPoolBlocks => "kv_pool_blocks", Least, INF, 1.0, HUGE, [KvPressureScore],
        "Blocks of the cache pool, instead of what is left.";
    KvPoolTokens => "kv_pool_tokens", Least, INF, 1.0, HUGE, [KvPressureScore],
        "Most tokens of the cache pool.";
    KeptFreeFraction => "kept_free_fraction", Most, 0.0, 0.0, 0.95, [RunningRequests, KvPressureScore],
        "Share of the pool that admission leaves free.";
    ReservedAnswerFactor => "reserved_answer_factor", Most, 1.0, 0.0, 100.0, [RunningRequests, KvPressureScore],
        "Multiple of the generated tokens for which admission keeps room; below one it overcommits, which ends in retraction and is not followed.";
    LookaheadTokens => "lookahead_tokens", Sum, 0.0, 0.0, 1e6, [KvCacheUtil, KvPressureScore],
        "Cache slots per sequence for tokens not yet accepted.";
    OffloadBytes => "offload_bytes", Sum, 0.0, 0.0, HUGE,
        [VramHeadroomGb, PcieBytesPerSec, DecodeStepsPerSec],
        "Weights per device that stay in host memory and cross the bus in every step.";
    OffloadGroupLayers => "offload_group_layers", Most, 0.0, 0.0, 1e6, [VramHeadroomGb],
        "Layers of a group of which some stay in host memory.";
    OffloadLayersOfGroup => "offload_layers_of_group", Alone, 1.0, 1.0, 1e6,
        [VramHeadroomGb, PcieBytesPerSec],
        "How many of each group do.";
    OffloadPrefetch => "offload_prefetch", Alone, -1.0, 0.0, 1.0, [DecodeStepsPerSec],
        "1 where offloaded weights are fetched beside the computing, 0 where it waits for them; left alone, groups are fetched and plain offloading waits.";
    OffloadPrefetchLayers => "offload_prefetch_layers", Alone, 1.0, 0.0, 1e6,
        [DecodeStepsPerSec],
        "Layers of computing that hide the transfer of one offloaded layer.";
    StateElementBytes => "state_element_bytes", Alone, 0.0, 1.0, 8.0, [KvPressureScore],
        "Bytes of one number of a recurrent state.";
    ConvolutionElementBytes => "convolution_element_bytes", Alone, 0.0, 1.0, 8.0,
        [KvPressureScore],
        "Bytes of one number of a recurrent state, its convolution part included.";
    WindowsKept => "windows_kept", Most, 0.0, 0.0, 1.0, [RunningRequests],
        "1 where layers with a window keep every token.";
    ResidualSharded => "residual_sharded", Most, 0.0, 0.0, 1.0, [ActivationMemPressure],
        "1 where the residual stream is divided among shards instead of whole on each.";
    LoraSlots => "lora_slots", Most, 0.0, 0.0, 1e6, [VramHeadroomGb],
        "Adapters that have room on the device.";
    LoraRank => "lora_rank", Alone, 16.0, 1.0, 4096.0, [VramHeadroomGb],
        "Rank that this room is made for.";
    LoraSharded => "lora_sharded", Most, 0.0, 0.0, 1.0, [PerTokCommBytes],
        "1 where both halves of an adapter are divided among shards and their products sent.";
    // Experts.
    RedundantExperts => "redundant_experts", Most, 0.0, 0.0, 1e5,
        [ExpertImbalance, VramHeadroomGb],
        "Further copies of experts, over all ranks.";
    ImbalanceExcessFactor => "imbalance_excess_factor", Product, 1.0, 0.0, 4.0,
        [ExpertImbalance],
        "Multiplies what the fullest expert has beyond the mean.";
    // Prefixes.
    PrefixUnitTokens => "prefix_unit_tokens", Most, 0.0, 0.0, 1e7, [KvcacheHitRate],
        "A cached prefix ends at a multiple of this.";
    StateUnitTokens => "state_unit_tokens", Most, 0.0, 0.0, 1e7, [KvcacheHitRate],
        "The same for models with recurrent state.";
    StatesForgotten => "states_forgotten", Most, 0.0, 0.0, 1.0, [KvcacheHitRate],
        "1 where no recurrent state is kept, so that prefixes of such models cannot be reused.";
    PrefixHitFactor => "prefix_hit_factor", Product, 1.0, 0.05, 4.0, [KvcacheHitRate],
        "Multiplies the share of prompts that is found in the cache.";
    HostCacheBytes => "host_cache_bytes", Sum, 0.0, 0.0, HUGE, [KvcacheHitRate, PcieBytesPerSec],
        "Host memory for cache blocks that the device gave up, over all devices.";
    HostCacheEnabled => "host_cache_enabled", Most, 0.0, 0.0, 1.0,
        [KvcacheHitRate, PcieBytesPerSec],
        "1 where such memory exists, twice as large as the pool.";
    HostWriteShare => "host_write_share", Alone, 1.0, 0.0, 1.0, [PcieBytesPerSec],
        "Share of computed blocks that are copied to host memory.";
    // The schedule.
    StepTokens => "step_tokens", Least, INF, 1.0, HUGE, [PrefillTokensPerSec],
        "Most tokens that the scheduler hands out in one step.";
    PromptBatchTokens => "prompt_batch_tokens", Least, INF, 1.0, HUGE,
        [ActivationMemPressure, PrefillTokensPerSec],
        "Most prompt tokens of one step.";
    ActiveSequences => "active_sequences", Least, INF, 1.0, HUGE, [RunningRequests],
        "Most sequences admitted at once.";
    ChunkTokens => "chunk_tokens", Least, INF, 1.0, HUGE, [QueueDepth],
        "Most tokens of one prompt in one step.";
    ChunkFairShare => "chunk_fair_share", Most, 0.0, 0.0, 1.0, [QueueDepth],
        "1 where that is never below an equal share of the step.";
    PartialPrompts => "partial_prompts", Most, 1.0, 1.0, 1e4, [QueueDepth],
        "Prompts that share the step's room for prompts.";
    RequestsInFlight => "requests_in_flight", Least, INF, 0.0, HUGE, [QueueDepth],
        "Requests beyond which further ones are refused.";
    QueuedPromptTokens => "queued_prompt_tokens", Least, INF, 0.0, HUGE, [QueueDepth],
        "Waiting prompt tokens beyond which further requests are refused.";
    AdmissionSteps => "admission_steps", Most, 1.0, 1.0, 1e4, [QueueDepth, PdImbalance],
        "Steps between two admissions of prompts.";
    RoundSteps => "round_steps", Most, 1.0, 1.0, 1e3, [QueueDepth],
        "Steps that run before new requests are looked at.";
    PromptDelayFactor => "prompt_delay_factor", Most, 0.0, 0.0, 100.0, [QueueDepth],
        "Multiple of the last prompt's time that the next one waits.";
    // Guessing ahead.
    AcceptedShare => "accepted_share", Most, 0.0, 0.0, 0.99, [DecodeStepsPerSec, SmUtilization],
        "Chance that one guessed token is accepted; nil is not to guess.";
    GuessedTokens => "guessed_tokens", Alone, 0.0, 1.0, 1e3, [DecodeStepsPerSec, KvPressureScore],
        "Tokens guessed per step and sequence.";
    GuessDepth => "guess_depth", Alone, 0.0, 1.0, 1e3, [DecodeStepsPerSec],
        "Tokens in a row of one guess, where that is not all of them.";
    GuessDepthLimit => "guess_depth_limit", Least, INF, 1.0, 1e3, [DecodeStepsPerSec],
        "Longest row of one guess.";
    GuessBranches => "guess_branches", Most, 1.0, 1.0, 1e3, [DecodeStepsPerSec],
        "Guesses tried at each depth.";
    GuessBatchLimit => "guess_batch_limit", Least, INF, 1.0, HUGE, [DecodeStepsPerSec],
        "Batch from which nothing is guessed.";
    DraftLayers => "draft_layers", Most, 0.0, 0.0, 1e3, [DecodeStepsPerSec],
        "Layers of the target's width, and its head, that one pass of the draft goes through.";
    DraftModelShare => "draft_model_share", Most, 0.0, 0.0, 1.0, [DecodeStepsPerSec],
        "Size of a draft model over the target's.";
    DraftOnePass => "draft_one_pass", Most, 0.0, 0.0, 1.0, [DispatchOverheadMs, DecodeStepsPerSec],
        "1 where one pass of the draft gives all guesses.";
    DraftShards => "draft_shards", Alone, 0.0, 1.0, 1e3, [PerTokCommBytes, DecodeStepsPerSec],
        "Shards of the draft, where they are not the target's.";
}
