//! Options of `koi predict`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

/// Options of `koi predict`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("load").args(["rate", "concurrency", "batch_size", "offline"]))]
pub struct PredictArgs {
    /// A name of `koi model list`, or a config.json.
    #[arg(required_unless_present = "batch", conflicts_with = "batch")]
    pub model: Option<String>,
    /// GPU type.
    #[arg(
        long = "gpu",
        value_name = "TYPE",
        required_unless_present = "batch",
        conflicts_with = "batch"
    )]
    pub gpu_type: Option<String>,
    /// Tensor-parallel width.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024), allow_negative_numbers = true, value_name = "N", conflicts_with = "batch")]
    pub tp: u32,
    /// Pipeline stages.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256), allow_negative_numbers = true, value_name = "N", conflicts_with = "batch")]
    pub pp: u32,
    /// Spread experts over the tensor-parallel devices.
    #[arg(long, conflicts_with = "batch")]
    pub expert_parallel: bool,
    /// Equal replicas; the load is divided among them.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000), allow_negative_numbers = true, value_name = "N", conflicts_with = "batch")]
    pub replicas: u32,
    /// Engine: vllm, sglang or tensorrt-llm.
    #[arg(long, default_value = "vllm", conflicts_with = "batch")]
    pub engine: String,
    /// Version of the engine [default: the newest known].
    #[arg(long, conflicts_with = "batch")]
    pub engine_version: Option<String>,
    /// Number format of the weights [default: as published].
    #[arg(long, conflicts_with = "batch")]
    pub weight_dtype: Option<String>,
    /// Number format of the KV cache [default: the engine's].
    #[arg(long, conflicts_with = "batch")]
    pub kv_dtype: Option<String>,
    /// Any other setting of the engine, by its name in `koi catalog show`; may be repeated.
    #[arg(long = "set", value_name = "NAME=VALUE", conflicts_with = "batch")]
    pub settings: Vec<String>,
    /// Mean prompt length in tokens.
    #[arg(
        long,
        default_value_t = 1000.0,
        value_name = "TOKENS",
        allow_negative_numbers = true,
        conflicts_with = "batch"
    )]
    pub isl: f64,
    /// Mean answer length in tokens.
    #[arg(
        long,
        default_value_t = 200.0,
        value_name = "TOKENS",
        allow_negative_numbers = true,
        conflicts_with = "batch"
    )]
    pub osl: f64,
    /// Open load: requests per second [default: 1].
    #[arg(
        long,
        value_name = "RPS",
        allow_negative_numbers = true,
        conflicts_with = "batch"
    )]
    pub rate: Option<f64>,
    /// Closed load: requests kept in flight.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000), allow_negative_numbers = true, value_name = "N", conflicts_with = "batch")]
    pub concurrency: Option<u32>,
    /// One static batch of so many requests.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000), allow_negative_numbers = true, value_name = "N", conflicts_with = "batch")]
    pub batch_size: Option<u32>,
    /// A backlog that never ends: throughput alone counts.
    #[arg(long, conflicts_with = "batch")]
    pub offline: bool,
    /// USD per hour of one GPU [default: the lowest on-demand price in the catalog].
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub price: Option<f64>,
    /// More models by name: a TOML list of name and config file.
    #[arg(long, value_name = "FILE")]
    pub models: Option<PathBuf>,
    /// Measured points near the question: a CSV with the columns of the tidy table, or another file
    /// that `koi perf import` reads; a row of --batch never speaks for itself.
    #[arg(long, value_name = "FILE")]
    pub perf: Option<PathBuf>,
    /// Predict every row of a CSV with the columns of the tidy table; measured columns are not read.
    #[arg(long, value_name = "FILE", requires = "out")]
    pub batch: Option<PathBuf>,
    /// Where the predictions of --batch go, or `-` for standard output.
    #[arg(long, value_name = "FILE", requires = "batch")]
    pub out: Option<PathBuf>,
}
