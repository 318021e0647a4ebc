//! Calibrated constants of the analytic member.
//!
//! Numbers only, read once from `configs/calibration/analytic.toml`, which says how they were
//! fitted; `koi bench surrogate --fit` reproduces them. Devices share one set, so that a GPU that
//! was never measured is described by its data sheet and these shares; engines have one set per
//! generation. What one GPU type or model deviates from this is the other members' business.
//! Spec §4.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::engine_generation::EngineGeneration;
use crate::catalog::GpuType;

/// What serving reaches of data-sheet figures, for every device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConstants {
    /// Share of the 16-bit peak that large matrix products reach.
    pub compute_fraction_16_bit: f64,
    /// Share of the 8-bit peak.
    pub compute_fraction_8_bit: f64,
    /// Share of the 4-bit peak.
    pub compute_fraction_4_bit: f64,
    /// Share of the 16-bit peak that attention over prompts reaches.
    pub attention_compute_fraction: f64,
    /// Share of the memory bandwidth that reading weights reaches.
    pub bandwidth_fraction: f64,
    /// Share of the memory bandwidth that reading the KV cache reaches.
    pub cache_bandwidth_fraction: f64,
    /// Arithmetic of routed experts, relative to dense layers.
    pub expert_compute_ratio: f64,
    /// Reading of routed experts, relative to dense layers.
    pub expert_bandwidth_ratio: f64,
    /// Tokens of a tile of the experts' kernels: what an expert has fewer of is padded.
    pub expert_tile_tokens: f64,
    /// Latency that every expert of every routed layer adds to a first token, in microseconds:
    /// prompts are launched kernel by kernel, and the device decodes for others meanwhile.
    pub expert_first_token_us: f64,
    /// Time that a routed layer adds to a step, in microseconds.
    pub expert_layer_overhead_us: f64,
    /// Share of the link bandwidth that all-reduces reach.
    pub link_fraction: f64,
    /// Time of an all-reduce between two GPUs beyond its bytes, over NVLink and its like; every
    /// doubling of the group adds half of it. In microseconds.
    pub allreduce_latency_us: f64,
    /// The same over PCIe.
    pub pcie_allreduce_latency_us: f64,
    /// Over PCIe whatever leaves a pair of GPUs meets in the host. The rate of each GPU falls by
    /// 1 + this · (1 − 2/group): the bridge is shared by more GPUs, but each GPU's share of the
    /// traffic that crosses it has a limit.
    pub pcie_contention: f64,
    /// How many times longer the bytes of an all-reduce over PCIe take beyond that once the group
    /// no longer fits one processor socket: what crosses goes through host memory and the link
    /// between the sockets, which all of the group's rings share.
    pub pcie_socket_crossing: f64,
    /// Compute share of AMD devices, relative to NVIDIA's.
    pub amd_compute_ratio: f64,
    /// Bandwidth share of AMD devices, relative to NVIDIA's.
    pub amd_bandwidth_ratio: f64,
    /// Compute share of Intel devices, relative to NVIDIA's.
    pub intel_compute_ratio: f64,
    /// Bandwidth share of Intel devices, relative to NVIDIA's.
    pub intel_bandwidth_ratio: f64,
    /// On AMD and Intel, engines before the current generation read the cache once per query head
    /// rather than once per KV head, by this power of the group size.
    pub legacy_cache_reread_exponent: f64,
}

/// How one generation of an engine differs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineConstants {
    /// Host time of one step, in milliseconds.
    pub step_overhead_ms: f64,
    /// Time that each layer adds to a step (launches, small kernels), in microseconds.
    pub layer_overhead_us: f64,
    /// Time that each sequence adds to a step (sampling, bookkeeping), in microseconds.
    pub sequence_overhead_us: f64,
    /// Compute share, relative to the device's.
    pub compute_ratio: f64,
    /// Bandwidth share for weights, relative to the device's.
    pub bandwidth_ratio: f64,
    /// Bandwidth share for the cache, relative to the device's.
    pub cache_bandwidth_ratio: f64,
    /// Power of the query-group size by which the cache is read more than once.
    pub cache_reread_exponent: f64,
    /// Share of a prompt's time by which it delays the sequences that are decoding.
    pub prefill_interference: f64,
    /// Time to first token outside steps: front end, tokenizing, streaming, in milliseconds.
    pub first_token_overhead_ms: f64,
    /// With a fixed number of requests in flight, the share of all other prompts' time that a
    /// request waits, for they tend to arrive together.
    pub burst_wait_share: f64,
    /// The same share once prompts take all the time; it grows with their part of it.
    pub crowded_wait_share: f64,
    /// Front-end time per request when all requests come at once, in milliseconds.
    pub request_overhead_ms: f64,
}

/// All constants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constants {
    /// How and when the numbers were found.
    pub fitted: String,
    /// Devices.
    pub device: DeviceConstants,
    /// Engines by generation.
    pub engine: BTreeMap<EngineGeneration, EngineConstants>,
}

/// The constants as shipped.
const EMBEDDED: &str = include_str!("../../../configs/calibration/analytic.toml");

impl Constants {
    /// The constants that this build carries.
    #[must_use]
    pub fn embedded() -> &'static Self {
        static CONSTANTS: LazyLock<Constants> = LazyLock::new(|| {
            Constants::parse(EMBEDDED).expect("invariant: a test parses the embedded constants")
        });
        &CONSTANTS
    }

    /// Reads constants from TOML.
    ///
    /// # Errors
    /// What is malformed, absent, not positive or not finite, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let constants: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        let missing = EngineGeneration::ALL
            .into_iter()
            .find(|g| !constants.engine.contains_key(g));
        if let Some(generation) = missing {
            return Err(format!("no constants for {}", generation.name()));
        }
        let bad = constants
            .values()
            .into_iter()
            .find(|(_, value)| !(value.is_finite() && *value > 0.0));
        match bad {
            Some((name, value)) => Err(format!("{name} is {value}; it must be positive")),
            None => Ok(constants),
        }
    }

    /// Constants of a generation.
    ///
    /// # Panics
    /// Never for constants that were parsed: those have every generation.
    #[must_use]
    pub fn engine(&self, generation: EngineGeneration) -> &EngineConstants {
        self.engine
            .get(&generation)
            .expect("invariant: parse refuses constants that lack a generation")
    }

    /// Every number with its dotted name, in a fixed order.
    #[must_use]
    pub fn values(&self) -> Vec<(String, f64)> {
        let mut out = Vec::new();
        flatten("device", &self.device, &mut out);
        for (generation, engine) in &self.engine {
            flatten(generation.name(), engine, &mut out);
        }
        out
    }

    /// The same constants with other numbers, in the order of [`Self::values`]. `None` when the
    /// count differs.
    #[must_use]
    pub fn with_values(&self, numbers: &[f64]) -> Option<Self> {
        let names = self.values();
        if names.len() != numbers.len() {
            return None;
        }
        let pick = |section: &str| {
            let prefix = format!("{section}.");
            let fields = names.iter().zip(numbers).filter_map(|((name, _), value)| {
                let field = name.strip_prefix(&prefix)?;
                Some((field.to_owned(), serde_json::Value::from(*value)))
            });
            serde_json::Value::Object(fields.collect())
        };
        let device = serde_json::from_value(pick("device")).ok()?;
        let engine = self
            .engine
            .keys()
            .map(|g| Some((*g, serde_json::from_value(pick(g.name())).ok()?)))
            .collect::<Option<_>>()?;
        Some(Self {
            fitted: self.fitted.clone(),
            device,
            engine,
        })
    }
}

fn flatten(section: &str, part: &impl Serialize, out: &mut Vec<(String, f64)>) {
    let value = serde_json::to_value(part).unwrap_or_default();
    for (name, value) in value.as_object().into_iter().flatten() {
        out.push((
            format!("{section}.{name}"),
            value.as_f64().unwrap_or(f64::NAN),
        ));
    }
}

/// Who makes a device; shares of the peak differ more between makers than between their devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Maker {
    /// NVIDIA, and whoever is not told apart.
    Nvidia,
    /// AMD Instinct.
    Amd,
    /// Intel Gaudi, Data Center GPU Max and Arc.
    Intel,
}

impl Maker {
    /// The maker by the catalog's vendor.
    #[must_use]
    pub fn of(gpu: &GpuType) -> Self {
        if gpu.vendor.eq_ignore_ascii_case("AMD") {
            Self::Amd
        } else if gpu.vendor.eq_ignore_ascii_case("Intel") {
            Self::Intel
        } else {
            Self::Nvidia
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_constants_parse_and_come_back_from_their_values() {
        let constants = Constants::parse(EMBEDDED).unwrap();
        let numbers: Vec<f64> = constants.values().into_iter().map(|(_, v)| v).collect();
        assert_eq!(constants.with_values(&numbers).as_ref(), Some(&constants));
        assert_eq!(constants.with_values(&numbers[1..]), None);
        let doubled: Vec<f64> = numbers.iter().map(|v| 2.0 * v).collect();
        let doubled = constants.with_values(&doubled).unwrap();
        let was = constants.engine(EngineGeneration::Sglang).step_overhead_ms;
        let is = doubled.engine(EngineGeneration::Sglang).step_overhead_ms;
        assert!((is - 2.0 * was).abs() < 1e-12);
    }

    #[test]
    fn bad_constants_are_refused_by_name() {
        let negative = EMBEDDED.replacen("link_fraction = ", "link_fraction = -", 1);
        assert!(
            Constants::parse(&negative)
                .unwrap_err()
                .contains("link_fraction")
        );
        let unknown = EMBEDDED.replacen("link_fraction", "lnk_fraction", 1);
        assert!(
            Constants::parse(&unknown)
                .unwrap_err()
                .contains("lnk_fraction")
        );
    }
}
