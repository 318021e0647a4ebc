//! What one look at a GPU says, and the on-disk form of simulated GPUs.
//!
//! A simulated host is a folder: `gpus.json` is its inventory, `holders/<uuid>.<pid>.json` says
//! which process holds how much memory (a holder whose process is gone holds nothing, as with a
//! real driver), `counters/<uuid>.json` carries the monotonic counters. `koi-engine-sim` writes
//! holders and counters, the agent's simulated probe reads them; neither knows the other's code.

use serde::{Deserialize, Serialize};

use crate::time::UtcMicros;

/// Static facts of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuFacts {
    /// `GPU-…` or, for slices, `MIG-…`. The only handle used for assignment.
    pub uuid: String,
    /// Index at probe time; never used for assignment.
    pub index: u32,
    /// Marketing name as the driver gives it.
    pub name: String,
    /// Total memory in bytes.
    pub memory_bytes: u64,
    /// Board power limit in watts, when known.
    pub power_limit_w: Option<f64>,
}

/// A process that holds memory of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuHolder {
    /// Process id.
    pub pid: u32,
    /// Bytes held, when the driver says.
    pub memory_bytes: Option<u64>,
}

/// One look at one device; every value may be absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GpuReading {
    /// Device.
    pub uuid: String,
    /// Memory in use by everybody.
    pub memory_used_bytes: Option<u64>,
    /// Share of time a kernel ran, 0..=1 (says nothing about how busy the SMs were).
    pub utilization_fraction: Option<f64>,
    /// Momentary board power in watts.
    pub power_w: Option<f64>,
    /// Monotonic energy counter in millijoules.
    pub energy_millijoules: Option<u64>,
    /// Core temperature in degrees Celsius.
    pub temperature_c: Option<f64>,
    /// Share of cycles in which the tensor pipes worked, 0..=1 (GPM's any-tensor utilization), where
    /// the device offers it: arithmetic over the dense peak. SM activity, which counts resident warps
    /// whether or not they compute, is another thing.
    pub tensor_active_fraction: Option<f64>,
    /// Share of memory-bandwidth cycles, 0..=1 (GPM).
    pub memory_bandwidth_fraction: Option<f64>,
    /// Monotonic bytes sent over NVLink.
    pub nvlink_tx_bytes: Option<u64>,
    /// Monotonic bytes sent over PCIe.
    pub pcie_tx_bytes: Option<u64>,
    /// Processes that hold memory.
    pub holders: Vec<GpuHolder>,
}

/// `gpus.json` of a simulated host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SimGpuInventory {
    /// Catalog id of the GPU type, e.g. `H100`.
    pub gpu_type: String,
    /// Environment as `market/cloud/region/zone/gpu_type`; selects the hidden truth.
    pub environment: String,
    /// Devices.
    pub gpus: Vec<GpuFacts>,
    /// Power of an idle device in watts.
    pub idle_power_w: f64,
}

/// `holders/<uuid>.<pid>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SimGpuHolder {
    /// Device.
    pub uuid: String,
    /// Holding process.
    pub pid: u32,
    /// Field 22 of `/proc/<pid>/stat`, so that a reused pid is not taken for the holder.
    pub start_time_ticks: u64,
    /// Bytes held.
    pub memory_bytes: u64,
    /// Share of time a kernel ran in the last second.
    pub utilization_fraction: f64,
    /// Share of cycles in which the tensor pipes worked in the last second.
    pub tensor_active_fraction: f64,
    /// Share of memory-bandwidth cycles in the last second.
    pub memory_bandwidth_fraction: f64,
    /// Power above idle in watts in the last second.
    pub extra_power_w: f64,
}

/// `counters/<uuid>.json`; replaced whole by rename.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SimGpuCounters {
    /// Energy in millijoules up to `updated`, idle power included.
    pub energy_millijoules: u64,
    /// Bytes sent over NVLink.
    pub nvlink_tx_bytes: u64,
    /// Bytes sent over PCIe.
    pub pcie_tx_bytes: u64,
    /// Wall time of the last write.
    pub updated: UtcMicros,
}
