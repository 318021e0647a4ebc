//! σ of a ladder, the gain of an action over doing nothing, and Σ of a plan.
//!
//! White paper V1, The Cluster Objective; spec §7 settles the gain of each action.

use serde::{Deserialize, Serialize};

use super::dro::SloRisk;
use super::eig::Eig;
use super::switch_cost::SwitchCost;
use super::tchebycheff::Exploit;
use crate::params::Params;

#[cfg(test)]
mod tests;

/// Weights of the terms, as the slow loop stands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SigmaWeights {
    /// β_t.
    pub explore_weight: f64,
    /// γ.
    pub slo_risk_weight: f64,
    /// λ_swit.
    pub churn_price: f64,
}

impl SigmaWeights {
    /// σ of its four terms; a change that costs nothing and a gain that was not computed add
    /// nothing.
    ///
    /// # Formula
    /// σ = J + β·EIG − γ·Pr − λ·SwitchCost
    #[must_use]
    pub fn weigh(&self, j: f64, eig: Eig, breach: f64, hours_of_cost: Option<f64>) -> f64 {
        let explore = eig.value().map_or(0.0, |gain| self.explore_weight * gain);
        let churn = hours_of_cost.map_or(0.0, |hours| self.churn_price * hours);
        j + explore - self.slo_risk_weight * breach - churn
    }
}

/// Every term of σ, so that it can be explained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SigmaTerms {
    /// J, its gaps and its limiting objective.
    pub exploit: Exploit,
    /// Expected information gain, where computed.
    pub eig: Eig,
    /// Breach probability, per limit and together.
    pub slo_risk: SloRisk,
    /// Cost of the change; `None` when nothing changes.
    pub switch_cost: Option<SwitchCost>,
    /// Weights used.
    pub weights: SigmaWeights,
    /// σ.
    pub sigma: f64,
}

/// σ of a candidate ladder.
///
/// # Formula
/// σ = J + β·EIG − γ·Pr − λ·SwitchCost; a gain that was not computed adds nothing
///
/// # Source
/// White paper V1, The Cluster Objective
#[must_use]
pub fn sigma(
    exploit: Exploit,
    eig: Eig,
    slo_risk: SloRisk,
    switch_cost: Option<SwitchCost>,
    weights: SigmaWeights,
) -> SigmaTerms {
    let hours_of_cost = switch_cost.map(|cost| cost.hours_of_cost);
    let sigma = weights.weigh(exploit.j, eig, slo_risk.any, hours_of_cost);
    SigmaTerms {
        exploit,
        eig,
        slo_risk,
        switch_cost,
        weights,
        sigma,
    }
}

impl SigmaTerms {
    /// Another information gain, and the σ that follows: a plan credits a ladder with what it adds to
    /// the others.
    pub fn set_eig(&mut self, eig: Eig) {
        let hours_of_cost = self.switch_cost.map(|cost| cost.hours_of_cost);
        self.eig = eig;
        self.sigma = self
            .weights
            .weigh(self.exploit.j, eig, self.slo_risk.any, hours_of_cost);
    }
}

/// What happens to the job when the plan does nothing about it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Baseline {
    /// It runs on as it is: σ of its current ladder as predicted now, without switch cost.
    Active {
        /// That σ.
        sigma: f64,
    },
    /// It waits, is paused, failed to launch, or has lost all replicas.
    NotServed {
        /// The job's loss per tick, positive.
        penalty: f64,
    },
}

impl Baseline {
    /// The value of doing nothing.
    #[must_use]
    pub fn value(self) -> f64 {
        match self {
            Self::Active { sigma } => sigma,
            Self::NotServed { penalty } => -penalty,
        }
    }
}

/// Loss per tick of a job that is not served.
///
/// # Formula
/// 20 · factor, the factor rising evenly from 1 at priority 0 to 4 at priority 10
///
/// # Source
/// Spec §7, gain
#[must_use]
pub fn waiting_penalty(priority: u8, params: &Params) -> f64 {
    let share = f64::from(priority.min(10)) / 10.0;
    params.waiting_penalty * (1.0 + share * (params.priority_factor_max - 1.0))
}

/// Gain of a ladder over doing nothing.
///
/// # Formula
/// gain = σ(L′) − σ(doing nothing)
///
/// # Source
/// Spec §7, gain
#[must_use]
pub fn ladder_gain(candidate_sigma: f64, baseline: Baseline) -> f64 {
    candidate_sigma - baseline.value()
}

/// Gain of pausing an active job.
///
/// # Formula
/// −penalty − σ(current)
///
/// # Source
/// Spec §7, gain
#[must_use]
pub fn preempt_gain(current_sigma: f64, penalty: f64) -> f64 {
    -penalty - current_sigma
}

/// Whether a swap's gain is worth acting on; a gain that is not a number never is.
#[must_use]
pub fn justifies_swap(gain: f64, params: &Params) -> bool {
    gain >= params.swap_gain_min
}
