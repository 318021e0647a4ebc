//! What one device reaches under one engine: data-sheet peaks times calibrated shares.
//!
//! Not the work: that is [`super::roofline`]. A processor in the part of a GPU has shares of its own
//! in the catalog. Spec §4.

use super::Deployment;
use super::constants::{DeviceConstants, EngineConstants, Maker};
use crate::catalog::Link;
use crate::configuration::Term;

/// Peaks that exceed the 16-bit peak by more than this are those of an 8-bit format.
const EIGHT_BIT_SPEEDUP: f64 = 1.5;
/// And by more than this, those of a 4-bit format.
const FOUR_BIT_SPEEDUP: f64 = 3.0;

/// The catalog's name of the generation for which attention kernels of a third kind exist.
const HOPPER: &str = "hopper";

/// GPUs behind one socket of a host whose GPUs meet on PCIe: such hosts have eight, on two sockets.
const PCIE_GPUS_PER_SOCKET: u32 = 4;

/// Rates of one device under one engine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    pub(super) linear_flops: f64,
    pub(super) expert_flops: f64,
    pub(super) attention_flops: f64,
    pub(super) head_flops: f64,
    pub(super) weight_bytes: f64,
    pub(super) expert_bytes: f64,
    pub(super) cache_bytes: f64,
    pub(super) link_bytes: f64,
    pub(super) allreduce_seconds: f64,
}

impl Rates {
    pub(super) fn of(
        deployment: &Deployment<'_>,
        device: &DeviceConstants,
        engine: &EngineConstants,
    ) -> Self {
        let gpu = deployment.gpu;
        let dtype = deployment.model.served_dtype(deployment.shape.weight_dtype);
        let (peak, half_peak) = (gpu.peak_for(dtype), gpu.peak_flops.bf16);
        let (link, link_bytes) = gpu.best_link();
        if gpu.is_cpu {
            return Self::of_processor(deployment, peak, link_bytes);
        }
        let fraction = if peak > FOUR_BIT_SPEEDUP * half_peak {
            device.compute_fraction_4_bit
        } else if peak > EIGHT_BIT_SPEEDUP * half_peak {
            device.compute_fraction_8_bit
        } else {
            device.compute_fraction_16_bit
        };
        let (compute, bandwidth) = match Maker::of(gpu) {
            Maker::Nvidia => (1.0, 1.0),
            Maker::Amd => (device.amd_compute_ratio, device.amd_bandwidth_ratio),
            Maker::Intel => (device.intel_compute_ratio, device.intel_bandwidth_ratio),
        };
        let compute = compute * engine.compute_ratio;
        let bytes = gpu.bandwidth_bytes_per_second * bandwidth;
        let weight_bytes = bytes * device.bandwidth_fraction * engine.bandwidth_ratio;
        let (latency_us, contention) = match link {
            Link::Nvlink => (device.allreduce_latency_us, 1.0),
            Link::Pcie => (
                device.pcie_allreduce_latency_us,
                pcie_slowdown(device, deployment.shape.tp),
            ),
        };
        Self {
            linear_flops: peak * fraction * compute,
            expert_flops: peak * fraction * compute * device.expert_compute_ratio,
            attention_flops: half_peak * device.attention_compute_fraction * compute,
            head_flops: half_peak * device.compute_fraction_16_bit * compute,
            weight_bytes,
            expert_bytes: weight_bytes * device.expert_bandwidth_ratio,
            cache_bytes: bytes * device.cache_bandwidth_fraction * engine.cache_bandwidth_ratio,
            link_bytes: link_bytes * device.link_fraction / contention,
            allreduce_seconds: latency_us * 1e-6,
        }
    }

    /// The same with other kernels or collectives, where settings choose them.
    pub(super) fn under_settings(self, deployment: &Deployment<'_>) -> Self {
        let effects = &deployment.shape.effects;
        if effects.is_neutral() {
            return self;
        }
        let gpu = deployment.gpu;
        let experts = effects.get(Term::ExpertComputeFactor);
        let mut attention = effects.get(Term::AttentionComputeFactor);
        if gpu.architecture == HOPPER {
            attention *= effects.get(Term::HopperAttentionFactor);
        }
        let mut latency = effects.get(Term::AllreduceLatencyFactor);
        if gpu.best_link().0 == Link::Nvlink {
            latency *= effects.get(Term::NvlinkLatencyFactor);
        }
        Self {
            linear_flops: self.linear_flops * effects.get(Term::LinearComputeFactor),
            expert_flops: self.expert_flops * experts,
            expert_bytes: self.expert_bytes * experts,
            attention_flops: self.attention_flops * attention,
            cache_bytes: self.cache_bytes * effects.get(Term::CacheBandwidthFactor),
            allreduce_seconds: self.allreduce_seconds * latency,
            ..self
        }
    }

    /// A processor in the part of a GPU has shares of its own, in the catalog.
    fn of_processor(deployment: &Deployment<'_>, peak: f64, link_bytes: f64) -> Self {
        let (gpu, fit) = (deployment.gpu, deployment.gpu.fit);
        let bytes = gpu.bandwidth_bytes_per_second * fit.bandwidth_fraction;
        let half = gpu.peak_flops.bf16 * fit.compute_fraction;
        Self {
            linear_flops: peak * fit.compute_fraction,
            expert_flops: peak * fit.compute_fraction,
            attention_flops: half,
            head_flops: half,
            weight_bytes: bytes,
            expert_bytes: bytes,
            cache_bytes: bytes,
            link_bytes: link_bytes * fit.link_fraction,
            allreduce_seconds: fit.allreduce_latency_us * 1e-6,
        }
    }
}

/// How many times less of its link each GPU of a group on PCIe gets than one of a pair.
///
/// # Formula
/// (1 + k·(1 − 2/n)) · s, s = 1 while the group fits one socket
fn pcie_slowdown(device: &DeviceConstants, group: u32) -> f64 {
    let beyond_a_pair = 1.0 - 2.0 / f64::from(group.max(2));
    let shared = device.pcie_contention.mul_add(beyond_a_pair, 1.0);
    if group > PCIE_GPUS_PER_SOCKET {
        shared * device.pcie_socket_crossing
    } else {
        shared
    }
}
