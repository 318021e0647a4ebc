//! Options of `koi perf`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use koi_core::performance::import::{Format, Given};

/// Actions on measured performance.
#[derive(Debug, Subcommand)]
pub enum PerfCommand {
    /// Read benchmark files and store their rows on the server; what is there already stays.
    #[command(
        after_help = "Example:\n  koi perf import perf_tidy.csv\n  koi perf import bench.json --gpu H100 --tp 2 --engine-version 0.11.0\n  koi perf import guidellm.json --gpu L40S --tp 4 --engine vllm --dry-run"
    )]
    Import(ImportArgs),
    /// Sources and how many rows each has.
    #[command(after_help = "Example:\n  koi perf sources -o json")]
    Sources,
    /// List rows.
    #[command(after_help = "Example:\n  koi perf list --model llama-3.1-8b --limit 50")]
    List(ListArgs),
}

/// Formats on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileFormat {
    /// CSV with the columns of the tidy table.
    Tidy,
    /// CSV of InferenceX points as aiconfigurator publishes them.
    Silicon,
    /// JSON of `vllm bench serve --save-result`.
    VllmBench,
    /// GuideLLM report in JSON.
    Guidellm,
}

impl From<FileFormat> for Format {
    fn from(format: FileFormat) -> Self {
        match format {
            FileFormat::Tidy => Self::Tidy,
            FileFormat::Silicon => Self::Silicon,
            FileFormat::VllmBench => Self::VllmBench,
            FileFormat::Guidellm => Self::Guidellm,
        }
    }
}

/// Options of `koi perf import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Benchmark files, or `-` for standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Format [default: seen from the file].
    #[arg(long, value_enum)]
    pub format: Option<FileFormat>,
    /// Check everything here and on the server, store nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Who measured, instead of what the file says.
    #[arg(long)]
    pub source: Option<String>,
    /// Model, instead of what the file says.
    #[arg(long)]
    pub model: Option<String>,
    /// GPU type, where the file does not say it.
    #[arg(long = "gpu", value_name = "TYPE")]
    pub gpu_type: Option<String>,
    /// Devices of one deployment [default: tp · pp].
    #[arg(long, value_name = "N")]
    pub n_gpus: Option<u32>,
    /// Tensor-parallel width, where the file does not say it.
    #[arg(long, value_name = "N")]
    pub tp: Option<u32>,
    /// Pipeline stages, where the file does not say it.
    #[arg(long, value_name = "N")]
    pub pp: Option<u32>,
    /// Expert-parallel width, where the file does not say it.
    #[arg(long, value_name = "N")]
    pub ep: Option<u32>,
    /// Engine, where the file does not say it.
    #[arg(long)]
    pub engine: Option<String>,
    /// Version of the engine, where the file does not say it.
    #[arg(long)]
    pub engine_version: Option<String>,
    /// Number format of the weights, where the file does not say it.
    #[arg(long)]
    pub weight_dtype: Option<String>,
    /// Number format of the KV cache, where the file does not say it.
    #[arg(long)]
    pub kv_dtype: Option<String>,
}

impl ImportArgs {
    /// What the person says about the deployment.
    #[must_use]
    pub fn given(&self) -> Given {
        Given {
            source: self.source.clone(),
            model: self.model.clone(),
            gpu_type: self.gpu_type.clone(),
            n_gpus: self.n_gpus,
            tp: self.tp,
            pp: self.pp,
            ep: self.ep,
            engine: self.engine.clone(),
            engine_version: self.engine_version.clone(),
            weight_dtype: self.weight_dtype.clone(),
            kv_dtype: self.kv_dtype.clone(),
        }
    }
}

/// Options of `koi perf list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only this source.
    #[arg(long)]
    pub source: Option<String>,
    /// Only this model, as the source writes it.
    #[arg(long)]
    pub model: Option<String>,
    /// Only this GPU type, as the source writes it.
    #[arg(long = "gpu", value_name = "TYPE")]
    pub gpu_type: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000), value_name = "N")]
    pub limit: u32,
}
