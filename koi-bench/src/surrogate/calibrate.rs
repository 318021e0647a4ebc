//! Fits the analytic member's constants: damped Gauss-Newton on logarithms, with priors.
//!
//! Deterministic: no dice, rows in the table's order. Each constant is a logarithm drawn to its
//! prior (`configs/calibration/prior.toml`) with a stated spread, so that few rows move little and
//! no row at all moves nothing. Errors are weighed down beyond a knee, so that rows which first
//! principles cannot explain do not bend the constants.

use anyhow::{Context as _, Result, anyhow};
use koi_core::surrogate::constants::Constants;
use koi_core::surrogate::measured_row::RowPrediction;
use koi_core::surrogate::residual::Quantity;
use koi_core::surrogate::{EngineGeneration, EngineProfile};

use super::table::{Measured, Point};

/// Errors beyond this count less than quadratically.
const KNEE: f64 = 0.15;
/// Step of the numeric derivative, in log space.
const STEP: f64 = 1e-3;
/// Largest move of a constant in one iteration, in log space.
const LARGEST_MOVE: f64 = 0.5;
/// Where constants start, and what holds them.
pub(super) fn prior() -> Result<Constants> {
    Constants::parse(include_str!("../../../configs/calibration/prior.toml"))
        .map_err(|e| anyhow!("prior.toml: {e}"))
}

/// Spread of a constant's prior, in log space: what is known of hardware is known better than what
/// is known of schedulers.
fn spread(name: &str) -> f64 {
    let field = name.rsplit('.').next().unwrap_or(name);
    match field {
        "compute_fraction_16_bit" | "bandwidth_fraction" => 0.06,
        "compute_ratio"
        | "bandwidth_ratio"
        | "cache_bandwidth_fraction"
        | "link_fraction"
        | "prefill_interference" => 0.12,
        "pcie_contention" => 0.5,
        "cache_bandwidth_ratio" | "compute_fraction_8_bit" | "attention_compute_fraction" => 0.2,
        "step_overhead_ms" | "layer_overhead_us" | "sequence_overhead_us" => 0.7,
        "first_token_overhead_ms" | "burst_wait_share" | "crowded_wait_share" => 0.5,
        "expert_first_token_us" | "request_overhead_ms" | "cache_reread_exponent" => 0.8,
        _ => 0.3,
    }
}

/// How far a constant may leave its prior, in spreads.
const FARTHEST: f64 = 2.5;
/// Rows of one source repeat each other; so many count as one.
const ROWS_PER_LESSON: f64 = 20.0;

/// How much a row counts: served means are what the constants are for; a median is not a mean, and
/// a backlog's first token tells more of the client than of the engine.
fn trust(point: &Point, quantity: Quantity) -> f64 {
    let is_latency = quantity != Quantity::Throughput;
    let is_backlog = point
        .question
        .as_ref()
        .is_ok_and(|q| q.backlog_per_replica.is_some());
    match (is_latency, is_backlog, point.measured.is_median) {
        (false, ..) => 0.4,
        (true, true, _) => 0.2,
        (true, false, true) => 0.1,
        (true, false, false) => 1.0,
    }
}

/// The value of a quantity that was measured at a point.
pub(super) fn measured(point: &Measured, quantity: Quantity) -> Option<f64> {
    match quantity {
        Quantity::Tpot => point.tpot_ms,
        Quantity::Ttft => point.ttft_ms,
        Quantity::Throughput => point.out_tok_s_system,
    }
}

/// The value that a prediction has for it.
pub(super) fn predicted(row: &RowPrediction, quantity: Quantity) -> Option<f64> {
    let value = match quantity {
        Quantity::Tpot => row.tpot_mean_ms,
        Quantity::Ttft => row.ttft_mean_ms,
        Quantity::Throughput => row.out_tok_s_system,
    };
    value.filter(|v| v.is_finite() && *v > 0.0)
}

/// ln(predicted / measured) of every quantity that has both.
fn errors(point: &Point, constants: &Constants) -> [Option<f64>; 3] {
    let (Ok(question), Some(gpu)) = (&point.question, point.gpu) else {
        return [None; 3];
    };
    let profile = EngineProfile {
        constants,
        generation: question.generation,
    };
    let said = question.ask_means(gpu, profile);
    Quantity::ALL.map(|quantity| {
        // A rate that follows from the same run's latency would count twice.
        let is_repeat = quantity == Quantity::Tpot
            && point.measured.ttft_ms.is_none()
            && point.measured.out_tok_s_system.is_some();
        let seen = measured(&point.measured, quantity).filter(|_| !is_repeat)?;
        Some((said[quantity.index()]? / seen).ln())
    })
}

/// One evaluated error: its value, weight and row.
struct Residual {
    row: usize,
    quantity: usize,
    value: f64,
    weight: f64,
}

fn residuals(points: &[&Point], constants: &Constants) -> Vec<Residual> {
    let mut out = Vec::new();
    for (row, point) in points.iter().enumerate() {
        for (quantity, error) in errors(point, constants).into_iter().enumerate() {
            let Some(value) = error.filter(|e| e.is_finite()) else {
                continue;
            };
            let robust = 1.0 / (1.0 + (value / KNEE).powi(2));
            let trust = trust(point, Quantity::ALL[quantity]);
            let weight = trust * robust / (KNEE * KNEE * ROWS_PER_LESSON);
            out.push(Residual {
                row,
                quantity,
                value,
                weight,
            });
        }
    }
    out
}

/// Which rows a constant can move: those of its engine, or all.
fn moves(name: &str, point: &Point) -> bool {
    let section = name.split('.').next().unwrap_or(name);
    let generation = EngineGeneration::ALL
        .into_iter()
        .find(|g| g.name() == section);
    let own = point.question.as_ref().ok().map(|q| q.generation);
    generation.is_none() || generation == own
}

/// Fits constants to points.
pub(super) fn fit(points: &[&Point], iterations: u32) -> Result<Constants> {
    let prior = prior()?;
    let names: Vec<String> = prior.values().into_iter().map(|(name, _)| name).collect();
    let start: Vec<f64> = prior.values().iter().map(|(_, v)| v.ln()).collect();
    let (mut centre, mut at) = (start.clone(), start.clone());
    let with = |logs: &[f64]| {
        let numbers: Vec<f64> = logs.iter().map(|v| v.exp()).collect();
        prior
            .with_values(&numbers)
            .context("constants of another shape")
    };
    let heirs = heirs(&names);
    for _ in 0..iterations {
        for (heir, parent) in &heirs {
            centre[*heir] = start[*heir] + at[*parent] - start[*parent];
        }
        let constants = with(&at)?;
        let base = residuals(points, &constants);
        let columns = derivatives(points, &base, &names, |i| {
            let mut moved = at.clone();
            moved[i] += STEP;
            with(&moved)
        })?;
        let step = solve(&base, &columns, &names, |i| at[i] - centre[i])
            .context("the normal equations are singular")?;
        for (i, (value, delta)) in at.iter_mut().zip(step).enumerate() {
            let moved = *value + delta.clamp(-LARGEST_MOVE, LARGEST_MOVE);
            let leash = FARTHEST * spread(&names[i]);
            *value = moved.clamp(centre[i] - leash, centre[i] + leash);
        }
    }
    with(&at)
}

/// Constants of a generation that few rows speak of, each with its counterpart in the generation
/// that it resembles: what is not seen is inherited, and a ratio that the priors state stays.
fn heirs(names: &[String]) -> Vec<(usize, usize)> {
    let parents = [
        (
            EngineGeneration::TensorrtPreview,
            EngineGeneration::TensorrtPytorch,
        ),
        (EngineGeneration::SglangEarly, EngineGeneration::Sglang),
    ];
    let at = |name: &str| names.iter().position(|n| n == name);
    let of = |(heir, parent): (EngineGeneration, EngineGeneration)| {
        names.iter().enumerate().filter_map(move |(i, name)| {
            let field = name.strip_prefix(heir.name())?.strip_prefix('.')?;
            Some((i, at(&format!("{}.{field}", parent.name()))?))
        })
    };
    parents.into_iter().flat_map(of).collect()
}

/// Derivative of every residual by every constant.
fn derivatives(
    points: &[&Point],
    base: &[Residual],
    names: &[String],
    moved: impl Fn(usize) -> Result<Constants>,
) -> Result<Vec<Vec<f64>>> {
    let mut columns = Vec::with_capacity(names.len());
    for (i, name) in names.iter().enumerate() {
        let constants = moved(i)?;
        let mut column = vec![0.0; base.len()];
        let mut next = 0;
        while let Some(first) = base.get(next) {
            let end = next
                + base[next..]
                    .iter()
                    .take_while(|r| r.row == first.row)
                    .count();
            if moves(name, points[first.row]) {
                let shifted = errors(points[first.row], &constants);
                for (slot, residual) in column[next..end].iter_mut().zip(&base[next..end]) {
                    if let Some(value) = shifted[residual.quantity] {
                        *slot = (value - residual.value) / STEP;
                    }
                }
            }
            next = end;
        }
        columns.push(column);
    }
    Ok(columns)
}

/// The Gauss-Newton step: (JᵀWJ + Λ) δ = −(JᵀWr + Λ(x − x₀)), Λ = 1/spread².
fn solve(
    base: &[Residual],
    columns: &[Vec<f64>],
    names: &[String],
    offset: impl Fn(usize) -> f64,
) -> Option<Vec<f64>> {
    let n = columns.len();
    let mut matrix = vec![vec![0.0; n]; n];
    let mut right = vec![0.0; n];
    for i in 0..n {
        let strength = spread(&names[i]).powi(-2);
        let weighted: Vec<f64> = columns[i]
            .iter()
            .zip(base)
            .map(|(d, r)| d * r.weight)
            .collect();
        let pull: f64 = weighted.iter().zip(base).map(|(w, r)| w * r.value).sum();
        right[i] = -pull - strength * offset(i);
        for j in 0..=i {
            let sum: f64 = weighted.iter().zip(&columns[j]).map(|(a, b)| a * b).sum();
            matrix[i][j] = sum;
            matrix[j][i] = sum;
        }
        matrix[i][i] += strength;
    }
    cholesky_solve(matrix, right)
}

/// Solves a symmetric positive definite system in place.
fn cholesky_solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Option<Vec<f64>> {
    let n = b.len();
    for i in 0..n {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| a[i][k] * a[j][k]).sum();
            let rest = a[i][j] - dot;
            if i == j {
                if rest <= 0.0 {
                    return None;
                }
                a[i][i] = rest.sqrt();
            } else {
                a[i][j] = rest / a[j][j];
            }
        }
    }
    for i in 0..n {
        let dot: f64 = (0..i).map(|k| a[i][k] * b[k]).sum();
        b[i] = (b[i] - dot) / a[i][i];
    }
    for i in (0..n).rev() {
        let dot: f64 = (i + 1..n).map(|k| a[k][i] * b[k]).sum();
        b[i] = (b[i] - dot) / a[i][i];
    }
    Some(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_system_is_solved() {
        let a = vec![vec![4.0, 2.0], vec![2.0, 3.0]];
        let x = cholesky_solve(a, vec![10.0, 8.0]).unwrap();
        assert!((x[0] - 1.75).abs() < 1e-12 && (x[1] - 1.5).abs() < 1e-12);
        assert!(cholesky_solve(vec![vec![-1.0]], vec![1.0]).is_none());
    }

    #[test]
    fn without_rows_constants_stay_at_their_priors_and_heirs_follow_their_parents() {
        let prior = prior().unwrap().values();
        let fitted = fit(&[], 2).unwrap().values();
        let names: Vec<String> = prior.iter().map(|(name, _)| name.clone()).collect();
        let heirs = heirs(&names);
        assert!(!heirs.is_empty());
        for ((name, value), (_, expected)) in fitted.iter().zip(&prior) {
            assert!((value / expected - 1.0).abs() < 1e-12, "{name}");
        }
        // What the priors say apart are schedulers that differ in kind; all else is the parent's.
        let apart: Vec<&str> = heirs
            .iter()
            .filter(|(heir, parent)| (prior[*heir].1 / prior[*parent].1 - 1.0).abs() > 1e-9)
            .map(|(heir, _)| prior[*heir].0.as_str())
            .collect();
        assert_eq!(
            apart,
            [
                "tensorrt_preview.first_token_overhead_ms",
                "sglang_early.burst_wait_share",
                "sglang_early.prefill_interference",
            ]
        );
    }
}
