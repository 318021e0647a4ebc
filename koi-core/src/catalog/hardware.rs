//! GPU types and instance types: what the hardware can do, and how much of it engines reach.
//!
//! Peaks are dense figures from the vendor's data sheets (never the figure with sparsity); fits
//! are what measured serving reaches of them. Spec §17.11; `configs/catalog/hardware` names the
//! source of every row.

mod row;

pub(super) use row::{ArchitectureRow, GpuRow, PeakRow, positive_of_fit};

use serde::{Deserialize, Serialize};

use super::engine::Checked;
use crate::model::WeightDtype;

/// Dense peak of floating-point (or integer) operations per second, by format.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PeakFlops {
    /// 16-bit products as engines run them: bfloat16, or half where the device has no bfloat16.
    pub bf16: f64,
    /// Whether the device computes in bfloat16.
    pub has_bf16: bool,
    /// 32-bit float, as the engine runs it.
    pub fp32: f64,
    /// 32-bit range with a short fraction.
    pub tf32: Option<f64>,
    /// IEEE half.
    pub fp16: Option<f64>,
    /// 8-bit float, where the device computes in it.
    pub fp8: Option<f64>,
    /// 8-bit integer, where the device computes in it.
    pub int8: Option<f64>,
    /// 4-bit float, where the device computes in it.
    pub fp4: Option<f64>,
}

/// A link between the GPUs of one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// The scale-up fabric: NVLink, or what other vendors have in its place.
    Nvlink,
    /// PCIe through the host.
    Pcie,
}

/// The scale-up fabric of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScaleUp {
    /// None: devices meet on PCIe.
    #[default]
    None,
    /// NVLink through switches or a mesh.
    Nvlink,
    /// NVLink bridges between neighbours.
    NvlinkBridge,
    /// AMD Infinity Fabric.
    Xgmi,
    /// Intel Xe Link.
    XeLink,
    /// Ethernet on the device.
    Roce,
}

impl ScaleUp {
    /// The word in the catalog.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Nvlink => "nvlink",
            Self::NvlinkBridge => "nvlink_bridge",
            Self::Xgmi => "xgmi",
            Self::XeLink => "xe_link",
            Self::Roce => "roce",
        }
    }
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

/// A share of a GPU as a device of its own.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MigSlice {
    /// Id of the whole GPU's type.
    pub of: String,
    /// Share of its multiprocessors.
    pub share: f64,
}

/// One GPU type (or the CPU as one).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuType {
    /// Catalog id, the last part of an environment.
    pub id: String,
    /// Names that drivers, clouds and benchmarks use.
    pub aliases: Vec<String>,
    /// True for processors that take the part of a GPU: engines are then told what their CPU
    /// build needs.
    pub is_cpu: bool,
    /// Vendor.
    pub vendor: String,
    /// Architecture: an id of `hardware/architectures.toml`.
    pub architecture: String,
    /// CUDA compute capability, or the gfx target of AMD devices.
    pub compute_capability: Option<String>,
    /// Multiprocessors, or compute units.
    pub compute_units: Option<u32>,
    /// Memory in bytes that the driver reports.
    pub memory_bytes: f64,
    /// Peak memory bandwidth in bytes per second.
    pub bandwidth_bytes_per_second: f64,
    /// Dense peaks.
    pub peak_flops: PeakFlops,
    /// Scale-up fabric.
    pub scale_up: ScaleUp,
    /// Scale-up bytes per second that one GPU can send over all its links; named after the fabric
    /// that the first devices had.
    pub nvlink_bytes_per_second: Option<f64>,
    /// GPUs that reach one another over the fabric; 1 without one.
    pub scale_up_gpus: u32,
    /// PCIe bytes per second that one GPU can send.
    pub pcie_bytes_per_second: f64,
    /// Board power limit in watts.
    pub power_limit_w: f64,
    /// Power of an idle device in watts.
    pub power_idle_w: f64,
    /// The share of a GPU that this device is.
    pub mig: Option<MigSlice>,
    /// What serving reaches of the peaks.
    pub fit: Fit,
    /// True when `fit` is this type's own and not its architecture's.
    pub is_fitted: bool,
    /// How the figures came to be known.
    pub checked: Checked,
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
            | WeightDtype::Int4 => peaks.bf16,
            WeightDtype::Mxfp4 | WeightDtype::Nvfp4 => peaks.fp4.unwrap_or(peaks.bf16),
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
    /// Virtual processors, where the source says.
    #[serde(default)]
    pub vcpus: Option<u32>,
    /// Host memory in MiB, where the source says.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// Network bandwidth in Mbit/s, where the source says.
    #[serde(default)]
    pub network_mbit_per_second: Option<u64>,
    /// Local disks in GB, where the source says.
    #[serde(default)]
    pub local_nvme_gb: Option<u64>,
    /// On-demand list price in USD per hour, when the source has one.
    #[serde(default)]
    pub on_demand_usd_per_hour: Option<f64>,
    /// Region of that price.
    #[serde(default)]
    pub list_region: Option<String>,
    /// Where price and shape come from, with the date.
    pub source: String,
}

impl InstanceType {
    /// On-demand list price of one GPU for an hour.
    #[must_use]
    pub fn usd_per_gpu_hour(&self) -> Option<f64> {
        self.on_demand_usd_per_hour
            .map(|usd| usd / f64::from(self.gpus.max(1)))
    }
}
