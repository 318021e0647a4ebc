//! Pools against engine start-up logs, and models whose layers forget.

use super::*;
use crate::catalog::Catalog;
use crate::model::tests_support::{read, shared};

/// The value of a log's first line that holds `mark`, after it.
fn after<'a>(log: &'a str, mark: &str) -> &'a str {
    let at = log
        .find(mark)
        .unwrap_or_else(|| panic!("{mark} is not in the log"));
    log[at + mark.len()..].trim_start()
}

/// The number at the beginning of a text, thousands separated by commas.
fn number(text: &str) -> f64 {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
    let digits = text[..end.unwrap_or(text.len())].replace(',', "");
    digits.trim_end_matches('.').parse().unwrap()
}

fn check(what: &str, got: f64, want: f64, allowed_fraction: f64) {
    let off = got / want - 1.0;
    eprintln!(
        "{what}: predicted {got:.0}, log {want:.0}, off {:+.2} %",
        off * 100.0
    );
    assert!(off.abs() <= allowed_fraction, "{what}: {got}, log {want}");
}

fn dense(
    layers: u32,
    hidden: u32,
    heads: (u32, u32),
    mlp: u32,
    vocab: u32,
    kind: &str,
) -> ModelFacts {
    let config = serde_json::json!({
        "model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden,
        "num_attention_heads": heads.0, "num_key_value_heads": heads.1,
        "intermediate_size": mlp, "vocab_size": vocab, "max_position_embeddings": 32_768,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    });
    ModelFacts::from_config_json(&config.to_string()).unwrap()
}

#[test]
fn qwen_32b_on_h100_has_the_pool_of_the_log() {
    let Some(path) = shared("data/engine_logs/vllm_h100_smoke_engine.log") else {
        return;
    };
    let log = read(&path);
    // Qwen2.5-32B's published shape.
    let model = dense(64, 5120, (40, 8), 27_648, 152_064, "qwen2");
    let gpu = Catalog::embedded().gpu_type("H100").unwrap();
    let weights = number(after(&log, "Checkpoint size: ")) * (1_u64 << 30) as f64;
    let ours = model.weight_bytes(crate::model::WeightDtype::Auto) as f64;
    check("checkpoint bytes", ours, weights, 2e-4);
    let shape = EngineShape {
        max_num_batched_tokens: number(after(&log, "max_num_batched_tokens=")) as u32,
        // Defaults of this engine version on this device, which the log does not repeat; the device
        // counters of the same run (inferscope) show 93 % in use, context included.
        gpu_memory_utilization: 0.92,
        max_num_seqs: 1024,
        max_model_len: Some(number(after(&log, "Using max model len ")) as u32),
        enforce_eager: true,
        ..EngineShape::default()
    };
    let memory = MemoryBreakdown::of(&model, gpu, &shape);
    assert!(memory.fits());
    let tokens = number(after(&log, "GPU KV cache size: "));
    check("blocks", memory.kv_pool_tokens / 16.0, tokens / 16.0, 0.1);
    // With the log's own pool the block count is the log's, up to the rounding of the log.
    let pool = number(after(&log, "Available KV cache memory: ")) * (1_u64 << 30) as f64;
    let blocks = pool / (memory.kv_bytes_per_token * 16.0);
    check("blocks of the log's pool", blocks, tokens / 16.0, 1e-3);
}

#[test]
fn llama_13b_on_a_64_gb_device_has_the_blocks_of_the_log() {
    let name = "vllm_v0_bsc_background_llama-2-13b__128__server_out_head400.log";
    let Some(path) = shared(&format!("data/engine_logs/{name}")) else {
        return;
    };
    let log = read(&path);
    // Llama 2 13B's published shape.
    let model = dense(40, 5120, (40, 40), 13_824, 32_000, "llama");
    let gib = (1_u64 << 30) as f64;
    let gpu = GpuType {
        memory_bytes: number(after(&log, "total_gpu_memory=")) * gib,
        ..Catalog::embedded().gpu_type("H100").unwrap().clone()
    };
    // "GB" in this version is GiB, allocator rounding included.
    let loaded = number(after(&log, "Loading model weights took ")) * gib;
    let ours = model.weight_bytes(crate::model::WeightDtype::Auto) as f64;
    check("loaded bytes", ours, loaded, 3e-3);
    let shape = EngineShape {
        max_num_batched_tokens: 2048,
        max_num_seqs: number(after(&log, "max_num_seqs=")) as u32,
        max_model_len: Some(number(after(&log, "max_model_len=")) as u32),
        gpu_memory_utilization: number(after(&log, "gpu_memory_utilization=")),
        chunked_prefill: false,
        ..EngineShape::default()
    };
    let memory = MemoryBreakdown::of(&model, &gpu, &shape);
    let blocks = number(after(&log, "# GPU blocks: "));
    check("blocks", memory.kv_pool_tokens / 16.0, blocks, 0.1);
    let pool = number(after(&log, "kv_cache_size=")) * gib;
    let of_pool = pool / (memory.kv_bytes_per_token * 16.0);
    check("blocks of the log's pool", of_pool, blocks, 1e-3);
}

#[test]
fn layers_that_forget_let_more_long_sequences_in() {
    let config = serde_json::json!({
        "model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
        "intermediate_size": 2880, "vocab_size": 201_088, "max_position_embeddings": 131_072,
        "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
        "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "mxfp4"},
    });
    let model = ModelFacts::from_config_json(&config.to_string()).unwrap();
    let gpu = Catalog::embedded().gpu_type("H100").unwrap();
    let memory = MemoryBreakdown::of(&model, gpu, &EngineShape::default());
    // 24 layers · 2 · 8 · 64 · 2 bytes; half of them keep 128 tokens.
    assert!((memory.kv_bytes_per_token - 49_152.0).abs() < 1e-6);
    let long = 24_576.0 * 100_000.0 + 24_576.0 * 128.0;
    assert!((memory.cache.bytes(100_000.0) - long).abs() < 1e-3);
    assert!(memory.pool_tokens_at(100_000.0) > 1.9 * memory.kv_pool_tokens);
    assert!(memory.pool_tokens_at(128.0) < 1.01 * memory.kv_pool_tokens + 16.0);
    assert!(memory.fits());
}
