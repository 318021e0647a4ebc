//! A tiny engine of known state that writes metrics pages, for tests of the scrape path.

use std::fmt::Write as _;

use crate::gpu::GpuReading;
use crate::ids::ReplicaId;
use crate::telemetry::engine_metrics::{EnginePage, is_wanted};
use crate::telemetry::metrics_text::parse_selected;
use crate::telemetry::window::{Reading, Window, WindowBuilder};
use crate::time::UtcMicros;

pub(crate) const MODEL: &str = "m";
pub(crate) const TTFT_EDGES: [f64; 4] = [0.1, 0.2, 0.4, 0.8];

/// What a steady engine does in every second and to every request.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    pub(crate) requests_per_second: f64,
    pub(crate) prompt_tokens: u64,
    pub(crate) output_tokens: u64,
    /// Prompt tokens of a request that the prefix cache had.
    pub(crate) cached_tokens: f64,
    pub(crate) steps_per_second: f64,
    pub(crate) prefill_seconds: f64,
    pub(crate) decode_seconds: f64,
    /// Times to first token, one per request, over and over.
    pub(crate) ttft: Vec<f64>,
    /// Times per output token, likewise.
    pub(crate) tpot: Vec<f64>,
    /// Bytes that each device sends in a second.
    pub(crate) nvlink_bytes_per_second: f64,
}

impl Default for Flow {
    /// 20 requests of 200 + 100 tokens and 50 steps a second; one in a hundred starts late.
    fn default() -> Self {
        let mut ttft = vec![0.15; 99];
        ttft.push(0.3);
        Self {
            requests_per_second: 20.0,
            prompt_tokens: 200,
            output_tokens: 100,
            cached_tokens: 50.0,
            steps_per_second: 50.0,
            prefill_seconds: 0.1,
            decode_seconds: 0.4,
            ttft,
            tpot: vec![0.015],
            nvlink_bytes_per_second: 6e6,
        }
    }
}

/// Cumulative state of one engine and its GPUs.
#[derive(Debug, Clone)]
pub(crate) struct TestEngine {
    pub(crate) second: f64,
    pub(crate) started: f64,
    pub(crate) prompt_tokens: u64,
    pub(crate) generation_tokens: u64,
    pub(crate) cache_queries: u64,
    pub(crate) cache_hits: u64,
    pub(crate) iterations: u64,
    pub(crate) running: f64,
    pub(crate) waiting: f64,
    pub(crate) kv_usage: f64,
    pub(crate) kv_blocks: u64,
    pub(crate) ttft: Vec<f64>,
    pub(crate) tpot: Vec<f64>,
    pub(crate) tpot_metric: &'static str,
    pub(crate) prefill_seconds: Vec<f64>,
    pub(crate) decode_seconds: Vec<f64>,
    pub(crate) prompt_lengths: Vec<f64>,
    pub(crate) output_lengths: Vec<f64>,
    pub(crate) gpus: Vec<GpuReading>,
    pub(crate) flow: Flow,
    pub(crate) ttft_edges: Vec<f64>,
    pub(crate) tpot_edges: Vec<f64>,
}

impl TestEngine {
    pub(crate) fn new(gpus: usize) -> Self {
        let gpu = |i| GpuReading {
            uuid: format!("GPU-{i}"),
            memory_used_bytes: Some(70_000_000_000),
            energy_millijoules: Some(1_000_000),
            nvlink_tx_bytes: Some(0),
            pcie_tx_bytes: Some(0),
            tensor_active_fraction: Some(0.5),
            memory_bandwidth_fraction: Some(0.25),
            ..GpuReading::default()
        };
        Self {
            second: 0.0,
            started: 1.7e9,
            prompt_tokens: 0,
            generation_tokens: 0,
            cache_queries: 0,
            cache_hits: 0,
            iterations: 0,
            running: 0.0,
            waiting: 0.0,
            kv_usage: 0.0,
            kv_blocks: 1000,
            ttft: Vec::new(),
            tpot: Vec::new(),
            tpot_metric: "request_time_per_output_token_seconds",
            prefill_seconds: Vec::new(),
            decode_seconds: Vec::new(),
            prompt_lengths: Vec::new(),
            output_lengths: Vec::new(),
            gpus: (0..gpus).map(gpu).collect(),
            flow: Flow::default(),
            ttft_edges: TTFT_EDGES.to_vec(),
            tpot_edges: vec![0.01, 0.02, 0.04],
        }
    }

    /// The page as the engine would serve it.
    pub(crate) fn page(&self) -> String {
        let mut text = format!("process_start_time_seconds {}\n", self.started);
        let labels = format!("engine=\"0\",model_name=\"{MODEL}\"");
        let mut line = |name: &str, value: f64| {
            writeln!(text, "vllm:{name}{{{labels}}} {value}").expect("a string takes all");
        };
        line("prompt_tokens_total", self.prompt_tokens as f64);
        line("generation_tokens_total", self.generation_tokens as f64);
        line("prefix_cache_queries_total", self.cache_queries as f64);
        line("prefix_cache_hits_total", self.cache_hits as f64);
        line("iteration_tokens_total_count", self.iterations as f64);
        line("num_preemptions_total", 0.0);
        line("num_requests_running", self.running);
        line("num_requests_waiting", self.waiting);
        line("kv_cache_usage_perc", self.kv_usage);
        writeln!(
            text,
            "vllm:cache_config_info{{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"{}\"}} 1",
            self.kv_blocks
        )
        .expect("a string takes all");
        let length_edges = [100.0, 1000.0];
        let histograms: [(&str, &[f64], &[f64]); 8] = [
            ("time_to_first_token_seconds", &self.ttft, &self.ttft_edges),
            (self.tpot_metric, &self.tpot, &self.tpot_edges),
            (
                "request_prefill_time_seconds",
                &self.prefill_seconds,
                &[1.0],
            ),
            ("request_decode_time_seconds", &self.decode_seconds, &[1.0]),
            ("e2e_request_latency_seconds", &self.ttft, &[1.0]),
            ("request_queue_time_seconds", &self.ttft, &[1.0]),
            ("request_prompt_tokens", &self.prompt_lengths, &length_edges),
            (
                "request_generation_tokens",
                &self.output_lengths,
                &length_edges,
            ),
        ];
        for (name, values, edges) in histograms {
            for edge in edges.iter().copied().chain([f64::INFINITY]) {
                let below = values.iter().filter(|v| **v <= edge).count();
                let le = if edge.is_finite() {
                    edge.to_string()
                } else {
                    "+Inf".to_owned()
                };
                writeln!(text, "vllm:{name}_bucket{{{labels},le=\"{le}\"}} {below}")
                    .expect("a string takes all");
            }
            let sum: f64 = values.iter().sum();
            writeln!(
                text,
                "vllm:{name}_sum{{{labels}}} {sum}\nvllm:{name}_count{{{labels}}} {}",
                values.len()
            )
            .expect("a string takes all");
        }
        text
    }

    /// A scrape at the engine's present second.
    pub(crate) fn scrape(&self) -> Reading {
        let micros = (self.second * 1e6) as u64;
        Reading {
            at: UtcMicros(1_800_000_000_000_000 + micros as i64),
            monotonic_micros: 5_000_000 + micros,
            page: EnginePage::from_page(&parse_selected(self.page().as_bytes(), is_wanted)),
            gpus: self.gpus.clone(),
        }
    }

    /// `seconds` of steady work.
    pub(crate) fn work(&mut self, seconds: f64) {
        let flow = self.flow.clone();
        let requests = (flow.requests_per_second * seconds) as usize;
        self.second += seconds;
        let grown = |per_second: f64| (per_second * seconds).round() as u64;
        let whole = requests as u64;
        self.prompt_tokens += flow.prompt_tokens * whole;
        self.cache_queries += flow.prompt_tokens * whole;
        self.cache_hits += (flow.cached_tokens * requests as f64).round() as u64;
        self.generation_tokens += flow.output_tokens * whole;
        self.iterations += grown(flow.steps_per_second);
        let in_turn = |values: &[f64], done: usize| -> Vec<f64> {
            let nth = |i| values[(done + i) % values.len()];
            (0..requests).map(nth).collect()
        };
        let done = self.prefill_seconds.len();
        self.ttft.extend(in_turn(&flow.ttft, done));
        self.tpot.extend(in_turn(&flow.tpot, done));
        let again = |value: f64| std::iter::repeat_n(value, requests);
        self.prefill_seconds.extend(again(flow.prefill_seconds));
        self.decode_seconds.extend(again(flow.decode_seconds));
        self.prompt_lengths.extend(again(flow.prompt_tokens as f64));
        self.output_lengths.extend(again(flow.output_tokens as f64));
        for gpu in &mut self.gpus {
            let energy = gpu.energy_millijoules.as_mut();
            energy.into_iter().for_each(|e| *e += grown(300_000.0));
            let sent = gpu.nvlink_tx_bytes.as_mut();
            sent.into_iter()
                .for_each(|b| *b += grown(flow.nvlink_bytes_per_second));
        }
    }
}

pub(crate) fn replica(index: u32) -> ReplicaId {
    format!("chat.g1.r0.{index}").parse().expect("a replica id")
}

pub(crate) fn builder(index: u32) -> WindowBuilder {
    WindowBuilder::new(replica(index), MODEL.to_owned())
}

/// Scrapes every 5 s for `seconds` of steady work.
pub(crate) fn steady_windows(
    builder: &mut WindowBuilder,
    engine: &mut TestEngine,
    seconds: u32,
) -> Vec<Window> {
    let mut windows: Vec<Window> = builder.push(&engine.scrape()).into_iter().collect();
    for _ in 0..seconds / 5 {
        engine.work(5.0);
        windows.extend(builder.push(&engine.scrape()));
    }
    windows
}
