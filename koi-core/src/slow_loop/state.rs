//! What the slow loop remembers between ticks, and one tick of it.
//!
//! White paper V1, The Slow Loop; spec §9: order q, s, β, B, λ, ε, w, z*. The ideal point is
//! recomputed per group of similar jobs and not kept here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{churn_price, dro_radius, explore, regret, swap_budget, weights};
use crate::job::JobClass;
use crate::params::Params;
use crate::variables::OUTCOME_COUNT;

/// The adaptive variables.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowState {
    /// Ticks stepped so far; anneals the swap target.
    pub tick_count: u64,
    /// β.
    pub explore_weight: f64,
    /// B.
    pub swap_budget: u32,
    /// λ.
    pub churn_price: f64,
    /// ε.
    pub dro_radius: f64,
    /// w by class.
    pub objective_weights: BTreeMap<JobClass, [f64; OUTCOME_COUNT]>,
    /// Q1 rates of the last ticks that decided something, oldest first.
    pub q1_rates: Vec<f64>,
    /// s; absent until something was decided.
    pub regret: Option<f64>,
}

/// What one tick tells the slow loop; absent signals leave their controller at rest.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SlowSignals {
    /// Q1 rate over the window, [`regret::q1_rate`].
    pub q1_rate: Option<f64>,
    /// Jobs that run.
    pub active_jobs: u32,
    /// Share of them that were voluntarily swapped in the last tick.
    pub swap_rate: Option<f64>,
    /// Share of (row, objective) pairs that fell inside their band.
    pub coverage: Option<f64>,
}

impl SlowState {
    /// The state before the first tick. The budget is open: nothing is known to have converged.
    #[must_use]
    pub fn initial(params: &Params) -> Self {
        Self {
            tick_count: 0,
            explore_weight: params.explore_weight_initial,
            swap_budget: params.swap_budget_max,
            churn_price: params.churn_price_initial,
            dro_radius: params.dro_radius_initial,
            objective_weights: BTreeMap::from([
                (JobClass::Online, weights::ONLINE_WEIGHTS),
                (JobClass::Batch, weights::BATCH_WEIGHTS),
            ]),
            q1_rates: Vec::new(),
            regret: None,
        }
    }

    /// The state after one more tick. A tick that decided nothing holds q, s, β and B.
    #[must_use]
    pub fn step(&self, signals: &SlowSignals, params: &Params) -> Self {
        let mut next = self.clone();
        next.tick_count = self.tick_count.saturating_add(1);
        if let Some(q) = signals.q1_rate.filter(|q| q.is_finite()) {
            next.q1_rates.push(q);
            let surplus = next
                .q1_rates
                .len()
                .saturating_sub(params.regret_window_ticks as usize);
            next.q1_rates.drain(..surplus);
            next.regret = regret::regret(&next.q1_rates);
            if let Some(s) = next.regret {
                next.explore_weight = explore::step(self.explore_weight, s, params);
                next.swap_budget = swap_budget::step(s, signals.active_jobs, params);
            }
        }
        if let Some(rate) = signals.swap_rate.filter(|r| r.is_finite()) {
            let target = churn_price::swap_target(self.tick_count, params);
            // An unknown regret counts as learning: the price may fall.
            let s = next.regret.unwrap_or(1.0);
            next.churn_price = churn_price::gated_step(self.churn_price, rate, target, s, params);
        }
        if let Some(coverage) = signals.coverage.filter(|c| c.is_finite()) {
            next.dro_radius = dro_radius::step(self.dro_radius, coverage, params);
        }
        next
    }
}

impl Default for SlowState {
    /// The state before the first tick under the default hyper-parameters.
    fn default() -> Self {
        Self::initial(&Params::default())
    }
}
