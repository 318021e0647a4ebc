//! σ of a forecast with every term, and the mechanism that a rank commits. Spec §7, §10.1.

use std::collections::BTreeMap;

use super::context::PlanningContext;
use super::exploration::Exploration;
use super::forecast::{Forecast, JobView, Summary};
use crate::causal::{Belief, BeliefKey, applicable};
use crate::ladder::{Ladder, Promise, Rank};
use crate::score::dro::{Band, DroInput, LimitAtRisk, PreparedLimits, band};
use crate::score::eig::Eig;
use crate::score::sigma::{SigmaWeights, sigma};
use crate::score::switch_cost::{StoppedPart, SwitchCostInput, switch_cost};
use crate::score::{Exploit, SigmaTerms, SwitchCost, TchebycheffInput, exploit};
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
    /// What ladders would teach; absent where it is not known or not asked for.
    pub exploration: Option<&'a Exploration<'a>>,
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

/// σ and what it is made of, for one of many candidates.
#[derive(Debug, Clone, PartialEq)]
pub struct Rating {
    /// σ.
    pub sigma: f64,
    /// J, its gaps and its limiting objective.
    pub exploit: Exploit,
    /// Cost of the change; `None` when nothing changes or a first placement has no price.
    pub switch_cost: Option<SwitchCost>,
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

    /// What a rank teaches with the mechanism that it commits.
    #[must_use]
    pub fn eig(&self, record: &JobRecord, rank: &Rank) -> Eig {
        let Some(exploration) = self.exploration else {
            return Eig::NotComputed;
        };
        let id = rank.mechanism_id.as_deref();
        let taught = id.and_then(|id| exploration.teaching(record, rank, id));
        Eig::Computed(taught.map_or(0.0, |t| t.gain))
    }

    /// What keeping a ladder teaches: nothing, where that is computed at all.
    #[must_use]
    pub const fn eig_of_keeping(&self) -> Eig {
        match self.exploration {
            Some(_) => Eig::Computed(0.0),
            None => Eig::NotComputed,
        }
    }

    /// The residuals that speak about a ladder of this scope, by limit of the job.
    #[must_use]
    pub fn residuals(&self, view: &JobView<'_>, scope: ResidualScope<'_>) -> Vec<&[f64]> {
        let of = |outcome| {
            self.snapshot.experience.residuals(
                scope.mechanism,
                scope.gpu_type,
                outcome,
                self.context.params,
            )
        };
        view.limits.iter().map(|limit| of(limit.outcome)).collect()
    }

    /// The job's limits with those residuals made ready.
    #[must_use]
    pub fn limits(&self, view: &JobView<'_>, scope: ResidualScope<'_>) -> PreparedLimits {
        let sets = self.residuals(view, scope);
        let pairs = view.limits.iter().zip(sets);
        let at_risk = pairs.map(|(limit, residuals)| LimitAtRisk {
            limit: *limit,
            predicted: None,
            residuals,
        });
        let limits: Vec<LimitAtRisk<'_>> = at_risk.collect();
        let radius = self.snapshot.state.slow.dro_radius;
        PreparedLimits::of(&limits, radius, self.context.params)
    }

    /// Headroom at peak and breach probability are both as wanted.
    #[must_use]
    pub fn meets(&self, view: &JobView<'_>, summary: &Summary, breach_probability: f64) -> bool {
        let most = self.context.params.utilization_max;
        let has_headroom = summary.peak_utilization.is_none_or(|u| u <= most);
        has_headroom && breach_probability <= view.record.spec.preference.tau
    }

    /// σ of a ladder whose breach probability is known. Allocates nothing.
    ///
    /// # Errors
    /// [`NotScored`] when J or the price of a change is undefined.
    pub fn rate(
        &self,
        view: &JobView<'_>,
        summary: &Summary,
        breach_probability: f64,
        (change, eig): (Change<'_>, Eig),
    ) -> Result<Rating, NotScored> {
        let input = TchebycheffInput {
            predicted: &summary.outcomes,
            unbounded: summary.unbounded,
            ideal: &view.ideal.ideal,
            range: &view.ideal.range,
            weights: &view.weights,
        };
        let exploit = exploit(&input, self.context.params).ok_or(NotScored::NothingToCompare)?;
        let switch_cost = self.cost(summary, breach_probability, change)?;
        let hours_of_cost = switch_cost.map(|cost| cost.hours_of_cost);
        Ok(Rating {
            sigma: self
                .weights()
                .weigh(exploit.j, eig, breach_probability, hours_of_cost),
            exploit,
            switch_cost,
        })
    }

    fn weights(&self) -> SigmaWeights {
        let slow = &self.snapshot.state.slow;
        SigmaWeights {
            explore_weight: slow.explore_weight,
            slo_risk_weight: self.context.params.slo_risk_weight,
            churn_price: slow.churn_price,
        }
    }

    /// σ with its terms.
    ///
    /// # Errors
    /// [`NotScored`] when J or the price of a change is undefined.
    pub fn score(
        &self,
        view: &JobView<'_>,
        forecast: &Forecast,
        limits: &PreparedLimits,
        (change, eig): (Change<'_>, Eig),
    ) -> Result<SigmaTerms, NotScored> {
        let risk = limits.risk(&forecast.summary.outcomes, self.context.params);
        let rating = self.rate(view, &forecast.summary, risk.any, (change, eig))?;
        Ok(sigma(
            rating.exploit,
            eig,
            risk,
            rating.switch_cost,
            self.weights(),
        ))
    }

    fn cost(
        &self,
        summary: &Summary,
        breach_probability: f64,
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
                    breach_probability,
                })
            }
        };
        let Some(usd) = summary.usd_per_hour else {
            // A first placement without any price has no cost to weigh; a change must have one.
            return if stopped.is_none() {
                Ok(None)
            } else {
                Err(NotScored::NotPriced)
            };
        };
        let input = SwitchCostInput {
            started_usd_per_hour: usd,
            cold_start_seconds: summary.cold_start_seconds,
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
            members: forecast.members.clone(),
            outcomes: forecast.summary.outcomes,
            sigma: terms.clone(),
            gain: None,
            usd_per_hour: forecast.summary.stated_usd_per_hour,
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
