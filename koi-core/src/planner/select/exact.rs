//! Depth-first branch and bound at fixed Lagrangian prices. Proves the answer, or stops after a
//! number of nodes with the best one found. Spec §10.3.

use super::prices::{Priced, reduced_gain};
use super::{Instance, VALUE_TOLERANCE, fits, give, take};

/// What the search ended with.
pub(super) struct Outcome {
    /// Best assignment found, by position; `None` when there is none.
    pub(super) picks: Option<Vec<usize>>,
    /// True when nothing better exists.
    pub(super) is_closed: bool,
}

struct Search<'a> {
    instance: &'a Instance,
    /// Jobs in the order of branching.
    order: Vec<usize>,
    /// Candidates by job, best reduced gain first.
    ranked: Vec<Vec<(usize, f64)>>,
    /// Σ of the best reduced gains of the jobs from a depth on.
    rest: Vec<f64>,
    prices: &'a [f64],
    left: Vec<u64>,
    picks: Vec<usize>,
    best: Option<(f64, Vec<usize>)>,
    n_nodes: u64,
    nodes_max: u64,
}

/// Improves on `start` until nothing better exists or `nodes_max` nodes were visited.
pub(super) fn search(
    instance: &Instance,
    priced: &Priced,
    start: Option<Vec<usize>>,
    nodes_max: u64,
) -> Outcome {
    if nodes_max == 0 {
        return Outcome {
            picks: start,
            is_closed: false,
        };
    }
    let ranked: Vec<Vec<(usize, f64)>> = instance
        .jobs
        .iter()
        .map(|job| {
            let mut list: Vec<(usize, f64)> = job
                .iter()
                .map(|c| reduced_gain(c, &priced.prices))
                .enumerate()
                .collect();
            list.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            list
        })
        .collect();
    let spread = |j: usize| {
        ranked[j]
            .first()
            .map_or(0.0, |a| a.1 - ranked[j].get(1).unwrap_or(a).1)
    };
    let mut order: Vec<usize> = (0..instance.jobs.len()).collect();
    order.sort_by(|a, b| spread(*b).total_cmp(&spread(*a)).then(a.cmp(b)));
    let mut rest = vec![0.0; order.len() + 1];
    for depth in (0..order.len()).rev() {
        rest[depth] = rest[depth + 1] + ranked[order[depth]].first().map_or(0.0, |b| b.1);
    }
    let mut search = Search {
        instance,
        order,
        ranked,
        rest,
        prices: &priced.prices,
        left: instance.capacity.clone(),
        picks: vec![0; instance.jobs.len()],
        best: start.map(|picks| (instance.value(&picks), picks)),
        n_nodes: 0,
        nodes_max,
    };
    let slack_value = search
        .left
        .iter()
        .zip(search.prices)
        .map(|(n, p)| *n as f64 * p)
        .sum();
    let is_closed = search.descend(0, 0.0, slack_value);
    Outcome {
        picks: search.best.map(|b| b.1),
        is_closed,
    }
}

impl Search<'_> {
    /// Explores everything below a node; false when the node limit cut it off. `paid` is the
    /// reduced gain so far, `slack_value` the value of all capacity at the prices.
    fn descend(&mut self, depth: usize, paid: f64, slack_value: f64) -> bool {
        if self.n_nodes >= self.nodes_max {
            return false;
        }
        self.n_nodes += 1;
        let Some(&job) = self.order.get(depth) else {
            let value = self.instance.value(&self.picks);
            if self.beats_best(value) {
                self.best = Some((value, self.picks.clone()));
            }
            return true;
        };
        for rank in 0..self.ranked[job].len() {
            let (position, reduced) = self.ranked[job][rank];
            let bound = paid + reduced + self.rest[depth + 1] + slack_value;
            if !self.beats_best(bound) {
                break;
            }
            let uses = &self.instance.jobs[job][position].uses;
            if !fits(&self.left, uses) {
                continue;
            }
            take(&mut self.left, uses);
            self.picks[job] = position;
            let closed = self.descend(depth + 1, paid + reduced, slack_value);
            give(&mut self.left, uses);
            if !closed {
                return false;
            }
        }
        true
    }

    fn beats_best(&self, value: f64) -> bool {
        self.best
            .as_ref()
            .is_none_or(|(best, _)| value > best + VALUE_TOLERANCE)
    }
}
