//! The block means that leg (a) is tested on, as running sums: what a tick costs depends on the
//! rows of that tick, never on how many came before.
//!
//! Holds the last 500 ticks of every engine version, per (variable, environment), in buckets of ten
//! ticks that expire whole. Derived from evidence rows and rebuilt from them; never stored. Spec §8.

use std::collections::{BTreeMap, VecDeque};

use super::anova::Moments;
use super::residuals::{
    EnvironmentSamples, LegSettings, ResidualInvariance, is_powered, residual_invariance,
};
use crate::environment::Environment;
use crate::ids::TickId;
use crate::params::Params;
use crate::validation::residual::{VARIABLE_COUNT, Variable};

#[cfg(test)]
mod tests;

/// Buckets that a whole window has.
const BUCKETS: i64 = 50;
/// Block means from which a centre is taken.
const CENTRE_SAMPLES: usize = 32;

/// The mean residual of one variable in one evidence row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockMean {
    /// The variable.
    pub variable: Variable,
    /// Mean residual of the row's points, on the variable's natural scale.
    pub mean: f64,
}

/// Where and when a row's block means were seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen<'a> {
    /// The row's tick.
    pub tick: TickId,
    /// Engine version of the deployment: residuals of different versions are never mixed.
    pub engine: &'a str,
    /// Where the rank ran.
    pub environment: &'a Environment,
}

/// Moments by bucket of ticks, oldest first, and their sum.
#[derive(Debug, Clone, Default)]
struct Buckets {
    buckets: VecDeque<(i64, Moments)>,
    total: Moments,
}

impl Buckets {
    fn push(&mut self, bucket: i64, x: f64) {
        self.total.push(x);
        if let Some((_, newest)) = self.buckets.back_mut().filter(|(b, _)| *b == bucket) {
            newest.push(x);
            return;
        }
        let at = self.buckets.partition_point(|(b, _)| *b < bucket);
        if self.buckets.get(at).is_none_or(|(b, _)| *b != bucket) {
            self.buckets.insert(at, (bucket, Moments::default()));
        }
        if let Some((_, moments)) = self.buckets.get_mut(at) {
            moments.push(x);
        }
    }

    /// Sums what is left anew, so that rounding does not pile up over the life of a fleet.
    fn expire(&mut self, oldest: i64) {
        if self.buckets.front().is_none_or(|(b, _)| *b >= oldest) {
            return;
        }
        while self.buckets.front().is_some_and(|(b, _)| *b < oldest) {
            self.buckets.pop_front();
        }
        self.total = self
            .buckets
            .iter()
            .fold(Moments::default(), |sum, (_, m)| sum.merged(m));
    }
}

/// The median of the newest block means, taken anew whenever their number has doubled and then
/// once per full turn.
#[derive(Debug, Clone, Default)]
struct Centre {
    newest: VecDeque<f64>,
    seen: usize,
    median: f64,
}

impl Centre {
    fn push(&mut self, x: f64) {
        if self.newest.len() == CENTRE_SAMPLES {
            self.newest.pop_front();
        }
        self.newest.push_back(x);
        self.seen += 1;
        let filling = self.seen <= CENTRE_SAMPLES && self.seen.is_power_of_two();
        if filling || self.seen.is_multiple_of(CENTRE_SAMPLES) {
            let values = self.newest.make_contiguous();
            self.median = crate::validation::residual::median(values).unwrap_or(self.median);
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Cell {
    levels: Buckets,
    distances: Buckets,
    centre: Centre,
}

type Cells = Vec<Option<Box<Cell>>>;

/// Running sums of block means of the last ticks.
#[derive(Debug, Clone)]
pub struct InvarianceWindow {
    ticks: i64,
    newest: i64,
    engines: BTreeMap<String, BTreeMap<Environment, Cells>>,
}

impl Default for InvarianceWindow {
    fn default() -> Self {
        Self::new(&Params::default())
    }
}

impl InvarianceWindow {
    /// An empty window of the configured length.
    #[must_use]
    pub fn new(params: &Params) -> Self {
        Self {
            ticks: i64::from(params.icp_window_ticks),
            newest: i64::MIN,
            engines: BTreeMap::new(),
        }
    }

    fn bucket_ticks(&self) -> i64 {
        (self.ticks / BUCKETS).max(1)
    }

    fn oldest_bucket(&self) -> i64 {
        self.newest
            .saturating_sub(self.ticks)
            .saturating_add(1)
            .div_euclid(self.bucket_ticks())
    }

    /// Takes the block means of one evidence row in; rows older than the window and means that are
    /// not finite are left out. Ticks may come in any order.
    pub fn record(&mut self, seen: Seen<'_>, means: impl IntoIterator<Item = BlockMean>) {
        let tick = seen.tick.0;
        if tick > self.newest {
            self.newest = tick;
        }
        let bucket = tick.div_euclid(self.bucket_ticks());
        if bucket < self.oldest_bucket() {
            return;
        }
        let Some(cells) = self.cells(seen.engine, seen.environment) else {
            return;
        };
        for BlockMean { variable, mean } in means {
            if !mean.is_finite() {
                continue;
            }
            let Some(slot) = cells.get_mut(variable.index()) else {
                continue;
            };
            let cell = slot.get_or_insert_default();
            cell.centre.push(mean);
            cell.distances
                .push(bucket, (mean - cell.centre.median).abs());
            cell.levels.push(bucket, mean);
        }
    }

    /// Makes the cells where they are missing; names are copied only then.
    fn cells(&mut self, engine: &str, environment: &Environment) -> Option<&mut Cells> {
        let known = self.engines.get(engine);
        if !known.is_some_and(|e| e.contains_key(environment)) {
            let environments = self.engines.entry(engine.to_owned()).or_default();
            environments.insert(environment.clone(), vec![None; VARIABLE_COUNT]);
        }
        self.engines.get_mut(engine)?.get_mut(environment)
    }

    /// The engine version of most block means in the newest bucket, the later name among equals.
    #[must_use]
    pub fn current_engine(&self) -> Option<&str> {
        let newest = self.newest.div_euclid(self.bucket_ticks());
        let of_newest = |environments: &BTreeMap<Environment, Cells>| -> u64 {
            let cells = environments.values().flatten().flatten();
            let last = cells.filter_map(|cell| cell.levels.buckets.back());
            last.filter(|(bucket, _)| *bucket == newest)
                .map(|(_, moments)| moments.n)
                .sum()
        };
        self.engines
            .iter()
            .max_by_key(|(_, environments)| of_newest(environments))
            .map(|(engine, _)| engine.as_str())
    }

    /// Moves the window to a tick and forgets what lies before it, engines and environments that
    /// are gone included. A window of another length than configured starts anew.
    pub fn advance(&mut self, tick: TickId, params: &Params) {
        if self.ticks != i64::from(params.icp_window_ticks) {
            *self = Self::new(params);
        }
        self.newest = self.newest.max(tick.0);
        let oldest = self.oldest_bucket();
        for environments in self.engines.values_mut() {
            for cells in environments.values_mut() {
                for slot in cells.iter_mut() {
                    let Some(cell) = slot else { continue };
                    cell.levels.expire(oldest);
                    cell.distances.expire(oldest);
                    if cell.levels.total.n == 0 {
                        *slot = None;
                    }
                }
            }
            environments.retain(|_, cells| cells.iter().any(Option::is_some));
        }
        self.engines
            .retain(|_, environments| !environments.is_empty());
    }

    /// The samples of one variable under one engine version, an entry per environment.
    #[must_use]
    pub fn samples(&self, engine: &str, variable: Variable) -> Vec<EnvironmentSamples> {
        let environments = self.engines.get(engine).into_iter().flatten();
        environments
            .filter_map(|(_, cells)| cells.get(variable.index())?.as_deref())
            .map(|cell| EnvironmentSamples {
                levels: cell.levels.total,
                distances: cell.distances.total,
            })
            .collect()
    }

    /// Leg (a) of every variable under one engine version. Edges into one variable share its
    /// verdict, so the significance level is divided by the variables that have power.
    #[must_use]
    pub fn verdicts(
        &self,
        engine: &str,
        sigma: impl Fn(Variable) -> Option<f64>,
        params: &Params,
    ) -> BTreeMap<Variable, ResidualInvariance> {
        let samples: Vec<(Variable, Vec<EnvironmentSamples>)> = Variable::all()
            .map(|v| (v, self.samples(engine, v)))
            .filter(|(_, s)| !s.is_empty())
            .collect();
        let powered = samples.iter().filter(|(_, s)| is_powered(s, params));
        let tests = u32::try_from(powered.count()).unwrap_or(u32::MAX);
        samples
            .into_iter()
            .map(|(variable, samples)| {
                let settings = LegSettings {
                    sigma: sigma(variable),
                    tests,
                    params,
                };
                (variable, residual_invariance(&samples, &settings))
            })
            .collect()
    }
}
