//! What the slow loop remembers between ticks, and one tick of it.
//!
//! White paper V1, The Slow Loop; spec §9: order q, s, β, B, λ, ε, w, z*.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ideal_point::IdealPoint;
use super::probe::ProbeLedger;
use super::record::TickSignals;
use super::{churn_price, dro_radius, explore, regret, swap_budget, weights};
use crate::ids::{PlanSeq, TickId};
use crate::job::JobClass;
use crate::model::ModelClass;
use crate::params::Params;
use crate::variables::OUTCOME_COUNT;

/// z* of a group of similar jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupIdeal {
    /// Class of the jobs.
    pub class: JobClass,
    /// Class of their models.
    pub model_class: ModelClass,
    /// z* and ranges.
    pub point: IdealPoint,
}

impl GroupIdeal {
    /// True when both speak about the same jobs.
    #[must_use]
    pub fn is_same_group(&self, other: &Self) -> bool {
        (self.class, self.model_class) == (other.class, other.model_class)
    }
}

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
    /// z* by group of similar jobs.
    #[serde(default)]
    pub ideal_points: Vec<GroupIdeal>,
    /// Newest plan whose swaps and probes were counted.
    #[serde(default)]
    pub counted_plan: PlanSeq,
    /// Probes made so far.
    #[serde(default)]
    pub probes: ProbeLedger,
    /// Newest tick whose evidence has been applied, and with it that of every tick before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_through: Option<TickId>,
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
            objective_weights: [JobClass::Online, JobClass::Batch]
                .into_iter()
                .map(|class| (class, weights::class_default(class)))
                .collect(),
            q1_rates: Vec::new(),
            regret: None,
            ideal_points: Vec::new(),
            counted_plan: PlanSeq::default(),
            probes: ProbeLedger::default(),
            applied_through: None,
        }
    }

    /// The state after one more tick. Absent signals leave their controller at rest: a tick that
    /// decided nothing holds q, s, β and B.
    #[must_use]
    pub fn step(&self, signals: &TickSignals, params: &Params) -> Self {
        let mut next = self.clone();
        next.tick_count = self.tick_count.saturating_add(1);
        next.step_regret(signals, params);
        if let Some(rate) = signals.swap_rate() {
            // An unknown regret counts as learning: the price may fall.
            let s = next.regret.unwrap_or(1.0);
            let target = signals.swap_target;
            next.churn_price = churn_price::gated_step(self.churn_price, rate, target, s, params);
        }
        if let Some(coverage) = signals.coverage() {
            next.dro_radius = dro_radius::step(self.dro_radius, coverage, params);
        }
        for (class, gradient) in &signals.gradients {
            let default = weights::class_default(*class);
            let w = next.objective_weights.entry(*class).or_insert(default);
            *w = weights::tempered(&weights::step(w, gradient, params), &default, params);
        }
        next
    }

    /// q, s, β, B.
    fn step_regret(&mut self, signals: &TickSignals, params: &Params) {
        let Some(q) = signals.q1_rate.filter(|q| q.is_finite()) else {
            return;
        };
        self.q1_rates.push(q);
        let window = params.regret_window_ticks as usize;
        let surplus = self.q1_rates.len().saturating_sub(window);
        self.q1_rates.drain(..surplus);
        self.regret = regret::regret(&self.q1_rates);
        if let Some(s) = self.regret {
            self.explore_weight = explore::step(self.explore_weight, s, params);
            self.swap_budget = swap_budget::step(s, signals.active_jobs, params);
        }
    }

    /// The weights that J of a job of this class uses unless its operator pinned them.
    #[must_use]
    pub fn weights_of(&self, class: JobClass) -> [f64; OUTCOME_COUNT] {
        let learned = self.objective_weights.get(&class).copied();
        learned.unwrap_or_else(|| weights::class_default(class))
    }
}

impl Default for SlowState {
    /// The state before the first tick under the default hyper-parameters.
    fn default() -> Self {
        Self::initial(&Params::default())
    }
}
