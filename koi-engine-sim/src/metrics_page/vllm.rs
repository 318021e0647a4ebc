//! The `vllm:` families.

use koi_sim::histogram::Histogram;

use super::PageInput;
use super::text::{Labels, Page};

/// Writes one engine's families with the labels `engine` and `model_name`.
pub(crate) fn write(page: &mut Page, input: &PageInput<'_>) {
    let model = input
        .settings
        .served_model_names
        .first()
        .map_or("", String::as_str);
    let mut families = Families {
        page,
        base: vec![("engine", "0"), ("model_name", model)],
    };
    families.estimates();
    families.gauges(input);
    families.counters(input);
    families.token_histograms(input);
    families.time_histograms(input);
    families.after_times(input);
    families.cache_config(input);
}

fn with<'b>(base: &Labels<'b>, label: &'b str, text: &'b str) -> Labels<'b> {
    let mut labels = base.clone();
    labels.push((label, text));
    labels
}

struct Families<'a> {
    page: &'a mut Page,
    base: Labels<'a>,
}

impl Families<'_> {
    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.page.counter(
            &format!("vllm:{name}"),
            help,
            vec![(self.base.clone(), value as f64)],
        );
    }

    fn counter_by(&mut self, name: &str, help: &str, label: &str, values: &[(&str, u64)]) {
        let series = values
            .iter()
            .map(|(text, n)| (with(&self.base, label, text), *n as f64));
        self.page
            .counter(&format!("vllm:{name}"), help, series.collect());
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.page.gauge(
            &format!("vllm:{name}"),
            help,
            vec![(self.base.clone(), value)],
        );
    }

    fn gauge_by(&mut self, name: &str, help: &str, label: &str, values: &[(&str, f64)]) {
        let series = values
            .iter()
            .map(|(text, n)| (with(&self.base, label, text), *n));
        self.page
            .gauge(&format!("vllm:{name}"), help, series.collect());
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.page.histogram(
            &format!("vllm:{name}"),
            help,
            vec![(self.base.clone(), histogram)],
        );
    }

    fn estimates(&mut self) {
        self.counter(
            "estimated_flops_per_gpu",
            "Estimated arithmetic per GPU; off by default.",
            0,
        );
        self.counter(
            "estimated_read_bytes_per_gpu",
            "Estimated bytes read per GPU; off.",
            0,
        );
        self.counter(
            "estimated_write_bytes_per_gpu",
            "Estimated bytes written per GPU; off.",
            0,
        );
    }

    fn gauges(&mut self, input: &PageInput<'_>) {
        let engine = input.engine;
        let waiting = engine.num_requests_waiting as f64;
        self.gauge(
            "num_requests_running",
            "Requests in the batch.",
            engine.num_requests_running as f64,
        );
        self.gauge("num_requests_waiting", "Requests that wait.", waiting);
        let reasons = [("capacity", waiting), ("deferred", 0.0)];
        self.gauge_by(
            "num_requests_waiting_by_reason",
            "Requests that wait, by reason.",
            "reason",
            &reasons,
        );
        let states = [
            ("awake", 1.0),
            ("weights_offloaded", 0.0),
            ("discard_all", 0.0),
        ];
        self.gauge_by(
            "engine_sleep_state",
            "Which sleep state the engine is in.",
            "sleep_state",
            &states,
        );
        self.gauge(
            "kv_cache_usage_perc",
            "Share of KV blocks in use, 0 to 1.",
            engine.kv_cache_usage_fraction,
        );
    }

    fn counters(&mut self, input: &PageInput<'_>) {
        let e = input.engine;
        self.counter(
            "prefix_cache_queries",
            "Prompt tokens looked up.",
            e.prefix_cache_queries,
        );
        self.counter(
            "prefix_cache_hits",
            "Prompt tokens found.",
            e.prefix_cache_hits,
        );
        self.counter(
            "external_prefix_cache_queries",
            "Tokens looked up elsewhere.",
            0,
        );
        self.counter("external_prefix_cache_hits", "Tokens found elsewhere.", 0);
        self.counter("mm_cache_queries", "Multi-modal items looked up.", 0);
        self.counter("mm_cache_hits", "Multi-modal items found.", 0);
        self.counter("num_preemptions", "Preemptions.", e.num_preemptions);
        self.counter("prompt_tokens", "Prompt tokens.", e.prompt_tokens);
        let computed = e.prompt_tokens - e.prompt_tokens_cached;
        let sources = [
            ("local_compute", computed),
            ("local_cache_hit", e.prompt_tokens_cached),
            ("external_kv_transfer", 0),
        ];
        self.counter_by(
            "prompt_tokens_by_source",
            "Prompt tokens by source.",
            "source",
            &sources,
        );
        self.counter(
            "prompt_tokens_cached",
            "Cached prompt tokens.",
            e.prompt_tokens_cached,
        );
        let tiers = [
            ("device", e.prefix_cache_hits),
            ("host", 0),
            ("p2p", 0),
            ("disk", 0),
            ("external_unspecified", 0),
        ];
        self.counter_by(
            "prompt_tokens_cached_by_source",
            "Cached tokens by tier.",
            "source",
            &tiers,
        );
        self.counter(
            "generation_tokens",
            "Generated tokens.",
            e.generation_tokens,
        );
        let reasons = [
            ("stop", e.finished_stop),
            ("length", e.finished_length),
            ("abort", 0),
            ("error", 0),
            ("repetition", 0),
        ];
        self.counter_by(
            "request_success",
            "Finished requests.",
            "finished_reason",
            &reasons,
        );
        self.rejections();
    }

    /// The one counter without the label `engine`: it counts at the API server's door.
    fn rejections(&mut self) {
        let base: Labels<'_> = self
            .base
            .iter()
            .copied()
            .filter(|(l, _)| *l != "engine")
            .collect();
        let limits = ["max_num_queued_reqs", "max_num_queued_tokens"];
        let series = limits
            .iter()
            .map(|limit| (with(&base, "reason", limit), 0.0))
            .collect();
        self.page.counter(
            "vllm:admission_rejections",
            "Requests refused at the door.",
            series,
        );
    }

    fn token_histograms(&mut self, input: &PageInput<'_>) {
        let e = input.engine;
        self.histogram(
            "request_prompt_tokens",
            "Prompt length.",
            &e.request_prompt_tokens,
        );
        self.histogram(
            "request_generation_tokens",
            "Answer length.",
            &e.request_generation_tokens,
        );
        self.histogram(
            "iteration_tokens_total",
            "Tokens per step.",
            &e.iteration_tokens,
        );
        let longest = &e.request_max_num_generation_tokens;
        self.histogram(
            "request_max_num_generation_tokens",
            "Longest of a request's answers.",
            longest,
        );
        self.histogram("request_params_n", "Parameter n.", &e.request_params_n);
        self.histogram(
            "request_params_max_tokens",
            "Parameter max_tokens.",
            &e.request_params_max_tokens,
        );
    }

    fn time_histograms(&mut self, input: &PageInput<'_>) {
        let e = input.engine;
        self.histogram(
            "time_to_first_token_seconds",
            "Time to first token.",
            &e.time_to_first_token_s,
        );
        self.histogram(
            "inter_token_latency_seconds",
            "Gap between tokens.",
            &e.inter_token_latency_s,
        );
        let mean_gap = &e.request_time_per_output_token_s;
        self.histogram(
            "request_time_per_output_token_seconds",
            "Mean gap of a request.",
            mean_gap,
        );
        self.histogram(
            "e2e_request_latency_seconds",
            "Whole request.",
            &e.e2e_request_latency_s,
        );
        self.histogram(
            "request_queue_time_seconds",
            "Time waiting.",
            &e.request_queue_time_s,
        );
        self.histogram(
            "request_inference_time_seconds",
            "Time running.",
            &e.request_inference_time_s,
        );
        self.histogram(
            "request_prefill_time_seconds",
            "Time in prefill.",
            &e.request_prefill_time_s,
        );
        self.histogram(
            "request_decode_time_seconds",
            "Time in decode.",
            &e.request_decode_time_s,
        );
    }

    fn after_times(&mut self, input: &PageInput<'_>) {
        let e = input.engine;
        self.histogram(
            "request_num_preemptions",
            "Preemptions of a request.",
            &e.request_num_preemptions,
        );
        let computed = &e.request_prefill_kv_computed_tokens;
        self.histogram(
            "request_prefill_kv_computed_tokens",
            "Prompt tokens not cached.",
            computed,
        );
    }

    /// The cache's settings as labels; this family has no `model_name`.
    fn cache_config(&mut self, input: &PageInput<'_>) {
        let (settings, facts) = (input.settings, input.facts);
        let yes_no = |on: bool| if on { "True" } else { "False" }.to_owned();
        let optional = |n: Option<u64>| n.map_or_else(|| "None".to_owned(), |n| n.to_string());
        let tokens = u64::from(facts.num_gpu_blocks) * u64::from(settings.block_size);
        let concurrency = tokens as f64 / f64::from(facts.max_model_len);
        let block_size = settings.block_size.to_string();
        let values = [
            ("_block_size_resolved", yes_no(true)),
            ("block_size", block_size.clone()),
            ("cache_dtype", settings.kv_cache_dtype.clone()),
            ("effective_attention_block_size", block_size),
            (
                "enable_prefix_caching",
                yes_no(settings.enable_prefix_caching),
            ),
            (
                "gpu_memory_utilization",
                format!("{:?}", settings.gpu_memory_utilization),
            ),
            ("kv_cache_max_concurrency", format!("{concurrency:?}")),
            ("kv_cache_memory_bytes", facts.kv_cache_bytes.to_string()),
            ("kv_cache_size_tokens", tokens.to_string()),
            ("num_gpu_blocks", facts.num_gpu_blocks.to_string()),
            (
                "num_gpu_blocks_override",
                optional(settings.num_gpu_blocks_override.map(u64::from)),
            ),
        ];
        let mut labels: Labels<'_> = vec![("engine", "0")];
        labels.extend(CACHE_CONSTANTS);
        labels.extend(values.iter().map(|(name, value)| (*name, value.as_str())));
        self.page.gauge(
            "vllm:cache_config_info",
            "Settings of the KV cache.",
            vec![(labels, 1.0)],
        );
    }
}

/// Cache settings that the simulation does not have; the values are vLLM's defaults.
const CACHE_CONSTANTS: [(&str, &str); 25] = [
    ("cache_hit_alignment_tokens", "None"),
    ("enable_mamba_shared_prefix_checkpoint", "False"),
    ("hash_block_size", "None"),
    ("is_attention_free", "False"),
    ("kv_cache_dtype_skip_layers", "[]"),
    ("kv_cache_layout", "None"),
    ("kv_offloading_backend", "native"),
    ("kv_offloading_size", "None"),
    ("kv_sharing_fast_prefill", "False"),
    ("mamba_block_size", "None"),
    ("mamba_cache_dtype", "auto"),
    ("mamba_cache_mode", "none"),
    ("mamba_page_size_padded", "None"),
    ("mamba_ssm_cache_dtype", "float32"),
    ("num_cpu_blocks", "None"),
    ("prefix_cache_retention_interval", "0"),
    ("prefix_caching_hash_algo", "sha256"),
    ("prefix_match_unit", "None"),
    ("replayssm_buffer_len", "16"),
    ("skip_page_size_padded", "None"),
    ("sliding_window", "None"),
    ("swa_bounded_replay", "True"),
    ("use_kda_recoverssm", "False"),
    ("use_replayssm", "False"),
    ("user_specified_block_size", "False"),
];
