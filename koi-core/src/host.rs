//! A host (node): a machine with an agent, in one environment. Facts come from its agent.

use serde::{Deserialize, Serialize};

use crate::catalog::price::{Date, MAX_USD_PER_HOUR};
use crate::environment::Environment;
use crate::gpu::GpuFacts;
use crate::ids::{HostGeneration, HostId};
use crate::job::EngineName;
use crate::time::UtcMicros;
use crate::violation::{FieldViolation, Violations};

/// Most devices an agent may claim; more needs an operator's word.
pub const MAX_GPUS_PER_HOST: usize = 16;

/// An engine found on the host by asking it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineInstall {
    /// Family.
    pub engine: EngineName,
    /// What `--version` printed.
    pub version: String,
}

/// A price with its origin; a price without source and date is not a price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostPrice {
    /// USD per hour for the whole host.
    pub usd_per_hour: f64,
    /// Where the number comes from.
    pub source: String,
    /// Date of the source, ISO 8601.
    pub date: String,
}

/// What an agent says about its host when it connects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Name; must equal the identity of the agent's credential.
    pub host: HostId,
    /// Environment the host belongs to.
    pub environment: Environment,
    /// Instance type as the catalog or the cloud names it.
    pub instance_type: String,
    /// Devices.
    pub gpus: Vec<GpuFacts>,
    /// True when the devices talk over NVLink.
    pub nvlink: bool,
    /// Price; absent when nobody stated one.
    pub price: Option<HostPrice>,
    /// Address on which replicas of this host can be reached.
    pub address: String,
    /// Boot id of the running kernel.
    pub boot_id: String,
    /// Build id of the agent.
    pub build_id: String,
    /// Engines found.
    pub engines: Vec<EngineInstall>,
    /// True when the devices are simulated.
    pub simulated: bool,
}

impl HostFacts {
    /// Checks facts that came over the wire.
    ///
    /// # Errors
    /// Every problem, by field.
    pub fn check(self) -> Result<Self, Vec<FieldViolation>> {
        let mut bad = Violations::default();
        if self.gpus.len() > MAX_GPUS_PER_HOST {
            bad.add(
                "gpus",
                format!(
                    "{} devices claimed, at most {MAX_GPUS_PER_HOST}",
                    self.gpus.len()
                ),
            );
        }
        let mut uuids: Vec<&str> = self.gpus.iter().map(|g| g.uuid.as_str()).collect();
        uuids.sort_unstable();
        if uuids.windows(2).any(|w| w.first() == w.last()) {
            bad.add("gpus", "a device UUID is claimed twice");
        }
        for (i, gpu) in self.gpus.iter().enumerate() {
            let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
            if gpu.uuid.is_empty() || gpu.uuid.len() > 80 || !gpu.uuid.bytes().all(plain) {
                bad.add(
                    format!("gpus[{i}].uuid"),
                    "must be 1 to 80 letters, digits or '-'",
                );
            }
            if !(1 << 28..=1 << 42).contains(&gpu.memory_bytes) {
                bad.add(
                    format!("gpus[{i}].memory_bytes"),
                    "must be between 256 MiB and 4 TiB",
                );
            }
        }
        if let Some(price) = &self.price
            && !(0.0..=MAX_USD_PER_HOUR).contains(&price.usd_per_hour)
        {
            bad.add(
                "price.usd_per_hour",
                "must be a finite number from 0 to 10,000",
            );
        }
        if let Some(price) = &self.price
            && price.date.parse::<Date>().is_err()
        {
            bad.add("price.date", "must be a day such as 2026-11-30");
        }
        if self.address.parse::<std::net::IpAddr>().is_err() {
            bad.add(
                "address",
                "must be an IP address on which replicas can be reached",
            );
        }
        for (field, text, max) in [
            ("instance_type", &self.instance_type, 80),
            ("boot_id", &self.boot_id, 80),
            ("build_id", &self.build_id, 80),
        ] {
            if text.is_empty() || text.len() > max || !text.bytes().all(|c| c.is_ascii_graphic()) {
                bad.add(
                    field,
                    format!("must be 1 to {max} printable ASCII characters"),
                );
            }
        }
        bad.finish(self)
    }
}

/// A host as the server keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostRecord {
    /// Latest accepted facts.
    pub facts: HostFacts,
    /// No new work when true.
    pub cordoned: bool,
    /// When set, replicas are to leave by planned changes.
    pub draining_since: Option<UtcMicros>,
    /// Version of the host's desired set.
    pub generation: HostGeneration,
    /// First hello.
    pub first_seen: UtcMicros,
}

/// How long an agent has been silent, in bands. The thresholds are the reliability contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// Heard within 30 s.
    Alive,
    /// Silent for 30 s to 60 s: no new work.
    Suspect,
    /// Silent for 60 s and more: capacity frozen, replicas presumed serving.
    Unreachable,
}

impl Liveness {
    /// Silence from which a host is suspect.
    pub const SUSPECT_SECONDS: f64 = 30.0;
    /// Silence from which a host is unreachable.
    pub const UNREACHABLE_SECONDS: f64 = 60.0;

    /// Band of a silence of so many seconds.
    #[must_use]
    pub fn of_silence(seconds: f64) -> Self {
        match seconds {
            s if s < Self::SUSPECT_SECONDS => Self::Alive,
            s if s < Self::UNREACHABLE_SECONDS => Self::Suspect,
            _ => Self::Unreachable,
        }
    }

    /// Name for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Suspect => "suspect",
            Self::Unreachable => "unreachable",
        }
    }
}
