//! Checks of single rows against the rest of the catalog.
//!
//! Spelling and uniqueness of names are checked where names are collected, in [`super::load`].

use std::collections::BTreeSet;

use super::load::{HardwareFile, Names};
use super::{EngineFlags, Feature, FlagWriter, GpuType, SetBy, Value};
use crate::variables::VariableKind;
use crate::violation::Violations;

/// Units that rows may use; a typo in a unit is a bug in a formula.
const UNITS: [&str; 24] = [
    "none",
    "fraction",
    "ratio",
    "log ratio",
    "tokens",
    "tokens/s",
    "1/s",
    "tok/s",
    "requests",
    "requests/s",
    "sequences",
    "GPUs",
    "nodes",
    "layers",
    "heads",
    "experts",
    "bits",
    "billions",
    "ms",
    "hours",
    "GiB",
    "B/s",
    "B/token",
    "USD/token",
];

pub(super) fn check_sentence(field: String, doc: &str, problems: &mut Violations) {
    let body = doc.strip_suffix('.');
    let first_is_upper = doc.starts_with(|c: char| !c.is_lowercase());
    if body.is_none_or(str::is_empty) || !first_is_upper || doc.contains('\n') {
        problems.add(
            field,
            "doc must be one sentence: a capital at the start, a full stop at the end",
        );
    }
}

fn check_unit(field: String, unit: &str, problems: &mut Violations) {
    if !UNITS.contains(&unit) {
        problems.add(
            field,
            format!("{unit:?} is not a known unit; known: {}", UNITS.join(", ")),
        );
    }
}

pub(super) fn check_feature(
    row: &Feature,
    names: &Names,
    engine: &EngineFlags,
    problems: &mut Violations,
) {
    let at = |what: &str| format!("features.toml.{}.{what}", row.id);
    check_sentence(at("doc"), &row.doc, problems);
    check_unit(at("unit"), &row.unit, problems);
    if !row.domain.is_sound() {
        problems.add(at("domain"), "bounds must be in order and choices present");
    }
    if let Some(Err(message)) = row.default.as_ref().map(|value| row.domain.accept(value)) {
        problems.add(at("default"), message);
    }
    for condition in &row.applies {
        let known = names.get(&condition.feature);
        if !known
            .is_some_and(|(kind, id)| *kind == VariableKind::Feature && *id == condition.feature)
        {
            problems.add(
                at("applies"),
                format!("{:?} is not the id of an X row", condition.feature),
            );
        }
    }
    if row.set_by != SetBy::Planner {
        return;
    }
    if row.default.is_none() != row.optional {
        problems.add(
            at("default"),
            "a planner-set row has either a default or `optional = true`",
        );
    }
    let has_flag = engine.flags.iter().any(|flag| flag.feature == row.id);
    if has_flag == row.no_flag.is_some() {
        problems.add(
            at("no_flag"),
            "a planner-set row has either an engine flag or says why not",
        );
    }
}

pub(super) fn check_flags(features: &[Feature], engine: &EngineFlags, problems: &mut Violations) {
    for flag in &engine.flags {
        let at = format!("engines/vllm.toml.{}", flag.feature);
        let Some(row) = features.iter().find(|f| f.id == flag.feature) else {
            problems.add(at, "is not the id of an X row");
            continue;
        };
        if flag.until.is_some_and(|until| until <= flag.since) {
            problems.add(&*at, "until must be after since");
        }
        check_writer(&at, &flag.write, row, problems);
    }
}

fn check_writer(at: &str, writer: &FlagWriter, row: &Feature, problems: &mut Violations) {
    let written: Vec<&String> = match writer {
        FlagWriter::Value(flag) | FlagWriter::AboveOne(flag) => vec![flag],
        FlagWriter::Switch { on, off } => vec![on, off],
        FlagWriter::Choice(choices) => {
            for name in choices.keys() {
                if let Err(message) = row.domain.accept(&Value::Text(name.clone())) {
                    problems.add(at, message);
                }
            }
            choices.values().flatten().collect()
        }
    };
    if written.iter().any(|argument| !argument.starts_with("--")) {
        problems.add(at, "arguments start with --");
    }
}

pub(super) fn check_hardware(file: &HardwareFile, problems: &mut Violations) {
    let mut seen = BTreeSet::new();
    for gpu in &file.gpu {
        for name in std::iter::once(&gpu.id).chain(&gpu.aliases) {
            if !seen.insert(name.to_lowercase()) {
                problems.add(
                    format!("hardware.toml.{name}"),
                    "is used twice among GPU names",
                );
            }
        }
        check_gpu(gpu, problems);
    }
    let mut ids = BTreeSet::new();
    for instance in &file.instance {
        let at = format!("hardware.toml.{}", instance.id);
        if !ids.insert(&instance.id) {
            problems.add(&*at, "is used twice among instance types");
        }
        if !file.gpu.iter().any(|gpu| gpu.id == instance.gpu_type) {
            problems.add(&*at, format!("{:?} is not a GPU type", instance.gpu_type));
        }
        if instance.gpus == 0 || instance.gpus > 64 {
            problems.add(&*at, "gpus must be from 1 to 64");
        }
        if instance
            .on_demand_usd_per_hour
            .is_some_and(|p| !(p.is_finite() && p > 0.0))
        {
            problems.add(at, "a price is positive or absent");
        }
    }
}

fn check_gpu(gpu: &GpuType, problems: &mut Violations) {
    let fit = gpu.fit;
    let positive = [
        ("memory_bytes", Some(gpu.memory_bytes)),
        (
            "bandwidth_bytes_per_second",
            Some(gpu.bandwidth_bytes_per_second),
        ),
        ("peak_flops.bf16", Some(gpu.peak_flops.bf16)),
        ("peak_flops.fp32", Some(gpu.peak_flops.fp32)),
        ("peak_flops.fp8", gpu.peak_flops.fp8),
        ("peak_flops.int8", gpu.peak_flops.int8),
        ("nvlink_bytes_per_second", gpu.nvlink_bytes_per_second),
        ("pcie_bytes_per_second", Some(gpu.pcie_bytes_per_second)),
        ("power_limit_w", Some(gpu.power_limit_w)),
        ("power_idle_w", Some(gpu.power_idle_w)),
        ("fit.allreduce_latency_us", Some(fit.allreduce_latency_us)),
        ("fit.step_overhead_ms", Some(fit.step_overhead_ms)),
        (
            "fit.eager_layer_overhead_us",
            Some(fit.eager_layer_overhead_us),
        ),
        ("fit.load_bytes_per_second", Some(fit.load_bytes_per_second)),
        ("fit.reserved_bytes", Some(fit.reserved_bytes)),
    ];
    for (name, value) in positive {
        if value.is_some_and(|v| !(v.is_finite() && v > 0.0)) {
            problems.add(
                format!("hardware.toml.{}.{name}", gpu.id),
                "must be positive and finite",
            );
        }
    }
    for (name, share) in [
        ("compute_fraction", fit.compute_fraction),
        ("bandwidth_fraction", fit.bandwidth_fraction),
        ("link_fraction", fit.link_fraction),
    ] {
        if !(share > 0.0 && share <= 1.0) {
            problems.add(
                format!("hardware.toml.{}.fit.{name}", gpu.id),
                "must be in (0, 1]",
            );
        }
    }
}
