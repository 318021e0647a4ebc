//! Options of `koi model`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use koi_core::model::{KvDtype, WeightDtype};

/// Questions about a model.
#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Size, cache, bytes and legal splits of a model, and where each number comes from.
    #[command(
        after_help = "Example:\n  koi model show config.json\n  koi model show llama-3.1-70b --tp 4 --kv-dtype fp8\n  koi model show ./checkpoint --hf-quant hf_quant_config.json -o json"
    )]
    Show(ShowArgs),
    /// Models whose shapes ship with Koi, by name.
    #[command(after_help = "Example:\n  koi model list\n  koi model list -o json")]
    List,
}

/// Options of `koi model show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// A config.json, a folder that holds one, `-` for standard input, or a name of `koi model list`.
    pub config: PathBuf,
    /// ModelOpt's side file [default: hf_quant_config.json beside the config, when it is there].
    #[arg(long, value_name = "FILE")]
    pub hf_quant: Option<PathBuf>,
    /// Tensor-parallel width of the bytes per GPU.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096), value_name = "N")]
    pub tp: u32,
    /// Pipeline stages of the bytes per GPU.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024), value_name = "N")]
    pub pp: u32,
    /// Format of the weights: auto, bf16, fp8 and so on.
    #[arg(long, default_value = "auto", value_parser = parse_weight_dtype, value_name = "DTYPE")]
    pub weight_dtype: WeightDtype,
    /// Format of the KV cache: auto, bf16 or fp8.
    #[arg(long, default_value = "auto", value_parser = parse_kv_dtype, value_name = "DTYPE")]
    pub kv_dtype: KvDtype,
    /// Also every number's source.
    #[arg(long)]
    pub sources: bool,
}

fn parse_weight_dtype(text: &str) -> Result<WeightDtype, String> {
    let names = WeightDtype::ALL.map(WeightDtype::name).join(", ");
    WeightDtype::from_name(text).ok_or_else(|| format!("write one of {names}"))
}

fn parse_kv_dtype(text: &str) -> Result<KvDtype, String> {
    let names = KvDtype::ALL.map(KvDtype::name).join(", ");
    KvDtype::from_name(text).ok_or_else(|| format!("write one of {names}"))
}
