//! Figures in another unit are refused with the field and the range; every shipped row passes.

use super::*;

#[test]
fn figures_in_another_unit_are_refused_with_the_field() {
    let nvidia = "hardware/nvidia.toml";
    for (field, from, to) in [
        ("T4.memory_bytes", "= 16106127360.0 ", "= 15.0 "),
        ("T4.memory_bytes", "= 16106127360.0 ", "= 16106127360.0e6 "),
        ("T4.bandwidth_bytes_per_second", "0.32e12", "320.0"),
        ("T4.bandwidth_bytes_per_second", "0.32e12", "0.32e15"),
        ("T4.peak_flops.fp16", "fp16 = 65.0e12", "fp16 = 65.0"),
        ("T4.peak_flops", "fp16 = 65.0e12", "fp16 = 65.0e15"),
        ("T4.pcie_bytes_per_second", "= 16.0e9", "= 16.0"),
        ("T4.power_limit_w", "limit_w = 70.0", "limit_w = 70000.0"),
        ("T4.power_idle_w", "idle_w = 10.0", "idle_w = 90.0"),
        ("L4.peak_flops.fp8", "fp8 = 242.5e12", "fp8 = 24.25e12"),
        ("L4.peak_flops.fp8", "fp8 = 242.5e12", "fp8 = 2425.0e12"),
    ] {
        check_refused(nvidia, &[field], from, to);
    }
    let aws = "instances/aws.toml";
    for (field, from, to) in [
        ("memory_mib", "memory_mib = 196608", "memory_mib = 192"),
        (
            "memory_mib",
            "memory_mib = 196608",
            "memory_mib = 206158430208",
        ),
        ("on_demand_usd_per_hour", "= 3.912", "= 39120.0"),
    ] {
        check_refused(aws, &[&format!("g4dn.12xlarge.{field}")], from, to);
    }
}

#[test]
fn every_field_that_is_out_of_range_is_told_at_once() {
    let problems = embedded_with("hardware/nvidia.toml", |text| {
        *text = text.replacen("= 16106127360.0 ", "= 15.0 ", 1).replacen(
            "power_limit_w = 70.0",
            "power_limit_w = 0.07",
            1,
        );
    });
    let text = shown(&problems.err().unwrap());
    for words in [
        "T4.memory_bytes",
        "1 GiB to 4 TiB, in bytes",
        "T4.power_limit_w",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
}
