//! GPU types and architectures as they stand in the files, and the step to [`GpuType`].

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::engine::Checked;
use super::{Fit, GpuType, MigSlice, PeakFlops, ScaleUp};

/// One `[[architecture]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::catalog) struct ArchitectureRow {
    pub(in crate::catalog) id: String,
    pub(in crate::catalog) vendor: String,
    pub(in crate::catalog) fit: Fit,
    pub(in crate::catalog) source: String,
}

/// Peaks as written: what the device does not compute in is absent.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::catalog) struct PeakRow {
    pub(in crate::catalog) fp32: Option<f64>,
    pub(in crate::catalog) tf32: Option<f64>,
    pub(in crate::catalog) fp16: Option<f64>,
    pub(in crate::catalog) bf16: Option<f64>,
    pub(in crate::catalog) fp8: Option<f64>,
    pub(in crate::catalog) int8: Option<f64>,
    pub(in crate::catalog) fp4: Option<f64>,
}

/// One `[[gpu]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::catalog) struct GpuRow {
    pub(in crate::catalog) id: String,
    #[serde(default)]
    pub(in crate::catalog) aliases: Vec<String>,
    #[serde(default)]
    is_cpu: bool,
    vendor: String,
    pub(in crate::catalog) architecture: String,
    compute_capability: Option<String>,
    pub(in crate::catalog) compute_units: Option<u32>,
    pub(in crate::catalog) memory_bytes: f64,
    pub(in crate::catalog) bandwidth_bytes_per_second: f64,
    pub(in crate::catalog) peak_flops: PeakRow,
    nvlink_bytes_per_second: Option<f64>,
    xgmi_bytes_per_second: Option<f64>,
    other_link_bytes_per_second: Option<f64>,
    #[serde(default)]
    pub(in crate::catalog) scale_up: ScaleUp,
    #[serde(default = "one")]
    scale_up_gpus: u32,
    pcie_bytes_per_second: f64,
    pub(in crate::catalog) power_limit_w: f64,
    pub(in crate::catalog) power_idle_w: f64,
    pub(in crate::catalog) mig_of: Option<String>,
    pub(in crate::catalog) mig_share: Option<f64>,
    fit: Option<Fit>,
    #[serde(default)]
    checked: Checked,
    source: String,
}

const fn one() -> u32 {
    1
}

impl GpuRow {
    /// The type; what is missing for one is `None` and has been reported by the check.
    pub(in crate::catalog) fn resolve(
        self,
        architectures: &BTreeMap<String, ArchitectureRow>,
    ) -> Option<GpuType> {
        let peaks = self.peak_flops;
        let architecture = architectures.get(&self.architecture);
        let fit = self.fit.or_else(|| architecture.map(|a| a.fit))?;
        let links = [
            self.nvlink_bytes_per_second,
            self.xgmi_bytes_per_second,
            self.other_link_bytes_per_second,
        ];
        Some(GpuType {
            is_fitted: self.fit.is_some(),
            fit,
            peak_flops: PeakFlops {
                bf16: peaks.bf16.or(peaks.fp16)?,
                has_bf16: peaks.bf16.is_some(),
                fp32: peaks.fp32?,
                tf32: peaks.tf32,
                fp16: peaks.fp16,
                fp8: peaks.fp8,
                int8: peaks.int8,
                fp4: peaks.fp4,
            },
            nvlink_bytes_per_second: links.into_iter().flatten().next(),
            mig: self
                .mig_of
                .zip(self.mig_share)
                .map(|(of, share)| MigSlice { of, share }),
            id: self.id,
            aliases: self.aliases,
            is_cpu: self.is_cpu,
            vendor: self.vendor,
            architecture: self.architecture,
            compute_capability: self.compute_capability,
            compute_units: self.compute_units,
            memory_bytes: self.memory_bytes,
            bandwidth_bytes_per_second: self.bandwidth_bytes_per_second,
            scale_up: self.scale_up,
            scale_up_gpus: self.scale_up_gpus,
            pcie_bytes_per_second: self.pcie_bytes_per_second,
            power_limit_w: self.power_limit_w,
            power_idle_w: self.power_idle_w,
            checked: self.checked,
            source: self.source,
        })
    }

    /// Numbers that must be positive where present.
    pub(in crate::catalog) fn positive(&self) -> Vec<(&'static str, Option<f64>)> {
        let peaks = self.peak_flops;
        let mut rows = vec![
            ("memory_bytes", Some(self.memory_bytes)),
            (
                "bandwidth_bytes_per_second",
                Some(self.bandwidth_bytes_per_second),
            ),
            ("peak_flops.fp32", peaks.fp32),
            ("peak_flops.tf32", peaks.tf32),
            ("peak_flops.fp16", peaks.fp16),
            ("peak_flops.bf16", peaks.bf16),
            ("peak_flops.fp8", peaks.fp8),
            ("peak_flops.int8", peaks.int8),
            ("peak_flops.fp4", peaks.fp4),
            ("nvlink_bytes_per_second", self.nvlink_bytes_per_second),
            ("xgmi_bytes_per_second", self.xgmi_bytes_per_second),
            (
                "other_link_bytes_per_second",
                self.other_link_bytes_per_second,
            ),
            ("pcie_bytes_per_second", Some(self.pcie_bytes_per_second)),
            ("power_limit_w", Some(self.power_limit_w)),
            ("power_idle_w", Some(self.power_idle_w)),
            ("mig_share", self.mig_share),
        ];
        rows.extend(self.fit.iter().flat_map(positive_of_fit));
        rows
    }

    /// The fit's fractions, where the row has a fit of its own.
    pub(in crate::catalog) fn fit(&self) -> Option<&Fit> {
        self.fit.as_ref()
    }

    /// Fields that name a link: how many of the three are written.
    pub(in crate::catalog) fn n_links(&self) -> usize {
        [
            self.nvlink_bytes_per_second,
            self.xgmi_bytes_per_second,
            self.other_link_bytes_per_second,
        ]
        .into_iter()
        .flatten()
        .count()
    }

    /// GPUs of the scale-up domain.
    pub(in crate::catalog) const fn domain(&self) -> u32 {
        self.scale_up_gpus
    }
}

/// Numbers of a fit that must be positive.
pub(in crate::catalog) fn positive_of_fit(fit: &Fit) -> [(&'static str, Option<f64>); 5] {
    [
        ("fit.allreduce_latency_us", Some(fit.allreduce_latency_us)),
        ("fit.step_overhead_ms", Some(fit.step_overhead_ms)),
        (
            "fit.eager_layer_overhead_us",
            Some(fit.eager_layer_overhead_us),
        ),
        ("fit.load_bytes_per_second", Some(fit.load_bytes_per_second)),
        ("fit.reserved_bytes", Some(fit.reserved_bytes)),
    ]
}
