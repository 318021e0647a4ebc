//! Trains the residual member: boosted complete trees on errors cut off at a knee.
//!
//! Deterministic: thresholds are quantiles of the training rows, ties go to the first candidate.
//! Evaluation is koi-core's.

use koi_core::surrogate::residual::{DEPTH, Forest, LEAVES, NODES, Tree};
use koi_core::surrogate::situation::{COUNT, Situation, is_for_forests};

/// How a forest is grown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    /// Trees.
    pub(super) trees: usize,
    /// Share of a leaf's mean that a tree takes.
    pub(super) rate: f64,
    /// Fewest rows on either side of a split.
    pub(super) min_rows: f64,
    /// Rows of belief in zero that every leaf is mixed with.
    pub(super) shrinkage: f64,
    /// Errors beyond this count as this.
    pub(super) knee: f64,
}

impl Default for Growth {
    fn default() -> Self {
        Self {
            trees: 80,
            rate: 0.08,
            min_rows: 20.0,
            shrinkage: 4.0,
            knee: 0.3,
        }
    }
}

/// Candidate thresholds of a feature.
const CUTS: usize = 32;
/// Largest error that is learned from: beyond it a row is taken for a mistake of the table.
const LARGEST_ERROR: f64 = 2.0;

/// One row to learn from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Example<'a> {
    pub(super) situation: &'a Situation,
    /// ln(measured / predicted).
    pub(super) error: f64,
    pub(super) weight: f64,
}

/// Grows a forest.
pub(super) fn grow(examples: &[Example<'_>], growth: Growth) -> Forest {
    let mut rest: Vec<f64> = examples
        .iter()
        .map(|e| e.error.clamp(-LARGEST_ERROR, LARGEST_ERROR))
        .collect();
    let base = weighted_median(&rest, examples) * 0.5;
    rest.iter_mut().for_each(|r| *r -= base);
    let bins = Bins::of(examples);
    let mut forest = Forest {
        base,
        trees: Vec::new(),
    };
    for _ in 0..growth.trees {
        let targets: Vec<f64> = rest
            .iter()
            .map(|r| r.clamp(-growth.knee, growth.knee))
            .collect();
        let Some(tree) = grow_tree(examples, &bins, &targets, growth) else {
            break;
        };
        for (r, example) in rest.iter_mut().zip(examples) {
            *r -= tree.value(example.situation);
        }
        forest.trees.push(tree);
    }
    forest
}

fn weighted_median(values: &[f64], examples: &[Example<'_>]) -> f64 {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let half: f64 = examples.iter().map(|e| e.weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    for i in order {
        below += examples[i].weight;
        if below >= half {
            return values[i];
        }
    }
    0.0
}

/// Every feature of every row as the number of its thresholds that it exceeds.
struct Bins {
    thresholds: Vec<Vec<f64>>,
    codes: Vec<[u8; COUNT]>,
}

impl Bins {
    fn of(examples: &[Example<'_>]) -> Self {
        let thresholds: Vec<Vec<f64>> = (0..COUNT)
            .map(|f| {
                if is_for_forests(f) {
                    cuts(examples, f)
                } else {
                    Vec::new()
                }
            })
            .collect();
        let code = |example: &Example<'_>| {
            let mut codes = [0; COUNT];
            for (feature, code) in codes.iter_mut().enumerate() {
                let value = example.situation[feature];
                *code = thresholds[feature].partition_point(|t| value > *t) as u8;
            }
            codes
        };
        Self {
            codes: examples.iter().map(code).collect(),
            thresholds,
        }
    }
}

/// Thresholds half-way between neighbouring quantiles that differ.
fn cuts(examples: &[Example<'_>], feature: usize) -> Vec<f64> {
    let mut values: Vec<f64> = examples.iter().map(|e| e.situation[feature]).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let last = values.len().saturating_sub(1);
    let n = last.min(CUTS);
    let mut out: Vec<f64> = (0..n)
        .map(|i| {
            let at = if last <= CUTS {
                i
            } else {
                (i * last + last / 2) / n
            };
            0.5 * (values[at] + values[(at + 1).min(last)])
        })
        .collect();
    out.dedup();
    out
}

fn grow_tree(
    examples: &[Example<'_>],
    bins: &Bins,
    targets: &[f64],
    growth: Growth,
) -> Option<Tree> {
    let mut node_of = vec![0_usize; examples.len()];
    let mut tree = Tree {
        features: [0; NODES],
        thresholds: [f64::INFINITY; NODES],
        leaves: [0.0; LEAVES],
    };
    for depth in 0..DEPTH {
        let first = (1 << depth) - 1;
        for node in first..2 * first + 1 {
            let split = best_split(examples, bins, targets, |i| node_of[i] == node, growth);
            if let Some(split) = split {
                tree.features[node] = split.0;
                tree.thresholds[node] = bins.thresholds[split.0][split.1];
            } else if node == 0 {
                return None;
            }
        }
        for (i, node) in node_of.iter_mut().enumerate() {
            let value = examples[i].situation[tree.features[*node]];
            *node = 2 * *node + 1 + usize::from(value > tree.thresholds[*node]);
        }
    }
    let (mut sums, mut weights) = ([0.0; LEAVES], [0.0; LEAVES]);
    for (i, node) in node_of.iter().enumerate() {
        sums[node - NODES] += examples[i].weight * targets[i];
        weights[node - NODES] += examples[i].weight;
    }
    for (leaf, (sum, weight)) in tree.leaves.iter_mut().zip(sums.iter().zip(weights)) {
        let value = growth.rate * sum / (weight + growth.shrinkage);
        // Six digits say all that was learned and keep the file small.
        *leaf = (value * 1e6).round() / 1e6;
    }
    Some(tree)
}

/// Feature and cut with the largest gain among the rows of a node.
fn best_split(
    examples: &[Example<'_>],
    bins: &Bins,
    targets: &[f64],
    is_here: impl Fn(usize) -> bool,
    growth: Growth,
) -> Option<(usize, usize)> {
    let mut sums = vec![[(0.0, 0.0); CUTS + 1]; COUNT];
    let (mut total, mut weight) = (0.0, 0.0);
    for (i, example) in examples.iter().enumerate() {
        if !is_here(i) {
            continue;
        }
        let pull = example.weight * targets[i];
        total += pull;
        weight += example.weight;
        for (feature, cells) in sums.iter_mut().enumerate() {
            let cell = &mut cells[usize::from(bins.codes[i][feature])];
            cell.0 += pull;
            cell.1 += example.weight;
        }
    }
    let score = |sum: f64, n: f64| sum * sum / (n + growth.shrinkage);
    let mut best = (1e-9 + score(total, weight), None);
    for (feature, cells) in sums.iter().enumerate() {
        let (mut left, mut n) = (0.0, 0.0);
        let n_cuts = bins.thresholds[feature].len();
        for (cut, cell) in cells.iter().take(n_cuts).enumerate() {
            left += cell.0;
            n += cell.1;
            if n < growth.min_rows || weight - n < growth.min_rows {
                continue;
            }
            let gain = score(left, n) + score(total - left, weight - n);
            if gain > best.0 {
                best = (gain, Some((feature, cut)));
            }
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forest_learns_a_step_and_an_interaction() {
        let situations: Vec<Situation> = (0..400)
            .map(|i| {
                let mut s = [0.0; COUNT];
                s[3] = f64::from(i % 20);
                s[7] = f64::from(i / 20);
                s
            })
            .collect();
        let truth = |s: &Situation| {
            if s[3] > 9.5 && s[7] > 9.5 { 0.4 } else { -0.1 }
        };
        let examples: Vec<Example<'_>> = situations
            .iter()
            .map(|s| Example {
                situation: s,
                error: truth(s),
                weight: 1.0,
            })
            .collect();
        let forest = grow(&examples, Growth::default());
        let worst = situations
            .iter()
            .map(|s| (forest.correction(s) - truth(s)).abs())
            .fold(0.0, f64::max);
        assert!(worst < 0.05, "{worst}");
        assert_eq!(forest, grow(&examples, Growth::default()));
    }

    #[test]
    fn nothing_is_learned_from_nothing() {
        assert!(grow(&[], Growth::default()).trees.is_empty());
    }
}
