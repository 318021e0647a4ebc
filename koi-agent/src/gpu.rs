//! The devices of a host: what they are, how they are now, and whether a launch may use them.
//!
//! Three sources behind one trait: NVML, the simulated folder, the CPU as a device. Every value
//! may be absent; an absent value has a reason and is never 0.

pub mod cpu;
pub mod gate;
pub mod isolated;
pub mod nvml;
pub mod sim;

use koi_core::gpu::{GpuFacts, GpuReading};

/// Why a value of a device is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// Device.
    pub uuid: String,
    /// Field of [`GpuReading`].
    pub field: &'static str,
    /// In the source's words.
    pub reason: String,
}

/// One look at all devices.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuLook {
    /// Per device, in the order of [`GpuProbe::facts`].
    pub readings: Vec<GpuReading>,
    /// What is missing, and why.
    pub absent: Vec<Absence>,
    /// Milliseconds since the values were taken.
    pub age_ms: u64,
}

impl GpuLook {
    /// The reading of one device.
    #[must_use]
    pub fn of(&self, uuid: &str) -> Option<&GpuReading> {
        self.readings.iter().find(|r| r.uuid == uuid)
    }
}

/// The devices cannot be looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuProbeError {
    /// There is no driver, or it does not work.
    #[error("no usable driver: {0}")]
    Unavailable(String),
    /// The last values are too old, e.g. because a driver call hangs.
    #[error("the last look at the GPUs is {age_ms} ms old: {reason}")]
    Stale {
        /// Age of the last values in milliseconds; absent when there never were any.
        age_ms: u64,
        /// What is going on.
        reason: String,
    },
    /// The description of simulated devices is unusable.
    #[error("{path}: {why}")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
}

/// A source of facts about devices. Calls return within milliseconds whatever the driver does.
pub trait GpuProbe: Send + Sync {
    /// Static facts, probed once.
    ///
    /// # Errors
    /// When the devices cannot be enumerated.
    fn facts(&self) -> Result<Vec<GpuFacts>, GpuProbeError>;

    /// The newest values.
    ///
    /// # Errors
    /// When there are none that are fresh enough.
    fn read(&self) -> Result<GpuLook, GpuProbeError>;
}
