//! The CPU as a device, so that an engine without a GPU takes the same path (spec §18.15).

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use koi_core::gpu::{GpuFacts, GpuReading};
use koi_core::ids::HostId;

use crate::facts::{memory_info, processor_name};
use crate::gpu::{Absence, GpuLook, GpuProbe, GpuProbeError};

const PREFIX: &str = "CPU-";

/// UUID of a host's CPU device.
#[must_use]
pub fn cpu_uuid(host: &HostId) -> String {
    format!("{PREFIX}{host}")
}

/// True for the UUID of a CPU device.
#[must_use]
pub fn is_cpu(uuid: &str) -> bool {
    uuid.starts_with(PREFIX)
}

/// Time counters of all processors, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuTicks {
    busy: u64,
    total: u64,
}

/// The one CPU device of a host.
#[derive(Debug)]
pub struct CpuProbe {
    facts: GpuFacts,
    last: Mutex<Option<CpuTicks>>,
}

impl CpuProbe {
    /// Probes the host.
    ///
    /// # Errors
    /// When the kernel does not say how much memory there is.
    pub fn open(host: &HostId) -> Result<Self, GpuProbeError> {
        let memory = memory_info().map_err(|e| GpuProbeError::Unavailable(e.to_string()))?;
        let facts = GpuFacts {
            uuid: cpu_uuid(host),
            index: 0,
            name: processor_name().unwrap_or_else(|| "CPU".to_owned()),
            memory_bytes: memory.total_bytes,
            power_limit_w: None,
        };
        Ok(Self {
            facts,
            last: Mutex::new(None),
        })
    }

    /// Share of busy processor time since the look before.
    fn utilization(&self) -> Option<f64> {
        let now = parse_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.replace(now)?;
        let total = now.total.checked_sub(before.total).filter(|t| *t > 0)?;
        let busy = now.busy.checked_sub(before.busy)?;
        Some((busy as f64 / total as f64).min(1.0))
    }
}

fn parse_ticks(text: &str) -> Option<CpuTicks> {
    let line = text.lines().find(|l| l.starts_with("cpu "))?;
    let ticks: Vec<u64> = line
        .split_ascii_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|t| t.parse().ok())
        .collect();
    let total = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some(CpuTicks {
        busy: u64::checked_sub(total, idle)?,
        total,
    })
}

/// Energy of all processor packages in millijoules, where the kernel may be asked. The counters
/// wrap on their own; a step back is dropped by whoever takes differences.
fn package_energy_millijoules() -> Option<u64> {
    let entries = fs::read_dir("/sys/class/powercap").ok()?;
    let is_package = |path: &PathBuf| {
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        name.starts_with("intel-rapl:") && name.matches(':').count() == 1
    };
    let packages: Vec<u64> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(is_package)
        .filter_map(|path| {
            fs::read_to_string(path.join("energy_uj"))
                .ok()?
                .trim()
                .parse()
                .ok()
        })
        .collect();
    (!packages.is_empty()).then(|| packages.iter().sum::<u64>() / 1000)
}

impl GpuProbe for CpuProbe {
    fn facts(&self) -> Result<Vec<GpuFacts>, GpuProbeError> {
        Ok(vec![self.facts.clone()])
    }

    fn read(&self) -> Result<GpuLook, GpuProbeError> {
        let memory = memory_info().ok();
        let reading = GpuReading {
            uuid: self.facts.uuid.clone(),
            memory_used_bytes: memory.map(|m| m.total_bytes.saturating_sub(m.available_bytes)),
            utilization_fraction: self.utilization(),
            energy_millijoules: package_energy_millijoules(),
            ..GpuReading::default()
        };
        let absent = [
            ("power_w", reading.power_w.is_none()),
            ("temperature_c", reading.temperature_c.is_none()),
            ("energy_millijoules", reading.energy_millijoules.is_none()),
            (
                "utilization_fraction",
                reading.utilization_fraction.is_none(),
            ),
        ];
        let absent = absent
            .into_iter()
            .filter(|(_, missing)| *missing)
            .map(|(field, _)| Absence {
                uuid: self.facts.uuid.clone(),
                field,
                reason: "the kernel does not say".to_owned(),
            })
            .collect();
        Ok(GpuLook {
            readings: vec![reading],
            absent,
            age_ms: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_one_device_with_memory() {
        let probe = CpuProbe::open(&"dev-1".parse().unwrap()).unwrap();
        let facts = probe.facts().unwrap();
        assert_eq!(facts[0].uuid, "CPU-dev-1");
        assert!(facts[0].memory_bytes > 1 << 20);
        assert!(is_cpu(&facts[0].uuid) && !is_cpu("GPU-CPU-1"));
        let first = probe.read().unwrap();
        assert_eq!(
            first.of("CPU-dev-1").unwrap().utilization_fraction,
            None,
            "no span yet"
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
        let second = probe.read().unwrap();
        let share = second
            .of("CPU-dev-1")
            .unwrap()
            .utilization_fraction
            .unwrap();
        assert!((0.0..=1.0).contains(&share));
    }

    #[test]
    fn idle_and_waiting_time_are_not_busy() {
        let ticks = parse_ticks("cpu  10 0 20 60 10 0 0 0 5 5\ncpu0 1 1 1 1").unwrap();
        assert_eq!(
            ticks,
            CpuTicks {
                busy: 30,
                total: 100
            }
        );
        assert_eq!(parse_ticks("intr 1"), None);
    }
}
