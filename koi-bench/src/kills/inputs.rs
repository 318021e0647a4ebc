//! Fleet, jobs and load of the measurement: an online chat of two replicas that gets at least 20
//! requests a second, and a small job beside it that is cancelled.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The job under load.
pub(super) const BUSY: &str = "chat";
/// The job beside it.
pub(super) const SIDE: &str = "side";

const DEMO_FLEET: &str = include_str!("../../../configs/fleets/demo.toml");
const TRACE: &str = include_str!("../../../configs/traces/chat.csv");
const LLAMA: &str = include_str!("../../../configs/models/Llama-3.1-8B.json");
const QWEN: &str = include_str!("../../../configs/models/Qwen2.5-7B.json");

/// Two hosts in one environment.
const SMALL_FLEET: &str = r#"
[gpu_types.H100]
name = "NVIDIA H100 80GB HBM3"
memory_mib = 81559
power_limit_w = 700.0
idle_power_w = 70.0

[[host]]
name = "h100-a"
environment = "on_demand/aws/us-east-1/us-east-1a/H100"
instance_type = "p5.48xlarge"
gpus = 8
nvlink = true
price_usd_per_hour = 55.04
price_source = "AWS on-demand us-east-1, karpenter-provider-aws 1d927085d"
price_date = "2026-07-20"

[[host]]
name = "h100-b"
environment = "on_demand/aws/us-east-1/us-east-1a/H100"
instance_type = "p5.48xlarge"
gpus = 8
nvlink = true
price_usd_per_hour = 55.04
price_source = "AWS on-demand us-east-1, karpenter-provider-aws 1d927085d"
price_date = "2026-07-20"
"#;

/// A fleet to measure on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Fleet {
    /// The fleet of `koi up`: six hosts, 32 devices.
    Demo,
    /// Two hosts, 16 devices.
    Small,
}

/// Files that `koi up` is given.
#[derive(Debug)]
pub(super) struct Inputs {
    /// Fleet file.
    pub(super) fleet: PathBuf,
    /// Folder of job files.
    pub(super) jobs: PathBuf,
    /// Load settings.
    pub(super) load: PathBuf,
}

impl Inputs {
    /// Writes the files below a folder.
    ///
    /// # Errors
    /// When one cannot be written.
    pub(super) fn write(folder: &Path, fleet: Fleet) -> anyhow::Result<Self> {
        let inputs = Self {
            fleet: folder.join("fleet.toml"),
            jobs: folder.join("jobs"),
            load: folder.join("load.toml"),
        };
        let write = |path: PathBuf, text: &str| {
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
        };
        std::fs::create_dir_all(&inputs.jobs).context("make the folder of job files")?;
        let fleet = match fleet {
            Fleet::Demo => DEMO_FLEET,
            Fleet::Small => SMALL_FLEET,
        };
        write(inputs.fleet.clone(), fleet)?;
        write(folder.join("llama.json"), LLAMA)?;
        write(folder.join("qwen.json"), QWEN)?;
        write(folder.join("chat.csv"), TRACE)?;
        write(
            inputs.job(BUSY),
            &job(BUSY, "meta-llama/Llama-3.1-8B", "llama", 21, 2),
        )?;
        write(
            inputs.job(SIDE),
            &job(SIDE, "Qwen/Qwen2.5-7B-Instruct", "qwen", 2, 1),
        )?;
        let drive = |name: &str, rate: u32| {
            format!("[[job]]\nname = \"{name}\"\ntrace = \"chat.csv\"\nrate_rps = {rate}.0\n")
        };
        write(inputs.load.clone(), &(drive(BUSY, 21) + &drive(SIDE, 2)))?;
        Ok(inputs)
    }

    /// The file of a job.
    pub(super) fn job(&self, name: &str) -> PathBuf {
        self.jobs.join(format!("{name}.yaml"))
    }
}

fn job(name: &str, model: &str, config: &str, rate_rps: u32, min_replicas: u32) -> String {
    format!(
        "name: {name}
class: online
model:
  id: {model}
  config: ../{config}.json
workload:
  arrival_rate_rps: {rate_rps}
  arrival_pattern: trace
  peak_to_mean: 1.3
  isl: {{mean: 993, p50: 845, p95: 2114, p99: 3371}}
  osl: {{mean: 197, p50: 168, p95: 420, p99: 598}}
slo:
  p99_ttft_ms: 2500
  p99_tpot_ms: 75
constraints:
  min_replicas: {min_replicas}
  max_replicas: 8
priority: 7
"
    )
}
