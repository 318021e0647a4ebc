//! `koi`: the command line, the dev cluster (`koi up`) and the load generator (`koi load`).
//!
//! Not a planner: everything it shows comes from the server's API or from files under the data
//! directory. Spec §16.

pub mod args;
pub mod client;
pub mod commands;
pub mod failure;
pub mod fleet;
pub mod job_file;
pub mod load;
pub mod output;
pub mod paths;
pub mod secrets;
pub mod up;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Cli;
use crate::failure::Failure;
use crate::output::Format;

/// Parses the arguments, runs the command and returns its exit code.
pub fn main_with(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output with code 0, mistakes to standard error with 2.
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            let shown = error.print();
            return ExitCode::from(if shown.is_ok() { code } else { 1 });
        }
    };
    let format = cli.global.output;
    match runtime().and_then(|runtime| runtime.block_on(commands::run(cli))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error, format),
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

/// Prints an error with its whole chain, once, and returns its exit code.
fn report(error: &anyhow::Error, format: Format) -> ExitCode {
    if output::is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    let unnamed = || Failure::new(failure::ExitCode::Failed, format!("{error:#}"));
    let failure = error.downcast_ref().cloned().unwrap_or_else(unnamed);
    output::complain(&failure.shown(format));
    ExitCode::from(failure.code as u8)
}
