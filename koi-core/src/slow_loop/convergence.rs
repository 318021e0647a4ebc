//! Has the loop converged? Every bullet of Assumption 2 with its number and its bound.
//!
//! Reads what the slow loop kept; decides nothing. White paper V1, Assumption 2; spec §9.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::record::{SlowTick, TickSignals};
use super::state::SlowState;
use crate::causal::{Belief, BeliefKey};
use crate::params::Params;
use crate::variables::Outcome;

/// How near β must be to its lower clip to count as annealed.
const EXPLORE_TOLERANCE: f64 = 0.01;

/// One bullet of Assumption 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CriterionName {
    /// q: the Q1 rate.
    Q1Rate,
    /// s: the regret.
    Regret,
    /// β: how far above its lower clip.
    ExploreWeight,
    /// B.
    SwapBudget,
    /// ρ: the share of jobs swapped a tick, probes included, over the window.
    SwapRate,
    /// z*: its drift a tick in ranges, over the window, largest group.
    IdealDrift,
    /// U: the largest over the mechanisms that were exercised most.
    Uncertainty,
    /// κ: the distance of coverage from its target, over the window.
    CoverageError,
    /// ε: its last step.
    RadiusStep,
}

impl CriterionName {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q1Rate => "q1_rate",
            Self::Regret => "regret",
            Self::ExploreWeight => "explore_weight",
            Self::SwapBudget => "swap_budget",
            Self::SwapRate => "swap_rate",
            Self::IdealDrift => "ideal_drift",
            Self::Uncertainty => "uncertainty",
            Self::CoverageError => "coverage_error",
            Self::RadiusStep => "radius_step",
        }
    }

    /// True when the number must be at least its bound; otherwise at most.
    #[must_use]
    pub const fn is_floor(self) -> bool {
        matches!(self, Self::Q1Rate)
    }

    /// What is compared, in words.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Q1Rate => "share of decided verdicts that succeeded as predicted",
            Self::Regret => "mean shortfall of the Q1 rate over the window",
            Self::ExploreWeight => "exploration incentive above its lower clip",
            Self::SwapBudget => "voluntary swaps allowed a tick",
            Self::SwapRate => "share of jobs swapped a tick over the window, probes included",
            Self::IdealDrift => "movement of the ideal point a tick over the window, in ranges",
            Self::Uncertainty => "largest uncertainty among the most exercised mechanisms",
            Self::CoverageError => {
                "distance of the bands' coverage from its target over the window"
            }
            Self::RadiusStep => "last movement of the risk radius",
        }
    }
}

/// One bullet with its number.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Criterion {
    /// Which.
    pub name: CriterionName,
    /// The number; absent when nothing was observed, which does not hold.
    pub value: Option<f64>,
    /// Its bound.
    pub bound: f64,
    /// True when the number is there and on the right side.
    pub holds: bool,
}

impl Criterion {
    fn of(name: CriterionName, value: Option<f64>, bound: f64) -> Self {
        let value = value.filter(|v| v.is_finite());
        // A bound is met by what equals it but for rounding.
        let slack = 1e-9;
        let on_its_side = |v: f64| {
            if name.is_floor() {
                v >= bound - slack
            } else {
                v <= bound + slack
            }
        };
        Self {
            name,
            value,
            bound,
            holds: value.is_some_and(on_its_side),
        }
    }
}

/// All bullets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Convergence {
    /// In the paper's order.
    pub criteria: Vec<Criterion>,
    /// Ticks in a row, this one included, in which all of them held; 0 when one does not.
    pub ticks_converged: u32,
}

impl Convergence {
    /// True when every bullet holds.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.ticks_converged > 0
    }

    /// A bullet.
    #[must_use]
    pub fn criterion(&self, name: CriterionName) -> Option<&Criterion> {
        self.criteria.iter().find(|c| c.name == name)
    }
}

/// What convergence is judged from.
#[derive(Debug, Clone, Copy)]
pub struct ConvergenceInput<'a> {
    /// State before the tick.
    pub before: &'a SlowState,
    /// State after it.
    pub after: &'a SlowState,
    /// What the tick told the controllers.
    pub signals: &'a TickSignals,
    /// Earlier ticks, oldest first; those beyond the window are not looked at.
    pub history: &'a [SlowTick],
    /// Beliefs after the tick.
    pub beliefs: &'a BTreeMap<BeliefKey, Belief>,
    /// Exercise of each mechanism over the window, by id.
    pub exercised: &'a BTreeMap<String, f64>,
}

/// Judges every bullet.
///
/// # Formula
/// q ≥ 1 − ϵ_Q, s ≤ ϵ_R, β ≈ β_min, B = B_min, ρ ≤ ϵ_swap, ‖Δz*‖ ≤ ϵ_z, U ≤ ϵ_U, |κ − κ*| ≤ d,
/// |Δε| ≤ ϵ_ε; ρ, Δz* and κ over the rolling window of W ticks, since one tick's count of either is
/// mostly noise
///
/// # Source
/// White paper V1, Assumption 2; spec §9
#[must_use]
pub fn judge(input: &ConvergenceInput<'_>, params: &Params) -> Convergence {
    let earlier = (params.regret_window_ticks as usize).saturating_sub(1);
    let window = &input.history[input.history.len().saturating_sub(earlier)..];
    let (state, minimum) = (input.after, params.explore_weight_min);
    let coverage = coverage(window, input.signals);
    let criteria = vec![
        Criterion::of(
            CriterionName::Q1Rate,
            state.q1_rates.last().copied(),
            1.0 - params.converged_q1,
        ),
        Criterion::of(CriterionName::Regret, state.regret, params.converged_regret),
        Criterion::of(
            CriterionName::ExploreWeight,
            Some(state.explore_weight - minimum),
            EXPLORE_TOLERANCE,
        ),
        Criterion::of(
            CriterionName::SwapBudget,
            Some(f64::from(state.swap_budget)),
            f64::from(params.swap_budget_min),
        ),
        Criterion::of(
            CriterionName::SwapRate,
            swap_rate(window, input.signals),
            params.converged_swap_rate,
        ),
        Criterion::of(
            CriterionName::IdealDrift,
            ideal_drift(window, state),
            params.converged_ideal,
        ),
        Criterion::of(
            CriterionName::Uncertainty,
            uncertainty(input, params),
            params.converged_uncertainty,
        ),
        Criterion::of(
            CriterionName::CoverageError,
            coverage.map(|c| (c - params.dro_coverage_target).abs()),
            params.dro_coverage_dead_band,
        ),
        Criterion::of(
            CriterionName::RadiusStep,
            Some((state.dro_radius - input.before.dro_radius).abs()),
            params.converged_radius,
        ),
    ];
    let before = input
        .history
        .last()
        .map_or(0, |t| t.convergence.ticks_converged);
    let all_hold = criteria.iter().all(|c| c.holds);
    Convergence {
        criteria,
        ticks_converged: if all_hold {
            before.saturating_add(1)
        } else {
            0
        },
    }
}

fn swap_rate(window: &[SlowTick], now: &TickSignals) -> Option<f64> {
    let (mut swapped, mut active) = (0_u64, 0_u64);
    for signals in window.iter().map(|t| &t.signals).chain([now]) {
        swapped += u64::from(signals.swapped_jobs) + u64::from(signals.probed_jobs);
        active += u64::from(signals.active_jobs);
    }
    (active > 0).then(|| swapped as f64 / active as f64)
}

fn coverage(window: &[SlowTick], now: &TickSignals) -> Option<f64> {
    let (mut inside, mut banded) = (0_u64, 0_u64);
    for signals in window.iter().map(|t| &t.signals).chain([now]) {
        inside += u64::from(signals.inside_band);
        banded += u64::from(signals.banded);
    }
    (banded > 0).then(|| inside as f64 / banded as f64)
}

/// ‖z*_now − z*_then‖ / ticks between, largest group that both know; `None` before the window has
/// two ticks or when they share no group.
fn ideal_drift(window: &[SlowTick], now: &SlowState) -> Option<f64> {
    let then = window.first()?;
    let ticks = window.len() as f64;
    let drifts = now.ideal_points.iter().filter_map(|group| {
        let earlier = then.state.ideal_points.iter();
        let earlier = earlier.clone().find(|g| g.is_same_group(group))?;
        let squares = Outcome::ALL.into_iter().filter_map(|y| {
            let (a, b) = (earlier.point.ideal.get(y)?, group.point.ideal.get(y)?);
            let range = group.point.range.get(y).filter(|r| *r > 0.0)?;
            Some(((b - a) / range) * ((b - a) / range))
        });
        Some(squares.sum::<f64>().sqrt() / ticks)
    });
    drifts.reduce(f64::max)
}

fn uncertainty(input: &ConvergenceInput<'_>, params: &Params) -> Option<f64> {
    let mut ranked: Vec<(&String, f64)> = input
        .exercised
        .iter()
        .map(|(id, n)| (id, *n))
        .filter(|(_, n)| *n > 0.0)
        .collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let most = ranked
        .into_iter()
        .take(params.converged_mechanisms as usize);
    let of = |(id, _): (&String, f64)| {
        let key = BeliefKey::Mechanism(id.clone());
        input.beliefs.get(&key).map(|b| b.uncertainty())
    };
    most.filter_map(of).reduce(f64::max)
}

#[cfg(test)]
#[path = "convergence/tests.rs"]
mod tests;
