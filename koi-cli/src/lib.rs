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

    /// The failure of a command line that gets as far as its files.
    fn failure(line: &str) -> Failure {
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let error = runtime().unwrap().block_on(commands::run(cli)).unwrap_err();
        error
            .downcast_ref()
            .cloned()
            .unwrap_or_else(|| panic!("{line}: {error:#}"))
    }

    #[test]
    fn a_missing_file_is_not_found_whatever_the_command() {
        let folder = std::env::temp_dir().join(format!("koi-missing-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let none = folder.join("none.json");
        let none = none.display();
        let there = "llama-3.1-8b --gpu H100 --concurrency 1";
        for line in [
            format!("koi submit {none}"),
            format!("koi submit {none} --validate-only"),
            format!("koi prices update {none}"),
            format!("koi perf import {none}"),
            format!("koi metrics parse {none}"),
            format!("koi mechanisms propose {none}"),
            format!("koi model show {none}"),
            format!("koi model show llama-3.1-8b --hf-quant {none}"),
            format!("koi catalog check {none}"),
            format!("koi catalog check --prices {none}"),
            format!("koi catalog show --catalog {none}"),
            format!("koi catalog diff {none} {none}"),
            format!("koi predict {there} --perf {none}"),
            format!("koi predict {there} --models {none}"),
            format!("koi predict {none} --gpu H100 --concurrency 1"),
            format!("koi predict --batch {none} --out -"),
            format!("koi load --config {none}"),
            format!(
                "koi load --endpoints-dir {} --job chat={none}",
                folder.display()
            ),
            format!("koi up --data-dir {} --fleet {none}", folder.display()),
            format!("koi jobs --server http://127.0.0.1:1 --token-file {none}"),
            format!("koi jobs --server https://127.0.0.1:1 --ca-file {none}"),
        ] {
            let failure = failure(&line);
            assert_eq!(
                failure.code,
                failure::ExitCode::NotFound,
                "{line}: {failure:?}"
            );
            assert!(failure.text().contains("none.json"), "{line}: {failure:?}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

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
