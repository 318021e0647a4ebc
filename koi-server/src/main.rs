//! `koi-server`: `serve` runs the control plane, `postgres` the private database beside it.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Koi's server.
#[derive(Debug, Parser)]
#[command(name = "koi-server", version, about)]
struct Args {
    /// Print the build id and exit; all binaries of one build print the same.
    #[arg(long)]
    build_id: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the control plane.
    #[command(after_help = "Example:\n  koi-server serve --config /etc/koi/server.toml")]
    Serve {
        /// Settings file.
        #[arg(long)]
        config: PathBuf,
    },
    /// Run the private Postgres in the foreground; `koi up` starts it beside the server.
    #[command(after_help = "Example:\n  koi-server postgres --data-dir /var/lib/koi")]
    Postgres {
        /// Koi's data folder; the cluster lives in `postgres/` below it.
        #[arg(long)]
        data_dir: PathBuf,
    },
}

#[expect(
    clippy::print_stdout,
    reason = "the build id goes to a program that asked for it"
)]
fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.build_id {
        println!("{}", koi_core::build::BUILD_ID);
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    match args.command {
        Some(Command::Serve { config }) => runtime.block_on(koi_server::serve::serve(&config)),
        Some(Command::Postgres { data_dir }) => {
            runtime.block_on(koi_server::serve::postgres(data_dir))
        }
        None => anyhow::bail!("say what to run: `koi-server serve` or `koi-server postgres`"),
    }
}
