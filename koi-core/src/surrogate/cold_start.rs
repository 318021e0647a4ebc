//! Time from launch to the first token: reading weights, compiling, capturing graphs.
//!
//! A budget and a price of switching, not a promise. Spec §14 (start budgets).

use crate::catalog::GpuType;
use crate::configuration::EngineShape;
use crate::model::ModelFacts;

/// Starting processes, importing libraries and joining the group, in seconds.
const PROCESS_START_SECONDS: f64 = 20.0;
/// Profiling the memory with a full step, in seconds.
const PROFILE_SECONDS: f64 = 5.0;
/// Compiling and capturing, per layer, in seconds.
const GRAPH_SECONDS_PER_LAYER: f64 = 0.8;

/// Seconds until a replica can answer.
///
/// # Formula
/// start + weights on one GPU / load rate + profile + layers · capture (unless eager)
#[must_use]
pub fn cold_start_seconds(model: &ModelFacts, gpu: &GpuType, shape: &EngineShape) -> f64 {
    let bytes = model.weight_bytes_per_gpu(shape.weight_dtype, shape.tp, shape.pp);
    let layers = f64::from(model.layers.div_ceil(shape.pp.max(1)));
    let graphs = if shape.enforce_eager {
        0.0
    } else {
        layers * GRAPH_SECONDS_PER_LAYER
    };
    PROCESS_START_SECONDS + bytes / gpu.fit.load_bytes_per_second + PROFILE_SECONDS + graphs
}
