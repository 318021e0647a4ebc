//! What one tick of the slow loop looked like: inputs of the controllers, their outputs, and how
//! far the loop is from convergence. Kept as history; nothing here decides. Spec §9.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::convergence::Convergence;
use super::regret::Tallies;
use super::state::SlowState;
use crate::ids::TickId;
use crate::job::JobClass;
use crate::variables::OUTCOME_COUNT;

/// What one tick told the controllers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TickSignals {
    /// q over its window; absent when the tick decided nothing.
    pub q1_rate: Option<f64>,
    /// Jobs that run.
    pub active_jobs: u32,
    /// Voluntary swaps and preemptions of the last plan, probes left out.
    pub swapped_jobs: u32,
    /// Probes of the last plan.
    pub probed_jobs: u32,
    /// Target share of jobs swapped, annealed.
    pub swap_target: f64,
    /// (Row, objective) pairs of the tick that had a band.
    pub banded: u32,
    /// Those that fell inside it.
    pub inside_band: u32,
    /// R2 gradient of the weights, by class; classes without new evidence are left out.
    pub gradients: BTreeMap<JobClass, [f64; OUTCOME_COUNT]>,
    /// Evidence rows of the tick.
    pub n_rows: u32,
    /// What they decided about each mechanism; absent in ticks of older builds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub verdicts: Tallies,
}

impl TickSignals {
    /// Share of running jobs that were voluntarily swapped.
    #[must_use]
    pub fn swap_rate(&self) -> Option<f64> {
        (self.active_jobs > 0).then(|| f64::from(self.swapped_jobs) / f64::from(self.active_jobs))
    }

    /// κ of the tick.
    #[must_use]
    pub fn coverage(&self) -> Option<f64> {
        (self.banded > 0).then(|| f64::from(self.inside_band) / f64::from(self.banded))
    }
}

/// One tick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowTick {
    /// Which.
    pub tick: TickId,
    /// Inputs of the controllers.
    pub signals: TickSignals,
    /// Their outputs.
    pub state: SlowState,
    /// Every bullet of Assumption 2 after the tick.
    pub convergence: Convergence,
}
