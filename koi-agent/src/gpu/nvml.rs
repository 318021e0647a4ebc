//! NVIDIA devices through NVML, in the isolated thread of [`IsolatedProbe`].
//!
//! What a device cannot say is found out once, remembered with its reason, and not asked again.

use std::collections::{BTreeMap, BTreeSet};

use koi_core::gpu::{GpuFacts, GpuHolder, GpuReading};
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::gpu::isolated::{BlockingDriver, IsolatedProbe, Pace};
use crate::gpu::{Absence, GpuLook, GpuProbeError};

const MAX_DEVICES: u32 = 64;

/// Starts the probe; a missing driver shows as an error of its calls, not of the start.
///
/// # Errors
/// When the system cannot start a thread.
pub fn start(pace: Pace) -> std::io::Result<IsolatedProbe> {
    IsolatedProbe::start(
        || Ok(Box::new(NvmlDriver::open()?) as Box<dyn BlockingDriver>),
        pace,
    )
}

/// NVML and what is known about its devices.
struct NvmlDriver {
    nvml: Nvml,
    /// Fields that a device said it will never give, with its words.
    unsupported: BTreeMap<(String, &'static str), String>,
}

impl NvmlDriver {
    fn open() -> Result<Self, GpuProbeError> {
        let nvml = Nvml::init().map_err(|e| GpuProbeError::Unavailable(e.to_string()))?;
        Ok(Self {
            nvml,
            unsupported: BTreeMap::new(),
        })
    }
}

impl BlockingDriver for NvmlDriver {
    fn facts(&mut self) -> Result<Vec<GpuFacts>, GpuProbeError> {
        let failed = |e: NvmlError| GpuProbeError::Unavailable(e.to_string());
        let n_devices = self.nvml.device_count().map_err(failed)?.min(MAX_DEVICES);
        (0..n_devices)
            .map(|index| {
                let device = self.nvml.device_by_index(index).map_err(failed)?;
                Ok(GpuFacts {
                    uuid: device.uuid().map_err(failed)?,
                    index,
                    name: device.name().map_err(failed)?,
                    memory_bytes: device.memory_info().map_err(failed)?.total,
                    power_limit_w: device.enforced_power_limit().ok().map(watts),
                })
            })
            .collect()
    }

    fn look(&mut self) -> Result<GpuLook, GpuProbeError> {
        let failed = |e: NvmlError| GpuProbeError::Unavailable(e.to_string());
        let mut look = GpuLook::default();
        // The order may change after a reset, so devices are told apart by UUID at every look.
        for index in 0..self.nvml.device_count().map_err(failed)?.min(MAX_DEVICES) {
            let Ok(device) = self.nvml.device_by_index(index) else {
                continue;
            };
            let Ok(uuid) = device.uuid() else { continue };
            let mut asking = Asking {
                uuid,
                unsupported: &mut self.unsupported,
                absent: Vec::new(),
            };
            look.readings.push(asking.reading(&device));
            look.absent.append(&mut asking.absent);
        }
        Ok(look)
    }
}

/// One device being asked.
struct Asking<'a> {
    uuid: String,
    unsupported: &'a mut BTreeMap<(String, &'static str), String>,
    absent: Vec<Absence>,
}

impl Asking<'_> {
    fn reading(&mut self, device: &Device<'_>) -> GpuReading {
        GpuReading {
            uuid: self.uuid.clone(),
            memory_used_bytes: self.value("memory_used_bytes", || Ok(device.memory_info()?.used)),
            utilization_fraction: self.value("utilization_fraction", || {
                Ok(f64::from(device.utilization_rates()?.gpu.min(100)) / 100.0)
            }),
            power_w: self.value("power_w", || device.power_usage().map(watts)),
            energy_millijoules: self
                .value("energy_millijoules", || device.total_energy_consumption()),
            temperature_c: self.value("temperature_c", || {
                device.temperature(TemperatureSensor::Gpu).map(f64::from)
            }),
            tensor_active_fraction: self.not_read("tensor_active_fraction"),
            memory_bandwidth_fraction: self.not_read("memory_bandwidth_fraction"),
            nvlink_tx_bytes: self.not_read("nvlink_tx_bytes"),
            // NVML gives a momentary PCIe rate over 20 ms; a rate is not a counter.
            pcie_tx_bytes: self.not_read("pcie_tx_bytes"),
            holders: self
                .value("holders", || holders(device))
                .unwrap_or_default(),
        }
    }

    /// A value, or `None` with the driver's reason.
    fn value<T>(
        &mut self,
        field: &'static str,
        ask: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Option<T> {
        let key = (self.uuid.clone(), field);
        if let Some(reason) = self.unsupported.get(&key) {
            let reason = reason.clone();
            self.note(field, reason);
            return None;
        }
        match ask() {
            Ok(value) => Some(value),
            Err(error) => {
                if is_final(&error) {
                    self.unsupported.insert(key, error.to_string());
                }
                self.note(field, error.to_string());
                None
            }
        }
    }

    fn not_read<T>(&mut self, field: &'static str) -> Option<T> {
        self.note(field, "not read by this version".to_owned());
        None
    }

    fn note(&mut self, field: &'static str, reason: String) {
        self.absent.push(Absence {
            uuid: self.uuid.clone(),
            field,
            reason,
        });
    }
}

/// Errors that the same device will give again for ever.
fn is_final(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::NotSupported
            | NvmlError::NoPermission
            | NvmlError::FunctionNotFound
            | NvmlError::FailedToLoadSymbol(_)
    )
}

fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1000.0
}

/// Compute and graphics processes, each pid once.
fn holders(device: &Device<'_>) -> Result<Vec<GpuHolder>, NvmlError> {
    let mut all = device.running_compute_processes()?;
    all.extend(device.running_graphics_processes().unwrap_or_default());
    let mut seen = BTreeSet::new();
    Ok(all
        .into_iter()
        .filter(|process| seen.insert(process.pid))
        .map(|process| GpuHolder {
            pid: process.pid,
            memory_bytes: match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::GpuProbe;

    #[test]
    fn hazard_f7_without_a_driver_every_call_says_why() {
        let probe = start(Pace::default()).unwrap();
        match probe.read() {
            Err(GpuProbeError::Unavailable(why)) => assert!(why.contains("nvidia"), "{why}"),
            Ok(look) => assert_eq!(look.readings.len(), probe.facts().unwrap().len()),
            other => panic!("{other:?}"),
        }
    }
}
