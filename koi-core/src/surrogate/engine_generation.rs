//! Which engine, and which generation of it, a step is timed for.
//!
//! Schedulers and kernels of one engine change less between releases than between generations; a
//! generation is the smallest unit that the measured rows can tell apart. Not a version: flags and
//! metric names per version are the catalog's. Spec §4.

use serde::{Deserialize, Serialize};

/// An engine and its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineGeneration {
    /// vLLM before 0.8: the V0 scheduler.
    VllmV0,
    /// vLLM from 0.8 on: the V1 scheduler.
    #[default]
    VllmV1,
    /// TensorRT-LLM before 1.0: compiled engines.
    TensorrtCompiled,
    /// TensorRT-LLM from 1.0 on: the PyTorch backend.
    TensorrtPytorch,
    /// Release candidates of TensorRT-LLM 1.0, before its scheduler overlapped host work.
    TensorrtPreview,
    /// SGLang from 0.5.2 on.
    Sglang,
    /// SGLang before 0.5.2, which computed all waiting prompts before it decoded.
    SglangEarly,
    /// llama.cpp.
    LlamaCpp,
    /// DeepSpeed-MII.
    DeepspeedMii,
    /// DeepSpeed inference without MII, as on Gaudi.
    Deepspeed,
}

/// First year in which an engine whose version is not stated is taken for the newer generation.
const NEW_GENERATION_YEAR: u32 = 2025;

impl EngineGeneration {
    /// Every generation, in the order of the constants' tables.
    pub const ALL: [Self; 10] = [
        Self::VllmV0,
        Self::VllmV1,
        Self::TensorrtCompiled,
        Self::TensorrtPytorch,
        Self::TensorrtPreview,
        Self::Sglang,
        Self::SglangEarly,
        Self::LlamaCpp,
        Self::DeepspeedMii,
        Self::Deepspeed,
    ];

    /// Position in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in `configs/calibration`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::VllmV0 => "vllm_v0",
            Self::VllmV1 => "vllm_v1",
            Self::TensorrtCompiled => "tensorrt_compiled",
            Self::TensorrtPytorch => "tensorrt_pytorch",
            Self::TensorrtPreview => "tensorrt_preview",
            Self::Sglang => "sglang",
            Self::SglangEarly => "sglang_early",
            Self::LlamaCpp => "llama_cpp",
            Self::DeepspeedMii => "deepspeed_mii",
            Self::Deepspeed => "deepspeed",
        }
    }

    /// Whether it schedules continuously with chunked prompts and overlaps host work.
    #[must_use]
    pub const fn is_current(self) -> bool {
        match self {
            Self::VllmV1
            | Self::TensorrtPytorch
            | Self::TensorrtPreview
            | Self::Sglang
            | Self::SglangEarly => true,
            Self::VllmV0
            | Self::TensorrtCompiled
            | Self::LlamaCpp
            | Self::DeepspeedMii
            | Self::Deepspeed => false,
        }
    }

    /// Whether a step holds prompts or generation, and prompts go first.
    #[must_use]
    pub const fn computes_prompts_alone(self) -> bool {
        matches!(self, Self::SglangEarly)
    }

    /// Every engine's name, as [`Self::of`] takes it.
    pub const ENGINES: [&'static str; 6] = [
        "vllm",
        "sglang",
        "tensorrt-llm",
        "llama.cpp",
        "deepspeed-mii",
        "deepspeed",
    ];

    /// The generation behind an engine's name, its version and the year it ran in; the year counts
    /// only where the version says nothing. `None` for an engine that is not known.
    #[must_use]
    pub fn of(engine: &str, version: Option<&str>, year: Option<u32>) -> Option<Self> {
        let release = version.and_then(major_minor);
        let is_new = |first: (u32, u32)| {
            release.map_or(year.is_none_or(|y| y >= NEW_GENERATION_YEAR), |r| {
                r >= first
            })
        };
        Some(match engine {
            "vllm" if is_new((0, 8)) => Self::VllmV1,
            "vllm" => Self::VllmV0,
            "tensorrt-llm" if version.is_some_and(|v| v.starts_with("1.0.0rc")) => {
                Self::TensorrtPreview
            }
            "tensorrt-llm" if is_tensorrt_pytorch(release, is_new((1, 0))) => Self::TensorrtPytorch,
            "tensorrt-llm" => Self::TensorrtCompiled,
            "sglang" if version.is_some_and(is_early_sglang) => Self::SglangEarly,
            "sglang" => Self::Sglang,
            "llama.cpp" => Self::LlamaCpp,
            "deepspeed-mii" => Self::DeepspeedMii,
            "deepspeed" => Self::Deepspeed,
            _ => return None,
        })
    }
}

/// Some sources state the version of TensorRT itself (10.x) where TensorRT-LLM's belongs; that one
/// came with compiled engines.
fn is_tensorrt_pytorch(release: Option<(u32, u32)>, is_new: bool) -> bool {
    const FIRST_TENSORRT: u32 = 5;
    is_new && release.is_none_or(|(major, _)| major < FIRST_TENSORRT)
}

/// 0.5.0, 0.5.1 and everything before 0.5.
fn is_early_sglang(version: &str) -> bool {
    let patch = version.trim().trim_start_matches('v').split('.').nth(2);
    match major_minor(version) {
        Some((0, 5)) => patch.is_some_and(|p| p == "0" || p == "1" || p.starts_with("1-")),
        Some(release) => release < (0, 5),
        None => false,
    }
}

/// The first two numbers of a version such as `v0.8.1.post2`, `1.x` or `0.6.x fork`.
fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim().trim_start_matches('v').split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next().map_or("", |part| {
        let end = part.find(|c: char| !c.is_ascii_digit());
        &part[..end.unwrap_or(part.len())]
    });
    Some((major, minor.parse().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_years_name_the_generation() {
        let of = |engine, version, year| EngineGeneration::of(engine, version, year);
        for (engine, version, year, expected) in [
            (
                "vllm",
                Some("0.6.3.post2"),
                Some(2026),
                EngineGeneration::VllmV0,
            ),
            ("vllm", Some("v0.11.0"), None, EngineGeneration::VllmV1),
            ("vllm", None, Some(2024), EngineGeneration::VllmV0),
            ("vllm", None, None, EngineGeneration::VllmV1),
            (
                "vllm",
                Some("nightly-2026-02"),
                Some(2026),
                EngineGeneration::VllmV1,
            ),
            (
                "tensorrt-llm",
                Some("1.x (docs)"),
                None,
                EngineGeneration::TensorrtPytorch,
            ),
            (
                "tensorrt-llm",
                Some("1.0.0rc3"),
                None,
                EngineGeneration::TensorrtPreview,
            ),
            (
                "tensorrt-llm",
                Some("10.2.0"),
                Some(2024),
                EngineGeneration::TensorrtCompiled,
            ),
            (
                "tensorrt-llm",
                Some("0.9.0"),
                Some(2026),
                EngineGeneration::TensorrtCompiled,
            ),
        ] {
            assert_eq!(
                of(engine, version, year),
                Some(expected),
                "{engine} {version:?} {year:?}"
            );
        }
        assert_eq!(of("mystery", None, None), None);
    }
}
