//! Number formats of weights and of the KV cache, as bytes.
//!
//! Not which format a device computes in: that is [`crate::catalog::GpuType::peak_flops`].

use serde::{Deserialize, Serialize};

/// Format of the linear weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightDtype {
    /// As the checkpoint is stored.
    Auto,
    /// 32-bit float.
    Fp32,
    /// bfloat16.
    Bf16,
    /// IEEE half.
    Fp16,
    /// 8-bit float.
    Fp8,
    /// 8-bit integer with group scales.
    Int8,
    /// 4-bit integer with group scales and zero points.
    Int4,
    /// 4-bit float in groups of 32 that share a power of two.
    Mxfp4,
    /// 4-bit float in groups of 16 that share an 8-bit float.
    Nvfp4,
}

/// Group size assumed for integer formats; the common choice of AWQ and GPTQ checkpoints.
const INTEGER_GROUP: f64 = 128.0;

impl WeightDtype {
    /// Every format.
    pub const ALL: [Self; 9] = [
        Self::Auto,
        Self::Fp32,
        Self::Bf16,
        Self::Fp16,
        Self::Fp8,
        Self::Int8,
        Self::Int4,
        Self::Mxfp4,
        Self::Nvfp4,
    ];

    /// The name in the catalog.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fp32 => "fp32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Mxfp4 => "mxfp4",
            Self::Nvfp4 => "nvfp4",
        }
    }

    /// The format of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Bytes per linear weight, scales and zero points included; `auto` counts as 16-bit.
    #[must_use]
    pub const fn bytes_per_weight(self) -> f64 {
        match self {
            Self::Fp32 => 4.0,
            Self::Auto | Self::Bf16 | Self::Fp16 => 2.0,
            Self::Fp8 => 1.0,
            // One 16-bit scale per group.
            Self::Int8 => 1.0 + 2.0 / INTEGER_GROUP,
            // One 16-bit scale and one 4-bit zero point per group.
            Self::Int4 => 0.5 + 2.5 / INTEGER_GROUP,
            Self::Mxfp4 => 0.5 + 1.0 / 32.0,
            Self::Nvfp4 => 0.5 + 1.0 / 16.0,
        }
    }

    /// Bytes of activations and of weights that stay unquantized.
    #[must_use]
    pub const fn activation_bytes(self) -> f64 {
        match self {
            Self::Fp32 => 4.0,
            Self::Auto
            | Self::Bf16
            | Self::Fp16
            | Self::Fp8
            | Self::Int8
            | Self::Int4
            | Self::Mxfp4
            | Self::Nvfp4 => 2.0,
        }
    }

    /// Weight bits, where a single number describes the format.
    #[must_use]
    pub const fn bits(self) -> Option<u32> {
        match self {
            Self::Auto => None,
            Self::Fp32 => Some(32),
            Self::Bf16 | Self::Fp16 => Some(16),
            Self::Fp8 | Self::Int8 => Some(8),
            Self::Int4 | Self::Mxfp4 | Self::Nvfp4 => Some(4),
        }
    }
}

/// Format of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvDtype {
    /// The activations' format.
    Auto,
    /// bfloat16.
    Bf16,
    /// 8-bit float.
    Fp8,
}

impl KvDtype {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Bf16, Self::Fp8];

    /// The name in the catalog.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
        }
    }

    /// The format of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Bytes per cached element, given the bytes of one activation.
    #[must_use]
    pub const fn bytes(self, activation_bytes: f64) -> f64 {
        match self {
            Self::Auto => activation_bytes,
            Self::Bf16 => 2.0,
            Self::Fp8 => 1.0,
        }
    }
}
