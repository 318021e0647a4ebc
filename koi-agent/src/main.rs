//! `koi-agent`: one per host. Converges to the server's desired set; decides nothing of its own.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use koi_agent::state_lock::StateLockError;
use koi_core::settings::SettingsError;

/// Exit code for settings that no restart makes right, a state folder in use among them:
/// `EX_CONFIG` of sysexits.h.
const WRONG_SETTINGS: u8 = 78;

/// Koi's agent.
#[derive(Debug, Parser)]
#[command(
    name = "koi-agent",
    version,
    about,
    after_help = "Examples:\n  koi-agent --config /etc/koi/agent.toml\n  koi-agent --config /etc/koi/agent.toml --stop-engines"
)]
struct Args {
    /// Settings file.
    #[arg(long, required_unless_present = "build_id")]
    config: Option<PathBuf>,
    /// Stop every engine of this host, prove it, and exit; for taking a host out of service.
    #[arg(long)]
    stop_engines: bool,
    /// Print the build id and exit; all binaries of one build print the same.
    #[arg(long)]
    build_id: bool,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            let wrong_file = error
                .downcast_ref()
                .is_some_and(SettingsError::is_permanent);
            let wrong_folder = error
                .downcast_ref()
                .is_some_and(StateLockError::is_permanent);
            let is_settled = wrong_file || wrong_folder;
            ExitCode::from(if is_settled { WRONG_SETTINGS } else { 1 })
        }
    }
}

/// The error with its causes on one line; never a backtrace, whatever the environment says.
fn complain(error: &anyhow::Error) {
    // Its exit code stands, whether or not anybody can be told: a log on a full disk takes nothing.
    writeln!(std::io::stderr(), "error: {error:#}").ok();
}

#[expect(
    clippy::print_stdout,
    reason = "the build id goes to a program that asked for it"
)]
fn run() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.build_id {
        println!("{}", koi_core::build::BUILD_ID);
        return Ok(());
    }
    let Some(config) = args.config else {
        anyhow::bail!("--config FILE is needed")
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    if args.stop_engines {
        runtime.block_on(koi_agent::run::stop_engines(&config))
    } else {
        runtime.block_on(koi_agent::run::run(&config))
    }
}
