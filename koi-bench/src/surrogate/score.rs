//! The accuracy table: each line a check of the specification with its goal.

use std::collections::BTreeMap;

use koi_core::surrogate::EngineGeneration;
use koi_core::surrogate::residual::Quantity;

use super::calibrate::measured;
use super::cv::{By, Held, Status};
use super::table::Point;
use crate::report::{Bound, Table, number, percent};
use crate::statistics::{median, quantile, spearman};

pub(super) type Pair<'a> = (&'a Point, &'a Held);

/// Mean latencies under a concurrency or a static batch.
pub(super) fn is_served(point: &Point) -> bool {
    let m = &point.measured;
    let kind = point.row.load_kind;
    use koi_core::surrogate::measured_row::LoadKind::{Concurrency, StaticBatch};
    m.is_mean
        && m.ttft_ms.is_some()
        && matches!(kind, Some(Concurrency | StaticBatch))
        && !point.row.is_disaggregated
}

fn is_peak(point: &Point) -> bool {
    point.source.starts_with("TensorRT-LLM") && point.measured.out_tok_s_system.is_some()
}

fn is_argonne(point: &Point, engine: &str) -> bool {
    let nvidia = point.row.gpu_type.starts_with('H') || point.row.gpu_type.starts_with('A');
    point.source.starts_with("Argonne") && nvidia && point.row.engine == engine
}

/// Every row's left-out prediction beside what was measured, as CSV.
pub(super) fn rows_csv(points: &[Point], held: &[Held]) -> String {
    let mut out = String::from("row_id,status,reason");
    for quantity in Quantity::ALL {
        let name = quantity.name();
        for column in ["_measured", "", "_analytic", "_lo80", "_hi80"] {
            out.push_str(&format!(",{name}{column}"));
        }
    }
    for feature in koi_core::surrogate::situation::FEATURES {
        out.push_str(&format!(",{feature}"));
    }
    let cell = |x: Option<f64>| x.map_or_else(String::new, |x| format!("{x:.6}"));
    for (point, held) in points.iter().zip(held) {
        let reason = point.question.as_ref().err().map_or("", String::as_str);
        let reason = reason.replace([',', '"'], " ");
        let id = point.row_id.replace(',', ";");
        out.push_str(&format!("\n{id},{:?},{reason}", held.status));
        for quantity in Quantity::ALL {
            let q = quantity.index();
            let said = held.mixed[q];
            let (low, high) = held.interval[q];
            let values = [
                measured(&point.measured, quantity),
                said.map(f64::exp),
                held.analytic[q].map(f64::exp),
                said.map(|s| (s + low).exp()),
                said.map(|s| (s + high).exp()),
            ];
            for value in values {
                out.push_str(&format!(",{}", cell(value)));
            }
        }
        for feature in held.situation.iter().flatten() {
            out.push_str(&format!(",{feature:.5}"));
        }
    }
    out.push('\n');
    out
}

/// Absolute percentage errors of rows.
fn apes<'a>(pairs: impl Iterator<Item = Pair<'a>>, quantity: Quantity) -> Vec<f64> {
    pairs
        .filter_map(|(point, held)| {
            let seen = measured(&point.measured, quantity)?;
            let said = held.mixed[quantity.index()]?;
            Some((said - seen.ln()).exp_m1().abs())
        })
        .collect()
}

/// Adds a line about errors to the table, and its bound where there is a goal.
pub(super) struct Scores<'a> {
    pairs: Vec<Pair<'a>>,
    by: By,
    pub(super) table: Table,
    bounds: Vec<Bound>,
}

impl<'a> Scores<'a> {
    pub(super) fn select(&self, is_of: impl Fn(&Point) -> bool) -> impl Iterator<Item = Pair<'a>> {
        let chosen: Vec<Pair<'a>> = self
            .pairs
            .iter()
            .copied()
            .filter(|(p, _)| is_of(p))
            .collect();
        chosen.into_iter()
    }

    pub(super) fn line(&mut self, what: &str, errors: &[f64], goal: [Option<f64>; 2]) {
        let (middle, high) = (median(errors), quantile(errors, 0.9));
        self.table.row([
            what.to_owned(),
            errors.len().to_string(),
            percent(middle),
            percent(high),
        ]);
        for (name, value, limit) in [("median", middle, goal[0]), ("p90", high, goal[1])] {
            if let Some(limit) = limit {
                let what = format!("{what}: {name} APE, leave one {} out", self.by.name());
                let value = value.map(|v| 100.0 * v);
                self.bounds.push(Bound::at_most(what, value, limit, "%"));
            }
        }
    }

    fn at_least(&mut self, what: &str, value: Option<f64>, limit: f64) {
        self.bounds.push(Bound {
            what: format!("{what}, leave one {} out", self.by.name()),
            bound: format!("≥ {limit}"),
            measured: number(value, 3),
            met: value.map(|v| v >= limit),
        });
    }
}

/// Everything that the table says about one cross-validation.
pub(super) fn score(points: &[Point], held: &[Held], by: By) -> (Table, Vec<Bound>) {
    let mut scores = Scores {
        pairs: points.iter().zip(held).collect(),
        by,
        table: Table::new(&["ROWS", "N", "MEDIAN APE", "P90 APE"]),
        bounds: Vec::new(),
    };
    peaks(&mut scores);
    argonne(&mut scores);
    served(&mut scores);
    answered(&mut scores);
    covered(&mut scores);
    super::tails::score(&mut scores);
    chosen(&mut scores);
    (scores.table, scores.bounds)
}

fn peaks(scores: &mut Scores<'_>) {
    let errors = apes(scores.select(is_peak), Quantity::Throughput);
    scores.line("TensorRT-LLM peak throughput", &errors, [Some(20.0), None]);
    let pairs: Vec<(f64, f64)> = scores
        .select(is_peak)
        .filter_map(|(p, h)| {
            Some((
                h.mixed[Quantity::Throughput.index()]?,
                p.measured.out_tok_s_system?,
            ))
        })
        .collect();
    let rank = spearman(&pairs);
    scores.at_least("TensorRT-LLM peak throughput: Spearman", rank, 0.96);
}

fn argonne(scores: &mut Scores<'_>) {
    let goal = |limit| {
        if scores.by == By::Gpu {
            Some(limit)
        } else {
            None
        }
    };
    let goals = [("tensorrt-llm", goal(18.0)), ("vllm", goal(30.0))];
    for (engine, limit) in goals {
        let rows = scores.select(|p| is_argonne(p, engine));
        let errors = apes(rows, Quantity::Throughput);
        scores.line(
            &format!("Argonne {engine} on NVIDIA"),
            &errors,
            [limit, None],
        );
    }
}

fn served(scores: &mut Scores<'_>) {
    let (tpot, ttft) = match scores.by {
        By::Model => ([Some(17.0), Some(50.0)], Some(32.0)),
        By::Gpu => ([Some(25.0), Some(70.0)], Some(45.0)),
    };
    for quantity in [Quantity::Tpot, Quantity::Ttft] {
        let alone: Vec<f64> = scores
            .select(is_served)
            .filter_map(|(p, h)| {
                let seen = measured(&p.measured, quantity)?;
                Some((h.analytic[quantity.index()]? - seen.ln()).exp_m1().abs())
            })
            .collect();
        let what = format!("served, mean {}: analytic member alone", quantity.name());
        scores.line(&what, &alone, [None, None]);
    }
    let errors = apes(scores.select(is_served), Quantity::Tpot);
    scores.line("served, mean TPOT", &errors, tpot);
    let errors = apes(scores.select(is_served), Quantity::Ttft);
    scores.line("served, mean TTFT", &errors, [ttft, None]);
    for generation in EngineGeneration::ALL {
        for quantity in Quantity::ALL {
            let of = |p: &Point| {
                p.question
                    .as_ref()
                    .is_ok_and(|q| q.generation == generation)
                    && (quantity == Quantity::Throughput || is_served(p))
            };
            let errors = apes(scores.select(of), quantity);
            if !errors.is_empty() {
                let what = format!("  {} {}", generation.name(), quantity.name());
                scores.line(&what, &errors, [None, None]);
            }
        }
    }
    let folds: std::collections::BTreeSet<String> = scores
        .select(is_served)
        .map(|(p, _)| scores.by.key(p).to_owned())
        .collect();
    for fold in folds {
        for quantity in [Quantity::Tpot, Quantity::Ttft] {
            let by = scores.by;
            let rows = scores.select(|p| is_served(p) && by.key(p) == fold);
            let errors = apes(rows, quantity);
            let what = format!("  without {fold}: {}", quantity.name());
            scores.line(&what, &errors, [None, None]);
        }
    }
    let order = pair_order(scores.select(is_served));
    scores.at_least("pair order by TPOT within (model, GPU)", order, 0.92);
}

/// Share of pairs of one model and GPU whose order by TPOT is predicted.
fn pair_order<'a>(pairs: impl Iterator<Item = Pair<'a>>) -> Option<f64> {
    let mut groups: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
    for (point, held) in pairs {
        let (Some(seen), Some(said)) = (point.measured.tpot_ms, held.mixed[Quantity::Tpot.index()])
        else {
            continue;
        };
        let key = (point.row.model.as_str(), point.row.gpu_type.as_str());
        groups.entry(key).or_default().push((seen, said));
    }
    let (mut right, mut all) = (0_u64, 0_u64);
    for group in groups.values() {
        for (i, a) in group.iter().enumerate() {
            for b in &group[..i] {
                let order = (a.0.total_cmp(&b.0), a.1.total_cmp(&b.1));
                if !order.0.is_eq() {
                    all += 1;
                    right += u64::from(order.0 == order.1);
                }
            }
        }
    }
    (all > 0).then(|| right as f64 / all as f64)
}

fn answered(scores: &mut Scores<'_>) {
    let aggregated: Vec<Pair<'_>> = scores.select(|p| !p.row.is_disaggregated).collect();
    let n = |status| {
        aggregated
            .iter()
            .filter(|(_, h)| h.status == status)
            .count()
    };
    let (said, unfit, refused) = (
        n(Status::Predicted),
        n(Status::DoesNotFit),
        n(Status::Unsupported),
    );
    scores.table.row([
        format!("aggregated rows: {said} predicted, {unfit} said not to fit, {refused} refused"),
        aggregated.len().to_string(),
        String::new(),
        String::new(),
    ]);
    // What was measured ran, so that "does not fit" would be wrong here and does not count.
    let share = said as f64 / (aggregated.len() as f64).max(1.0);
    scores.at_least("share of aggregated rows answered", Some(share), 0.95);
}

fn covered(scores: &mut Scores<'_>) {
    let band = match scores.by {
        By::Model => (0.75, 0.88),
        By::Gpu => (0.70, 0.92),
    };
    for quantity in Quantity::ALL {
        let q = quantity.index();
        let inside: Vec<f64> = scores
            .pairs
            .iter()
            .filter_map(|(point, held)| {
                let seen = measured(&point.measured, quantity)?.ln();
                let (low, high) = held.interval[q];
                let said = held.mixed[q]?;
                let is_in = (said + low..=said + high).contains(&seen);
                Some(if is_in { 1.0 } else { 0.0 })
            })
            .collect();
        let share = (!inside.is_empty()).then(|| inside.iter().sum::<f64>() / inside.len() as f64);
        let what = format!(
            "80 % intervals of {}: coverage, leave one {} out",
            quantity.name(),
            scores.by.name()
        );
        scores.bounds.push(Bound::within(what, share, band));
    }
}

/// Regret of choosing the split and engine with the best predicted rate per GPU.
fn chosen(scores: &mut Scores<'_>) {
    for (name, of_argonne) in [("Argonne", true), ("others", false)] {
        let rows: Vec<Pair<'_>> = scores
            .select(|p| p.source.starts_with("Argonne") == of_argonne)
            .collect();
        let what = format!("best of grid, {name}");
        let regrets = regret_lines(scores, &what, &rows, |p| &p.choice);
        for (which, q, limit) in [("median", 0.5, 3.0), ("p90", 0.9, 12.0)] {
            let what = format!("{what}: {which} regret, leave one {} out", scores.by.name());
            let value = quantile(&regrets, q).map(|v| 100.0 * v);
            scores.bounds.push(Bound::at_most(what, value, limit, "%"));
        }
        let what = format!("{what}, replicas as choices");
        regret_lines(scores, &what, &rows, |p| &p.choice_by_devices);
    }
}

/// A line of the table about the regrets of one reading of "choice", and the regrets.
fn regret_lines<'a>(
    scores: &mut Scores<'_>,
    what: &str,
    rows: &[Pair<'a>],
    choice: impl Fn(&'a Point) -> &'a str,
) -> Vec<f64> {
    let grids = grids(rows, choice);
    let regrets: Vec<f64> = grids.values().filter_map(|g| regret(g)).collect();
    scores.table.row([
        format!("{what}: regret"),
        regrets.len().to_string(),
        percent(median(&regrets)),
        percent(quantile(&regrets, 0.9)),
    ]);
    regrets
}

/// One configuration of a grid: what it is, what was measured per GPU, and its predicted logarithm.
type Candidate<'a> = (&'a str, f64, f64);

/// Configurations by grid.
fn grids<'a>(
    rows: &[Pair<'a>],
    choice: impl Fn(&'a Point) -> &'a str,
) -> BTreeMap<&'a str, Vec<Candidate<'a>>> {
    let mut grids: BTreeMap<&str, Vec<Candidate<'a>>> = BTreeMap::new();
    for (point, held) in rows {
        let m = &point.measured;
        let seen = m.out_tok_s_system.or(m.published_tok_s);
        let said = held.mixed[Quantity::Throughput.index()];
        if let (Some(seen), Some(said)) = (seen, said) {
            let grid = grids.entry(&point.grid_key).or_default();
            grid.push((choice(point), seen / point.n_gpus, said - point.n_gpus.ln()));
        }
    }
    grids
}

/// What the predicted best of a grid gives away; absent for fewer than three choices.
fn regret(grid: &[Candidate<'_>]) -> Option<f64> {
    let choices: std::collections::BTreeSet<&str> = grid.iter().map(|g| g.0).collect();
    if choices.len() < 3 {
        return None;
    }
    let best = grid.iter().map(|g| g.1).max_by(f64::total_cmp)?;
    let pick = grid.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
    Some(1.0 - pick.1 / best)
}
