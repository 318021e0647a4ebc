//! From the text of `agent.toml` to settings: every key that is wrong, missing or unknown, at once.

use std::path::PathBuf;

use koi_core::document::of_toml;
use koi_core::environment::Environment;
use koi_core::job::draft::reader::Reader;
use koi_core::url::{Transport, transport_of};
use koi_core::violation::{FieldViolation, Violations};

use super::{AgentConfig, EnginesConfig, GpuConfig, ModelsConfig, ProbeKind};
use crate::engine::vllm::LoadFormat;

/// Ports that a host needs at least.
const MIN_PORTS: u16 = 9;
const ENVIRONMENT: &str =
    "market/cloud/region/zone/gpu_type, with reserved, on_demand or spot for the market";

impl AgentConfig {
    /// The settings that a text spells out.
    ///
    /// # Errors
    /// Every problem, by key.
    pub fn parse(text: &str) -> Result<Self, Vec<FieldViolation>> {
        let document = of_toml(text)?;
        let mut bad = Violations::default();
        let mut top = Reader::new(Some(&document), "", &mut bad);
        let found = read(&mut top, &mut bad);
        top.finish(&mut bad);
        match found {
            Some(config) if bad.is_empty() => Ok(config),
            _ => Err(bad.into_vec()),
        }
    }
}

/// Reads every key before the first that is missing ends it.
fn read(top: &mut Reader<'_>, bad: &mut Violations) -> Option<AgentConfig> {
    let host = top.parsed("host", "a name of 1 to 63 of a-z, 0-9 and '-'", bad);
    let host = top.required("host", host, "the name that its token was issued for", bad);
    let environment = environment(top, bad);
    let instance_type = top.text("instance_type", bad);
    let instance_type = top.required("instance_type", instance_type, "as its cloud names it", bad);
    let server = server(top, bad);
    let token_file = path(top, "token_file", "the file with this host's token", bad);
    let state_dir = path(top, "state_dir", "the agent's folder", bad);
    let advertised = top.parsed("advertise_address", "an IP address", bad);
    let reached = "the IP address on which clients reach this host";
    let advertise_address = top.required("advertise_address", advertised, reached, bad);
    let price = price(top, bad);
    let nvlink = top.flag("nvlink", bad);
    let port_range = port_range(top, bad);
    let metrics_listen = top.loopback_listener("metrics_listen", bad);
    let otlp_endpoint = top.text("otlp_endpoint", bad);
    let gpu = gpu(top.section("gpu", bad), bad);
    let engines = engines(top.section("engines", bad), gpu.as_ref(), bad);
    let models = models(top.section("models", bad), bad);
    let (server, ca_file) = server?;
    Some(AgentConfig {
        host: host?,
        environment: environment?,
        instance_type: instance_type?,
        server,
        token_file: token_file?,
        ca_file,
        state_dir: state_dir?,
        advertise_address: advertise_address?,
        price_usd_per_hour: price.usd_per_hour,
        price_source: price.source,
        price_date: price.date,
        nvlink: nvlink.unwrap_or(false),
        port_range: port_range?,
        metrics_listen,
        otlp_endpoint,
        gpu: gpu?,
        engines,
        models: models?,
    })
}

fn path(
    r: &mut Reader<'_>,
    key: &'static str,
    what: &str,
    bad: &mut Violations,
) -> Option<PathBuf> {
    let path = r.path(key, bad);
    r.required(key, path, what, bad)
}

fn environment(top: &mut Reader<'_>, bad: &mut Violations) -> Option<String> {
    let place: Option<Environment> = top.parsed("environment", ENVIRONMENT, bad);
    let place = top.required("environment", place, ENVIRONMENT, bad)?;
    Some(place.to_string())
}

/// The server's address and the authority behind it.
fn server(top: &mut Reader<'_>, bad: &mut Violations) -> Option<(String, Option<PathBuf>)> {
    let server = top.text("server", bad);
    let server = top.required("server", server, "e.g. https://koi.internal:7410", bad);
    let ca_file = top.path("ca_file", bad);
    let server = server?;
    match transport_of(&server) {
        Ok(Transport::PlainRemote) => {
            bad.add("server", "anything but loopback needs https://");
        }
        Ok(Transport::Tls) => {
            let why = "needed with https://, no authority is trusted by default";
            top.required("ca_file", ca_file.as_ref(), why, bad);
        }
        Ok(Transport::PlainLoopback) => {}
        Err(problem) => bad.add("server", problem),
    }
    Some((server, ca_file))
}

/// A price as the file states it.
struct Stated {
    usd_per_hour: Option<f64>,
    source: String,
    date: String,
}

fn price(top: &mut Reader<'_>, bad: &mut Violations) -> Stated {
    let usd_per_hour = top.number("price_usd_per_hour", bad);
    let source = top.text("price_source", bad).filter(|s| !s.is_empty());
    let date = top.text("price_date", bad);
    if let Some(usd) = usd_per_hour {
        if usd < 0.0 {
            bad.add(
                "price_usd_per_hour",
                format!("must not be negative, got {usd}"),
            );
        }
        let why = "says where price_usd_per_hour comes from";
        top.required("price_source", source.as_ref(), why, bad);
    }
    Stated {
        usd_per_hour,
        source: source.unwrap_or_default(),
        date: date.unwrap_or_default(),
    }
}

/// First and last port for engines.
fn port_range(top: &mut Reader<'_>, bad: &mut Violations) -> Option<[u16; 2]> {
    let given = top.raw("port_range");
    let what = format!("[first, last] with at least {MIN_PORTS} ports from 1 to 65535");
    top.required("port_range", given, &what, bad)?;
    let port = |v: &serde_json::Value| v.as_u64().and_then(|n| u16::try_from(n).ok());
    let ports: Option<Vec<u16>> = given?.as_array().and_then(|l| l.iter().map(port).collect());
    match ports.as_deref() {
        Some([first, last])
            if *first > 0 && last.checked_sub(*first).is_some_and(|n| n + 1 >= MIN_PORTS) =>
        {
            Some([*first, *last])
        }
        _ => {
            bad.add("port_range", format!("must be {what}"));
            None
        }
    }
}

fn gpu(mut r: Reader<'_>, bad: &mut Violations) -> Option<GpuConfig> {
    let kinds = [
        ("nvml", ProbeKind::Nvml),
        ("sim", ProbeKind::Sim),
        ("cpu", ProbeKind::Cpu),
    ];
    let probe = r.choice("probe", &kinds, bad);
    let probe = r.required("probe", probe, "nvml, sim or cpu", bad);
    let sim_dir = r.path("sim_dir", bad);
    if probe == Some(ProbeKind::Sim) {
        r.required("sim_dir", sim_dir.as_ref(), "with probe = \"sim\"", bad);
    }
    r.finish(bad);
    Some(GpuConfig {
        probe: probe?,
        sim_dir,
    })
}

fn engines(mut r: Reader<'_>, gpu: Option<&GpuConfig>, bad: &mut Violations) -> EnginesConfig {
    let sim = r.flag("sim", bad).unwrap_or(false);
    let vllm_command = program(&mut r, "vllm_command", bad);
    let vllm_python = program(&mut r, "vllm_python", bad);
    if vllm_command.is_some() && vllm_python.is_some() {
        let message = "and vllm_python exclude each other; keep one";
        bad.add(r.field("vllm_command"), message);
    }
    let vllm_cpu_kv_cache_gib = r.within("vllm_cpu_kv_cache_gib", (1, u32::MAX), bad);
    let has_vllm = vllm_command.is_some() || vllm_python.is_some();
    if has_vllm && gpu.is_some_and(|g| g.probe == ProbeKind::Cpu) {
        let why = "vLLM on a CPU needs at least 1";
        r.required("vllm_cpu_kv_cache_gib", vllm_cpu_kv_cache_gib, why, bad);
    }
    let formats = LoadFormat::ALL.map(|f| (f.name(), f));
    let vllm_load_format = r.choice("vllm_load_format", &formats, bad);
    r.finish(bad);
    EnginesConfig {
        sim,
        vllm_command,
        vllm_python,
        vllm_cpu_kv_cache_gib,
        vllm_load_format,
    }
}

/// A program, whose path must not depend on where the agent was started.
fn program(r: &mut Reader<'_>, key: &'static str, bad: &mut Violations) -> Option<PathBuf> {
    let path = r.path(key, bad)?;
    if !path.is_absolute() {
        let shown = path.display();
        bad.add(
            r.field(key),
            format!("must be an absolute path, got {shown}"),
        );
    }
    Some(path)
}

fn models(mut r: Reader<'_>, bad: &mut Violations) -> Option<ModelsConfig> {
    let root = path(&mut r, "root", "the folder with one folder per model", bad);
    r.finish(bad);
    Some(ModelsConfig { root: root? })
}

#[cfg(test)]
mod tests;
