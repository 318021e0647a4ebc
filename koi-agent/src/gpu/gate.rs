//! May a launch use these devices? Memory held by somebody else, or by a ghost, says no.
//!
//! vLLM's workers can outlive their parent with the whole of a device's memory, and a launch on
//! such a device fails minutes later with a misleading message. So it is refused here, by name.

use std::collections::BTreeSet;

use crate::gpu::GpuLook;

/// Why one device may not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateRefusal {
    /// The host has no such device.
    #[error("{uuid} is not a device of this host")]
    Unknown {
        /// The device.
        uuid: String,
    },
    /// A process that is not ours holds memory. It is reported and never killed.
    #[error("process {pid} holds {} of {uuid}", amount(*memory_bytes))]
    Held {
        /// The device.
        uuid: String,
        /// The process.
        pid: u32,
        /// Bytes, when the driver says.
        memory_bytes: Option<u64>,
    },
    /// Memory is in use and no visible process holds it.
    #[error("{} of {uuid} are in use by no visible process", amount(Some(*memory_bytes)))]
    Unattributed {
        /// The device.
        uuid: String,
        /// Bytes beyond what is allowed.
        memory_bytes: u64,
    },
    /// The driver does not say how much memory is in use.
    #[error("it is not known whether {uuid} is free")]
    NotKnown {
        /// The device.
        uuid: String,
    },
}

fn amount(bytes: Option<u64>) -> String {
    bytes.map_or_else(
        || "memory".to_owned(),
        |b| format!("{:.1} GiB", b as f64 / f64::from(1 << 30)),
    )
}

/// Bytes that may be in use on an idle device: the driver keeps a little for itself.
pub const IDLE_ALLOWANCE_BYTES: u64 = 1 << 30;

/// Checks devices before a launch, or after a stop as part of the proof of exit.
///
/// `owned_pids` are processes that may hold memory there, e.g. of a replica that shares the
/// device by plan. A CPU device has no holders and always passes.
///
/// # Errors
/// Every refusal of every device.
pub fn gate(
    look: &GpuLook,
    uuids: &[String],
    owned_pids: &BTreeSet<u32>,
) -> Result<(), Vec<GateRefusal>> {
    let refusals: Vec<GateRefusal> = uuids
        .iter()
        .flat_map(|uuid| refusals_of(look, uuid, owned_pids))
        .collect();
    if refusals.is_empty() {
        Ok(())
    } else {
        Err(refusals)
    }
}

fn refusals_of(look: &GpuLook, uuid: &str, owned_pids: &BTreeSet<u32>) -> Vec<GateRefusal> {
    let uuid = uuid.to_owned();
    let Some(reading) = look.of(&uuid) else {
        return vec![GateRefusal::Unknown { uuid }];
    };
    if super::cpu::is_cpu(&uuid) {
        return Vec::new();
    }
    let mut found: Vec<GateRefusal> = reading
        .holders
        .iter()
        .filter(|h| !owned_pids.contains(&h.pid))
        .map(|h| GateRefusal::Held {
            uuid: uuid.clone(),
            pid: h.pid,
            memory_bytes: h.memory_bytes,
        })
        .collect();
    let Some(used) = reading.memory_used_bytes else {
        found.push(GateRefusal::NotKnown { uuid });
        return found;
    };
    let attributed: Option<u64> = reading
        .holders
        .iter()
        .map(|h| h.memory_bytes)
        .try_fold(0u64, |a, b| Some(a + b?));
    // When a holder's share is not known, everything in use may be its own.
    let ghost = attributed.map_or(0, |known| used.saturating_sub(known));
    if ghost > IDLE_ALLOWANCE_BYTES {
        found.push(GateRefusal::Unattributed {
            uuid,
            memory_bytes: ghost,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use koi_core::gpu::{GpuHolder, GpuReading};

    use super::*;

    fn look(used: Option<u64>, holders: &[(u32, Option<u64>)]) -> GpuLook {
        let holders = holders
            .iter()
            .map(|(pid, b)| GpuHolder {
                pid: *pid,
                memory_bytes: *b,
            })
            .collect();
        let reading = GpuReading {
            uuid: "GPU-a".to_owned(),
            memory_used_bytes: used,
            holders,
            ..GpuReading::default()
        };
        GpuLook {
            readings: vec![reading],
            ..GpuLook::default()
        }
    }

    fn check(look: &GpuLook) -> Vec<GateRefusal> {
        gate(look, &["GPU-a".to_owned()], &BTreeSet::from([7]))
            .err()
            .unwrap_or_default()
    }

    const GIB: u64 = 1 << 30;

    #[test]
    fn hazard_f6_foreign_memory_refuses_the_launch_with_pid_and_size() {
        let uuid = || "GPU-a".to_owned();
        assert_eq!(check(&look(Some(GIB / 2), &[])), []);
        assert_eq!(check(&look(Some(9 * GIB), &[(7, Some(9 * GIB))])), []);
        let held = GateRefusal::Held {
            uuid: uuid(),
            pid: 8,
            memory_bytes: Some(GIB),
        };
        let said = held.to_string();
        assert_eq!(said, "process 8 holds 1.0 GiB of GPU-a");
        assert_eq!(check(&look(Some(GIB), &[(8, Some(GIB))])), [held]);
        let unknown = GateRefusal::Held {
            uuid: uuid(),
            pid: 8,
            memory_bytes: None,
        };
        assert_eq!(check(&look(Some(40 * GIB), &[(8, None)])), [unknown]);
    }

    #[test]
    fn hazard_e8_memory_of_an_invisible_process_refuses_the_launch() {
        let uuid = || "GPU-a".to_owned();
        let ghost = GateRefusal::Unattributed {
            uuid: uuid(),
            memory_bytes: 70 * GIB,
        };
        assert_eq!(check(&look(Some(70 * GIB), &[])), [ghost]);
        assert_eq!(
            check(&look(None, &[])),
            [GateRefusal::NotKnown { uuid: uuid() }]
        );
        assert_eq!(
            check(&GpuLook::default()),
            [GateRefusal::Unknown { uuid: uuid() }]
        );
    }
}
