//! What S2 keeps between ticks to judge with: residual blocks, the detector's calibration, and the
//! block means that invariance is tested on.
//!
//! Derived from rows. A server that starts again has its calibration from the store and its block
//! means from stored rows; residual blocks, which no row holds, come with the ticks that follow.
//! Spec §8.

use std::collections::BTreeMap;

use super::contrast::DeploymentId;
use super::evidence::{EvidenceRow, RankValidationInput};
use super::icp::{BlockMean, Icp, InvarianceWindow, ResidualInvariance, Seen};
use super::meta::{Calibration, ResidualBlocks, calibrate_first, is_due, recalibrate};
use super::own_bias::{OwnBias, OwnBiases};
use super::residual::Variable;
use crate::causal::CausalModel;
use crate::ids::TickId;
use crate::params::{CalibrationRule, Params};

#[cfg(test)]
mod tests;

/// Statistics of the rows judged so far.
#[derive(Debug, Clone, Default)]
pub struct Statistics {
    /// How the detector is set.
    pub calibration: Calibration,
    /// What each deployment's earlier rows missed.
    pub own: OwnBiases,
    /// What it is set by, and what invariance is tested on.
    pub residuals: Residuals,
}

/// Residuals of the rows judged so far.
#[derive(Debug, Clone, Default)]
pub struct Residuals {
    /// Residual blocks of the newest rows.
    pub blocks: ResidualBlocks,
    /// Block means of the last ticks.
    pub invariance: InvarianceWindow,
}

impl Residuals {
    /// Takes in what a row was judged from; `engine` is the engine with its version.
    pub fn observe(
        &mut self,
        input: &RankValidationInput<'_>,
        row: &EvidenceRow,
        engine: &str,
        params: &Params,
    ) {
        self.blocks.observe(input, row, params);
        self.take_means(row, engine);
    }

    fn take_means(&mut self, row: &EvidenceRow, engine: &str) {
        let seen = Seen {
            tick: row.tick,
            engine,
            environment: &row.environment,
        };
        let means = Variable::all().filter_map(|variable| {
            let judged = row.variables.get(variable.name())?;
            judged.verdict?;
            Some(BlockMean {
                variable,
                mean: judged.residual_mean,
            })
        });
        self.invariance.record(seen, means);
    }
}

impl Statistics {
    /// What a deployment is known by; nothing under the paper's constants, which hold every row
    /// against the frozen prediction.
    #[must_use]
    pub fn own_bias(&self, id: DeploymentId, params: &Params) -> OwnBias {
        match params.calibration {
            CalibrationRule::On => self.own.of(id),
            CalibrationRule::Off => OwnBias::default(),
        }
    }

    /// Takes in what a stored row's deployment missed and, where it says what served it, its block means.
    /// Rows come in the order in which they were judged.
    pub fn recall(&mut self, row: &EvidenceRow) {
        self.own.observe(row);
        if let Some(basis) = &row.basis {
            self.residuals.take_means(row, &basis.engine);
        }
    }

    /// Ends a tick: what is too old is forgotten, and when the meta step is due the detector is
    /// calibrated anew; first thresholds do not wait for it. The same rows and seed give the same calibration.
    pub fn step(&mut self, tick: TickId, params: &Params, seed: u64) {
        self.residuals.invariance.advance(tick, params);
        self.own.advance(tick);
        let calibrate = if is_due(tick, params) {
            recalibrate
        } else {
            calibrate_first
        };
        self.calibration = calibrate(&self.residuals.blocks, &self.calibration, params, seed);
    }

    /// Leg (a) by variable, under the engine version that most of the newest rows ran.
    #[must_use]
    pub fn residuals_by_variable(&self, params: &Params) -> BTreeMap<Variable, ResidualInvariance> {
        let invariance = &self.residuals.invariance;
        let Some(engine) = invariance.current_engine() else {
            return BTreeMap::new();
        };
        // Models of all classes meet in an environment: the widest σ decides what matters.
        let sigma = |variable| {
            let rows = self.calibration.rows();
            let rows = rows.filter(|row| row.variable == variable);
            rows.map(|row| row.sigma).max_by(f64::total_cmp)
        };
        invariance.verdicts(engine, sigma, params)
    }

    /// Leg (a) by edge, that is the verdict on the edge's destination; undecided ones are left out.
    #[must_use]
    pub fn residuals_by_edge(&self, model: &CausalModel, params: &Params) -> BTreeMap<String, Icp> {
        let by_variable = self.residuals_by_variable(params);
        model
            .edges()
            .filter_map(|edge| {
                let destination = Variable::from_name(edge.ends.destination())?;
                let verdict = by_variable.get(&destination)?.verdict;
                (verdict != Icp::Undecided).then(|| (edge.id.clone(), verdict))
            })
            .collect()
    }
}
