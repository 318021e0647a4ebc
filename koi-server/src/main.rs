//! `koi-server`: `serve` runs the control plane, `postgres` the private database beside it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use koi_core::settings::SettingsError;
use koi_server::auth::AuthError;
use koi_server::core_loop::LeadLost;
use koi_server::postgres::PostgresError;

/// Exit code for what no restart makes right: `EX_CONFIG` of sysexits.h.
const WRONG_SETTINGS: u8 = 78;
/// Exit code of a server that another one has taken the lead from: `EX_TEMPFAIL` of sysexits.h.
const LEAD_LOST: u8 = 75;

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

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(exit_code(&error))
        }
    }
}

fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<LeadLost>() {
        LEAD_LOST
    } else if is_permanent(error) {
        WRONG_SETTINGS
    } else {
        1
    }
}

fn is_permanent(error: &anyhow::Error) -> bool {
    let settings = error.downcast_ref::<SettingsError>();
    let postgres = error.downcast_ref::<PostgresError>();
    let tokens = error.downcast_ref::<AuthError>();
    settings.is_some_and(SettingsError::is_permanent)
        || tokens.is_some_and(AuthError::is_permanent)
        || postgres.is_some_and(PostgresError::is_permanent)
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

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_lost_lead_has_a_code_of_its_own() {
        use koi_core::ids::Epoch;
        let lost = LeadLost {
            leader: Epoch(6),
            ours: Epoch(5),
        };
        assert!(lost.to_string().contains("it has epoch 6"));
        assert_eq!(exit_code(&lost.into()), 75);
        assert_eq!(exit_code(&anyhow::anyhow!("anything else")), 1);
    }

    #[test]
    fn what_a_restart_cannot_mend_is_told_apart() {
        let error = |e: PostgresError| anyhow::Error::from(e).context("run the private Postgres");
        assert!(is_permanent(&error(PostgresError::NoAccount)));
        let tail = String::new();
        let status = String::new();
        assert!(!is_permanent(&error(PostgresError::Died { status, tail })));
        let settings: Result<(), SettingsError> = Err(SettingsError::Invalid {
            path: "server.toml".into(),
            problems: Vec::new(),
        });
        assert!(is_permanent(
            &settings.context("load settings").unwrap_err()
        ));
        assert!(!is_permanent(&anyhow::anyhow!("anything else")));
        let auth = |e: AuthError| anyhow::Error::from(e).context("load who may connect");
        let path = || "tokens.toml".into();
        assert!(is_permanent(&auth(AuthError::Malformed {
            path: path(),
            message: "a secret has 16 to 256 bytes".to_owned(),
        })));
        let file = |kind: std::io::ErrorKind| AuthError::File {
            path: path(),
            source: kind.into(),
        };
        assert!(is_permanent(&auth(file(std::io::ErrorKind::NotFound))));
        assert!(!is_permanent(&auth(file(std::io::ErrorKind::Interrupted))));
    }
}
