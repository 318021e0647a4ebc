//! Options of `koi inspect`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::parse_span_within;

/// Longest time over which the server measures.
const MAX_OVER: Duration = Duration::from_secs(20 * 60);

fn parse_over(text: &str) -> Result<Duration, String> {
    parse_span_within(text, MAX_OVER, "20m")
}

/// Options of `koi inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Kind of thing.
    pub kind: Inspected,
    /// Name or number; plans and ticks: `latest` [default: the latest].
    pub id: Option<String>,
    /// Jobs: what is measured covers this time, at most 20m [default: the newest two minutes].
    #[arg(long, value_parser = parse_over, value_name = "TIME")]
    pub over: Option<Duration>,
    /// Jobs: the end of that time, in microseconds since the Unix epoch [default: now].
    #[arg(long, requires = "over", value_name = "US")]
    pub until_us: Option<i64>,
}

/// Things that can be inspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Inspected {
    /// A job by name or id.
    Job,
    /// A plan by its number.
    Plan,
    /// A tick by its number.
    Tick,
    /// A node by its host name.
    Node,
}
