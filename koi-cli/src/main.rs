//! The `koi` command.

fn main() -> std::process::ExitCode {
    koi_cli::main_with(std::env::args_os())
}
