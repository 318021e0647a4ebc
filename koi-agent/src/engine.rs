//! From what a replica should be to a command line and an environment, for either engine.
//!
//! Pure text work plus one version question; starting is the shim's business. Every word reaches
//! the engine literally, and nothing a job says can become an option, a path or a variable that
//! is not on the lists below (reliability K6, K7).

pub mod sim;
pub mod version;
pub mod vllm;

use std::collections::BTreeMap;
use std::path::Path;

use koi_core::job::EngineName;
use koi_core::violation::{FieldViolation, Violations};

use crate::engine::sim::SimSettings;
use crate::engine::vllm::VllmSettings;

/// Options that the agent sets itself, or that would let an engine load code, files or keys.
const RESERVED_OPTIONS: [&str; 28] = [
    "--allowed-local-media-path",
    "--api-key",
    "--chat-template",
    "--config",
    "--enable-ssl-refresh",
    "--host",
    "--load-format",
    "--lora-modules",
    "--log-config-file",
    "--middleware",
    "--model",
    "--port",
    "--reasoning-parser-plugin",
    "--root-path",
    "--served-model-name",
    "--ssl-ca-certs",
    "--ssl-cert-reqs",
    "--ssl-certfile",
    "--ssl-ciphers",
    "--ssl-keyfile",
    "--tokenizer",
    "--tool-parser-plugin",
    "--tool-server",
    "--trust-remote-code",
    "--uds",
    "--worker-cls",
    "--worker-extension-cls",
    "--logits-processors",
];

/// Variables that an operator's settings may not set: they load code, redirect traffic, open
/// debug doors, or are the agent's own.
const RESERVED_VARIABLES: [&str; 13] = [
    "ALL_PROXY",
    "CUDA_VISIBLE_DEVICES",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LD_AUDIT",
    "LD_PRELOAD",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "VLLM_PLUGINS",
    "VLLM_PORT",
    "VLLM_SERVER_DEV_MODE",
];

const MAX_ENGINE_ARGS: usize = 512;
/// Longest path that Linux takes.
const MAX_PATH_BYTES: usize = 4096;

/// What a replica should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineLaunch {
    /// Which engine.
    pub engine: EngineName,
    /// Model folder (absolute) or `owner/name`.
    pub model: String,
    /// Name under which the model is served.
    pub served_model_name: String,
    /// Options already rendered by koi-core for the engine's version.
    pub engine_args: Vec<String>,
    /// Address to listen on.
    pub host: String,
    /// Port of the HTTP API.
    pub port: u16,
    /// Further ports for the engine's own sockets, ascending.
    pub secondary_ports: Vec<u16>,
    /// Devices by UUID.
    pub gpu_uuids: Vec<String>,
    /// Variables from the operator's settings.
    pub extra_env: BTreeMap<String, String>,
}

/// What the agent's settings say about engines; an engine without settings is not offered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineSettings {
    /// Real vLLM.
    pub vllm: Option<VllmSettings>,
    /// The simulated engine.
    pub sim: Option<SimSettings>,
}

/// A command and its whole environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineCommand {
    /// First the program.
    pub argv: Vec<String>,
    /// Complete but for the shim's own marks.
    pub env: BTreeMap<String, String>,
}

/// Renders a launch for the engine it names.
///
/// # Errors
/// Every field that is not usable.
pub fn command(
    settings: &EngineSettings,
    launch: &EngineLaunch,
    replica_dir: &Path,
) -> Result<EngineCommand, Vec<FieldViolation>> {
    let mut problems = check(launch);
    let rendered = match launch.engine {
        EngineName::Vllm => settings
            .vllm
            .as_ref()
            .map(|s| s.command(launch, replica_dir)),
        EngineName::Sim => settings
            .sim
            .as_ref()
            .map(|s| s.command(launch, replica_dir)),
    };
    let Some(command) = rendered else {
        let name = launch.engine.name();
        problems.add(
            "engine",
            format!("this host offers no {name}; enable it in its settings"),
        );
        return Err(problems.into_vec());
    };
    problems.finish(command)
}

fn check(launch: &EngineLaunch) -> Violations {
    let mut problems = Violations::default();
    if launch.model.starts_with('/') {
        check_model_folder(&launch.model, &mut problems);
    } else {
        check_model_name("model", &launch.model, &mut problems);
    }
    check_model_name(
        "served_model_name",
        &launch.served_model_name,
        &mut problems,
    );
    if launch.host.parse::<std::net::IpAddr>().is_err() {
        problems.add("host", "an IP address");
    }
    if launch.gpu_uuids.is_empty() {
        problems.add("gpu_uuids", "at least one device");
    }
    for uuid in &launch.gpu_uuids {
        let legal = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b'/');
        if uuid.is_empty() || uuid.len() > 128 || !uuid.bytes().all(legal) {
            problems.add(
                "gpu_uuids",
                "a device UUID is 1 to 128 of letters, digits, '-', '_', '.', '/'",
            );
        }
    }
    check_options(&launch.engine_args, &mut problems);
    for name in launch.extra_env.keys() {
        if is_reserved_variable(name) {
            problems.add(format!("extra_env.{name}"), "may not be set for an engine");
        }
    }
    problems
}

/// The folder lies where the operator's settings say, which may be any path. It is one word of an
/// argument list that no shell reads, and begins with '/', so it can become neither option nor name.
fn check_model_folder(path: &str, problems: &mut Violations) {
    if path.len() > MAX_PATH_BYTES || path.chars().any(char::is_control) {
        problems.add(
            "model",
            format!(
                "a folder of at most {MAX_PATH_BYTES} bytes without control characters, got {:?}",
                path.chars().take(200).collect::<String>()
            ),
        );
    }
}

fn check_model_name(field: &str, text: &str, problems: &mut Violations) {
    let legal = |c: u8| {
        c.is_ascii_alphanumeric() || matches!(c, b'.' | b'/' | b'_' | b':' | b'@' | b'+' | b'-')
    };
    let fine = (1..=512).contains(&text.len())
        && !text.starts_with('-')
        && text.bytes().all(legal)
        && text.split('/').all(|part| part != "..");
    if !fine {
        problems.add(
            field,
            format!(
                "1 to 512 of letters, digits and ./_:@+- not starting with '-' and without '..', got {:?}",
                text.chars().take(200).collect::<String>()
            ),
        );
    }
}

fn is_reserved_variable(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    // The simulated engine has knobs of its own; its folder of devices is set after these.
    let ours = upper.starts_with("KOI_") && !upper.starts_with("KOI_SIM_");
    RESERVED_VARIABLES.contains(&upper.as_str()) || ours
}

/// Each word is `--option`, `--option=value`, or the value of the option before it.
fn check_options(words: &[String], problems: &mut Violations) {
    if words.len() > MAX_ENGINE_ARGS {
        problems.add("engine_args", format!("at most {MAX_ENGINE_ARGS} words"));
    }
    let mut value_may_follow = false;
    for (i, word) in words.iter().take(MAX_ENGINE_ARGS).enumerate() {
        let field = format!("engine_args[{i}]");
        if word.contains('\0') || word.len() > 4096 {
            problems.add(&field, "at most 4096 bytes without NUL");
        }
        let Some(option) = word.strip_prefix("--") else {
            if !value_may_follow || word.starts_with('-') {
                problems.add(
                    &field,
                    "an option starts with '--'; write values as --option=value",
                );
            }
            value_may_follow = false;
            continue;
        };
        let name = option.split('=').next().unwrap_or_default();
        // vLLM takes underscores for dashes, and sub-options after a dot.
        let name = format!("--{}", name.replace('_', "-"));
        let stem = name.split('.').next().unwrap_or_default();
        if RESERVED_OPTIONS.contains(&stem) || is_abbreviation_of_reserved(stem) {
            problems.add(&field, format!("{name} is set by the agent or not allowed"));
        }
        value_may_follow = !option.contains('=');
    }
}

/// Python's argument parsers may take a unique beginning for the whole option.
fn is_abbreviation_of_reserved(name: &str) -> bool {
    name.len() >= 5
        && RESERVED_OPTIONS
            .iter()
            .any(|reserved| reserved.starts_with(name))
}

#[cfg(test)]
mod tests;
