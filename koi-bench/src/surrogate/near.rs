//! How far measured points near a question are to be believed: the weight κ of the neighbours member.
//!
//! Every row is asked with the other rows of its model, GPU and weight format at hand, but without its
//! whole group of equal model, GPU, split and lengths: what helps is knowing the same deployment under
//! other splits and lengths, never the same run at another load. Constants and forests are those of
//! the build. Spec §4, member 2.

use std::collections::{BTreeMap, BTreeSet};

use koi_core::surrogate::EngineProfile;
use koi_core::surrogate::measured_row::RowAnswer;
use koi_core::surrogate::neighbours::{Neighbour, NeighbourVoice, consult};
use koi_core::surrogate::residual::Quantity;
use koi_core::surrogate::situation::{Situation, is_open};
use koi_core::surrogate::stack::{Calibration, StackPrediction};

use super::calibrate;
use super::table::Point;
use crate::report::Table;
use crate::statistics::median;

/// Rows whose neighbours are farther say nothing about κ.
const NEAR: f64 = 0.1;
/// Weights that are tried, in tenths; a weight is a share.
const TENTHS: std::ops::RangeInclusive<u32> = 0..=10;

/// A row with what the other members miss.
struct Asked<'a> {
    scope: (&'a str, &'a str, String),
    group: String,
    situation: Situation,
    log_errors: [Option<f64>; 3],
}

/// One scored row: its scope, what the others miss, and what the neighbours say of it.
struct Scored<'a> {
    scope: &'a (&'a str, &'a str, String),
    error: f64,
    voice: NeighbourVoice,
}

/// The table of κ against left-out errors, and the best κ of each quantity in words.
pub(super) fn score(points: &[Point]) -> (Table, Vec<String>) {
    let asked: Vec<Asked<'_>> = points.iter().filter_map(ask).collect();
    let mut by_scope: BTreeMap<_, Vec<&Asked<'_>>> = BTreeMap::new();
    for point in &asked {
        by_scope.entry(&point.scope).or_default().push(point);
    }
    let mut table = Table::new(&[
        "QUANTITY",
        "kappa",
        "ROWS",
        "SCOPES",
        "median APE",
        "p90 APE",
        "LOSS",
    ]);
    let mut notes = Vec::new();
    for quantity in Quantity::ALL {
        let scored: Vec<Scored<'_>> = by_scope
            .values()
            .flat_map(|scope| scope.iter().filter_map(|p| heard(p, scope, quantity)))
            .collect();
        let n_scopes = scored
            .iter()
            .map(|s| s.scope)
            .collect::<BTreeSet<_>>()
            .len();
        let mut best = (f64::INFINITY, 0.0);
        for kappa in TENTHS.map(|t| f64::from(t) / 10.0) {
            let loss = loss(&scored, kappa);
            if loss < best.0 {
                best = (loss, kappa);
            }
            let mut errors: Vec<f64> = scored.iter().map(|s| ape(s, kappa)).collect();
            errors.sort_by(f64::total_cmp);
            let p90 = errors.get(errors.len() * 9 / 10).copied();
            table.row([
                quantity.name().to_owned(),
                format!("{kappa:.1}"),
                scored.len().to_string(),
                n_scopes.to_string(),
                format!("{:.1} %", 100.0 * median(&errors).unwrap_or(f64::NAN)),
                format!("{:.1} %", 100.0 * p90.unwrap_or(f64::NAN)),
                format!("{loss:.4}"),
            ]);
        }
        notes.push(format!(
            "{}: least loss at kappa {:.1}",
            quantity.name(),
            best.1
        ));
    }
    (table, notes)
}

fn ask(point: &Point) -> Option<Asked<'_>> {
    let (Ok(question), Some(gpu)) = (&point.question, point.gpu) else {
        return None;
    };
    let profile = EngineProfile::embedded(question.generation);
    let RowAnswer::Prediction(row) = question.ask(gpu, profile) else {
        return None;
    };
    let silent = |_| NeighbourVoice::default();
    let calibration = Calibration::embedded();
    let others = calibration.stack(&row, &gpu.id, question.generation, silent);
    let weights = question.model.served_dtype(question.shape.weight_dtype);
    let (split, isl, osl) = (
        question.shape.tp,
        question.workload.isl.mean,
        question.workload.osl.mean,
    );
    Some(Asked {
        scope: (&point.model_key, &point.gpu_key, format!("{weights:?}")),
        group: format!("{split} {isl} {osl}"),
        situation: row.situation,
        log_errors: Quantity::ALL.map(|quantity| {
            let is_given = quantity == Quantity::Throughput && is_open(&row.situation);
            let seen = calibrate::measured(&point.measured, quantity).filter(|_| !is_given)?;
            Some((seen / said(&others, quantity)?).ln()).filter(|e| e.is_finite())
        }),
    })
}

fn said(stack: &StackPrediction, quantity: Quantity) -> Option<f64> {
    let stacked = match quantity {
        Quantity::Tpot => stack.tpot_mean_ms,
        Quantity::Ttft => stack.ttft_mean_ms,
        Quantity::Throughput => stack.out_tok_s_system,
    };
    stacked.map(|s| s.mixed.value)
}

/// What the others of a scope say of a row, its own group left out; `None` where none is near.
fn heard<'a>(
    point: &'a Asked<'a>,
    scope: &[&'a Asked<'a>],
    quantity: Quantity,
) -> Option<Scored<'a>> {
    let error = point.log_errors[quantity.index()]?;
    let others = scope.iter().filter(|p| p.group != point.group);
    let near = others.filter_map(|p| {
        Some(Neighbour {
            situation: &p.situation,
            log_error: p.log_errors[quantity.index()]?,
            weight: 1.0,
        })
    });
    let voice = consult(&point.situation, near);
    (voice.coverage >= NEAR).then_some(Scored {
        scope: &point.scope,
        error,
        voice,
    })
}

/// Absolute relative error when the voice is believed so far.
fn ape(scored: &Scored<'_>, kappa: f64) -> f64 {
    let left = scored.error - kappa * scored.voice.correction;
    ((-left).exp() - 1.0).abs()
}

/// Mean over scopes of the median absolute error in log space: every scope weighs the root of its
/// rows, because rows of one scope err together.
fn loss(scored: &[Scored<'_>], kappa: f64) -> f64 {
    let mut scopes: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for s in scored {
        let left = (s.error - kappa * s.voice.correction).abs();
        scopes.entry(s.scope).or_default().push(left);
    }
    let (mut sum, mut weights) = (0.0, 0.0);
    for errors in scopes.values() {
        let weight = (errors.len() as f64).sqrt();
        sum += weight * median(errors).unwrap_or(0.0);
        weights += weight;
    }
    sum / f64::max(weights, 1.0)
}
