//! The simulated engine: the same words as vLLM; its devices are a folder instead of a driver.

use std::path::{Path, PathBuf};

use crate::engine::vllm::{base_environment, common_options};
use crate::engine::{EngineCommand, EngineLaunch};

/// Variable with the folder of the host's simulated devices.
pub const GPU_DIR_VARIABLE: &str = "KOI_SIM_GPU_DIR";

/// The simulated engine on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimSettings {
    /// Executable of `koi-engine-sim`.
    pub program: PathBuf,
    /// Folder of the host's simulated devices.
    pub gpu_dir: PathBuf,
}

impl SimSettings {
    pub(super) fn command(&self, launch: &EngineLaunch, replica_dir: &Path) -> EngineCommand {
        let mut argv = vec![
            self.program.display().to_string(),
            "serve".to_owned(),
            launch.model.clone(),
        ];
        argv.extend(common_options(launch));
        argv.extend(launch.engine_args.iter().cloned());
        let mut env = base_environment(launch, replica_dir);
        env.insert(
            GPU_DIR_VARIABLE.to_owned(),
            self.gpu_dir.display().to_string(),
        );
        env.insert(
            "CUDA_VISIBLE_DEVICES".to_owned(),
            launch.gpu_uuids.join(","),
        );
        EngineCommand { argv, env }
    }
}
