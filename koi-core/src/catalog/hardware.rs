//! GPU types and instance types: what the hardware can do, and how much of it engines reach.
//!
//! Peaks are dense figures from the vendor's data sheets (never the figure with sparsity); fits
//! are what measured serving reaches of them. Spec §17.11; `configs/catalog/hardware.toml` names
//! the source of every row.

use serde::{Deserialize, Serialize};

use crate::model::WeightDtype;

/// Dense peak of floating-point (or integer) operations per second, by format.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeakFlops {
    /// bfloat16 and half.
    pub bf16: f64,
    /// 32-bit float, as the engine runs it.
    pub fp32: f64,
    /// 8-bit float, where the device computes in it.
    #[serde(default)]
    pub fp8: Option<f64>,
    /// 8-bit integer, where the device computes in it.
    #[serde(default)]
    pub int8: Option<f64>,
}

/// A link between the GPUs of one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// NVLink with all-to-all reach.
    Nvlink,
    /// PCIe through the host.
    Pcie,
}

/// What serving reaches of the peaks; constants of the analytic surrogate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// Share of the peak that large matrix products reach.
    pub compute_fraction: f64,
    /// Share of the memory bandwidth that decoding reaches.
    pub bandwidth_fraction: f64,
    /// Share of the link bandwidth that all-reduces reach.
    pub link_fraction: f64,
    /// Time of one all-reduce between two GPUs beyond its bytes, in microseconds; every doubling
    /// of the group adds half of it.
    pub allreduce_latency_us: f64,
    /// Time of one engine step beyond the roofline with captured graphs, in milliseconds.
    pub step_overhead_ms: f64,
    /// Time that each layer adds to a step without captured graphs, in microseconds.
    pub eager_layer_overhead_us: f64,
    /// Bytes per second at which one GPU takes in weights from a warm disk.
    pub load_bytes_per_second: f64,
    /// Device bytes that the runtime holds before any weight is there.
    pub reserved_bytes: f64,
}

/// One GPU type (or the CPU as one).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuType {
    /// Catalog id, the last part of an environment.
    pub id: String,
    /// Names that drivers and clouds use.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// True for processors that take the part of a GPU: engines are then told what their CPU
    /// build needs.
    #[serde(default)]
    pub is_cpu: bool,
    /// Memory in bytes that the driver reports.
    pub memory_bytes: f64,
    /// Peak memory bandwidth in bytes per second.
    pub bandwidth_bytes_per_second: f64,
    /// Dense peaks.
    pub peak_flops: PeakFlops,
    /// NVLink bytes per second that one GPU can send, where it has NVLink.
    #[serde(default)]
    pub nvlink_bytes_per_second: Option<f64>,
    /// PCIe bytes per second that one GPU can send.
    pub pcie_bytes_per_second: f64,
    /// Board power limit in watts.
    pub power_limit_w: f64,
    /// Power of an idle device in watts.
    pub power_idle_w: f64,
    /// What serving reaches of the peaks.
    pub fit: Fit,
    /// Where the figures come from.
    pub source: String,
}

impl GpuType {
    /// Whether a driver or a cloud uses this name for the type; letter case does not matter.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.id.eq_ignore_ascii_case(name)
            || self
                .aliases
                .iter()
                .any(|alias| alias.eq_ignore_ascii_case(name))
    }

    /// The link that tensor parallelism inside one host uses, and its bytes per second one way.
    #[must_use]
    pub fn best_link(&self) -> (Link, f64) {
        self.nvlink_bytes_per_second
            .map_or((Link::Pcie, self.pcie_bytes_per_second), |bytes| {
                (Link::Nvlink, bytes)
            })
    }

    /// Dense peak for weights of a format; formats that the device cannot compute in are widened
    /// to 16 bits on the fly and run at that peak.
    #[must_use]
    pub fn peak_for(&self, dtype: WeightDtype) -> f64 {
        let peaks = self.peak_flops;
        match dtype {
            WeightDtype::Fp32 => peaks.fp32,
            WeightDtype::Fp8 => peaks.fp8.unwrap_or(peaks.bf16),
            // Weight-only integer formats multiply in 16 bits.
            WeightDtype::Auto
            | WeightDtype::Bf16
            | WeightDtype::Fp16
            | WeightDtype::Int8
            | WeightDtype::Int4
            | WeightDtype::Mxfp4
            | WeightDtype::Nvfp4 => peaks.bf16,
        }
    }
}

/// A machine type of a cloud.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceType {
    /// The cloud's name for it.
    pub id: String,
    /// Cloud.
    pub cloud: String,
    /// GPU type id.
    pub gpu_type: String,
    /// GPUs in the machine.
    pub gpus: u32,
    /// On-demand price in USD per hour, when the source has one.
    #[serde(default)]
    pub on_demand_usd_per_hour: Option<f64>,
    /// Where price and shape come from, with the date.
    pub source: String,
}
