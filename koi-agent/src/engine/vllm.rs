//! Real vLLM: `vllm serve`, or Python with the server's module where the command is missing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::engine::{EngineCommand, EngineLaunch};

/// How vLLM is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VllmProgram {
    /// `PROGRAM serve MODEL …`.
    Command(PathBuf),
    /// `PYTHON -m vllm.entrypoints.openai.api_server --model=MODEL …`.
    Python(PathBuf),
}

/// How vLLM gets a model's weights. Only formats that load no code; the operator's choice, never a
/// job's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadFormat {
    /// `.safetensors` files and nothing else.
    Safetensors,
    /// Streamed from object storage or disk by several threads.
    RunaiStreamer,
    /// Random weights, for trying out a host or a model's shape without its files.
    Dummy,
}

impl LoadFormat {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Safetensors, Self::RunaiStreamer, Self::Dummy];

    /// The value of vLLM's `--load-format`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::RunaiStreamer => "runai_streamer",
            Self::Dummy => "dummy",
        }
    }
}

/// vLLM on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VllmSettings {
    /// How it is called.
    pub program: VllmProgram,
    /// Folder of the Hugging Face cache, when models are named and not given as folders.
    pub hf_home: Option<PathBuf>,
    /// Folder for compiled graphs, shared by launches.
    pub cache_dir: Option<PathBuf>,
    /// KV cache in GiB, for the CPU build only.
    pub cpu_kv_cache_gib: Option<u32>,
    /// How weights are loaded; absent leaves it to vLLM.
    pub load_format: Option<LoadFormat>,
}

impl VllmProgram {
    /// The executable.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Command(path) | Self::Python(path) => path,
        }
    }
}

impl VllmSettings {
    pub(super) fn command(&self, launch: &EngineLaunch, replica_dir: &Path) -> EngineCommand {
        let program = self.program.path().display().to_string();
        let mut argv = match &self.program {
            VllmProgram::Command(_) => vec![program, "serve".to_owned(), launch.model.clone()],
            VllmProgram::Python(_) => vec![
                program,
                "-m".to_owned(),
                "vllm.entrypoints.openai.api_server".to_owned(),
                format!("--model={}", launch.model),
            ],
        };
        argv.extend(common_options(launch));
        argv.extend(
            self.load_format
                .map(|f| format!("--load-format={}", f.name())),
        );
        argv.extend(launch.engine_args.iter().cloned());
        EngineCommand {
            argv,
            env: self.environment(launch, replica_dir),
        }
    }

    fn environment(&self, launch: &EngineLaunch, replica_dir: &Path) -> BTreeMap<String, String> {
        let mut env = base_environment(launch, replica_dir);
        let mut set = |name: &str, value: String| {
            env.insert(name.to_owned(), value);
        };
        // Helpers such as ninja lie beside the interpreter.
        if let Some(folder) = self.program.path().parent().filter(|f| f.is_absolute()) {
            set("PATH", format!("{}:{SYSTEM_PATH}", folder.display()));
        }
        for name in [
            "HF_HUB_OFFLINE",
            "TRANSFORMERS_OFFLINE",
            "VLLM_NO_USAGE_STATS",
            "DO_NOT_TRACK",
        ] {
            set(name, "1".to_owned());
        }
        set("VLLM_HOST_IP", launch.host.clone());
        if let Some(port) = launch.secondary_ports.first() {
            set("VLLM_PORT", port.to_string());
        }
        if let Some(folder) = &self.hf_home {
            set("HF_HOME", folder.display().to_string());
        }
        if let Some(folder) = &self.cache_dir {
            set("VLLM_CACHE_ROOT", folder.display().to_string());
        }
        match self.cpu_kv_cache_gib {
            Some(gib) => set("VLLM_CPU_KVCACHE_SPACE", gib.to_string()),
            None => {
                set("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned());
                set("CUDA_VISIBLE_DEVICES", launch.gpu_uuids.join(","));
            }
        }
        env
    }
}

pub(super) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Options that both engines get from the agent, one word each.
pub(super) fn common_options(launch: &EngineLaunch) -> [String; 3] {
    [
        format!("--served-model-name={}", launch.served_model_name),
        format!("--host={}", launch.host),
        format!("--port={}", launch.port),
    ]
}

/// Variables that both engines get. `SPT_NOENV` keeps a changed process title from overwriting
/// the environment that ownership is read from.
pub(super) fn base_environment(
    launch: &EngineLaunch,
    replica_dir: &Path,
) -> BTreeMap<String, String> {
    let fixed = [
        ("PATH", SYSTEM_PATH.to_owned()),
        ("HOME", replica_dir.display().to_string()),
        ("LANG", "C.UTF-8".to_owned()),
        ("PYTHONUNBUFFERED", "1".to_owned()),
        ("PYTHONNOUSERSITE", "1".to_owned()),
        ("SPT_NOENV", "1".to_owned()),
    ];
    let fixed = fixed
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    launch.extra_env.clone().into_iter().chain(fixed).collect()
}
