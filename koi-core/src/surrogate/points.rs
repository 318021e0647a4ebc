//! Measured points by scope: the ground that the neighbours member is asked on.
//!
//! A point is kept as the situation in which it was measured and what the other members missed there,
//! so that asking is a walk over one scope. Built from rows that somebody measured; which rows, and
//! where they are stored, is the caller's business. Spec §4, member 2.

mod rows;
#[cfg(test)]
mod tests;

pub use rows::PlannedPoints;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::EngineProfile;
use super::measured_row::{LoadKind, MeasuredRow, Question, RowAnswer, RowPrediction};
use super::neighbours::{HeardPoint, NeighbourVoice, Spot, listen};
use super::residual::Quantity;
use super::situation::{Situation, is_open};
use super::stack::{Calibration, StackPrediction, Stacked};
use crate::catalog::GpuType;
use crate::model::{ModelFacts, WeightDtype};
use crate::performance::import::requests_of_run;
use crate::performance::{Measured, PerformanceRow, Statistic, Timing};

/// Most points that are kept; a question reads those of its scope only.
pub const MAX_POINTS: usize = 50_000;
/// Points of one scope that a planner listens to.
pub const MAX_PLANNED_POINTS: usize = 48;

/// The matrices of a model, by whatever name it goes: layers, width, query and cache heads, MLP
/// width, vocabulary, parameters.
pub type Matrices = [u64; 7];

/// The matrices of a model.
#[must_use]
pub fn matrices(m: &ModelFacts) -> Matrices {
    let whole = [
        m.layers,
        m.hidden,
        m.heads,
        m.kv_heads,
        m.intermediate,
        m.vocab,
    ];
    let [layers, hidden, heads, kv_heads, intermediate, vocab] = whole.map(u64::from);
    [
        layers,
        hidden,
        heads,
        kv_heads,
        intermediate,
        vocab,
        m.params_total,
    ]
}

/// Over the arithmetic ceiling of a device.
const CEILING_MARGIN: f64 = 1.5;

/// What must be equal for a point to count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Scope {
    matrices: Matrices,
    gpu: String,
    weights: WeightDtype,
}

impl Scope {
    fn of(question: &Question, gpu: &GpuType) -> Self {
        let model = &question.model;
        Self {
            matrices: matrices(model),
            gpu: gpu.id.clone(),
            weights: model.served_dtype(question.shape.weight_dtype),
        }
    }
}

/// A measured point and where it comes from.
#[derive(Debug, Clone, PartialEq)]
struct Origin {
    row_id: String,
    /// As published; later ones sort later.
    date: String,
}

/// The points of a scope, with their origins in the same order.
#[derive(Debug, Clone, PartialEq, Default)]
struct Points {
    origins: Vec<Origin>,
    heard: Vec<HeardPoint>,
}

/// Measured points, ready to be asked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MeasuredPoints {
    scopes: BTreeMap<Scope, Points>,
    n_points: usize,
}

impl MeasuredPoints {
    /// Takes a measured point in.
    ///
    /// # Errors
    /// Why it teaches nothing: it could not run as predicted, nothing comparable was measured, or
    /// there are [`MAX_POINTS`] already.
    pub fn add(
        &mut self,
        row_id: &str,
        asked: (&Question, &GpuType),
        measured: &Measured,
        calibration: &Calibration<'_>,
    ) -> Result<(), String> {
        let origin = Origin {
            row_id: row_id.to_owned(),
            date: String::new(),
        };
        self.add_of(origin, asked, measured, calibration)
    }

    fn add_of(
        &mut self,
        origin: Origin,
        (question, gpu): (&Question, &GpuType),
        measured: &Measured,
        calibration: &Calibration<'_>,
    ) -> Result<(), String> {
        if self.n_points >= MAX_POINTS {
            return Err(format!("more than {MAX_POINTS} points"));
        }
        let predicted = match question.ask(gpu, EngineProfile::embedded(question.generation)) {
            RowAnswer::Prediction(predicted) => predicted,
            RowAnswer::DoesNotFit(_) => return Err("is said not to fit".to_owned()),
            RowAnswer::Unsupported(why) => return Err(why),
        };
        let others = calibration.stack(&predicted, &gpu.id, question.generation, |_| {
            NeighbourVoice::default()
        });
        absurd(measured, (question, gpu), &others).map_or(Ok(()), Err)?;
        let log_errors = log_errors(&others, &predicted, measured);
        if log_errors.iter().all(Option::is_none) {
            return Err("nothing that the members predict was measured".to_owned());
        }
        let points = self.scopes.entry(Scope::of(question, gpu)).or_default();
        points.origins.push(origin);
        points.heard.push(HeardPoint {
            spot: Spot::of(&predicted.situation),
            log_errors,
            weight: 1.0,
        });
        self.n_points += 1;
        Ok(())
    }

    /// No points at all.
    #[must_use]
    pub fn none() -> &'static Self {
        static NONE: LazyLock<MeasuredPoints> = LazyLock::new(MeasuredPoints::default);
        &NONE
    }

    /// The points of a model on a device in a weight format, for a planner.
    #[must_use]
    pub fn of_scope(
        &self,
        matrices: Matrices,
        gpu: &GpuType,
        weights: WeightDtype,
    ) -> &[HeardPoint] {
        let scope = Scope {
            matrices,
            gpu: gpu.id.clone(),
            weights,
        };
        self.scopes.get(&scope).map_or(&[], |points| &points.heard)
    }

    /// Equal for equal points: 16 hex digits, empty without any.
    #[must_use]
    pub fn digest(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let mut hash = Sha256::new();
        for (scope, points) in &self.scopes {
            // Floats are written so that they read back the same.
            if let Ok(text) = serde_json::to_vec(&(scope, &points.heard)) {
                hash.update(&text);
            }
        }
        let bytes = hash.finalize();
        bytes.iter().take(8).map(|b| format!("{b:02x}")).collect()
    }

    /// How many points there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.n_points
    }

    /// True when there is no point.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.n_points == 0
    }

    /// What points near a question say of a quantity. The point of `left_out`, the row that is
    /// itself being asked about, does not speak.
    #[must_use]
    pub fn voice(
        &self,
        (question, gpu): (&Question, &GpuType),
        situation: &Situation,
        quantity: Quantity,
        left_out: Option<&str>,
    ) -> NeighbourVoice {
        let Some(points) = self.scopes.get(&Scope::of(question, gpu)) else {
            return NeighbourVoice::default();
        };
        let pairs = points.origins.iter().zip(&points.heard);
        let near = pairs
            .filter(|(origin, _)| left_out.is_none_or(|id| origin.row_id != id))
            .map(|(_, point)| point);
        let voices = listen(&Spot::of(situation), near);
        voices.get(quantity.index()).copied().unwrap_or_default()
    }
}

/// Why no deployment can have measured this; `None` for what may be true.
///
/// # Formula
/// A device generates at most peak FLOP/s ÷ (2 · active parameters) tokens per second, whatever its
/// batch; [`CEILING_MARGIN`] is for what peaks and counts leave out. On either side, a factor over
/// what the other members say that only an error of units or of a hand explains.
fn absurd(
    measured: &Measured,
    (question, gpu): (&Question, &GpuType),
    others: &StackPrediction,
) -> Option<String> {
    let model = &question.model;
    let shape = &question.shape;
    let n_gpus = f64::from(shape.tp) * f64::from(shape.pp) * f64::from(question.n_replicas);
    let peaks = &gpu.peak_flops;
    let fastest = [peaks.fp16, peaks.fp8, peaks.int8, peaks.fp4];
    let peak = fastest.into_iter().flatten().fold(peaks.bf16, f64::max);
    let ceiling = CEILING_MARGIN * n_gpus * peak / (2.0 * model.params_active as f64);
    if let Some(tokens) = measured.output_tokens_per_sec.filter(|t| *t > ceiling) {
        return Some(format!(
            "{tokens:.4e} tokens/s are more than {n_gpus} devices can compute ({ceiling:.3e})"
        ));
    }
    let sides = [
        (
            "tokens/s",
            measured.output_tokens_per_sec,
            others.out_tok_s_system,
            1e3,
        ),
        ("ms TPOT", mean(measured.tpot), others.tpot_mean_ms, 1e3),
        // A queue can be long.
        ("ms TTFT", mean(measured.ttft), others.ttft_mean_ms, 1e5),
    ];
    sides
        .into_iter()
        .find_map(|(unit, measured, said, factor)| {
            let (measured, said) = (measured?, said?.mixed.value);
            let ratio = measured / said;
            let is_near = ratio <= factor && ratio >= 1.0 / factor;
            (said > 0.0 && !is_near)
                .then(|| format!("{measured:.4e} {unit} are absurd where {said:.4e} are expected"))
        })
}

fn log_errors(
    others: &StackPrediction,
    predicted: &RowPrediction,
    measured: &Measured,
) -> [Option<f64>; 3] {
    let error = |measured: Option<f64>, said: Option<Stacked>| {
        let (measured, said) = (measured?, said?.mixed.value);
        let error = (measured / said).ln();
        error.is_finite().then_some(error)
    };
    // Below capacity the load decides the throughput; a measured one says nothing of the device.
    let throughput = measured
        .output_tokens_per_sec
        .filter(|_| !is_open(&predicted.situation));
    [
        error(mean(measured.tpot), others.tpot_mean_ms),
        error(mean(measured.ttft), others.ttft_mean_ms),
        error(throughput, others.out_tok_s_system),
    ]
}

/// A time that is a mean, or as good as one.
fn mean(timing: Option<Timing>) -> Option<f64> {
    let timing = timing?;
    match timing.statistic {
        Statistic::Mean | Statistic::Derived | Statistic::Single => Some(timing.ms),
        Statistic::P50 => None,
    }
}

impl From<&PerformanceRow> for MeasuredRow {
    /// What ran; what was measured stays behind.
    fn from(row: &PerformanceRow) -> Self {
        let load = row.load.as_ref();
        Self {
            model: row.model.clone(),
            gpu_type: row.gpu_type.clone(),
            num_gpus: row.n_gpus,
            tp: row.tp,
            pp: row.pp,
            ep: row.ep,
            dp: row.dp,
            engine: row.engine.clone().unwrap_or_default(),
            engine_version: row.engine_version.clone(),
            year: row.date.get(..4).and_then(|y| y.parse().ok()),
            weight_dtype: row.weight_dtype.clone(),
            kv_dtype: row.kv_dtype.clone(),
            isl: row.isl,
            osl: row.osl,
            load: load.and_then(|l| l.value),
            load_kind: load.and_then(|l| LoadKind::from_name(l.kind.name())),
            is_disaggregated: row.disaggregated,
            n_requests: requests_of_run(&row.notes),
        }
    }
}
