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
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return not_parsed(&error, asked_format(&args)),
    };
    let format = cli.global.output;
    match runtime().and_then(|runtime| runtime.block_on(commands::run(cli))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error, format),
    }
}

/// The form of output that unparsed arguments ask for.
fn asked_format(args: &[OsString]) -> Format {
    let texts: Vec<&str> = args.iter().filter_map(|a| a.to_str()).collect();
    let after = |i: usize| texts.get(i + 1).copied().unwrap_or_default();
    let asked = texts.iter().enumerate().find_map(|(i, text)| match *text {
        "-o" | "--output" => Some(after(i)),
        _ => text.strip_prefix("--output=").or(text.strip_prefix("-o")),
    });
    let format = asked.and_then(|name| <Format as clap::ValueEnum>::from_str(name, false).ok());
    format.unwrap_or_default()
}

/// Help and version go to standard output with code 0, mistakes to standard error with 2, as a
/// document where documents were asked for.
fn not_parsed(error: &clap::Error, format: Format) -> ExitCode {
    let code = u8::try_from(error.exit_code()).unwrap_or(2);
    if code == 0 || format == Format::default() {
        let shown = error.print();
        return ExitCode::from(if shown.is_ok() { code } else { 1 });
    }
    let message = error.to_string();
    let message = message.trim_start_matches("error: ").trim_end();
    let failure = Failure::new(failure::ExitCode::Invalid, message);
    output::complain(&failure.shown(format));
    ExitCode::from(code)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unparsed_arguments_tell_the_form_of_output() {
        let format = |args: &[&str]| {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            asked_format(&args)
        };
        assert_eq!(
            format(&["koi", "submit", "--nope", "-o", "json"]),
            Format::Json
        );
        assert_eq!(format(&["koi", "-ojson", "jobs", "--nope"]), Format::Json);
        assert_eq!(format(&["koi", "--output=yaml", "nope"]), Format::Yaml);
        for plain in [&["koi", "nope"][..], &["koi", "-o"], &["koi", "-o", "xml"]] {
            assert_eq!(format(plain), Format::Table, "{plain:?}");
        }
    }
}
