//! The writing side of a simulated host's GPU folder (see `koi_core::gpu`): what a driver would do.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use koi_core::gpu::{GpuFacts, SimGpuCounters, SimGpuHolder, SimGpuInventory};
use koi_core::time::UtcMicros;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The folder and the devices of it that this engine was given.
#[derive(Debug, Clone)]
pub(crate) struct GpuFolder {
    root: PathBuf,
    pub(crate) inventory: SimGpuInventory,
    pub(crate) devices: Vec<GpuFacts>,
    start_time_ticks: u64,
}

/// The simulated GPUs cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GpuFolderError {
    #[error("no simulated GPUs: set KOI_SIM_GPU_DIR to a simulated host's folder")]
    NoFolder,
    #[error("read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("CUDA_VISIBLE_DEVICES names {0:?}, which this host does not have")]
    UnknownDevice(String),
    #[error(
        "World size ({wanted}) is larger than the number of available GPUs ({available}) in this node."
    )]
    TooFew { wanted: usize, available: usize },
}

/// What a device did since the last write.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct DeviceActivity {
    pub(crate) utilization_fraction: f64,
    pub(crate) tensor_active_fraction: f64,
    pub(crate) memory_bandwidth_fraction: f64,
    pub(crate) extra_power_w: f64,
    pub(crate) extra_energy_joules: f64,
    pub(crate) link_bytes: f64,
}

impl GpuFolder {
    /// Opens the folder of `KOI_SIM_GPU_DIR` and picks `wanted` of the visible devices.
    pub(crate) fn open(
        root: Option<PathBuf>,
        visible: Option<&str>,
        wanted: usize,
    ) -> Result<Self, GpuFolderError> {
        let root = root.ok_or(GpuFolderError::NoFolder)?;
        let path = root.join("gpus.json");
        let inventory: SimGpuInventory =
            read_json(&path).map_err(|source| GpuFolderError::Read { path, source })?;
        let mut devices = visible_devices(&inventory, visible)?;
        if devices.len() < wanted {
            return Err(GpuFolderError::TooFew {
                wanted,
                available: devices.len(),
            });
        }
        devices.truncate(wanted);
        let start_time_ticks = process_start_ticks(std::process::id()).unwrap_or(0);
        Ok(Self {
            root,
            inventory,
            devices,
            start_time_ticks,
        })
    }

    /// Bytes that living processes other than this one hold of a device.
    pub(crate) fn held_by_others(&self, uuid: &str) -> u64 {
        let Ok(entries) = fs::read_dir(self.root.join("holders")) else {
            return 0;
        };
        let me = std::process::id();
        entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(uuid))
            .filter_map(|entry| read_json::<SimGpuHolder>(&entry.path()).ok())
            .filter(|holder| holder.uuid == uuid && holder.pid != me)
            .filter(|h| process_start_ticks(h.pid) == Some(h.start_time_ticks))
            .map(|holder| holder.memory_bytes)
            .fold(0, u64::saturating_add)
    }

    /// Says what this process holds of each of its devices and how busy it kept them.
    pub(crate) fn write_holders(&self, memory_bytes: u64, now: &DeviceActivity) -> io::Result<()> {
        let folder = self.root.join("holders");
        fs::create_dir_all(&folder)?;
        let pid = std::process::id();
        for device in &self.devices {
            let holder = SimGpuHolder {
                uuid: device.uuid.clone(),
                pid,
                start_time_ticks: self.start_time_ticks,
                memory_bytes,
                utilization_fraction: now.utilization_fraction,
                tensor_active_fraction: now.tensor_active_fraction,
                memory_bandwidth_fraction: now.memory_bandwidth_fraction,
                extra_power_w: now.extra_power_w,
            };
            replace_json(&folder.join(format!("{}.{pid}.json", device.uuid)), &holder)?;
        }
        Ok(())
    }

    /// Takes this process's holders away.
    pub(crate) fn remove_holders(&self) {
        let pid = std::process::id();
        for device in &self.devices {
            let path = self
                .root
                .join("holders")
                .join(format!("{}.{pid}.json", device.uuid));
            drop(fs::remove_file(path));
        }
    }

    /// Adds to each device's monotonic counters. Idle power is added since the last write by
    /// anybody, so that two engines on one device do not count it twice.
    pub(crate) fn add_to_counters(&self, now: UtcMicros, added: &DeviceActivity) -> io::Result<()> {
        let folder = self.root.join("counters");
        fs::create_dir_all(&folder)?;
        for device in &self.devices {
            let lock = fs::File::create(folder.join(format!("{}.lock", device.uuid)))?;
            flock(&lock, FlockOperation::LockExclusive)?;
            let path = folder.join(format!("{}.json", device.uuid));
            let mut counters: SimGpuCounters = read_json(&path).unwrap_or_default();
            if counters.updated == UtcMicros::default() {
                counters.updated = now;
            }
            let idle_s = now.seconds_since(counters.updated).max(0.0);
            let joules = idle_s * self.inventory.idle_power_w + added.extra_energy_joules;
            counters.energy_millijoules += (joules.max(0.0) * 1000.0).round() as u64;
            if self.has_nvlink() {
                counters.nvlink_tx_bytes += added.link_bytes as u64;
            } else {
                counters.pcie_tx_bytes += added.link_bytes as u64;
            }
            counters.updated = counters.updated.max(now);
            replace_json(&path, &counters)?;
        }
        Ok(())
    }

    fn has_nvlink(&self) -> bool {
        use koi_sim::truth::tables::{Link, gpu_table};
        gpu_table(&self.inventory.gpu_type).is_some_and(|gpu| gpu.link != Link::Pcie)
    }
}

fn visible_devices(
    inventory: &SimGpuInventory,
    visible: Option<&str>,
) -> Result<Vec<GpuFacts>, GpuFolderError> {
    let Some(visible) = visible else {
        return Ok(inventory.gpus.clone());
    };
    let words = visible
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty());
    words
        .map(|word| {
            let is_it = |gpu: &&GpuFacts| gpu.uuid == word || gpu.index.to_string() == word;
            let found = inventory.gpus.iter().find(is_it).cloned();
            found.ok_or_else(|| GpuFolderError::UnknownDevice(word.chars().take(80).collect()))
        })
        .collect()
}

/// Field 22 of `/proc/<pid>/stat`; `None` when the process is gone.
fn process_start_ticks(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces and brackets: count from its last closing one.
    let after_name = text.rsplit_once(')')?.1;
    let mut fields = after_name.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Writes a file whole or not at all, so that a reader never sees half of it.
fn replace_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&temporary, serde_json::to_vec(value)?)?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that goes when the test ends.
    struct Host(PathBuf);

    impl Drop for Host {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn host(name: &str, n_gpus: u32) -> Host {
        let root = std::env::temp_dir().join(format!("koi-gpus-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&root));
        fs::create_dir_all(&root).unwrap();
        let gpu = |index| GpuFacts {
            uuid: format!("GPU-{index}"),
            index,
            name: "H100".to_owned(),
            memory_bytes: 80 << 30,
            power_limit_w: None,
        };
        let inventory = SimGpuInventory {
            gpu_type: "H100".to_owned(),
            environment: "reserved/aws/us-east-1/a/H100".to_owned(),
            gpus: (0..n_gpus).map(gpu).collect(),
            idle_power_w: 70.0,
        };
        replace_json(&root.join("gpus.json"), &inventory).unwrap();
        Host(root)
    }

    #[test]
    fn devices_are_chosen_by_uuid_and_counted() {
        let host = host("choose", 4);
        let root = &host.0;
        let open = |visible, wanted| GpuFolder::open(Some(root.clone()), visible, wanted);
        let uuids = |folder: GpuFolder| {
            folder
                .devices
                .into_iter()
                .map(|d| d.uuid)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            uuids(open(Some("GPU-3,GPU-1"), 2).unwrap()),
            ["GPU-3", "GPU-1"]
        );
        assert_eq!(uuids(open(None, 1).unwrap()), ["GPU-0"]);
        assert!(matches!(
            open(Some("GPU-9"), 1),
            Err(GpuFolderError::UnknownDevice(_))
        ));
        assert!(matches!(
            open(Some("GPU-1"), 2),
            Err(GpuFolderError::TooFew { .. })
        ));
        assert!(matches!(
            GpuFolder::open(None, None, 1),
            Err(GpuFolderError::NoFolder)
        ));
    }

    #[test]
    fn holders_of_dead_processes_hold_nothing() {
        let host = host("holders", 1);
        let root = &host.0;
        let folder = GpuFolder::open(Some(root.clone()), None, 1).unwrap();
        folder
            .write_holders(5 << 30, &DeviceActivity::default())
            .unwrap();
        assert_eq!(folder.held_by_others("GPU-0"), 0);
        let mut holder: SimGpuHolder =
            read_json(&root.join(format!("holders/GPU-0.{}.json", std::process::id()))).unwrap();
        holder.pid = 1;
        holder.start_time_ticks = process_start_ticks(1).unwrap();
        replace_json(&root.join("holders/GPU-0.1.json"), &holder).unwrap();
        assert_eq!(folder.held_by_others("GPU-0"), 5 << 30);
        holder.start_time_ticks += 1;
        replace_json(&root.join("holders/GPU-0.1.json"), &holder).unwrap();
        assert_eq!(folder.held_by_others("GPU-0"), 0);
        folder.remove_holders();
        assert!(
            !root
                .join(format!("holders/GPU-0.{}.json", std::process::id()))
                .exists()
        );
    }

    #[test]
    fn energy_is_idle_power_plus_what_was_added() {
        let host = host("energy", 1);
        let root = &host.0;
        let folder = GpuFolder::open(Some(root.clone()), None, 1).unwrap();
        let added = DeviceActivity {
            extra_energy_joules: 30.0,
            link_bytes: 8.0,
            ..Default::default()
        };
        let start = UtcMicros(1_000_000);
        folder
            .add_to_counters(start, &DeviceActivity::default())
            .unwrap();
        folder
            .add_to_counters(start.plus_seconds(10), &added)
            .unwrap();
        let counters: SimGpuCounters = read_json(&root.join("counters/GPU-0.json")).unwrap();
        assert_eq!(
            (counters.energy_millijoules, counters.nvlink_tx_bytes),
            (730_000, 8)
        );
    }
}
