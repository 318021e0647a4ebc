//! Simulated devices: a folder in the form that `koi_core::gpu` describes.
//!
//! Memory is freed as a driver would: a holder counts exactly as long as its process lives.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use koi_core::gpu::{
    GpuFacts, GpuHolder, GpuReading, SimGpuCounters, SimGpuHolder, SimGpuInventory,
};
use koi_core::time::UtcMicros;
use koi_shim::process::{is_alive, now, parse_stat};
use koi_shim::record::ProcessRef;
use serde::de::DeserializeOwned;

use crate::gpu::{Absence, GpuLook, GpuProbe, GpuProbeError};

const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_HOLDER_FILES: usize = 4096;
/// Time for which the file of a dead process is left alone.
const HOLDER_KEPT: Duration = Duration::from_secs(60);

/// The devices of one simulated host.
#[derive(Debug, Clone)]
pub struct SimProbe {
    folder: PathBuf,
    inventory: SimGpuInventory,
}

impl SimProbe {
    /// Reads the inventory of the folder.
    ///
    /// # Errors
    /// When it is missing or unusable.
    pub fn open(folder: &Path) -> Result<Self, GpuProbeError> {
        let path = folder.join("gpus.json");
        let damaged = |why: String| GpuProbeError::Damaged {
            path: path.display().to_string(),
            why,
        };
        let inventory: SimGpuInventory = read(&path).map_err(|error| damaged(error.to_string()))?;
        let mut uuids: Vec<&str> = inventory.gpus.iter().map(|g| g.uuid.as_str()).collect();
        uuids.sort_unstable();
        if uuids.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(damaged("a UUID occurs twice".to_owned()));
        }
        if !(inventory.idle_power_w.is_finite() && inventory.idle_power_w >= 0.0) {
            return Err(damaged("idle_power_w must be 0 or more".to_owned()));
        }
        Ok(Self {
            folder: folder.to_owned(),
            inventory,
        })
    }

    /// The inventory as read.
    #[must_use]
    pub fn inventory(&self) -> &SimGpuInventory {
        &self.inventory
    }

    /// Holder files of living processes. An engine that was killed leaves its own behind; nobody else
    /// would ever remove it.
    fn holders(&self) -> io::Result<Vec<SimGpuHolder>> {
        let entries = match fs::read_dir(self.folder.join("holders")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut living = Vec::new();
        for entry in entries.take(MAX_HOLDER_FILES) {
            let path = entry?.path();
            if path.extension().is_none_or(|e| e != "json") {
                continue;
            }
            // A file that is being replaced or was never whole holds nothing.
            let Ok(holder) = read::<SimGpuHolder>(&path) else {
                continue;
            };
            let process = ProcessRef {
                pid: holder.pid,
                start_ticks: holder.start_time_ticks,
            };
            if is_alive(process) {
                living.push(holder);
            } else if is_old(&path) && is_proven_dead(process) {
                // Somebody else may have been quicker; what cannot be removed holds nothing anyway.
                fs::remove_file(&path).ok();
            }
        }
        living.sort_by_key(|h| h.pid);
        Ok(living)
    }

    fn reading(&self, gpu: &GpuFacts, holders: &[SimGpuHolder], at: UtcMicros) -> GpuReading {
        let mine: Vec<&SimGpuHolder> = holders.iter().filter(|h| h.uuid == gpu.uuid).collect();
        let counters: Option<SimGpuCounters> = read(
            &self
                .folder
                .join("counters")
                .join(format!("{}.json", gpu.uuid)),
        )
        .ok();
        let share = |of: fn(&SimGpuHolder) -> f64| Some(sum(&mine, of).min(1.0));
        let power = self.inventory.idle_power_w + sum(&mine, |h| h.extra_power_w);
        GpuReading {
            uuid: gpu.uuid.clone(),
            memory_used_bytes: Some(
                mine.iter()
                    .map(|h| h.memory_bytes)
                    .fold(0, u64::saturating_add),
            ),
            utilization_fraction: share(|h| h.utilization_fraction),
            power_w: Some(gpu.power_limit_w.map_or(power, |limit| power.min(limit))),
            energy_millijoules: counters
                .as_ref()
                .map(|c| self.energy(c, mine.is_empty(), at)),
            temperature_c: None,
            tensor_active_fraction: share(|h| h.tensor_active_fraction),
            memory_bandwidth_fraction: share(|h| h.memory_bandwidth_fraction),
            nvlink_tx_bytes: counters.as_ref().map(|c| c.nvlink_tx_bytes),
            pcie_tx_bytes: counters.as_ref().map(|c| c.pcie_tx_bytes),
            holders: mine
                .iter()
                .map(|h| GpuHolder {
                    pid: h.pid,
                    memory_bytes: Some(h.memory_bytes),
                })
                .collect(),
        }
    }

    /// Nobody writes the counter of an unused device, but it draws its idle power all the same.
    fn energy(&self, counters: &SimGpuCounters, unused: bool, at: UtcMicros) -> u64 {
        let idle_s = if unused {
            at.seconds_since(counters.updated).max(0.0)
        } else {
            0.0
        };
        let idle_mj = self.inventory.idle_power_w * idle_s * 1000.0;
        counters.energy_millijoules.saturating_add(idle_mj as u64)
    }
}

/// True when the file has not been written for a while: a new process under the same number has had
/// the time to put its own words into it.
fn is_old(path: &Path) -> bool {
    let written = fs::metadata(path).and_then(|m| m.modified());
    written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= HOLDER_KEPT))
}

/// True only when the kernel says so; a look that failed proves nothing.
fn is_proven_dead(process: ProcessRef) -> bool {
    match fs::read_to_string(format!("/proc/{}/stat", process.pid)) {
        Ok(text) => parse_stat(&text).is_some_and(|s| s.process != process || !s.is_alive()),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn sum(holders: &[&SimGpuHolder], of: fn(&SimGpuHolder) -> f64) -> f64 {
    holders
        .iter()
        .map(|h| of(h))
        .filter(|v| v.is_finite() && *v >= 0.0)
        .sum()
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let mut text = Vec::new();
    File::open(path)?
        .take(MAX_FILE_BYTES)
        .read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

impl GpuProbe for SimProbe {
    fn facts(&self) -> Result<Vec<GpuFacts>, GpuProbeError> {
        Ok(self.inventory.gpus.clone())
    }

    fn read(&self) -> Result<GpuLook, GpuProbeError> {
        let holders = self
            .holders()
            .map_err(|e| GpuProbeError::Unavailable(e.to_string()))?;
        let at = now();
        let readings: Vec<GpuReading> = self
            .inventory
            .gpus
            .iter()
            .map(|gpu| self.reading(gpu, &holders, at))
            .collect();
        let absent = readings.iter().flat_map(absences).collect();
        Ok(GpuLook {
            readings,
            absent,
            age_ms: 0,
        })
    }
}

fn absences(reading: &GpuReading) -> Vec<Absence> {
    let missing = |field, reason: &str| Absence {
        uuid: reading.uuid.clone(),
        field,
        reason: reason.to_owned(),
    };
    let mut found = vec![missing("temperature_c", "not simulated")];
    if reading.energy_millijoules.is_none() {
        let reason = "no engine has used the device yet";
        found.extend(
            ["energy_millijoules", "nvlink_tx_bytes", "pcie_tx_bytes"].map(|f| missing(f, reason)),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use koi_shim::process::reference;

    use super::*;
    use crate::test_folder::TestFolder;

    fn host() -> TestFolder {
        let folder = TestFolder::new();
        for sub in ["holders", "counters"] {
            fs::create_dir(folder.path().join(sub)).unwrap();
        }
        let gpu = |n: u32| GpuFacts {
            uuid: format!("GPU-{n}"),
            index: n,
            name: "H100".to_owned(),
            memory_bytes: 80 << 30,
            power_limit_w: Some(700.0),
        };
        let inventory = SimGpuInventory {
            gpu_type: "H100".to_owned(),
            environment: "spot/aws/us-east-1/use1-az2/H100".to_owned(),
            gpus: vec![gpu(0), gpu(1)],
            idle_power_w: 70.0,
        };
        write(&folder.path().join("gpus.json"), &inventory);
        folder
    }

    fn write<T: serde::Serialize>(path: &Path, value: &T) {
        fs::write(path, serde_json::to_vec(value).unwrap()).unwrap();
    }

    fn hold(folder: &TestFolder, uuid: &str, process: ProcessRef) {
        let holder = SimGpuHolder {
            uuid: uuid.to_owned(),
            pid: process.pid,
            start_time_ticks: process.start_ticks,
            memory_bytes: 20 << 30,
            utilization_fraction: 0.7,
            tensor_active_fraction: 0.6,
            memory_bandwidth_fraction: 0.5,
            extra_power_w: 200.0,
        };
        let name = format!("{uuid}.{}.json", process.pid);
        write(&folder.path().join("holders").join(name), &holder);
    }

    #[test]
    fn memory_is_held_exactly_as_long_as_the_process_lives() {
        let folder = host();
        let probe = SimProbe::open(folder.path()).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        hold(&folder, "GPU-1", reference(child.id()).unwrap());
        let look = probe.read().unwrap();
        let used = |look: &GpuLook, uuid: &str| look.of(uuid).unwrap().memory_used_bytes;
        assert_eq!(used(&look, "GPU-0"), Some(0));
        assert_eq!(used(&look, "GPU-1"), Some(20 << 30));
        assert_eq!(look.of("GPU-1").unwrap().power_w, Some(270.0));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(used(&probe.read().unwrap(), "GPU-1"), Some(0));
    }

    #[test]
    fn a_holder_with_a_reused_pid_and_a_torn_file_hold_nothing() {
        let folder = host();
        let me = reference(std::process::id()).unwrap();
        hold(
            &folder,
            "GPU-0",
            ProcessRef {
                start_ticks: me.start_ticks - 1,
                ..me
            },
        );
        fs::write(folder.path().join("holders/GPU-0.1.json"), b"{\"uuid\":").unwrap();
        let look = SimProbe::open(folder.path()).unwrap().read().unwrap();
        assert_eq!(look.of("GPU-0").unwrap().holders, []);
    }

    #[test]
    fn files_of_dead_processes_go_and_those_of_living_ones_stay() {
        let folder = host();
        let probe = SimProbe::open(folder.path()).unwrap();
        let me = reference(std::process::id()).unwrap();
        hold(&folder, "GPU-0", me);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = ProcessRef {
            pid: child.id(),
            start_ticks: me.start_ticks,
        };
        child.wait().unwrap();
        hold(&folder, "GPU-1", dead);
        let path = |uuid: &str, pid: u32| folder.path().join(format!("holders/{uuid}.{pid}.json"));
        let (mine, theirs) = (path("GPU-0", me.pid), path("GPU-1", dead.pid));
        probe.read().unwrap();
        assert!(theirs.exists(), "a young file is left alone");
        for file in [&mine, &theirs] {
            let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
            let file = File::options().write(true).open(file).unwrap();
            file.set_modified(hour_ago).unwrap();
        }
        probe.read().unwrap();
        assert!(mine.exists() && !theirs.exists());
    }

    #[test]
    fn an_unused_device_goes_on_drawing_idle_power_and_absence_is_not_zero() {
        let folder = host();
        let probe = SimProbe::open(folder.path()).unwrap();
        let look = probe.read().unwrap();
        assert_eq!(look.of("GPU-0").unwrap().energy_millijoules, None);
        assert!(
            look.absent
                .iter()
                .any(|a| a.uuid == "GPU-0" && a.field == "energy_millijoules")
        );
        let counters = SimGpuCounters {
            energy_millijoules: 5,
            updated: now().plus_seconds(-10),
            ..SimGpuCounters::default()
        };
        write(&folder.path().join("counters/GPU-0.json"), &counters);
        let energy = probe
            .read()
            .unwrap()
            .of("GPU-0")
            .unwrap()
            .energy_millijoules
            .unwrap();
        assert!((700_005..800_005).contains(&energy), "{energy}");
    }

    #[test]
    fn a_bad_inventory_is_refused() {
        let folder = TestFolder::new();
        assert!(matches!(
            SimProbe::open(folder.path()),
            Err(GpuProbeError::Damaged { .. })
        ));
    }
}
