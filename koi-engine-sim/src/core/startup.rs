//! The engine's start: the checks that vLLM makes, in its order and nearly its words, and phases
//! that take as long as there are weights to load.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use koi_sim::engine::{EngineConfig, EngineSim};
use koi_sim::memory::{Sharding, kv_bytes_per_token, overhead_bytes, weight_bytes_per_device};
use koi_sim::model::{Precision, SimModel, precision_of_method};
use koi_sim::truth::{Switches, Truth, TruthInput};

use crate::arguments::ServeSettings;
use crate::clock::wall_clock;
use crate::frame::ReadyFacts;
use crate::gpu_folder::{DeviceActivity, GpuFolder};
use crate::log::{Speaker, log};

/// Bytes each device loads per second: an 8B model in half precision takes 4 s, a 70B over four
/// devices 8 s.
const DEFAULT_LOAD_BYTES_PER_SECOND: f64 = 4.8e9;
const PROFILE_TIME: Duration = Duration::from_millis(350);
const CAPTURE_TIME: Duration = Duration::from_millis(350);
const GIB: f64 = (1_u64 << 30) as f64;
/// From this memory on vLLM's server defaults to larger batches, except on the A100.
const LARGE_MEMORY_BYTES: u64 = 70 << 30;

/// A started engine.
pub(crate) struct Core {
    pub(crate) engine: EngineSim,
    pub(crate) folder: GpuFolder,
    pub(crate) memory_bytes: u64,
    pub(crate) facts: ReadyFacts,
}

/// The budget of the fullest device.
struct Budget {
    weights: u64,
    overhead: u64,
    kv_cache: u64,
}

fn info(message: &str) {
    log(Speaker::EngineCore, "INFO", message);
}

/// Starts an engine; the error's text is what an operator finds at the end of the log.
pub(crate) fn start(settings: &ServeSettings) -> anyhow::Result<Core> {
    info("Initializing a V1 LLM engine (v0.32.0+sim)");
    let model = read_model(&settings.model_dir)?;
    let cut = Sharding {
        tensor: settings.tensor_parallel_size,
        pipeline: settings.pipeline_parallel_size,
    };
    check_cut(&model, cut, settings.data_parallel_size)?;
    let precision = precision(settings, &model)?;
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let root = std::env::var_os("KOI_SIM_GPU_DIR").map(Into::into);
    let folder = GpuFolder::open(root, visible.as_deref(), cut.n_devices() as usize)?;
    let config = engine_config(settings, &model, &folder);
    let truth = Truth::new(&TruthInput {
        gpu_type: &folder.inventory.gpu_type,
        environment: &folder.inventory.environment,
        model: &model,
        precision,
        kv_value_bytes: kv_value_bytes(settings),
        cut,
        switches: Switches {
            eager: settings.enforce_eager,
            expert_parallel: settings.enable_expert_parallel,
            async_scheduling: settings.async_scheduling,
            custom_all_reduce: !settings.disable_custom_all_reduce,
        },
    })?;
    let weights = weight_bytes_per_device(&model, precision, cut);
    let batch = config.max_num_batched_tokens;
    let overhead = overhead_bytes(&model, batch, cut, settings.enforce_eager);
    let budget = budget(settings, &folder, weights, overhead)?;
    load_weights(&folder, weights)?;
    let kv_bytes_per_token = kv_bytes_per_token(&model, kv_value_bytes(settings), cut);
    let config = with_blocks(config, settings, &budget, kv_bytes_per_token)?;
    finish(settings, folder, EngineSim::new(config, truth)?, &budget)
}

fn read_model(model_dir: &str) -> anyhow::Result<SimModel> {
    let path = Path::new(model_dir).join("config.json");
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!(
            "Can't load the configuration of '{model_dir}': {}",
            path.display()
        )
    })?;
    SimModel::from_config_json(&text).map_err(|error| anyhow!("ValueError: {error}"))
}

fn check_cut(model: &SimModel, cut: Sharding, data_parallel: u32) -> anyhow::Result<()> {
    ensure!(
        model.heads.is_multiple_of(cut.tensor),
        "ValueError: Total number of attention heads ({}) must be divisible by tensor parallel size ({}).",
        model.heads,
        cut.tensor
    );
    ensure!(
        cut.pipeline <= model.layers,
        "ValueError: pipeline parallel size ({}) is larger than the number of layers ({}).",
        cut.pipeline,
        model.layers
    );
    ensure!(
        data_parallel == 1,
        "NotImplementedError: the simulated engine has no data parallelism of its own; start {data_parallel} engines."
    );
    Ok(())
}

fn precision(settings: &ServeSettings, model: &SimModel) -> anyhow::Result<Precision> {
    if let Some(method) = &settings.quantization {
        return precision_of_method(method)
            .ok_or_else(|| anyhow!("ValueError: Unknown quantization method: {method}."));
    }
    let quantized = matches!(model.precision, Precision::Eight | Precision::Four);
    Ok(match settings.dtype.as_str() {
        "float32" | "float" if !quantized => Precision::Float32,
        "half" | "float16" | "bfloat16" if !quantized => Precision::Half,
        // "auto" serves 32-bit checkpoints in half precision, as vLLM does.
        "auto" if model.precision == Precision::Float32 => Precision::Half,
        _ => model.precision,
    })
}

fn kv_value_bytes(settings: &ServeSettings) -> f64 {
    match settings.kv_cache_dtype.as_str() {
        dtype if dtype.starts_with("fp8") => 1.0,
        "auto" if matches!(settings.dtype.as_str(), "float32" | "float") => 4.0,
        _ => 2.0,
    }
}

fn engine_config(settings: &ServeSettings, model: &SimModel, folder: &GpuFolder) -> EngineConfig {
    let large = folder
        .devices
        .iter()
        .all(|gpu| gpu.memory_bytes >= LARGE_MEMORY_BYTES)
        && !folder.inventory.gpu_type.to_uppercase().contains("A100");
    let (batched_tokens, seqs) = if large { (8192, 1024) } else { (2048, 256) };
    let max_model_len = settings.max_model_len.unwrap_or(model.max_positions);
    let whole_prompts = if settings.enable_chunked_prefill {
        0
    } else {
        max_model_len
    };
    let batched_tokens = batched_tokens.max(whole_prompts);
    EngineConfig {
        n_blocks: 0,
        block_size: settings.block_size,
        max_num_seqs: settings.max_num_seqs.unwrap_or(seqs),
        max_num_batched_tokens: settings.max_num_batched_tokens.unwrap_or(batched_tokens),
        max_model_len,
        long_prefill_token_threshold: settings.long_prefill_token_threshold,
        prefix_caching: settings.enable_prefix_caching,
        chunked_prefill: settings.enable_chunked_prefill,
        seed: settings.seed ^ u64::from(std::process::id()),
    }
}

/// What each device has for weights, work and cache.
fn budget(
    settings: &ServeSettings,
    folder: &GpuFolder,
    weights: u64,
    overhead: u64,
) -> anyhow::Result<Budget> {
    let mut smallest = u64::MAX;
    for (index, gpu) in folder.devices.iter().enumerate() {
        let free = gpu
            .memory_bytes
            .saturating_sub(folder.held_by_others(&gpu.uuid));
        let (total_gib, free_gib) = (gpu.memory_bytes as f64 / GIB, free as f64 / GIB);
        let wanted = gpu.memory_bytes as f64 * settings.gpu_memory_utilization;
        ensure!(
            free as f64 >= wanted,
            "ValueError: Free memory on device cuda:{index} ({free_gib:.2}/{total_gib:.2} GiB) on startup is less than desired GPU memory utilization ({}, {:.2} GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
            settings.gpu_memory_utilization,
            wanted / GIB
        );
        ensure!(
            weights < free,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {:.2} GiB. GPU {index} has a total capacity of {total_gib:.2} GiB of which {free_gib:.2} GiB is free.",
            weights as f64 / GIB
        );
        smallest = smallest.min(wanted as u64);
    }
    let left = smallest.saturating_sub(weights).saturating_sub(overhead);
    let kv_cache = settings.kv_cache_memory_bytes.unwrap_or(left);
    if left == 0 || kv_cache > left {
        bail!(
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."
        );
    }
    Ok(Budget {
        weights,
        overhead,
        kv_cache,
    })
}

fn load_weights(folder: &GpuFolder, weights: u64) -> anyhow::Result<()> {
    const PARTS: u32 = 4;
    let rate = load_rate(std::env::var("KOI_SIM_LOAD_BYTES_PER_SEC").ok().as_deref())?;
    info(&format!(
        "Starting to load model ({:.2} GiB per device)...",
        weights as f64 / GIB
    ));
    let seconds = weights as f64 / rate;
    // Before the first holder: until now readers added the idle power themselves.
    folder.add_to_counters(wall_clock(), &DeviceActivity::default())?;
    for part in 1..=PARTS {
        sleep(Duration::from_secs_f64(seconds / f64::from(PARTS)));
        let held = weights / u64::from(PARTS) * u64::from(part);
        folder.write_holders(held, &DeviceActivity::default())?;
        info(&format!(
            "Loading safetensors checkpoint shards: {}% Completed",
            100 / PARTS * part
        ));
    }
    info(&format!(
        "Model loading took {:.2} GiB memory and {seconds:.2} seconds",
        weights as f64 / GIB
    ));
    Ok(())
}

fn load_rate(text: Option<&str>) -> anyhow::Result<f64> {
    let Some(text) = text else {
        return Ok(DEFAULT_LOAD_BYTES_PER_SECOND);
    };
    let rate = text
        .parse::<f64>()
        .ok()
        .filter(|rate| *rate >= 1e6 && rate.is_finite());
    rate.ok_or_else(|| anyhow!("KOI_SIM_LOAD_BYTES_PER_SEC must be a number of at least 1e6"))
}

fn with_blocks(
    config: EngineConfig,
    settings: &ServeSettings,
    budget: &Budget,
    kv_bytes_per_token: f64,
) -> anyhow::Result<EngineConfig> {
    sleep(PROFILE_TIME);
    let tokens = budget.kv_cache as f64 / kv_bytes_per_token;
    let fitting = (tokens / f64::from(config.block_size)).min(f64::from(u32::MAX)) as u32;
    let needed = f64::from(config.max_model_len) * kv_bytes_per_token;
    let n_blocks = settings.num_gpu_blocks_override.unwrap_or(fitting);
    let capacity = u64::from(n_blocks.saturating_sub(1)) * u64::from(config.block_size);
    ensure!(
        capacity >= u64::from(config.max_model_len),
        "ValueError: To serve at least one request with the models's max seq len ({}), ({:.2} GiB KV cache is needed, which is larger than the available KV cache memory ({:.2} GiB). Based on the available memory, the estimated maximum model length is {capacity}. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
        config.max_model_len,
        needed / GIB,
        budget.kv_cache as f64 / GIB
    );
    info(&format!(
        "Available KV cache memory: {:.2} GiB",
        budget.kv_cache as f64 / GIB
    ));
    let kv_tokens = u64::from(n_blocks) * u64::from(config.block_size);
    let concurrency = kv_tokens as f64 / f64::from(config.max_model_len);
    info(&format!(
        "GPU KV cache size: {kv_tokens} tokens, Maximum concurrency for {} tokens per request: {concurrency:.2}x",
        config.max_model_len
    ));
    Ok(EngineConfig { n_blocks, ..config })
}

fn finish(
    settings: &ServeSettings,
    folder: GpuFolder,
    engine: EngineSim,
    budget: &Budget,
) -> anyhow::Result<Core> {
    let memory_bytes = budget.weights + budget.overhead + budget.kv_cache;
    folder.write_holders(memory_bytes, &DeviceActivity::default())?;
    if !settings.enforce_eager {
        sleep(CAPTURE_TIME);
        info("Graph capturing finished");
    }
    info(&format!(
        "peak activation memory {:.2} GiB",
        budget.overhead as f64 / GIB
    ));
    let facts = ReadyFacts {
        max_model_len: engine.config().max_model_len,
        num_gpu_blocks: engine.config().n_blocks,
        kv_cache_bytes: budget.kv_cache,
    };
    Ok(Core {
        engine,
        folder,
        memory_bytes,
        facts,
    })
}
