//! Entry of `koi-shim`: `run` or `adopt` one state folder.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: koi-shim run|adopt --state-dir DIR";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(|a| a.to_str()).collect();
    if words == [Some("--version")] {
        say(concat!("koi-shim ", env!("CARGO_PKG_VERSION")));
        return ExitCode::SUCCESS;
    }
    if words == [Some("--build-id")] {
        say(koi_core::build::BUILD_ID);
        return ExitCode::SUCCESS;
    }
    let (action, folder) = match (words.as_slice(), arguments.get(2)) {
        ([Some(action @ ("run" | "adopt")), Some("--state-dir"), _], Some(folder)) => {
            (*action, PathBuf::from(folder))
        }
        _ => {
            complain(USAGE);
            return ExitCode::from(2);
        }
    };
    let done = std::path::absolute(&folder)
        .map_err(|source| koi_shim::ShimError::File {
            path: folder,
            source,
        })
        .and_then(|folder| match action {
            "run" => koi_shim::run::run(&folder),
            _ => koi_shim::adopt::adopt(&folder),
        });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}

#[expect(clippy::print_stdout, reason = "the answer of a command line")]
fn say(text: &str) {
    println!("{text}");
}

fn complain(text: &str) {
    // Its exit code stands, whether or not anybody can be told: a log on a full disk takes nothing.
    writeln!(std::io::stderr(), "{text}").ok();
}
