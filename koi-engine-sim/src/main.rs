//! A simulated LLM engine with the command line, the HTTP API and the metrics of `vllm serve`.
//!
//! Like vLLM it is two processes: an API server and an EngineCore child. The performance behind it
//! is koi-sim's hidden truth. It is not a model: answers are words from a seeded list.

mod api;
mod arguments;
mod clock;
mod core;
mod engine_client;
mod flags;
mod frame;
mod gpu_folder;
mod http_stats;
mod log;
mod metrics_page;
mod serve;

use std::io::Write;
use std::process::ExitCode;

use arguments::Command;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["--build-id"] {
        return print_out(&format!("{}\n", koi_core::build::BUILD_ID));
    }
    match arguments::parse(&words) {
        Ok(Command::Version) => print_out("0.32.0+sim\n"),
        Ok(Command::Help) => print_out(&arguments::help()),
        Ok(Command::Serve(settings)) => serve::main(*settings),
        Ok(Command::EngineCore(settings)) => core::main(&settings),
        Err(error) => {
            let mut text = String::from("usage: koi-engine-sim serve [model_tag] [options]\n");
            for problem in &error.problems {
                text.push_str(&format!("koi-engine-sim serve: error: {problem}\n"));
            }
            drop(std::io::stderr().write_all(text.as_bytes()));
            ExitCode::from(2)
        }
    }
}

fn print_out(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
