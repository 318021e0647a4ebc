//! Cross-validation: whole models or whole GPU types left out.
//!
//! Constants and forests are fitted anew without the fold. How far the forests are believed and how
//! wide the intervals are is taken, for a fold, from the errors that the *other* folds made when
//! they were left out; no value of a row enters its own prediction or its own interval.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, anyhow};
use koi_core::surrogate::constants::Constants;
use koi_core::surrogate::measured_row::RowAnswer;
use koi_core::surrogate::residual::{Forest, Quantity};
use koi_core::surrogate::situation::Situation;
use koi_core::surrogate::{EngineGeneration, EngineProfile};

use super::calibrate;
use super::forest::{self, Example, Growth};
use super::table::Point;

/// What is left out together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum By {
    /// Models; names of one shape are one model.
    Model,
    /// GPU types.
    Gpu,
}

impl By {
    pub(super) fn key(self, point: &Point) -> &str {
        match self {
            Self::Model => &point.model_key,
            Self::Gpu => &point.gpu_key,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Gpu => "gpu",
        }
    }
}

/// How a row was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Predicted,
    DoesNotFit,
    Unsupported,
}

/// One row's answer by constants and forests that never saw its fold.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) status: Status,
    pub(super) generation: Option<EngineGeneration>,
    /// ln of the analytic answer, by quantity.
    pub(super) analytic: [Option<f64>; 3],
    /// ln(99th percentile / mean) of time per output token and time to first token.
    pub(super) tail: [Option<f64>; 2],
    /// The forests' corrections.
    pub(super) correction: [f64; 3],
    /// What the forests stand on.
    pub(super) situation: Option<Situation>,
    /// ln of the mixture.
    pub(super) mixed: [Option<f64>; 3],
    /// Offsets of the 80 % interval.
    pub(super) interval: [(f64, f64); 3],
}

/// An analytic answer with what the forests stand on.
pub(super) struct Asked {
    pub(super) status: Status,
    pub(super) analytic: [Option<f64>; 3],
    pub(super) tail: [Option<f64>; 2],
    pub(super) situation: Option<Situation>,
}

/// Asks the analytic member.
pub(super) fn ask(point: &Point, constants: &Constants) -> Asked {
    let silent = |status| Asked {
        status,
        analytic: [None; 3],
        tail: [None; 2],
        situation: None,
    };
    let (Ok(question), Some(gpu)) = (&point.question, point.gpu) else {
        return silent(Status::Unsupported);
    };
    let profile = EngineProfile {
        constants,
        generation: question.generation,
    };
    match question.ask(gpu, profile) {
        RowAnswer::Prediction(row) => Asked {
            status: Status::Predicted,
            analytic: Quantity::ALL.map(|q| calibrate::predicted(&row, q).map(f64::ln)),
            tail: [
                tail(row.tpot_p99_ms, row.tpot_mean_ms),
                tail(row.ttft_p99_ms, row.ttft_mean_ms),
            ],
            situation: Some(row.situation),
        },
        RowAnswer::DoesNotFit(_) => silent(Status::DoesNotFit),
        RowAnswer::Unsupported(_) => silent(Status::Unsupported),
    }
}

fn tail(p99: Option<f64>, mean: Option<f64>) -> Option<f64> {
    Some((p99? / mean?).ln()).filter(|t| t.is_finite())
}

/// Grows the forests of every quantity on some points.
pub(super) fn grow_all(points: &[&Point], constants: &Constants) -> [Forest; 3] {
    let asked: Vec<Asked> = points.iter().map(|p| ask(p, constants)).collect();
    Quantity::ALL.map(|quantity| {
        let examples: Vec<Example<'_>> = points
            .iter()
            .zip(&asked)
            .filter_map(|(point, asked)| {
                let seen = calibrate::measured(&point.measured, quantity)?;
                let error = seen.ln() - asked.analytic[quantity.index()]?;
                let situation = asked.situation.as_ref()?;
                Some(Example {
                    situation,
                    error,
                    weight: 1.0,
                })
            })
            .collect();
        forest::grow(&examples, Growth::default())
    })
}

/// Every row's answer with its fold left out.
pub(super) fn run(points: &[Point], by: By, iterations: u32) -> Result<Vec<Held>> {
    let folds: Vec<String> = points
        .iter()
        .map(|p| by.key(p).to_owned())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let next = AtomicUsize::new(0);
    let done: Mutex<BTreeMap<usize, Held>> = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    while let Some(fold) = folds.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let held = hold_out(points, by, fold, iterations)?;
                        let mut done = done.lock().map_err(|_| anyhow!("a fold panicked"))?;
                        done.extend(held);
                    }
                    Ok(())
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|w| w.join().map_err(|_| anyhow!("a fold panicked"))?)
    })?;
    let done = done.into_inner().map_err(|_| anyhow!("a fold panicked"))?;
    let mut held: Vec<Held> = done.into_values().collect();
    mix(points, by, &mut held);
    Ok(held)
}

fn hold_out(points: &[Point], by: By, fold: &str, iterations: u32) -> Result<Vec<(usize, Held)>> {
    let others: Vec<&Point> = points.iter().filter(|p| by.key(p) != fold).collect();
    let constants =
        calibrate::fit(&others, iterations).with_context(|| format!("without {fold}"))?;
    let forests = grow_all(&others, &constants);
    let own = points.iter().enumerate().filter(|(_, p)| by.key(p) == fold);
    Ok(own
        .map(|(i, point)| {
            let asked = ask(point, &constants);
            let correction = asked.situation.as_ref().map_or([0.0; 3], |situation| {
                Quantity::ALL.map(|q| forests[q.index()].correction(situation))
            });
            let held = Held {
                status: asked.status,
                generation: point.question.as_ref().ok().map(|q| q.generation),
                analytic: asked.analytic,
                tail: asked.tail,
                correction,
                situation: asked.situation,
                mixed: asked.analytic,
                interval: [(0.0, 0.0); 3],
            };
            (i, held)
        })
        .collect())
}

/// One row's left-out error: fold, generation, measured over analytic, correction.
pub(super) struct Lesson<'a> {
    pub(super) fold: &'a str,
    pub(super) generation: Option<EngineGeneration>,
    /// The run started with all its requests: what a first token waits for then is another matter.
    pub(super) is_backlog: bool,
    pub(super) error: f64,
    pub(super) correction: f64,
}

/// The left-out errors of a quantity.
pub(super) fn lessons<'a>(
    points: &'a [Point],
    by: By,
    held: &[Held],
    quantity: Quantity,
) -> Vec<Lesson<'a>> {
    let all = points.iter().zip(held);
    all.filter_map(|(point, held)| {
        let seen = calibrate::measured(&point.measured, quantity)?;
        Some(Lesson {
            fold: by.key(point),
            generation: held.generation,
            is_backlog: point
                .question
                .as_ref()
                .is_ok_and(|q| q.backlog_per_replica.is_some()),
            error: seen.ln() - held.analytic[quantity.index()]?,
            correction: held.correction[quantity.index()],
        })
    })
    .collect()
}

/// Share of the forest's correction that helps most folds: the least mean over folds of the median
/// absolute error, with a small price on believing at all.
pub(super) fn best_share<'a>(lessons: impl Iterator<Item = &'a Lesson<'a>> + Clone) -> f64 {
    const PRICE: f64 = 0.1;
    let mut folds: BTreeMap<&str, Vec<&Lesson<'_>>> = BTreeMap::new();
    for lesson in lessons.filter(|l| !l.is_backlog) {
        folds.entry(lesson.fold).or_default().push(lesson);
    }
    let loss = |share: f64| {
        let (mut sum, mut weights) = (0.0, 0.0);
        for fold in folds.values() {
            let left: Vec<f64> = fold
                .iter()
                .map(|l| (l.error - share * l.correction).abs())
                .collect();
            let weight = (left.len() as f64).sqrt();
            sum += weight * crate::statistics::median(&left).unwrap_or(0.0);
            weights += weight;
        }
        sum / f64::max(weights, 1.0) + PRICE * share
    };
    let shares = (0..=10).map(|tenths| f64::from(tenths) / 10.0);
    shares
        .min_by(|a, b| loss(*a).total_cmp(&loss(*b)))
        .unwrap_or(0.0)
}

/// Part of the fold to come that is taken to lie beyond the errors seen, at each end.
/// A half would be exact if rows were spread evenly over folds; most rows belong to few, well-behaved
/// ones, for which it makes intervals far too wide.
const UNKNOWN_PER_TAIL: f64 = 0.2;

/// Quantiles 10 % and 90 % of what is left after a share of the correction, and the rows behind
/// them.
///
/// Rows of one fold err together, so that a new fold is one draw, not as many as it has rows: every
/// fold weighs the same. The new one counts too, and may fall beyond either end with equal chance:
/// a tenth of n + 1 folds lies in each tail, some of it unseen.
pub(super) fn offsets<'a>(
    lessons: impl Iterator<Item = &'a Lesson<'a>>,
    share: f64,
) -> (f64, f64, u32) {
    let mut folds: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for lesson in lessons {
        let left = lesson.error - share * lesson.correction;
        folds.entry(lesson.fold).or_default().push(left);
    }
    let n: usize = folds.values().map(Vec::len).sum();
    let n_folds = folds.len() as f64;
    let mut weighed: Vec<(f64, f64)> = folds
        .values()
        .flat_map(|errors| {
            let weight = 1.0 / errors.len() as f64;
            errors.iter().map(move |e| (*e, weight))
        })
        .collect();
    weighed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let tail = (0.1 * (n_folds + 1.0) - UNKNOWN_PER_TAIL).max(0.0);
    let low = weighted_quantile(weighed.iter(), tail);
    let high = weighted_quantile(weighed.iter().rev(), tail);
    (low.min(high), high.max(low), n as u32)
}

/// The first value at which the summed weights reach a level.
fn weighted_quantile<'a>(values: impl Iterator<Item = &'a (f64, f64)>, level: f64) -> f64 {
    let mut sum = 0.0;
    let mut last = 0.0;
    for (value, weight) in values {
        sum += weight;
        last = *value;
        if sum >= level {
            break;
        }
    }
    last
}

/// What left-out rows say of a quantity: share of the correction, offsets, rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) share: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) n: u32,
}

/// The cell of some left-out rows.
pub(super) fn cell<'a>(lessons: impl Iterator<Item = &'a Lesson<'a>> + Clone) -> Cell {
    let share = best_share(lessons.clone());
    let (low, high, n) = offsets(lessons, share);
    Cell {
        share,
        low,
        high,
        n,
    }
}

/// Fills in mixtures and intervals, each fold's from the others' errors.
fn mix(points: &[Point], by: By, held: &mut [Held]) {
    let folds: BTreeSet<&str> = points.iter().map(|p| by.key(p)).collect();
    for quantity in Quantity::ALL {
        let q = quantity.index();
        let lessons = lessons(points, by, held, quantity);
        for fold in &folds {
            let others = || lessons.iter().filter(|l| l.fold != *fold);
            let all = cell(others());
            let cells: BTreeMap<EngineGeneration, Cell> = EngineGeneration::ALL
                .into_iter()
                .map(|g| (g, cell(others().filter(move |l| l.generation == Some(g)))))
                .filter(|(_, c)| c.n >= koi_core::surrogate::interval::MIN_CELL_ROWS)
                .collect();
            let own = points
                .iter()
                .zip(held.iter_mut())
                .filter(|(p, _)| by.key(p) == *fold);
            for (_, held) in own {
                let own = held.generation.and_then(|g| cells.get(&g));
                let cell = own.copied().unwrap_or(all);
                held.mixed[q] = held.analytic[q].map(|a| a + cell.share * held.correction[q]);
                held.interval[q] = (cell.low, cell.high);
            }
        }
    }
}
