//! 99th percentiles of rows that measured them: printed, not judged.
//!
//! The mixture's mean times the analytic ratio of percentile to mean, with the mean's own interval
//! around it; folds are those of the means.

use koi_core::surrogate::measured_row::LoadKind;
use koi_core::surrogate::residual::Quantity;

use super::score::{Pair, Scores};
use super::table::Point;
use crate::report::percent;

/// Adds the lines about percentiles.
pub(super) fn score(scores: &mut Scores<'_>) {
    for (name, of_load) in LOADS {
        for quantity in [Quantity::Tpot, Quantity::Ttft] {
            let is_of = |p: &Point| !p.row.is_disaggregated && of_load(p.row.load_kind);
            let pairs: Vec<Pair<'_>> = scores.select(is_of).collect();
            let tails = pairs.iter().filter_map(|pair| tail(*pair, quantity));
            let (errors, inside): (Vec<f64>, Vec<f64>) = tails.unzip();
            if errors.is_empty() {
                continue;
            }
            let what = format!("p99 {} under {name}", quantity.name());
            scores.line(&what, &errors, [None, None]);
            let share = inside.iter().sum::<f64>() / inside.len() as f64;
            scores.table.row([
                format!("  {what}: inside the 80 % interval"),
                inside.len().to_string(),
                percent(Some(share)),
                String::new(),
            ]);
        }
    }
}

/// Whether a row's load is of a kind.
type IsOf = fn(Option<LoadKind>) -> bool;

/// Kinds of load by name.
const LOADS: [(&str, IsOf); 4] = [
    ("a concurrency", |k| {
        matches!(k, Some(LoadKind::Concurrency | LoadKind::StaticBatch))
    }),
    ("a rate", |k| matches!(k, Some(LoadKind::RateRps))),
    ("all at once", |k| {
        matches!(k, Some(LoadKind::AllAtOnce | LoadKind::MaxNumSeqs))
    }),
    ("a contest's rule", |k| {
        matches!(k, Some(LoadKind::Scenario | LoadKind::Offline))
    }),
];

/// Absolute percentage error of a percentile, and 1 where the interval covers it.
fn tail((point, held): Pair<'_>, quantity: Quantity) -> Option<(f64, f64)> {
    let (seen, at) = match quantity {
        Quantity::Tpot => (point.measured.tpot_p99_ms?, 0),
        Quantity::Ttft => (point.measured.ttft_p99_ms?, 1),
        Quantity::Throughput => return None,
    };
    let said = held.mixed[quantity.index()]? + held.tail[at]?;
    let (low, high) = held.interval[quantity.index()];
    let is_in = (said + low..=said + high).contains(&seen.ln());
    let error = (said - seen.ln()).exp_m1().abs();
    Some((error, if is_in { 1.0 } else { 0.0 }))
}
