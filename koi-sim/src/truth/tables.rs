//! The simulator's own numbers: what each GPU type really does, as points that are interpolated in
//! log-log. They belong to no published formula on purpose.

/// How devices of one host talk to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// All-to-all NVLink of the Hopper and Blackwell generations.
    NvlinkFast,
    /// NVLink of the Ampere generation, and Infinity Fabric.
    NvlinkSlow,
    /// PCIe through the root complex.
    Pcie,
}

/// Points `(x, y)` with rising positive x and positive y.
pub(crate) type Curve = &'static [(f64, f64)];

/// Everything measured about one GPU type.
#[derive(Debug)]
pub struct GpuTable {
    /// Catalog id that this row answers to, upper case.
    pub name: &'static str,
    /// Tokens in a pass → milliseconds per 10⁹ half-precision weights.
    pub(crate) pass_ms_per_gparam: Curve,
    /// Sequences → GB/s at which decode attention reads the cache.
    pub(crate) cache_read_gb_s: Curve,
    /// Context length → TFLOP/s of prefill attention.
    pub(crate) attention_tflops: Curve,
    /// Microseconds a layer costs besides its work, with captured graphs and without.
    pub(crate) layer_us: (f64, f64),
    /// Milliseconds of host work in every step.
    pub(crate) host_ms: f64,
    /// Whether 8-bit weights also speed up the arithmetic.
    pub(crate) fast_eight_bit: bool,
    /// Links inside a host.
    pub link: Link,
    /// Peak memory bandwidth in GB/s, for the utilization counters.
    pub(crate) peak_gb_s: f64,
    /// Peak dense half-precision TFLOP/s, for the utilization counters.
    pub(crate) peak_tflops: f64,
    /// Watts above idle at full work.
    pub dynamic_power_w: f64,
}

/// The table of a GPU type; ids such as `H100-SXM` or `A100-80GB` find their generation.
#[must_use]
pub fn gpu_table(gpu_type: &str) -> Option<&'static GpuTable> {
    let id = gpu_type.to_ascii_uppercase();
    GPUS.iter().find(|gpu| id.contains(gpu.name))
}

/// Longer names first, so that `L40S` is not taken for `L4`.
#[rustfmt::skip] // one row of points stays one line of text
static GPUS: [GpuTable; 8] = [
    GpuTable {
        name: "H100",
        pass_ms_per_gparam: &[
            (1.0, 0.86), (8.0, 0.87), (32.0, 0.90), (64.0, 0.95), (128.0, 1.06), (256.0, 1.45),
            (512.0, 2.62), (1024.0, 5.2), (2048.0, 10.3), (4096.0, 20.9), (8192.0, 42.3), (16384.0, 85.5),
        ],
        cache_read_gb_s: &[(1.0, 640.0), (4.0, 1270.0), (16.0, 1880.0), (64.0, 2240.0), (256.0, 2390.0)],
        attention_tflops: &[(256.0, 95.0), (1024.0, 190.0), (4096.0, 300.0), (32768.0, 370.0)],
        layer_us: (20.0, 78.0),
        host_ms: 0.78,
        fast_eight_bit: true,
        link: Link::NvlinkFast,
        peak_gb_s: 3350.0,
        peak_tflops: 989.0,
        dynamic_power_w: 590.0,
    },
    GpuTable {
        name: "H200",
        pass_ms_per_gparam: &[
            (1.0, 0.60), (8.0, 0.61), (32.0, 0.64), (64.0, 0.70), (128.0, 0.86), (256.0, 1.36),
            (512.0, 2.58), (1024.0, 5.1), (2048.0, 10.1), (4096.0, 20.6), (8192.0, 41.8), (16384.0, 84.5),
        ],
        cache_read_gb_s: &[(1.0, 850.0), (4.0, 1720.0), (16.0, 2650.0), (64.0, 3200.0), (256.0, 3480.0)],
        attention_tflops: &[(256.0, 96.0), (1024.0, 192.0), (4096.0, 305.0), (32768.0, 376.0)],
        layer_us: (20.0, 78.0),
        host_ms: 0.78,
        fast_eight_bit: true,
        link: Link::NvlinkFast,
        peak_gb_s: 4800.0,
        peak_tflops: 989.0,
        dynamic_power_w: 600.0,
    },
    GpuTable {
        name: "B200",
        pass_ms_per_gparam: &[
            (1.0, 0.38), (8.0, 0.39), (32.0, 0.42), (64.0, 0.46), (128.0, 0.55), (256.0, 0.80),
            (512.0, 1.34), (1024.0, 2.5), (2048.0, 4.9), (4096.0, 9.7), (8192.0, 19.4), (16384.0, 38.9),
        ],
        cache_read_gb_s: &[(1.0, 1150.0), (4.0, 2400.0), (16.0, 4000.0), (64.0, 5100.0), (256.0, 5700.0)],
        attention_tflops: &[(256.0, 160.0), (1024.0, 350.0), (4096.0, 640.0), (32768.0, 830.0)],
        layer_us: (15.0, 70.0),
        host_ms: 0.60,
        fast_eight_bit: true,
        link: Link::NvlinkFast,
        peak_gb_s: 8000.0,
        peak_tflops: 2250.0,
        dynamic_power_w: 850.0,
    },
    GpuTable {
        name: "A100",
        pass_ms_per_gparam: &[
            (1.0, 1.30), (8.0, 1.32), (32.0, 1.37), (64.0, 1.48), (128.0, 1.78), (256.0, 2.85),
            (512.0, 5.3), (1024.0, 10.4), (2048.0, 20.6), (4096.0, 42.0), (8192.0, 84.5), (16384.0, 170.0),
        ],
        cache_read_gb_s: &[(1.0, 480.0), (4.0, 870.0), (16.0, 1210.0), (64.0, 1390.0), (256.0, 1460.0)],
        attention_tflops: &[(256.0, 60.0), (1024.0, 105.0), (4096.0, 150.0), (32768.0, 172.0)],
        layer_us: (20.0, 79.0),
        host_ms: 0.74,
        fast_eight_bit: false,
        link: Link::NvlinkSlow,
        peak_gb_s: 2039.0,
        peak_tflops: 312.0,
        dynamic_power_w: 330.0,
    },
    GpuTable {
        name: "L40S",
        pass_ms_per_gparam: &[
            (1.0, 2.82), (8.0, 2.84), (32.0, 2.90), (64.0, 3.05), (128.0, 3.5), (256.0, 4.7),
            (512.0, 7.6), (1024.0, 13.9), (2048.0, 26.8), (4096.0, 53.0), (8192.0, 107.0), (16384.0, 217.0),
        ],
        cache_read_gb_s: &[(1.0, 290.0), (4.0, 450.0), (16.0, 590.0), (64.0, 655.0), (256.0, 680.0)],
        attention_tflops: &[(256.0, 52.0), (1024.0, 90.0), (4096.0, 118.0), (32768.0, 130.0)],
        layer_us: (18.0, 76.0),
        host_ms: 0.80,
        fast_eight_bit: true,
        link: Link::Pcie,
        peak_gb_s: 864.0,
        peak_tflops: 362.0,
        dynamic_power_w: 270.0,
    },
    GpuTable {
        name: "MI300X",
        pass_ms_per_gparam: &[
            (1.0, 0.68), (8.0, 0.70), (32.0, 0.78), (64.0, 0.92), (128.0, 1.25), (256.0, 2.0),
            (512.0, 3.5), (1024.0, 6.5), (2048.0, 12.4), (4096.0, 24.6), (8192.0, 50.0), (16384.0, 101.0),
        ],
        cache_read_gb_s: &[(1.0, 700.0), (4.0, 1500.0), (16.0, 2500.0), (64.0, 3100.0), (256.0, 3400.0)],
        attention_tflops: &[(256.0, 80.0), (1024.0, 170.0), (4096.0, 270.0), (32768.0, 330.0)],
        layer_us: (26.0, 95.0),
        host_ms: 0.90,
        fast_eight_bit: true,
        link: Link::NvlinkSlow,
        peak_gb_s: 5300.0,
        peak_tflops: 1307.0,
        dynamic_power_w: 600.0,
    },
    GpuTable {
        name: "A10G",
        pass_ms_per_gparam: &[
            (1.0, 4.0), (8.0, 4.05), (32.0, 4.2), (64.0, 4.6), (128.0, 6.3), (256.0, 11.2),
            (512.0, 21.0), (1024.0, 41.0), (2048.0, 80.0), (4096.0, 160.0), (8192.0, 320.0), (16384.0, 645.0),
        ],
        cache_read_gb_s: &[(1.0, 210.0), (4.0, 330.0), (16.0, 420.0), (64.0, 460.0), (256.0, 475.0)],
        attention_tflops: &[(256.0, 24.0), (1024.0, 38.0), (4096.0, 49.0), (32768.0, 54.0)],
        layer_us: (22.0, 88.0),
        host_ms: 0.95,
        fast_eight_bit: false,
        link: Link::Pcie,
        peak_gb_s: 600.0,
        peak_tflops: 125.0,
        dynamic_power_w: 240.0,
    },
    GpuTable {
        name: "L4",
        pass_ms_per_gparam: &[
            (1.0, 7.9), (8.0, 7.95), (32.0, 8.1), (64.0, 8.5), (128.0, 9.8), (256.0, 13.6),
            (512.0, 22.3), (1024.0, 40.5), (2048.0, 78.0), (4096.0, 155.0), (8192.0, 312.0), (16384.0, 630.0),
        ],
        cache_read_gb_s: &[(1.0, 120.0), (4.0, 175.0), (16.0, 215.0), (64.0, 235.0), (256.0, 242.0)],
        attention_tflops: &[(256.0, 18.0), (1024.0, 31.0), (4096.0, 41.0), (32768.0, 45.0)],
        layer_us: (20.0, 82.0),
        host_ms: 0.85,
        fast_eight_bit: true,
        link: Link::Pcie,
        peak_gb_s: 300.0,
        peak_tflops: 121.0,
        dynamic_power_w: 58.0,
    },
];

/// Tokens in a pass → time relative to half precision, 8-bit weights with fast arithmetic.
#[rustfmt::skip]
pub(crate) const EIGHT_BIT_FAST: Curve =
    &[(1.0, 0.57), (32.0, 0.58), (128.0, 0.62), (512.0, 0.70), (2048.0, 0.66), (8192.0, 0.64)];
/// The same where 8-bit weights are only stored.
#[rustfmt::skip]
pub(crate) const EIGHT_BIT_STORED: Curve =
    &[(1.0, 0.60), (32.0, 0.63), (128.0, 0.82), (512.0, 1.02), (2048.0, 1.06), (8192.0, 1.07)];
/// 4-bit weights, unpacked before the arithmetic.
#[rustfmt::skip]
pub(crate) const FOUR_BIT: Curve =
    &[(1.0, 0.36), (16.0, 0.38), (64.0, 0.52), (128.0, 0.80), (512.0, 1.08), (8192.0, 1.10)];
/// 32-bit floats.
#[rustfmt::skip]
pub(crate) const FLOAT32: Curve = &[(1.0, 2.02), (32.0, 2.1), (256.0, 4.2), (8192.0, 7.5)];

/// Width of a shard's rows (hidden size over tensor width) → slow-down of its matrix products.
#[rustfmt::skip]
pub(crate) const SHARD_SLOWDOWN: Curve = &[
    (64.0, 3.4), (256.0, 2.0), (512.0, 1.52), (1024.0, 1.22), (2048.0, 1.08), (4096.0, 1.0), (8192.0, 0.97),
];

/// Share of prefill tokens in a step (per mille) → slow-down of a mixed step.
#[rustfmt::skip]
pub(crate) const MIXING_SLOWDOWN: Curve =
    &[(1.0, 1.0), (60.0, 1.03), (250.0, 1.08), (500.0, 1.13), (800.0, 1.15), (960.0, 1.06), (1000.0, 1.0)];

/// Sequences in a step → milliseconds of scheduling, sampling and output work.
#[rustfmt::skip]
pub(crate) const SEQUENCE_HOST_MS: Curve =
    &[(1.0, 0.05), (8.0, 0.12), (32.0, 0.32), (128.0, 0.95), (512.0, 3.4), (1024.0, 7.2)];

/// Message bytes → microseconds of one all-reduce over four devices.
#[rustfmt::skip]
pub(crate) const fn all_reduce_us(link: Link) -> Curve {
    match link {
        Link::NvlinkFast => &[(8e3, 8.0), (64e3, 9.5), (512e3, 14.0), (4e6, 31.0), (32e6, 165.0), (256e6, 1250.0)],
        Link::NvlinkSlow => &[(8e3, 10.0), (64e3, 12.5), (512e3, 21.0), (4e6, 52.0), (32e6, 300.0), (256e6, 2300.0)],
        // NCCL 2.27.3 on L40S hosts without a switch between the devices, where every device crosses the
        // same bridges (tables of aiconfigurator, August 2026); large messages a fifth faster, as serving
        // with four shards on AWS g6e was (Tandemn's table of 70B on L40S, December 2025).
        Link::Pcie => &[(8e3, 16.0), (64e3, 50.0), (512e3, 165.0), (4e6, 930.0), (32e6, 7_400.0), (256e6, 59_000.0)],
    }
}

/// Microseconds that the collective library adds to an all-reduce.
pub(crate) const LIBRARY_LATENCY_US: f64 = 9.0;

/// Devices in a collective → time relative to four devices. Over PCIe they share bridges: from two to
/// four as in the same tables. With eight, serving on AWS g6e (Tandemn's table of 70B on L40S, December
/// 2025) lost far less than the 3.3 times of that host's collectives.
#[rustfmt::skip]
pub(crate) const fn collective_width(link: Link) -> Curve {
    match link {
        Link::NvlinkFast | Link::NvlinkSlow => &[(2.0, 0.72), (4.0, 1.0), (8.0, 1.27), (16.0, 1.9)],
        Link::Pcie => &[(2.0, 0.27), (4.0, 1.0), (8.0, 1.6), (16.0, 3.0)],
    }
}

/// The value of a curve: log-log between points, level below the first, the last slope beyond.
pub(crate) fn at(curve: Curve, x: f64) -> f64 {
    let last = curve.len() - 1;
    if x <= curve[0].0 || last == 0 {
        return curve[0].1;
    }
    let upper = curve
        .iter()
        .position(|point| point.0 >= x)
        .unwrap_or(last)
        .max(1);
    let ((x0, y0), (x1, y1)) = (curve[upper - 1], curve[upper]);
    let share = (x / x0).ln() / (x1 / x0).ln();
    (y0.ln() + share * (y1 / y0).ln()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_own_row() {
        for (id, want) in [
            ("H100", "H100"),
            ("h100-sxm", "H100"),
            ("L40S", "L40S"),
            ("L4", "L4"),
            ("A100-80GB", "A100"),
            ("A10G", "A10G"),
            ("MI300X", "MI300X"),
        ] {
            assert_eq!(gpu_table(id).map(|gpu| gpu.name), Some(want), "{id}");
        }
        assert!(gpu_table("RTX-9999").is_none());
    }

    #[test]
    fn curves_pass_through_their_points_and_go_on() {
        let curve: Curve = &[(1.0, 2.0), (4.0, 2.0), (16.0, 8.0)];
        for (x, want) in [
            (0.5, 2.0),
            (4.0, 2.0),
            (8.0, 4.0),
            (16.0, 8.0),
            (32.0, 16.0),
        ] {
            assert!(
                (at(curve, x) - want).abs() < 1e-9,
                "at {x}: {}",
                at(curve, x)
            );
        }
    }

    #[test]
    fn every_pass_time_rises_and_every_curve_is_ordered() {
        for gpu in &GPUS {
            for pair in gpu.pass_ms_per_gparam.windows(2) {
                assert!(
                    pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1,
                    "{}",
                    gpu.name
                );
            }
        }
    }
}
