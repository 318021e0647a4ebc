//! σ of a forecast with every term, and the mechanism that a rank commits. Spec §7, §10.1.

use std::collections::BTreeMap;

use super::context::PlanningContext;
use super::forecast::{Forecast, JobView};
use crate::causal::{Belief, BeliefKey, applicable};
use crate::ladder::{Ladder, Promise, Rank};
use crate::score::dro::{Band, DroInput, LimitAtRisk, band, slo_risk};
use crate::score::eig::Eig;
use crate::score::sigma::{SigmaWeights, sigma};
use crate::score::switch_cost::{StoppedPart, SwitchCostInput, switch_cost};
use crate::score::{SigmaTerms, SloRisk, SwitchCost, TchebycheffInput, exploit};
use crate::snapshot::Snapshot;
use crate::store::JobRecord;
use crate::tick::judge::features;
use crate::variables::Outcome;

/// The running ladder as a change sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Running {
    /// Price of the ladder.
    pub usd_per_hour: Option<f64>,
    /// Replicas that a change would stop.
    pub n_replicas: u32,
}

/// What a score depends on besides the forecast.
#[derive(Debug, Clone, Copy)]
pub struct Scorer<'a> {
    /// Catalog, parameters.
    pub context: &'a PlanningContext<'a>,
    /// Weights, radius, residuals and beliefs of this tick.
    pub snapshot: &'a Snapshot,
    /// Beliefs as they stand: the catalog's seeds, moved by what was learned.
    pub beliefs: &'a BTreeMap<BeliefKey, Belief>,
}

/// Beliefs of a snapshot: every seed of the causal model plus what its events moved.
#[must_use]
pub fn current_beliefs(
    snapshot: &Snapshot,
    context: &PlanningContext<'_>,
) -> BTreeMap<BeliefKey, Belief> {
    let moved = &snapshot.state.beliefs;
    let seeds = context.causal.seed_beliefs().into_iter();
    seeds
        .map(|(key, seed)| {
            let belief = moved.get(&key).map_or(seed, |m| m.from_seed(seed));
            (key, belief)
        })
        .collect()
}

/// Which residuals speak about a ladder: those of its first rank's mechanism and GPU.
#[derive(Debug, Clone, Copy)]
pub struct ResidualScope<'a> {
    /// Committed mechanism.
    pub mechanism: Option<&'a str>,
    /// GPU type of the environment.
    pub gpu_type: &'a str,
}

impl<'a> ResidualScope<'a> {
    /// The scope of a rank.
    #[must_use]
    pub fn of(rank: &'a Rank) -> Self {
        Self {
            mechanism: rank.mechanism_id.as_deref(),
            gpu_type: &rank.environment.gpu_type,
        }
    }
}

/// How a forecast comes about.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// It runs already.
    None,
    /// Nothing runs.
    Place,
    /// It replaces what runs.
    Replace(&'a Running),
}

/// Why a forecast has no score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotScored {
    /// No weighted objective can be compared.
    #[error("no weighted objective was predicted")]
    NothingToCompare,
    /// A change of what runs cannot be weighed without a price.
    #[error("neither hosts nor catalog state a price, so a change cannot be weighed")]
    NotPriced,
}

impl Scorer<'_> {
    /// The applicable mechanism that is believed most; ties by id.
    #[must_use]
    pub fn mechanism(&self, record: &JobRecord, rank: &Rank) -> Option<String> {
        let speaking = applicable(self.context.causal, &features(record, rank), None);
        let confidence = |id: &str| {
            let belief = self.beliefs.get(&BeliefKey::Mechanism(id.to_owned()));
            belief.map_or(0.0, |b| b.mean())
        };
        let best = speaking.into_iter().map(|a| (confidence(&a.id), a.id));
        best.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(&a.1)))
            .map(|(_, id)| id)
    }

    /// Probability that the forecast breaks one of the job's limits.
    #[must_use]
    pub fn risk(
        &self,
        view: &JobView<'_>,
        forecast: &Forecast,
        scope: ResidualScope<'_>,
    ) -> SloRisk {
        let experience = &self.snapshot.experience;
        let at_risk = |limit: &crate::score::ObjectiveLimit| LimitAtRisk {
            limit: *limit,
            predicted: forecast.outcomes.get(limit.outcome),
            residuals: experience.residuals(
                scope.mechanism,
                scope.gpu_type,
                limit.outcome,
                self.context.params,
            ),
        };
        let limits: Vec<LimitAtRisk<'_>> = view.limits.iter().map(at_risk).collect();
        slo_risk(
            &limits,
            self.snapshot.state.slow.dro_radius,
            self.context.params,
        )
    }

    /// σ with its terms.
    ///
    /// # Errors
    /// [`NotScored`] when J or the price of a change is undefined.
    pub fn score(
        &self,
        view: &JobView<'_>,
        forecast: &Forecast,
        scope: ResidualScope<'_>,
        change: Change<'_>,
    ) -> Result<SigmaTerms, NotScored> {
        let input = TchebycheffInput {
            predicted: &forecast.outcomes,
            unbounded: &forecast.unbounded,
            ideal: &view.ideal.ideal,
            range: &view.ideal.range,
            weights: &view.record.spec.preference.weights,
        };
        let params = self.context.params;
        let exploit = exploit(&input, params).ok_or(NotScored::NothingToCompare)?;
        let risk = self.risk(view, forecast, scope);
        let cost = self.cost(forecast, &risk, change)?;
        let slow = &self.snapshot.state.slow;
        let weights = SigmaWeights {
            explore_weight: slow.explore_weight,
            slo_risk_weight: params.slo_risk_weight,
            churn_price: slow.churn_price,
        };
        Ok(sigma(exploit, Eig::NotComputed, risk, cost, weights))
    }

    fn cost(
        &self,
        forecast: &Forecast,
        risk: &SloRisk,
        change: Change<'_>,
    ) -> Result<Option<SwitchCost>, NotScored> {
        let stopped = match change {
            Change::None => return Ok(None),
            Change::Place => None,
            Change::Replace(running) => {
                let usd_per_hour = running.usd_per_hour.ok_or(NotScored::NotPriced)?;
                Some(StoppedPart {
                    job_usd_per_hour: usd_per_hour,
                    usd_per_hour,
                    n_replicas: running.n_replicas,
                    breach_probability: risk.any,
                })
            }
        };
        let Some(usd) = forecast.usd_per_hour else {
            // A first placement without any price has no cost to weigh; a change must have one.
            return if stopped.is_none() {
                Ok(None)
            } else {
                Err(NotScored::NotPriced)
            };
        };
        let input = SwitchCostInput {
            started_usd_per_hour: usd,
            cold_start_seconds: forecast.cold_start_seconds,
            candidate_usd_per_hour: usd,
            stopped,
        };
        match switch_cost(&input, self.context.params) {
            Ok(cost) => Ok(Some(cost)),
            Err(_) if stopped.is_none() => Ok(None),
            Err(_) => Err(NotScored::NotPriced),
        }
    }

    /// What choosing a ladder promises.
    #[must_use]
    pub fn promise(&self, ladder: &Ladder, forecast: &Forecast, terms: &SigmaTerms) -> Promise {
        let ranks = ladder.ranks.iter().zip(&forecast.ranks);
        Promise {
            bands: ranks
                .map(|(rank, p)| self.bands(&p.outcomes, ResidualScope::of(rank)))
                .collect(),
            ranks: forecast.ranks.clone(),
            outcomes: forecast.outcomes,
            sigma: terms.clone(),
            usd_per_hour: forecast.stated_usd_per_hour,
        }
    }

    fn bands(
        &self,
        outcomes: &crate::variables::OutcomeValues,
        scope: ResidualScope<'_>,
    ) -> BTreeMap<Outcome, Band> {
        let of = |(outcome, predicted): (Outcome, f64)| {
            let experience = &self.snapshot.experience;
            let params = self.context.params;
            let residuals = experience.residuals(scope.mechanism, scope.gpu_type, outcome, params);
            let radius = self.snapshot.state.slow.dro_radius;
            let input = DroInput::of(outcome, predicted, residuals, radius);
            (outcome, band(&input, self.context.params))
        };
        outcomes.present().map(of).collect()
    }
}
