//! What a number of a device or a machine can be: a figure in the wrong unit lies outside.
//!
//! Bounds are wide, for new hardware must pass; they tell GiB from bytes, GB/s from bytes per second
//! and TFLOP/s from FLOP/s. That a row is positive and finite is checked elsewhere.

use super::super::hardware::PeakRow;
use super::super::price::{MAX_USD_PER_HOUR, MIN_USD_PER_HOUR};
use super::super::{GpuRow, InstanceType};
use crate::violation::Violations;

const GIB: f64 = 1_073_741_824.0;
const TIB: f64 = 1_024.0 * GIB;

/// Field, least, most, and both with the unit in words.
type Bound = (&'static str, f64, f64, &'static str);

const BOUNDS: [Bound; 15] = [
    ("memory_bytes", GIB, 4.0 * TIB, "1 GiB to 4 TiB, in bytes"),
    (
        "bandwidth_bytes_per_second",
        1e10,
        5e13,
        "10 GB/s to 50 TB/s, in bytes per second",
    ),
    ("nvlink_bytes_per_second", 1e9, 5e12, LINK),
    ("xgmi_bytes_per_second", 1e9, 5e12, LINK),
    ("other_link_bytes_per_second", 1e9, 5e12, LINK),
    ("pcie_bytes_per_second", 1e9, 5e12, LINK),
    ("power_limit_w", 5.0, 5e3, "5 W to 5 kW, in watts"),
    ("power_idle_w", 1.0, 5e3, "1 W to 5 kW, in watts"),
    ("mig_share", 0.01, 1.0, "0.01 to 1"),
    (
        "fit.allreduce_latency_us",
        0.1,
        1e5,
        "0.1 µs to 0.1 s, in microseconds",
    ),
    (
        "fit.step_overhead_ms",
        1e-3,
        1e4,
        "1 µs to 10 s, in milliseconds",
    ),
    (
        "fit.eager_layer_overhead_us",
        0.1,
        1e6,
        "0.1 µs to 1 s, in microseconds",
    ),
    (
        "fit.load_bytes_per_second",
        1e6,
        1e12,
        "1 MB/s to 1 TB/s, in bytes per second",
    ),
    ("fit.reserved_bytes", 1e6, 1e11, "1 MB to 100 GB, in bytes"),
    ("peak_flops.fp32", 1e10, 1e18, PEAK),
];
const LINK: &str = "1 GB/s to 5 TB/s, in bytes per second";
const PEAK: &str = "10 GFLOP/s to 1 EFLOP/s, in FLOP/s";
/// Peak over bandwidth, in operations per byte; devices that serve have 25 to 500.
const OPERATIONS_PER_BYTE: (f64, f64) = (4.0, 4_000.0);
/// How much faster a format of half the width can be, kernels of its own and all.
const MOST_SPEED_UP: f64 = 8.0;

/// Reports a number that its field cannot have; fields without bounds pass.
pub(super) fn check_number(at: &str, name: &str, value: f64, problems: &mut Violations) {
    let peak = name.starts_with("peak_flops.").then_some("peak_flops.fp32");
    let wanted = peak.unwrap_or(name);
    let Some((_, least, most, words)) = BOUNDS.into_iter().find(|b| b.0 == wanted) else {
        return;
    };
    if value.is_finite() && value > 0.0 && !(least..=most).contains(&value) {
        problems.add(
            format!("{at}.{name}"),
            format!("{value:e} is outside what there can be: {words}"),
        );
    }
}

/// What numbers of one device say about each other.
pub(super) fn check_gpu(at: &str, gpu: &GpuRow, problems: &mut Violations) {
    check_peaks(at, &gpu.peak_flops, problems);
    let bandwidth = gpu.bandwidth_bytes_per_second;
    let peaks = gpu.peak_flops;
    if let Some(peak) = peaks.bf16.or(peaks.fp16) {
        let ratio = peak / bandwidth;
        let (least, most) = OPERATIONS_PER_BYTE;
        // A row whose peak or bandwidth is none has been told so.
        if ratio.is_finite() && ratio > 0.0 && !(least..=most).contains(&ratio) {
            problems.add(
                format!("{at}.peak_flops"),
                format!(
                    "{ratio:.3} operations per byte of bandwidth are outside {least} to {most}: one of both is in another unit"
                ),
            );
        }
    }
    if gpu.power_idle_w > gpu.power_limit_w {
        problems.add(
            format!("{at}.power_idle_w"),
            "an idle device takes no more than its power limit",
        );
    }
    if gpu
        .fit()
        .is_some_and(|f| f.reserved_bytes >= gpu.memory_bytes)
    {
        problems.add(
            format!("{at}.fit.reserved_bytes"),
            "the runtime leaves some of the memory",
        );
    }
}

/// A narrower format is never slower, and never faster beyond reason.
fn check_peaks(at: &str, peaks: &PeakRow, problems: &mut Violations) {
    let wide = [("bf16", peaks.bf16), ("fp16", peaks.fp16)];
    let wide = wide
        .into_iter()
        .find_map(|(name, peak)| Some((name, peak?)));
    let eight = peaks.fp8.map(|peak| ("fp8", peak));
    let pairs = [(wide, "fp8", peaks.fp8), (eight.or(wide), "fp4", peaks.fp4)];
    for (wide, name, peak) in pairs {
        let (Some((wider, of_wider)), Some(peak)) = (wide, peak) else {
            continue;
        };
        let most = MOST_SPEED_UP * of_wider;
        if !(of_wider..=most).contains(&peak) {
            problems.add(
                format!("{at}.peak_flops.{name}"),
                format!("{peak:e} is not between the {wider} peak, {of_wider:e}, and {MOST_SPEED_UP} times it"),
            );
        }
    }
}

/// What a machine can have.
pub(super) fn check_instance(at: &str, instance: &InstanceType, problems: &mut Violations) {
    let gpus = f64::from(instance.gpus.max(1));
    let whole = |n: Option<u64>| n.map(|n| n as f64);
    let fields = [
        (
            "vcpus",
            instance.vcpus.map(f64::from),
            (1.0, 8_192.0),
            "1 to 8192",
        ),
        (
            "memory_mib",
            whole(instance.memory_mib),
            (1_024.0 * gpus, 64.0 * 1_048_576.0),
            "1 GiB for each GPU to 64 TiB, in MiB",
        ),
        (
            "network_mbit_per_second",
            whole(instance.network_mbit_per_second),
            (10.0, 1e8),
            "10 Mbit/s to 100 Tbit/s, in Mbit/s",
        ),
        (
            "local_nvme_gb",
            whole(instance.local_nvme_gb),
            (1.0, 1e7),
            "1 GB to 10 PB, in GB",
        ),
        (
            "on_demand_usd_per_hour",
            instance.on_demand_usd_per_hour.filter(|usd| *usd > 0.0),
            (MIN_USD_PER_HOUR, MAX_USD_PER_HOUR),
            "0.001 to 10000 USD per hour",
        ),
    ];
    for (name, value, (least, most), words) in fields {
        if value.is_some_and(|v| v.is_finite() && !(least..=most).contains(&v)) {
            problems.add(
                format!("{at}.{name}"),
                format!("is outside what there can be: {words}"),
            );
        }
    }
}
