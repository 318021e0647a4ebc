//! How a deployment did over its life: running means of V and Y, revised with every row.
//!
//! One row of evidence is one block; a block's mean counts once, however many points it has, for
//! points inside it are autocorrelated. Spec §8, Contrast.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::deployment::{Conditions, DeploymentRow};
use super::scale::natural;
use crate::ids::TickId;
use crate::validation::evidence::{EvidenceRow, VariableVerdict};
use crate::validation::residual::Variable;

/// Largest magnitude of a block's mean; the squares of larger ones would drown all others.
const LARGEST_MEAN: f64 = 1e12;

/// Sums over block means of one quantity.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moments {
    /// Blocks.
    pub n: u32,
    /// Σx
    pub sum: f64,
    /// Σx²
    pub squares: f64,
    /// Σ of the error variances of the block means, as far as a block alone shows them.
    #[serde(default)]
    pub within: f64,
}

impl Moments {
    /// One block; none where its mean is no number that a working sensor gives.
    #[must_use]
    pub fn of(mean: f64, variance_of_mean: f64) -> Self {
        let is_sound = |x: f64| x.is_finite() && x.abs() <= LARGEST_MEAN;
        if !is_sound(mean) || !is_sound(variance_of_mean) {
            return Self::default();
        }
        Self {
            n: 1,
            sum: mean,
            squares: mean * mean,
            within: variance_of_mean,
        }
    }

    fn add(&mut self, other: &Self) {
        self.n += other.n;
        self.sum += other.sum;
        self.squares += other.squares;
        self.within += other.within;
    }

    /// These blocks without some of them.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self {
            n: self.n.saturating_sub(other.n),
            sum: self.sum - other.sum,
            squares: self.squares - other.squares,
            within: (self.within - other.within).max(0.0),
        }
    }

    /// Mean over the blocks; `None` for none.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let mean = self.sum / f64::from(self.n);
        (self.n > 0 && mean.is_finite()).then_some(mean)
    }

    /// Error variance of the mean: what the blocks' spread says, at least what each says of itself.
    ///
    /// # Formula
    /// max((Σx² − (Σx)²/n)/(n − 1), Σ within/n)/n
    #[must_use]
    pub fn variance_of_mean(&self) -> f64 {
        let n = f64::from(self.n);
        if self.n == 0 {
            return 0.0;
        }
        let between = if self.n > 1 {
            ((self.squares - self.sum * self.sum / n) / (n - 1.0)).max(0.0)
        } else {
            0.0
        };
        between.max(self.within / n) / n
    }
}

/// What was seen of one variable.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariableLife {
    /// Observed, on the natural scale of contrasts.
    pub observed: Moments,
    /// Observed minus predicted, on that scale.
    pub error: Moments,
}

/// Sums over some blocks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// By variable.
    pub variables: BTreeMap<Variable, VariableLife>,
    /// By field of [`Conditions`], in its order.
    pub conditions: [Moments; 6],
}

impl Tally {
    /// The block of one row.
    #[must_use]
    pub fn of(row: &EvidenceRow, deployment: &DeploymentRow) -> Self {
        let variables = row
            .variables
            .iter()
            .filter_map(|(name, verdict)| {
                let variable = Variable::from_name(name)?;
                Some((variable, VariableLife::of(variable, verdict)))
            })
            .collect();
        let c = &deployment.conditions;
        let seen = [
            c.isl_tokens,
            c.osl_tokens,
            c.rate_rps_per_replica,
            c.replicas,
            c.in_flight,
            c.usd_per_hour_per_replica,
        ];
        Self {
            variables,
            conditions: seen.map(|x| x.map_or_else(Moments::default, |x| Moments::of(x, 0.0))),
        }
    }

    fn add(&mut self, other: &Self) {
        for (variable, more) in &other.variables {
            let life = self.variables.entry(*variable).or_default();
            life.observed.add(&more.observed);
            life.error.add(&more.error);
        }
        for (sum, more) in self.conditions.iter_mut().zip(&other.conditions) {
            sum.add(more);
        }
    }
}

impl VariableLife {
    fn of(variable: Variable, verdict: &VariableVerdict) -> Self {
        let observed = natural(variable, verdict.observed_mean);
        let error = observed - natural(variable, verdict.predicted_mean);
        let points = f64::from(verdict.points.max(1));
        let within = verdict.sigma.map_or(0.0, |s| s * s / points);
        Self {
            observed: Moments::of(observed, within),
            error: Moments::of(error, within),
        }
    }
}

/// A deployment's life so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Life {
    /// Tick of the first row.
    pub first_tick: TickId,
    /// Tick of the newest row.
    pub last_tick: TickId,
    /// Rows.
    pub n_rows: u32,
    /// All rows.
    pub total: Tally,
    /// The newest row.
    pub newest: Tally,
    /// The row that triggered the swap to the next generation, once there was one: it was chosen
    /// for being bad, so it would bias what the next one is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Tally>,
}

impl Life {
    /// Before its first row.
    #[must_use]
    pub fn born(tick: TickId) -> Self {
        Self {
            first_tick: tick,
            last_tick: TickId(i64::MIN),
            n_rows: 0,
            total: Tally::default(),
            newest: Tally::default(),
            trigger: None,
        }
    }

    /// Counts one row; one that is no newer than the newest is counted already.
    pub fn observe(&mut self, row: &EvidenceRow, deployment: &DeploymentRow) {
        if row.tick <= self.last_tick {
            return;
        }
        if deployment.superseded && self.trigger.is_none() {
            self.trigger = Some(std::mem::take(&mut self.newest));
        }
        self.newest = Tally::of(row, deployment);
        self.total.add(&self.newest);
        self.n_rows = self.n_rows.saturating_add(1);
        self.last_tick = row.tick;
    }

    /// The successor has come without a further row of this one: its newest row was the trigger.
    pub fn end(&mut self) {
        if self.trigger.is_none() {
            self.trigger = Some(self.newest.clone());
        }
    }

    /// What was observed over the whole life.
    #[must_use]
    pub fn observed(&self, variable: Variable) -> Option<Moments> {
        let all = self.total.variables.get(&variable)?.observed;
        (all.n > 0).then_some(all)
    }

    /// What was observed without the row that triggered the swap; what a later one compares with.
    #[must_use]
    pub fn observed_as_reference(&self, variable: Variable) -> Option<Moments> {
        let all = self.observed(variable)?;
        let trigger = self.trigger.as_ref();
        let left = trigger
            .and_then(|t| t.variables.get(&variable))
            .map_or(all, |t| all.without(&t.observed));
        (left.n > 0).then_some(left)
    }

    /// Mean error of the surrogate over the whole life.
    #[must_use]
    pub fn surrogate_error(&self, variable: Variable) -> Option<f64> {
        self.total.variables.get(&variable)?.error.mean()
    }

    /// The load over the whole life.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        let [isl, osl, rate, replicas, in_flight, usd] = self.total.conditions.map(|m| m.mean());
        Conditions {
            isl_tokens: isl,
            osl_tokens: osl,
            rate_rps_per_replica: rate,
            replicas,
            in_flight,
            usd_per_hour_per_replica: usd,
        }
    }

    /// Whether contrasts are revised at this length of life: at every row at first, then whenever
    /// it has grown by a quarter, so that what a row costs does not depend on the age.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let mut due = FIRST_ROWS;
        while due < self.n_rows {
            due += (due / 4).max(1);
        }
        self.n_rows <= FIRST_ROWS || due == self.n_rows
    }
}

/// Rows of a life at each of which contrasts are revised.
const FIRST_ROWS: u32 = 8;
