//! Options of `koi load`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Options of `koi load`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct LoadArgs {
    /// What to do instead of sending.
    #[command(subcommand)]
    pub command: Option<LoadCommand>,
    /// Folder with one endpoint file per job [default: <data-dir>/endpoints].
    #[arg(long, value_name = "DIR")]
    pub endpoints_dir: Option<PathBuf>,
    /// A job and the trace to replay; may be repeated.
    #[arg(long = "job", value_name = "NAME=TRACE")]
    pub jobs: Vec<String>,
    /// Load settings with jobs, traces and rates.
    #[arg(long, value_name = "FILE", conflicts_with = "jobs")]
    pub config: Option<PathBuf>,
    /// Play the arrival times so many times as fast.
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub rate: f64,
    /// Keep so many requests in flight instead of following the arrival times.
    #[arg(long, value_name = "N")]
    pub concurrency: Option<u32>,
    /// Send the requests of a session to one endpoint.
    #[arg(long)]
    pub session_affinity: bool,
    /// Largest token id in prompts.
    #[arg(long, value_name = "N")]
    pub vocabulary: Option<u32>,
    /// Shorten requests whose prompt and answer exceed so many tokens.
    #[arg(long, value_name = "N")]
    pub max_context_tokens: Option<u32>,
    /// Stop after so many seconds.
    #[arg(long, value_name = "S")]
    pub seconds: Option<u32>,
    /// Folder for results [default: <data-dir>/load].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Subcommands of `koi load`.
#[derive(Debug, Clone, Subcommand)]
pub enum LoadCommand {
    /// Sum up the newest whole minutes of every job.
    #[command(after_help = "Example:\n  koi load report --minutes 10 -o json")]
    Report(ReportArgs),
}

/// Options of `koi load report`.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// Newest so many whole minutes.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=180), value_name = "N")]
    pub minutes: u32,
    /// Only this job.
    #[arg(long)]
    pub job: Option<String>,
    /// Folder with results [default: <data-dir>/load].
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
}
