//! How far models on one device lie apart in what the analytic member does not explain.
//!
//! Every row's left-out error (ln measured − ln predicted, uncorrected) belongs to a group of one model
//! and one GPU type. What separates the groups of one GPU type is the luck of an architecture with it;
//! the simulated truth draws its own from this spread. Beside it stands how well the same answers rank
//! everything measured on one GPU type. Not a judgement: nothing here has a goal.

use std::collections::{BTreeMap, BTreeSet};

use koi_core::surrogate::residual::Quantity;

use super::calibrate::measured;
use super::cv::Held;
use super::score::is_served;
use super::table::Point;
use crate::report::{Table, number};
use crate::statistics::spearman;

/// Fewer rows than this are no group.
const MIN_ROWS: usize = 3;
/// Fewer rows than this are no ranking.
const MIN_POOL: usize = 20;
/// A first token among so few requests waits for little but its own prompt.
const FEW_IN_FLIGHT: f64 = 8.0;

/// Which rows a line is about.
type Select = fn(&Point) -> bool;

/// What the groups of some rows say.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    n_rows: usize,
    n_groups: usize,
    /// Standard deviation of the group means.
    between: Option<f64>,
    /// The same among groups of one GPU type, pooled over types.
    between_models: Option<f64>,
    /// Part of that variance which a model takes along to other GPU types.
    shared_fraction: Option<f64>,
    /// Pairs of groups behind the shared part.
    n_pairs: usize,
    /// Standard deviation of rows around the mean of their group, pooled.
    within: Option<f64>,
}

/// The table of a cross-validation.
pub(super) fn table(points: &[Point], held: &[Held]) -> Table {
    let lines: [(&str, Quantity, Select); 5] = [
        ("mean TPOT, served", Quantity::Tpot, is_served),
        ("mean TTFT, served", Quantity::Ttft, is_served),
        (
            "mean TTFT, served, 8 in flight or fewer",
            Quantity::Ttft,
            is_hardly_loaded,
        ),
        (
            "throughput, vLLM, TensorRT-LLM, SGLang",
            Quantity::Throughput,
            is_of_a_main_engine,
        ),
        ("throughput, all", Quantity::Throughput, |_| true),
    ];
    let mut table = Table::new(&[
        "LEFT-OUT LOG ERROR, ANALYTIC",
        "ROWS",
        "GROUPS",
        "SD OF GROUPS",
        "OF ONE GPU TYPE'S",
        "SHARED BY TYPES",
        "PAIRS",
        "SD WITHIN",
    ]);
    for (name, quantity, is_of) in lines {
        let spread = spread(&errors(points, held, quantity, is_of));
        table.row([
            name.to_owned(),
            spread.n_rows.to_string(),
            spread.n_groups.to_string(),
            number(spread.between, 3),
            number(spread.between_models, 3),
            number(spread.shared_fraction, 2),
            spread.n_pairs.to_string(),
            number(spread.within, 3),
        ]);
    }
    table
}

/// Rank correlation of left-out analytic answers with what was measured, all models of a GPU type pooled.
pub(super) fn ranks(points: &[Point], held: &[Held]) -> Table {
    let lines: [(&str, Quantity, Select); 3] = [
        (
            "throughput, vLLM, TensorRT-LLM, SGLang",
            Quantity::Throughput,
            is_of_a_main_engine,
        ),
        ("mean TPOT, served", Quantity::Tpot, is_served),
        ("mean TTFT, served", Quantity::Ttft, is_served),
    ];
    let mut table = Table::new(&[
        "POOLED BY GPU TYPE, ANALYTIC",
        "GPU",
        "ROWS",
        "MODELS",
        "SPEARMAN",
    ]);
    for (name, quantity, is_of) in lines {
        for (gpu, pool) in pools(points, held, quantity, is_of) {
            let models: BTreeSet<&str> = pool.iter().map(|(model, ..)| *model).collect();
            if pool.len() < MIN_POOL || models.len() < 2 {
                continue;
            }
            let pairs: Vec<(f64, f64)> =
                pool.iter().map(|(_, said, seen)| (*said, *seen)).collect();
            table.row([
                name.to_owned(),
                gpu.to_owned(),
                pairs.len().to_string(),
                models.len().to_string(),
                number(spearman(&pairs), 3),
            ]);
        }
    }
    table
}

/// Model, answer and what was measured, by GPU type.
type Pools<'a> = BTreeMap<&'a str, Vec<(&'a str, f64, f64)>>;

fn pools<'a>(points: &'a [Point], held: &[Held], quantity: Quantity, is_of: Select) -> Pools<'a> {
    let mut pools = Pools::new();
    for (point, held) in points.iter().zip(held).filter(|(p, _)| is_of(p)) {
        let seen = measured(&point.measured, quantity);
        if let (Some(seen), Some(said)) = (seen, held.analytic[quantity.index()]) {
            let pool = pools.entry(point.gpu_key.as_str()).or_default();
            pool.push((point.model_key.as_str(), said, seen));
        }
    }
    pools
}

fn is_hardly_loaded(point: &Point) -> bool {
    let in_flight = point.row.load;
    is_served(point) && in_flight.is_some_and(|n| n <= FEW_IN_FLIGHT)
}

fn is_of_a_main_engine(point: &Point) -> bool {
    use koi_core::surrogate::measured_row::LoadKind::{Concurrency, StaticBatch};
    let is_main = ["vllm", "tensorrt-llm", "sglang"].contains(&point.row.engine.as_str());
    is_main && matches!(point.row.load_kind, Some(Concurrency | StaticBatch))
}

/// Errors by model and GPU type.
type Groups<'a> = BTreeMap<(&'a str, &'a str), Vec<f64>>;

fn errors<'a>(points: &'a [Point], held: &[Held], quantity: Quantity, is_of: Select) -> Groups<'a> {
    let mut groups = Groups::new();
    for (gpu, pool) in pools(points, held, quantity, is_of) {
        for (model, said, seen) in pool {
            let group = groups.entry((model, gpu));
            group.or_default().push(seen.ln() - said);
        }
    }
    groups.retain(|_, errors| errors.len() >= MIN_ROWS);
    groups
}

/// The spread of group means, and of rows within groups.
///
/// # Formula
/// With r̄_mg the mean error of model m on type g, r̄_g the mean of r̄_mg over the n_g models of g, and
/// c_mg = r̄_mg − r̄_g: between_models² = Σ c_mg² / Σ (n_g − 1); shared = mean of c_mg · c_mh over pairs
/// of types g ≠ h of one model, over between_models².
fn spread(groups: &Groups<'_>) -> Spread {
    let means: BTreeMap<(&str, &str), f64> = groups.iter().map(|(k, v)| (*k, mean(v))).collect();
    let all: Vec<f64> = means.values().copied().collect();
    let mut by_gpu: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for ((_, gpu), m) in &means {
        by_gpu.entry(gpu).or_default().push(*m);
    }
    let between_models = pooled(by_gpu.values());
    let mut by_model: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for ((model, gpu), m) in &means {
        if by_gpu[gpu].len() > 1 {
            let centred = m - mean(&by_gpu[gpu]);
            by_model.entry(model).or_default().push(centred);
        }
    }
    let products: Vec<f64> = by_model.values().flat_map(|c| pair_products(c)).collect();
    let n_rows = groups.values().map(Vec::len).sum();
    Spread {
        n_rows,
        n_groups: groups.len(),
        between: pooled([all].iter()),
        between_models,
        shared_fraction: between_models
            .filter(|sd| *sd > 0.0 && !products.is_empty())
            .map(|sd| mean(&products) / (sd * sd)),
        n_pairs: products.len(),
        within: pooled(groups.values()),
    }
}

fn pair_products(values: &[f64]) -> Vec<f64> {
    let pairs = values.iter().enumerate();
    pairs
        .flat_map(|(i, a)| values[..i].iter().map(move |b| a * b))
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Standard deviation around the means of groups; `None` where no group has two.
fn pooled<'a>(groups: impl Iterator<Item = &'a Vec<f64>>) -> Option<f64> {
    let (mut squares, mut free) = (0.0, 0.0);
    for group in groups.filter(|g| !g.is_empty()) {
        let middle = mean(group);
        squares += group.iter().map(|x| (x - middle).powi(2)).sum::<f64>();
        free += group.len() as f64 - 1.0;
    }
    (free > 0.0).then(|| (squares / free).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(what: Option<f64>, want: f64) {
        let what = what.unwrap();
        assert!((what - want).abs() < 1e-12, "{what}, want {want}");
    }

    #[test]
    fn spreads_by_hand() {
        // Means 1, 3 on A and 2, 6 on B: centred −1, 1 and −2, 2.
        let groups = Groups::from([
            (("m", "A"), vec![0.0, 1.0, 2.0]),
            (("n", "A"), vec![3.0, 3.0, 3.0]),
            (("m", "B"), vec![2.0, 2.0, 2.0]),
            (("n", "B"), vec![5.0, 6.0, 7.0]),
        ]);
        let found = spread(&groups);
        assert_eq!((found.n_rows, found.n_groups, found.n_pairs), (12, 4, 2));
        check(found.between, (14.0_f64 / 3.0).sqrt());
        check(found.between_models, (10.0_f64 / 2.0).sqrt());
        check(found.shared_fraction, 2.0 / 5.0);
        check(found.within, (4.0_f64 / 8.0).sqrt());
    }

    #[test]
    fn one_model_on_one_device_says_nothing() {
        let groups = Groups::from([(("m", "A"), vec![1.0, 1.0, 1.0])]);
        let found = spread(&groups);
        assert_eq!(
            (found.between, found.between_models, found.shared_fraction),
            (None, None, None)
        );
        check(found.within, 0.0);
    }
}
