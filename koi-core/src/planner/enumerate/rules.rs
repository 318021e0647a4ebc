//! What every searched candidate is held to before it is scored: legal splits, the request limit,
//! what is not searched on a device, and the job's bounds on replicas and price. Spec §10.1, §11.

use crate::catalog::GpuType;
use crate::configuration::EngineShape;
use crate::job::Constraints;
use crate::model::{ModelFacts, WeightDtype};
use crate::planner::forecast::JobView;

/// Requests longer than this multiple of the workload's p99 lengths are refused by the engine.
const LENGTH_SLACK: f64 = 4.0;
/// Shortest request limit that a ladder is given.
const MODEL_LEN_MIN: u32 = 4096;
/// Request limits are multiples of this.
const MODEL_LEN_STEP: u32 = 1024;
/// Tokens per KV block on a processor: its kernels want multiples of 32.
const CPU_BLOCK_TOKENS: u32 = 32;

/// Whether the planner splits a model so.
///
/// # Errors
/// The first reason against it.
pub(in crate::planner) fn legal_split(model: &ModelFacts, tp: u32, pp: u32) -> Result<(), String> {
    model.legal_tp(tp)?;
    model.legal_pp(pp)?;
    if !model.layers.is_multiple_of(pp) {
        return Err(format!(
            "pp={pp} does not divide the {} layers",
            model.layers
        ));
    }
    Ok(())
}

/// Longest request that the engine is told to accept.
pub(in crate::planner) fn request_limit(view: &JobView<'_>) -> u32 {
    let workload = &view.workload;
    let tokens = LENGTH_SLACK * (workload.isl.p99 + workload.osl.p99);
    let most = view.record.spec.model.facts.max_position;
    let wanted = (tokens.clamp(0.0, 1e9) as u32).next_multiple_of(MODEL_LEN_STEP);
    wanted.max(MODEL_LEN_MIN).min(most)
}

/// What is not searched. On a processor graphs would be compiled for minutes, blocks of 16 tokens
/// are slow, and `auto` would narrow a 32-bit checkpoint to 16 bits, which is slower there.
pub(in crate::planner) fn device_defaults(gpu: &GpuType, model: &ModelFacts) -> EngineShape {
    let fallback = EngineShape::default();
    if !gpu.is_cpu {
        return fallback;
    }
    let weight_dtype = match model.native_weight_dtype {
        WeightDtype::Fp32 => WeightDtype::Fp32,
        _ => fallback.weight_dtype,
    };
    EngineShape {
        weight_dtype,
        enforce_eager: true,
        block_size: CPU_BLOCK_TOKENS,
        ..fallback
    }
}

/// Which of the job's bounds a size breaks; formats only when shown.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub(in crate::planner) enum AmountRefusal {
    /// Too few or too many replicas.
    #[error("{n} replicas, the job allows {least} to {most}")]
    Replicas {
        /// Replicas.
        n: u32,
        /// Fewest.
        least: u32,
        /// Most.
        most: u32,
    },
    /// Too dear.
    #[error("{usd:.2} USD/h, the job allows {limit:.2}")]
    Usd {
        /// Price.
        usd: f64,
        /// Most.
        limit: f64,
    },
    /// Nobody knows.
    #[error("the job has a price limit and its hosts state no price")]
    NoPrice,
}

impl AmountRefusal {
    /// Stable code.
    pub(in crate::planner) const fn code(&self) -> &'static str {
        match self {
            Self::Replicas { .. } => "C3-REPLICAS",
            Self::Usd { .. } | Self::NoPrice => "C3-USD",
        }
    }
}

/// Replica bounds and the price limit of the job.
pub(in crate::planner) fn amount_refusal(
    constraints: &Constraints,
    n: u32,
    stated_usd_per_hour: Option<f64>,
) -> Option<AmountRefusal> {
    let (least, most) = (constraints.min_replicas, constraints.max_replicas);
    if !(least..=most).contains(&n) {
        return Some(AmountRefusal::Replicas { n, least, most });
    }
    match (constraints.max_usd_per_hour, stated_usd_per_hour) {
        (Some(limit), Some(usd)) if usd > limit => Some(AmountRefusal::Usd { usd, limit }),
        (Some(_), None) => Some(AmountRefusal::NoPrice),
        (Some(_), Some(_)) | (None, _) => None,
    }
}
