//! Settings of `koi-agent`: one documented struct, every key checked, units in names.

mod read;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::engine::vllm::LoadFormat;
use koi_core::host::HostPrice;
use koi_core::ids::HostId;
use koi_core::settings::{SettingsError, of_file};

/// Everything an operator can set.
#[derive(Debug, Clone)]
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
    pub ca_file: Option<PathBuf>,
    /// Folder of everything the agent keeps.
    pub state_dir: PathBuf,
    /// Address on which clients reach this host's replicas; engines listen on it.
    pub advertise_address: IpAddr,
    /// Price of the whole host.
    pub price_usd_per_hour: Option<f64>,
    /// Where the price comes from.
    pub price_source: String,
    /// Date of the price, ISO 8601.
    pub price_date: String,
    /// True when the devices talk over NVLink.
    pub nvlink: bool,
    /// First and last port that engines may use.
    pub port_range: [u16; 2],
    /// Address of the Prometheus listener; loopback only.
    pub metrics_listen: SocketAddr,
    /// Collector for OTLP traces over gRPC.
    pub otlp_endpoint: Option<String>,
    /// Devices.
    pub gpu: GpuConfig,
    /// Engines.
    pub engines: EnginesConfig,
    /// Models.
    pub models: ModelsConfig,
}

/// How devices are looked at.
#[derive(Debug, Clone)]
pub struct GpuConfig {
    /// `nvml` for NVIDIA devices, `sim` for simulated ones, `cpu` for a host without any.
    pub probe: ProbeKind,
    /// Folder of the simulated devices, for `sim`.
    pub sim_dir: Option<PathBuf>,
}

/// Sources of device facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeKind {
    /// NVIDIA's management library.
    Nvml,
    /// A folder.
    Sim,
    /// The processor as one device.
    Cpu,
}

/// Which engines this host offers.
#[derive(Debug, Clone, Default)]
pub struct EnginesConfig {
    /// Offer the simulated engine, `koi-engine-sim` beside this binary.
    pub sim: bool,
    /// Offer real vLLM: the path of its `vllm` command.
    pub vllm_command: Option<PathBuf>,
    /// Offer real vLLM: the path of the Python that has it, where the command is missing.
    pub vllm_python: Option<PathBuf>,
    /// KV cache in GiB, for vLLM's CPU build only.
    pub vllm_cpu_kv_cache_gib: Option<u32>,
    /// How vLLM gets weights; absent leaves it to vLLM.
    pub vllm_load_format: Option<LoadFormat>,
}

/// Where models are.
#[derive(Debug, Clone)]
pub struct ModelsConfig {
    /// Folder with one folder per model, `owner--name`.
    pub root: PathBuf,
}

impl AgentConfig {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// [`SettingsError`] naming the file and every key that is wrong.
    pub fn load(path: &Path) -> Result<Self, SettingsError> {
        of_file(path, std::fs::read_to_string(path), Self::parse)
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
        let found = AgentConfig::parse(&text).err().unwrap_or_default();
        let shown = |v: koi_core::violation::FieldViolation| format!("{}: {}", v.field, v.message);
        found.into_iter().map(shown).collect()
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
