//! Options of `koi prices`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

/// Actions on the server's prices.
#[derive(Debug, Subcommand)]
pub enum PricesCommand {
    /// Prices that hold, with where each comes from and what is doubtful about it.
    #[command(
        after_help = "Example:\n  koi prices list --cloud aws --market spot\n  koi prices list --origin feed -o json"
    )]
    List(PricesList),
    /// Send prices to the server's feed: stored together or not at all, used by the next tick.
    #[command(
        after_help = "Example:\n  koi prices update contract.toml --dry-run\n  koi prices update spot.csv --source 'AWS spot history' --date 2026-11-30"
    )]
    Update(PricesUpdate),
    /// Take prices out of the server's feed; the next tick plans without them. List and overlay stay.
    #[command(
        after_help = "Example:\n  koi prices remove --cloud aws --instance p5.48xlagre --reason 'mistyped' --dry-run\n  koi prices remove --all --reason 'a new feed'"
    )]
    Remove(PricesRemove),
}

/// Layers of prices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Layer {
    /// The list compiled into the server.
    List,
    /// The server's overlay file.
    Overlay,
    /// The feed.
    Feed,
}

/// The parts of a price's key; each that is given narrows which prices are meant.
#[derive(Debug, Args)]
pub struct PriceScope {
    /// Of this cloud only.
    #[arg(long, value_name = "NAME")]
    pub cloud: Option<String>,
    /// Of this region only.
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// Of this market only: reserved, on_demand or spot.
    #[arg(long, value_name = "NAME")]
    pub market: Option<String>,
    /// Of this machine only.
    #[arg(long, value_name = "NAME")]
    pub instance: Option<String>,
}

/// Options of `koi prices list`.
#[derive(Debug, Args)]
pub struct PricesList {
    /// Which prices.
    #[command(flatten)]
    pub scope: PriceScope,
    /// From this layer only.
    #[arg(long, value_enum)]
    pub origin: Option<Layer>,
    /// At most so many.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=200_000), value_name = "N")]
    pub limit: u32,
}

/// Options of `koi prices remove`; the parts of the key narrow what is taken out.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").args(["cloud", "region", "market", "instance", "all"]).required(true).multiple(true))]
pub struct PricesRemove {
    /// Which prices.
    #[command(flatten)]
    pub scope: PriceScope,
    /// The whole feed.
    #[arg(long, conflicts_with_all = ["cloud", "region", "market", "instance"])]
    pub all: bool,
    /// Why, for the audit trail.
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub reason: String,
    /// Count, take out nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Key under which a repeated removal counts once [default: fresh].
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub idempotency_key: Option<String>,
}

/// Options of `koi prices update`.
#[derive(Debug, Args)]
pub struct PricesUpdate {
    /// Overlay in TOML, or a CSV with the columns cloud, region, market, instance and usd_per_hour;
    /// `-` for standard input.
    pub file: PathBuf,
    /// Where the prices of a CSV come from; instead of what a TOML file says.
    #[arg(long)]
    pub source: Option<String>,
    /// Day on which the prices of a CSV are so; instead of what a TOML file says.
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub date: Option<String>,
    /// Check everything here and on the server, store nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Key under which a repeated update counts once [default: fresh].
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub idempotency_key: Option<String>,
}
