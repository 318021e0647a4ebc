//! Options of `koi beliefs`, `koi mechanisms` and `koi slow`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Options of `koi beliefs`.
#[derive(Debug, Args)]
pub struct BeliefsArgs {
    /// What about them [default: list].
    #[command(subcommand)]
    pub command: Option<BeliefsCommand>,
}

/// What to see of beliefs.
#[derive(Debug, Clone, Subcommand)]
pub enum BeliefsCommand {
    /// Confidence in every edge and mechanism.
    #[command(after_help = "Example:\n  koi beliefs list\n  koi beliefs list -o json")]
    List,
    /// One belief: where it started, where it stands, what moved it last.
    #[command(
        after_help = "Example:\n  koi beliefs show M_kv_pressure\n  koi beliefs show 'queue_depth->p99_ttft_ms'"
    )]
    Show {
        /// Id of an edge or a mechanism.
        subject: String,
    },
    /// Every event that moved a belief, newest first.
    #[command(after_help = "Example:\n  koi beliefs history M_kv_pressure --limit 20")]
    History {
        /// Id of an edge or a mechanism.
        subject: String,
        /// Newest so many.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000), value_name = "N")]
        limit: u32,
    },
    /// Replay every event and compare: each belief must be its seed plus the sum of its events,
    /// exactly. Exit code 1 when one is not.
    #[command(after_help = "Example:\n  koi beliefs verify")]
    Verify,
}

/// Options of `koi mechanisms`.
#[derive(Debug, Args)]
pub struct MechanismsArgs {
    /// What about them [default: list].
    #[command(subcommand)]
    pub command: Option<MechanismsCommand>,
}

/// What to see of mechanisms, and what to do with them.
#[derive(Debug, Clone, Subcommand)]
pub enum MechanismsCommand {
    /// Mechanisms, their edges and their narrative.
    #[command(after_help = "Example:\n  koi mechanisms list\n  koi mechanisms list -o json")]
    List,
    /// One mechanism: edges with their beliefs, what was decided, what the review says.
    #[command(after_help = "Example:\n  koi mechanisms show M_kv_pressure")]
    Show {
        /// Mechanism id.
        id: String,
    },
    /// Propose a mechanism by a TOML or JSON file: edges, scope, narrative. It passes the gate that
    /// seeds pass, gets its id from its content, and starts at Beta(1, 1).
    #[command(
        after_help = "Example:\n  koi mechanisms propose mechanism.toml --dry-run\n  koi mechanisms propose mechanism.toml"
    )]
    Propose(ProposeArgs),
    /// Review every mechanism by rule; write those that are promoted as the next seed file.
    #[command(
        after_help = "Example:\n  koi mechanisms promote\n  koi mechanisms promote --out learned.toml"
    )]
    Promote {
        /// Where to write the seed file; nothing is written when nothing is promoted.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// Options of `koi mechanisms propose`.
#[derive(Debug, Clone, Args)]
pub struct ProposeArgs {
    /// Mechanism in TOML or JSON, or `-` for standard input.
    pub file: PathBuf,
    /// Check everything here and on the server, store nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Key under which a repeated proposal counts once [default: fresh].
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub idempotency_key: Option<String>,
}

/// What to see of the slow loop.
#[derive(Debug, Clone, Subcommand)]
pub enum SlowCommand {
    /// Where every controller stands, what moved it, and how far the loop is from convergence.
    #[command(after_help = "Example:\n  koi slow show\n  koi slow show -o json")]
    Show,
    /// One line per tick.
    #[command(after_help = "Example:\n  koi slow history --last 20\n  koi slow history -o json")]
    History {
        /// Newest so many ticks.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000), value_name = "N")]
        last: u32,
    },
}
