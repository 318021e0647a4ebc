//! Options of `koi metrics`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use koi_core::catalog::EngineVersion;
use koi_core::telemetry::sample::MetricsEngine;

/// What to do with a metrics page.
#[derive(Debug, Subcommand)]
pub enum MetricsCommand {
    /// Read a page of an engine: values, histograms, missing series, and what is wrong with it.
    ///
    /// Reads the Prometheus text format and OpenMetrics, and the metric names of vLLM V0 and V1
    /// (also behind Ray), SGLang and TGI. Exits with 2 when nothing could be read.
    #[command(
        disable_version_flag = true,
        after_help = "Example:\n  koi metrics parse page.txt -o json\n  koi metrics parse page.txt --engine vllm --version 0.11.0\n  koi metrics parse now.txt --previous before.txt"
    )]
    Parse(MetricsParseArgs),
}

/// Options of `koi metrics parse`.
#[derive(Debug, Args)]
pub struct MetricsParseArgs {
    /// Metrics page, or `-` for standard input.
    pub file: PathBuf,
    /// Engine whose series are expected: vllm, sglang or tgi [default: as the names say].
    #[arg(long, value_parser = parse_engine, value_name = "ENGINE")]
    pub engine: Option<MetricsEngine>,
    /// Version of that engine, e.g. 0.11.0 [default: the newest; V0 for a page without engine labels].
    #[arg(long, requires = "engine", value_parser = parse_version, value_name = "VERSION")]
    pub version: Option<EngineVersion>,
    /// An earlier page of the same server: also show what happened between the two.
    #[arg(long, value_name = "FILE")]
    pub previous: Option<PathBuf>,
    /// Also every sample of the page, as written (JSON and YAML only).
    #[arg(long)]
    pub samples: bool,
}

fn parse_engine(text: &str) -> Result<MetricsEngine, String> {
    MetricsEngine::ALL
        .into_iter()
        .find(|engine| engine.name() == text)
        .ok_or_else(|| "must be vllm, sglang or tgi".to_owned())
}

fn parse_version(text: &str) -> Result<EngineVersion, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    // Post-releases and candidates export what their release does.
    let release = ["post", "rc", "dev"]
        .into_iter()
        .find_map(|mark| text.split_once(mark))
        .map_or(text, |(release, _)| release.trim_end_matches('.'));
    release
        .parse()
        .map_err(|e: koi_core::catalog::NotAVersion| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_may_be_written_as_engines_print_them() {
        for text in ["0.8.5", "v0.8.5", "0.8.5.post1", "0.8.5rc2", "0.8.5+cu124"] {
            let version = parse_version(text).unwrap();
            assert_eq!((version.minor, version.patch), (8, 5), "{text}");
        }
        assert!(parse_version("newest").is_err());
        assert!(parse_engine("vllm").is_ok() && parse_engine("VLLM").is_err());
    }
}
