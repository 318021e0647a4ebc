//! Options of `koi catalog`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Actions on the catalog; none needs a server.
#[derive(Debug, Subcommand)]
pub enum CatalogCommand {
    /// Print a table of the catalog, or everything about one row.
    #[command(
        after_help = "Example:\n  koi catalog show gpus\n  koi catalog show max_num_seqs\n  koi catalog show flags --engine vllm --engine-version 0.9.2\n  koi catalog show prices --cloud aws -o json"
    )]
    Show(CatalogShow),
    /// Check a catalog: every problem at once, with file and row.
    #[command(
        after_help = "Example:\n  koi catalog check\n  koi catalog check configs --prices contract.toml"
    )]
    Check(CatalogCheck),
    /// What differs between two catalogs, row by row.
    #[command(after_help = "Example:\n  koi catalog diff embedded configs/catalog")]
    Diff(CatalogDiff),
}

/// Options of `koi catalog show`.
#[derive(Debug, Args)]
pub struct CatalogShow {
    /// features, context, mediators, outcomes, gpus, instances, prices, flags, metrics, edges,
    /// mechanisms, or the name of a row [default: how much there is of each].
    #[arg(value_name = "TABLE|ROW")]
    pub what: Option<String>,
    /// Folder of another catalog [default: the one compiled in].
    #[arg(long, value_name = "DIR")]
    pub catalog: Option<PathBuf>,
    /// Prices and discounts over the list.
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// Flags and metrics: of this engine only.
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    /// Flags and metrics: of this version only.
    #[arg(long, requires = "engine", value_name = "VERSION")]
    pub engine_version: Option<String>,
    /// Instances and prices: of this cloud only.
    #[arg(long, value_name = "NAME")]
    pub cloud: Option<String>,
}

/// Options of `koi catalog check`.
#[derive(Debug, Args)]
pub struct CatalogCheck {
    /// Folder of the catalog, or one that holds `catalog` and `prices` [default: what is compiled
    /// in].
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Prices and discounts over the list.
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// Prices older than this are reported as stale.
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(i64).range(0..=36_500), value_name = "DAYS")]
    pub max_age_days: i64,
    /// Day against which age is counted [default: today].
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub as_of: Option<String>,
    /// Fail on flagged prices too: stale ones, those far from the list, and those of places that
    /// nothing else is in.
    #[arg(long)]
    pub strict: bool,
}

/// Options of `koi catalog diff`.
#[derive(Debug, Args)]
pub struct CatalogDiff {
    /// Folder of a catalog, or `embedded`.
    pub before: PathBuf,
    /// Folder of a catalog, or `embedded`.
    pub after: PathBuf,
}
