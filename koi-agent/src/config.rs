//! Settings of `koi-agent`: one documented struct, every key checked, units in names.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::engine::vllm::LoadFormat;
use koi_core::environment::Environment;
use koi_core::host::HostPrice;
use koi_core::ids::HostId;
use koi_core::url::{Transport, transport_of};
use serde::Deserialize;

/// Everything an operator can set.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    /// Name of this host; must be the one its token was issued for.
    pub host: HostId,
    /// `market/cloud/region/zone/gpu_type`.
    pub environment: String,
    /// Instance type as the cloud or the catalog names it.
    pub instance_type: String,
    /// Server, e.g. `https://koi.internal:7410`.
    pub server: String,
    /// File with this host's token.
    pub token_file: PathBuf,
    /// PEM certificate of the authority that signed the server's certificate; for `https`.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Folder of everything the agent keeps.
    pub state_dir: PathBuf,
    /// Address on which clients reach this host's replicas; engines listen on it.
    pub advertise_address: IpAddr,
    /// Price of the whole host.
    #[serde(default)]
    pub price_usd_per_hour: Option<f64>,
    /// Where the price comes from.
    #[serde(default)]
    pub price_source: String,
    /// Date of the price, ISO 8601.
    #[serde(default)]
    pub price_date: String,
    /// True when the devices talk over NVLink.
    #[serde(default)]
    pub nvlink: bool,
    /// First and last port that engines may use.
    pub port_range: [u16; 2],
    /// Address of the Prometheus listener; loopback only.
    #[serde(default = "default_metrics_listen")]
    pub metrics_listen: SocketAddr,
    /// Collector for OTLP traces over gRPC.
    #[serde(default)]
    pub otlp_endpoint: Option<String>,
    /// Devices.
    pub gpu: GpuConfig,
    /// Engines.
    #[serde(default)]
    pub engines: EnginesConfig,
    /// Models.
    pub models: ModelsConfig,
}

/// How devices are looked at.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuConfig {
    /// `nvml` for NVIDIA devices, `sim` for simulated ones, `cpu` for a host without any.
    pub probe: ProbeKind,
    /// Folder of the simulated devices, for `sim`.
    #[serde(default)]
    pub sim_dir: Option<PathBuf>,
}

/// Sources of device facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    /// NVIDIA's management library.
    Nvml,
    /// A folder.
    Sim,
    /// The processor as one device.
    Cpu,
}

/// Which engines this host offers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnginesConfig {
    /// Offer the simulated engine, `koi-engine-sim` beside this binary.
    #[serde(default)]
    pub sim: bool,
    /// Offer real vLLM: the path of its `vllm` command.
    #[serde(default)]
    pub vllm_command: Option<PathBuf>,
    /// Offer real vLLM: the path of the Python that has it, where the command is missing.
    #[serde(default)]
    pub vllm_python: Option<PathBuf>,
    /// KV cache in GiB, for vLLM's CPU build only.
    #[serde(default)]
    pub vllm_cpu_kv_cache_gib: Option<u32>,
    /// How vLLM gets weights; absent leaves it to vLLM.
    #[serde(default)]
    pub vllm_load_format: Option<LoadFormat>,
}

/// Where models are.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelsConfig {
    /// Folder with one folder per model, `owner--name`.
    pub root: PathBuf,
}

fn default_metrics_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// File.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what it should be; the message carries line and column.
    #[error("{path}: {message}")]
    Parse {
        /// File.
        path: PathBuf,
        /// Message.
        message: String,
    },
    /// Values that do not go together.
    #[error("{path}: {}", problems.join("; "))]
    Invalid {
        /// File.
        path: PathBuf,
        /// Every problem.
        problems: Vec<String>,
    },
}

impl ConfigError {
    /// True when only another file helps; one that is missing is not there after a restart either.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Parse { .. } | Self::Invalid { .. } => true,
            Self::Read { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        }
    }
}

impl AgentConfig {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// [`ConfigError`] naming the file and the key.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        let config: Self = toml::from_str(&text).map_err(|e| ConfigError::Parse {
            path: path.to_owned(),
            message: e.to_string(),
        })?;
        let problems = config.problems();
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(ConfigError::Invalid {
                path: path.to_owned(),
                problems,
            })
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Err(error) = self.environment.parse::<Environment>() {
            problems.push(format!("environment: {error}"));
        }
        let [first, last] = self.port_range;
        if first == 0 || last < first || last - first < 8 {
            problems.push("port_range must be [first, last] with at least 9 ports".to_owned());
        }
        if !self.metrics_listen.ip().is_loopback() {
            problems.push("metrics_listen must be a loopback address".to_owned());
        }
        if self.gpu.probe == ProbeKind::Sim && self.gpu.sim_dir.is_none() {
            problems.push("gpu.sim_dir is needed with probe = \"sim\"".to_owned());
        }
        let engines = &self.engines;
        if engines.vllm_command.is_some() && engines.vllm_python.is_some() {
            problems.push("engines: set vllm_command or vllm_python, not both".to_owned());
        }
        for program in [&engines.vllm_command, &engines.vllm_python]
            .into_iter()
            .flatten()
        {
            if !program.is_absolute() {
                problems.push(format!(
                    "engines: {} must be an absolute path",
                    program.display()
                ));
            }
        }
        let has_vllm = engines.vllm_command.is_some() || engines.vllm_python.is_some();
        let needs_cache_size = has_vllm && self.gpu.probe == ProbeKind::Cpu;
        if engines
            .vllm_cpu_kv_cache_gib
            .map_or(needs_cache_size, |gib| gib == 0)
        {
            problems
                .push("engines.vllm_cpu_kv_cache_gib: vLLM on a CPU needs at least 1".to_owned());
        }
        match transport_of(&self.server) {
            Ok(Transport::PlainRemote) => {
                problems.push("server: anything but loopback needs https://".to_owned());
            }
            Ok(Transport::Tls) if self.ca_file.is_none() => problems.push(
                "ca_file: needed with https://, no authority is trusted by default".to_owned(),
            ),
            Ok(Transport::Tls | Transport::PlainLoopback) => {}
            Err(problem) => problems.push(format!("server: {problem}")),
        }
        if self.price_usd_per_hour.is_some() && self.price_source.is_empty() {
            problems.push("price_source says where price_usd_per_hour comes from".to_owned());
        }
        problems
    }

    /// The price with its origin.
    #[must_use]
    pub fn price(&self) -> Option<HostPrice> {
        Some(HostPrice {
            usd_per_hour: self.price_usd_per_hour?,
            source: self.price_source.clone(),
            date: self.price_date.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(server: &str, more: &str) -> Vec<String> {
        let text = format!(
            "host = \"h\"\nenvironment = \"reserved/aws/us-east-1/a/H100\"\ninstance_type = \"i\"\n\
             server = \"{server}\"\ntoken_file = \"t\"\nstate_dir = \"s\"\n\
             advertise_address = \"127.0.0.1\"\nport_range = [20000, 20100]\n{more}\n\
             [gpu]\nprobe = \"cpu\"\n[models]\nroot = \"m\"\n"
        );
        toml::from_str::<AgentConfig>(&text).unwrap().problems()
    }

    #[test]
    fn a_missing_file_is_as_wrong_as_a_bad_one() {
        let missing = AgentConfig::load(Path::new("/nonexistent/agent.toml")).unwrap_err();
        assert!(missing.is_permanent(), "{missing:?}");
    }

    #[test]
    fn a_token_travels_in_the_clear_on_loopback_only() {
        for server in [
            "http://127.0.0.1:7410",
            "http://localhost:7410",
            "http://[::1]:7592",
        ] {
            assert_eq!(problems(server, ""), [""; 0], "{server}");
        }
        for server in [
            "http://127.0.0.1.evil:7666",
            "http://192.0.2.2:1",
            "[::1]:1",
        ] {
            let found = problems(server, "");
            assert!(
                found.len() == 1 && found[0].starts_with("server: "),
                "{found:?}"
            );
        }
        let https = "https://koi.internal:7410";
        assert_eq!(problems(https, "ca_file = \"ca.pem\""), [""; 0]);
        assert!(problems(https, "")[0].starts_with("ca_file: "));
    }
}
