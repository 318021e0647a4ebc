//! Checks of architectures, GPU types and instance types.

use std::collections::{BTreeMap, BTreeSet};

use super::super::hardware::positive_of_fit;
use super::super::load::Rows;
use super::super::{Fit, GpuRow, InstanceType, ScaleUp};
use super::bounds;
use crate::violation::Violations;

pub(in crate::catalog) fn check(rows: &Rows, problems: &mut Violations) {
    let mut architectures = BTreeSet::new();
    for (file, row) in &rows.architectures {
        let at = format!("{file}.{}", row.id);
        if !architectures.insert(row.id.as_str()) {
            problems.add(&*at, "is used twice among architectures");
        }
        if row.vendor.is_empty() || row.source.is_empty() {
            problems.add(&*at, "names its vendor and its source");
        }
        check_positive(&at, positive_of_fit(&row.fit), problems);
        check_fractions(&at, &row.fit, problems);
    }
    let gpus: BTreeMap<&str, &GpuRow> = rows.gpus.iter().map(|(_, g)| (&*g.id, g)).collect();
    let mut names = BTreeSet::new();
    for (file, gpu) in &rows.gpus {
        for name in std::iter::once(&gpu.id).chain(&gpu.aliases) {
            if !names.insert(name.to_lowercase()) {
                problems.add(format!("{file}.{name}"), "is used twice among GPU names");
            }
        }
        let at = format!("{file}.{}", gpu.id);
        check_gpu(&at, gpu, problems);
        if !architectures.contains(gpu.architecture.as_str()) {
            problems.add(
                &*at,
                format!("{:?} is not an architecture", gpu.architecture),
            );
        }
        let parent = gpu.mig_of.as_deref();
        if parent.is_some_and(|of| !gpus.contains_key(of)) {
            problems.add(
                at,
                format!("{:?} is not a GPU type", parent.unwrap_or_default()),
            );
        }
    }
    let mut ids = BTreeSet::new();
    for (file, instance) in &rows.instances {
        let at = format!("{file}.{}", instance.id);
        if !ids.insert(&instance.id) {
            problems.add(&*at, "is used twice among instance types");
        }
        if !gpus.contains_key(instance.gpu_type.as_str()) {
            problems.add(&*at, format!("{:?} is not a GPU type", instance.gpu_type));
        }
        check_instance(&at, instance, problems);
    }
}

fn check_instance(at: &str, instance: &InstanceType, problems: &mut Violations) {
    if instance.gpus == 0 || instance.gpus > 64 {
        problems.add(at, "gpus must be from 1 to 64");
    }
    if instance
        .on_demand_usd_per_hour
        .is_some_and(|p| !(p.is_finite() && p > 0.0))
    {
        problems.add(at, "a price is positive or absent");
    }
    if instance.source.is_empty() {
        problems.add(at, "names its source");
    }
    bounds::check_instance(at, instance, problems);
}

fn check_gpu(at: &str, gpu: &GpuRow, problems: &mut Violations) {
    check_positive(at, gpu.positive(), problems);
    bounds::check_gpu(at, gpu, problems);
    if let Some(fit) = gpu.fit() {
        check_fractions(at, fit, problems);
    }
    let peaks = gpu.peak_flops;
    if peaks.fp32.is_none() {
        problems.add(format!("{at}.peak_flops.fp32"), "every device has one");
    }
    if peaks.bf16.or(peaks.fp16).is_none() {
        problems.add(format!("{at}.peak_flops"), "needs bf16 or fp16");
    }
    let is_legal_id = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    if gpu.id.is_empty() || gpu.id.len() > 63 || !gpu.id.bytes().all(is_legal_id) {
        problems.add(at, "an id is 1 to 63 of letters, digits, '-', '_', '.'");
    }
    let has_fabric = gpu.scale_up != ScaleUp::None;
    if gpu.n_links() != usize::from(has_fabric) || (gpu.domain() > 1) != has_fabric {
        problems.add(
            format!("{at}.scale_up"),
            "a fabric has one bandwidth and a domain above one GPU; no fabric has neither",
        );
    }
    if gpu.mig_of.is_some() != gpu.mig_share.is_some() {
        problems.add(format!("{at}.mig_of"), "goes with mig_share");
    }
}

fn check_positive<'a>(
    at: &str,
    values: impl IntoIterator<Item = (&'a str, Option<f64>)>,
    problems: &mut Violations,
) {
    for (name, value) in values {
        if value.is_some_and(|v| !(v.is_finite() && v > 0.0)) {
            problems.add(format!("{at}.{name}"), "must be positive and finite");
        }
        if let Some(value) = value {
            bounds::check_number(at, name, value, problems);
        }
    }
}

fn check_fractions(at: &str, fit: &Fit, problems: &mut Violations) {
    for (name, share) in [
        ("compute_fraction", fit.compute_fraction),
        ("bandwidth_fraction", fit.bandwidth_fraction),
        ("link_fraction", fit.link_fraction),
    ] {
        if !(share > 0.0 && share <= 1.0) {
            problems.add(format!("{at}.fit.{name}"), "must be in (0, 1]");
        }
    }
}
