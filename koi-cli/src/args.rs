//! The command line: commands, options, and an example in the help of each.

mod catalog;
mod inspect;
mod learning;
mod metrics;
mod model;
mod perf;
mod predict;
mod prices;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

pub use catalog::{CatalogCheck, CatalogCommand, CatalogDiff, CatalogShow};
pub use inspect::{InspectArgs, Inspected};
pub use learning::{
    BeliefsArgs, BeliefsCommand, MechanismsArgs, MechanismsCommand, ProposeArgs, SlowCommand,
};
pub use metrics::{MetricsCommand, MetricsParseArgs};
pub use model::{ModelCommand, ShowArgs};
pub use perf::{ImportArgs, ListArgs, PerfCommand};
pub use predict::PredictArgs;
pub use prices::{Layer, PricesCommand, PricesList, PricesRemove, PricesUpdate};

use crate::failure::EXIT_CODES;
use crate::load::args::LoadArgs;
use crate::output::Format;

/// Koi plans LLM inference over mixed GPU fleets, and says why.
#[derive(Debug, Parser)]
#[command(name = "koi", version = koi_core::build::BUILD_ID, after_help = EXIT_CODES, propagate_version = true)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Server address [default: from <data-dir>/client.toml].
    #[arg(
        long,
        global = true,
        env = "KOI_SERVER",
        value_name = "URL",
        help_heading = "Global options"
    )]
    pub server: Option<String>,
    /// File with the bearer token [default: from <data-dir>/client.toml].
    #[arg(
        long,
        global = true,
        env = "KOI_TOKEN_FILE",
        value_name = "FILE",
        help_heading = "Global options"
    )]
    pub token_file: Option<PathBuf>,
    /// Certificate authority of an https server.
    #[arg(
        long,
        global = true,
        env = "KOI_CA_FILE",
        value_name = "FILE",
        help_heading = "Global options"
    )]
    pub ca_file: Option<PathBuf>,
    /// Send the token over plain http to another machine: whoever is on the way can read it.
    #[arg(
        long,
        global = true,
        env = "KOI_INSECURE",
        value_parser = clap::builder::FalseyValueParser::new(),
        help_heading = "Global options"
    )]
    pub insecure: bool,
    /// Folder of the dev cluster [default: /var/lib/koi for root, else $XDG_DATA_HOME/koi].
    #[arg(
        long,
        global = true,
        env = "KOI_DATA_DIR",
        value_name = "DIR",
        help_heading = "Global options"
    )]
    pub data_dir: Option<PathBuf>,
    /// Form of the output.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORM",
        help_heading = "Global options"
    )]
    pub output: Format,
    /// Seconds to wait for one answer.
    #[arg(long, global = true, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600), value_name = "S", help_heading = "Global options")]
    pub timeout_s: u32,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a whole dev cluster: database, server, agents, simulated GPUs, sample jobs and load.
    #[command(
        after_help = "Example:\n  koi up\n  koi up --detach --data-dir /tmp/koi --trace chat=trace.csv"
    )]
    Up(UpArgs),
    /// Stop the dev cluster and every process of it.
    #[command(after_help = "Example:\n  koi down")]
    Down,
    /// Server, database, jobs and nodes at a glance.
    #[command(after_help = "Example:\n  koi status\n  koi status -o json")]
    Status,
    /// Submit a job file (YAML or JSON); all of its problems are reported together.
    #[command(
        after_help = "Example:\n  koi submit configs/jobs/chat.yaml\n  koi submit chat.yaml --set slo.p99_ttft_ms=800 --validate-only"
    )]
    Submit(SubmitArgs),
    /// List jobs.
    #[command(after_help = "Example:\n  koi jobs\n  koi jobs --all -o json")]
    Jobs {
        /// Also jobs that are over.
        #[arg(long)]
        all: bool,
    },
    /// Everything known about one job, plan, tick or node.
    #[command(
        after_help = "Example:\n  koi inspect job chat\n  koi inspect job chat --over 10m\n  koi inspect plan latest\n  koi inspect tick 12 -o yaml"
    )]
    Inspect(InspectArgs),
    /// Why a job runs as it does, and what would change that.
    #[command(after_help = "Example:\n  koi explain chat")]
    Explain {
        /// Name or id.
        job: String,
    },
    /// End a job; its replicas are drained.
    #[command(after_help = "Example:\n  koi cancel chat --reason 'moved to another cluster'")]
    Cancel {
        /// Name or id.
        job: String,
        /// Kept with the job.
        #[arg(long, default_value = "cancelled on the command line")]
        reason: String,
    },
    /// List nodes and their devices.
    #[command(after_help = "Example:\n  koi nodes\n  koi nodes --gpus")]
    Nodes {
        /// One line per device.
        #[arg(long)]
        gpus: bool,
    },
    /// Give a node no new work; what runs stays.
    #[command(after_help = "Example:\n  koi cordon h100-a --reason 'firmware update'")]
    Cordon(NodeChange),
    /// Take a cordon or a drain back.
    #[command(after_help = "Example:\n  koi uncordon h100-a")]
    Uncordon(NodeChange),
    /// Cordon a node and move what runs there by planned changes.
    #[command(after_help = "Example:\n  koi drain l40s-b --reason 'return to the cloud'")]
    Drain(NodeChange),
    /// List ticks.
    #[command(after_help = "Example:\n  koi ticks --limit 5")]
    Ticks {
        /// Newest so many.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500), value_name = "N")]
        limit: u32,
    },
    /// Act on the tick.
    #[command(subcommand, after_help = "Example:\n  koi tick run")]
    Tick(TickCommand),
    /// Confidence in edges and mechanisms: list, one, its history, and the proof of all.
    #[command(after_help = "Example:\n  koi beliefs -o json\n  koi beliefs show M_kv_pressure")]
    Beliefs(BeliefsArgs),
    /// Mechanisms: list, show, propose, promote.
    #[command(after_help = "Example:\n  koi mechanisms\n  koi mechanisms show M_kv_pressure")]
    Mechanisms(MechanismsArgs),
    /// The slow loop: its controllers and its convergence.
    #[command(subcommand, after_help = "Example:\n  koi slow show")]
    Slow(SlowCommand),
    /// Ready endpoints of a job.
    #[command(after_help = "Example:\n  koi endpoints chat\n  koi endpoints chat --watch -o json")]
    Endpoints {
        /// Name or id.
        job: String,
        /// Print every change until interrupted.
        #[arg(long)]
        watch: bool,
    },
    /// Facts of a model from its config.json; needs no server.
    #[command(subcommand, after_help = "Example:\n  koi model show config.json")]
    Model(ModelCommand),
    /// What a configuration would do, from the surrogate; needs no server.
    #[command(
        after_help = "Example:\n  koi predict llama-3.1-70b --gpu H100 --tp 4 --isl 2000 --osl 300 --rate 3\n  koi predict config.json --gpu L40S --tp 2 --isl 1000 --osl 200 --concurrency 16 -o json\n  koi predict llama-3.1-8b --gpu H100 --isl 1000 --osl 200 --concurrency 16 --perf perf_tidy.csv\n  koi predict --batch rows.csv --out predictions.csv"
    )]
    Predict(Box<PredictArgs>),
    /// Measured performance from benchmarks: import and list.
    #[command(
        subcommand,
        after_help = "Example:\n  koi perf import results.json --gpu H100 --tp 2\n  koi perf sources"
    )]
    Perf(PerfCommand),
    /// What machines cost: list, overlay and feed; and updates of the feed.
    #[command(
        subcommand,
        after_help = "Example:\n  koi prices list --cloud aws --market spot\n  koi prices update contract.toml --dry-run"
    )]
    Prices(PricesCommand),
    /// Send requests to running jobs and time every answer; `koi load report` sums up.
    #[command(
        after_help = "Example:\n  koi load --endpoints-dir /var/lib/koi/endpoints --job chat=configs/traces/chat.csv --rate 2\n  koi load report --minutes 10"
    )]
    Load(LoadArgs),
    /// The closed world: knobs, flags, metric names, hardware, prices, edges; needs no server.
    #[command(subcommand, after_help = "Example:\n  koi catalog show gpus")]
    Catalog(CatalogCommand),
    /// Run a benchmark of koi-bench.
    #[command(disable_help_flag = true, after_help = "Example:\n  koi bench list")]
    Bench {
        /// Passed on to koi-bench.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<std::ffi::OsString>,
    },
    /// Read an engine's metrics page from a file.
    #[command(subcommand, after_help = "Example:\n  koi metrics parse page.txt")]
    Metrics(MetricsCommand),
    /// Print the completion script of a shell.
    #[command(after_help = "Example:\n  koi completions bash > /etc/bash_completion.d/koi")]
    Completions {
        /// Shell.
        shell: clap_complete::Shell,
    },
    /// Build ids of this command and of the server.
    #[command(after_help = "Example:\n  koi version")]
    Version,
}

/// Actions on the tick.
#[derive(Debug, Subcommand)]
pub enum TickCommand {
    /// Run a tick now and wait until it is closed.
    #[command(after_help = "Example:\n  koi tick run")]
    Run,
}

/// Options of `koi submit`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// Job file, or `-` for standard input.
    pub file: PathBuf,
    /// Check everything here and on the server, store nothing.
    #[arg(long)]
    pub validate_only: bool,
    /// Replace a field, e.g. `slo.p99_ttft_ms=800`; may be repeated.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    pub set: Vec<String>,
    /// Replace the name.
    #[arg(long)]
    pub name: Option<String>,
    /// Key under which a repeated submission counts once [default: fresh].
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub idempotency_key: Option<String>,
}

/// A change to one node.
#[derive(Debug, Args)]
pub struct NodeChange {
    /// Host name.
    pub host: String,
    /// Kept with the change.
    #[arg(long, default_value = "asked for on the command line")]
    pub reason: String,
}

/// Options of `koi up`.
#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// Fleet file [default: configs/fleets/demo.toml].
    #[arg(long, value_name = "FILE")]
    pub fleet: Option<PathBuf>,
    /// Folder of job files to submit [default: configs/jobs].
    #[arg(long, value_name = "DIR")]
    pub jobs: Option<PathBuf>,
    /// Load settings [default: configs/traces/load.toml].
    #[arg(long, value_name = "FILE")]
    pub load: Option<PathBuf>,
    /// Replay this trace, for one job (JOB=FILE) or for every online job (FILE); may be repeated.
    #[arg(long, value_name = "[JOB=]FILE")]
    pub trace: Vec<String>,
    /// Start no load generator.
    #[arg(long)]
    pub no_load: bool,
    /// Submit no jobs.
    #[arg(long)]
    pub no_jobs: bool,
    /// Go on in the background; ends when the first jobs run.
    #[arg(long)]
    pub detach: bool,
    /// Seconds to wait for running jobs before saying so and going on.
    #[arg(long, default_value_t = 90, value_name = "S")]
    pub wait_s: u32,
    /// Time between ticks, e.g. 30s or 5m.
    #[arg(long, default_value = "30s", value_parser = parse_span, value_name = "TIME")]
    pub tick_interval: Duration,
    /// Address of the server [default: 127.0.0.1:7410, or the next free port].
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<std::net::SocketAddr>,
    /// Set by `--detach` for the process in the background.
    #[arg(long, hide = true)]
    pub in_background: bool,
}

/// A time such as `30s`, `5m` or `1h`, from one second to a day.
///
/// # Errors
/// What would be right.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    parse_span_within(text, Duration::from_secs(86_400), "24h")
}

/// A time from one second to `max`, which reads `shown`.
fn parse_span_within(text: &str, max: Duration, shown: &str) -> Result<Duration, String> {
    let bad = || {
        format!(
            "write a time such as 30s, 5m or 1h, got {:?}",
            text.chars().take(40).collect::<String>()
        )
    };
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?);
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(bad()),
    };
    let seconds = digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .ok_or_else(bad)?;
    if !(1..=max.as_secs()).contains(&seconds) {
        return Err(format!("must be from 1s to {shown}"));
    }
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests;
