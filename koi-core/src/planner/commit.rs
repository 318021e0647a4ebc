//! Which mechanism a rank commits: the one that its advantage is most likely due to.
//!
//! Decided after everything is predicted, because only then is there an advantage. Spec §10.1.

use std::collections::BTreeSet;

use super::enumerate::LadderOption;
use super::forecast::{Forecast, JobView};
use super::scoring::{Change, ResidualScope, Scorer};
use crate::causal::{BeliefKey, EdgeEnds, Mechanism, applicable};
use crate::tick::judge::features;
use crate::variables::{Mediator, MediatorValues, Outcome, OutcomeValues};

/// Smallest relative movement of a mediator for an advantage to run through it.
const MOVED: f64 = 0.01;

/// What an option is compared with: what runs, or else the worst of the options per objective.
pub(super) struct Advantage {
    gaps: OutcomeValues,
    mediators: Option<MediatorValues>,
}

impl Advantage {
    /// Over what runs, where something runs; else over the worst option of each objective.
    pub(super) fn of(
        current: Option<(&OutcomeValues, &Forecast)>,
        options: &[LadderOption],
    ) -> Self {
        if let Some((gaps, forecast)) = current {
            return Self {
                gaps: *gaps,
                mediators: forecast.ranks.first().map(|r| r.mediators),
            };
        }
        let mut gaps = OutcomeValues::absent();
        for outcome in Outcome::ALL {
            let seen = options
                .iter()
                .filter_map(|o| o.terms.exploit.gaps.get(outcome));
            gaps.set(outcome, seen.reduce(f64::max));
        }
        Self {
            gaps,
            mediators: None,
        }
    }

    /// By how much an option is better, weighted, per objective; never negative.
    fn by_objective(&self, view: &JobView<'_>, option: &LadderOption) -> OutcomeValues {
        let mut better = OutcomeValues::absent();
        for (outcome, gap) in option.terms.exploit.gaps.present() {
            let weight = view.weights.get(outcome.index()).copied().unwrap_or(0.0);
            let base = self.gaps.get(outcome);
            better.set(outcome, base.map(|b| weight * (b - gap).max(0.0)));
        }
        better
    }

    fn moves(&self, v: Mediator, option: &LadderOption) -> bool {
        let Some(now) = option
            .forecast
            .ranks
            .first()
            .and_then(|r| r.mediators.get(v))
        else {
            return false;
        };
        let before = self.mediators.as_ref().and_then(|m| m.get(v));
        before.is_none_or(|b| (now - b).abs() > MOVED * b.abs().max(1e-9))
    }
}

/// Share of an advantage that runs through a mechanism's mediators.
///
/// # Formula
/// Σ_j∈Y(M) δ_j / Σ_j δ_j, δ_j = w_j·max(0, g_j of what it is compared with − g_j), Y(M) the
/// outcomes at the ends of paths whose mediator moves; without any advantage, the same share of the
/// weights
#[must_use]
pub(super) fn share(
    mechanism: &Mechanism,
    (view, option): (&JobView<'_>, &LadderOption),
    scorer: &Scorer<'_>,
    advantage: &Advantage,
) -> f64 {
    let edges = mechanism
        .edges
        .iter()
        .filter_map(|e| scorer.context.causal.edge(e));
    let through: BTreeSet<Outcome> = edges
        .filter_map(|e| match &e.ends {
            EdgeEnds::MediatorToOutcome(v, y) => advantage.moves(*v, option).then_some(*y),
            EdgeEnds::FeatureToMediator(..) | EdgeEnds::MediatorToMediator(..) => None,
        })
        .collect();
    let better = advantage.by_objective(view, option);
    let total: f64 = better.present().map(|(_, d)| d).sum();
    if total > 0.0 {
        let own = better.present().filter(|(y, _)| through.contains(y));
        return own.map(|(_, d)| d).sum::<f64>() / total;
    }
    let weight = |y: &Outcome| view.weights.get(y.index()).copied().unwrap_or(0.0);
    through.iter().map(weight).sum()
}

/// Commits on every option the applicable mechanism with the largest c_M × share, ties by id, and
/// scores it anew where that changes whose residuals speak.
pub(super) fn commit(
    options: &mut [LadderOption],
    view: &JobView<'_>,
    scorer: &Scorer<'_>,
    (advantage, change): (&Advantage, Change<'_>),
) {
    for option in options {
        let Some(rank) = option.ladder.ranks.first() else {
            continue;
        };
        let speaking = applicable(scorer.context.causal, &features(view.record, rank), None);
        let rated = speaking.into_iter().filter_map(|a| {
            let mechanism = scorer.context.causal.mechanism(&a.id)?;
            let belief = scorer.beliefs.get(&BeliefKey::Mechanism(a.id.clone()));
            let confidence = belief.map_or(0.0, |b| b.mean());
            Some((
                confidence * share(mechanism, (view, option), scorer, advantage),
                a.id,
            ))
        });
        let best = rated
            .filter(|(worth, _)| *worth > 0.0)
            .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(&a.1)));
        if let Some((_, id)) = best {
            recommit(option, &id, view, scorer, change);
        }
    }
}

/// Makes an option commit a mechanism; its risk and its EIG follow.
pub(super) fn recommit(
    option: &mut LadderOption,
    id: &str,
    view: &JobView<'_>,
    scorer: &Scorer<'_>,
    change: Change<'_>,
) {
    let Some(rank) = option.ladder.ranks.first_mut() else {
        return;
    };
    if rank.mechanism_id.as_deref() == Some(id) {
        return;
    }
    let before = rank.mechanism_id.replace(id.to_owned());
    let limits = scorer.limits(view, ResidualScope::of(rank));
    let eig = scorer.eig(view.record, rank);
    match scorer.score(view, &option.forecast, &limits, (change, eig)) {
        Ok(terms) => {
            option.meets = scorer.meets(view, &option.forecast.summary, terms.slo_risk.any);
            option.terms = terms;
        }
        // What was scored before can be scored again; if not, nothing was changed.
        Err(_) => rank.mechanism_id = before,
    }
}
