//! What a ladder would teach: gates of every edge from the snapshot, and the mechanism to commit
//! when teaching is what a ladder is chosen for.
//!
//! References are the deployments that run now; what contrasts already know comes with the
//! snapshot. Without that nothing here exists and EIG stays "not computed". Spec §7, §8.

use std::collections::{BTreeMap, BTreeSet};

use super::context::PlanningContext;
use crate::catalog::SetBy;
use crate::causal::{
    Belief, BeliefKey, Edge, EdgeEnds, FeatureValue, FeatureValues, Mechanism, ScopeMatch,
    applicable,
};
use crate::environment::Environment;
use crate::ids::JobId;
use crate::job::JobClass;
use crate::ladder::{Ladder, Rank};
use crate::score::eig::masks::{EdgeGates, EdgePowers, edge_mask, mechanism_mask, rank_masks};
use crate::score::eig::{Masks, information_gain, marginal_gain};
use crate::snapshot::Snapshot;
use crate::store::JobRecord;
use crate::tick::judge::features;
use crate::variables::{Mediator, Outcome};

#[cfg(test)]
mod tests;

/// Smallest |ln ratio| between two numbers that makes a contrast.
const MATERIAL_LOG_RATIO: f64 = 0.2;
/// Observations that a percentile point needs.
const OBSERVATIONS_PER_POINT: f64 = 100.0;

/// A deployment that runs.
#[derive(Debug)]
struct Reference {
    job: JobId,
    class: JobClass,
    model: String,
    environment: Environment,
    features: FeatureValues,
}

/// What is known before any option is looked at.
#[derive(Debug)]
pub struct Exploration<'a> {
    context: &'a PlanningContext<'a>,
    powers: &'a EdgePowers,
    uncertainty: BTreeMap<BeliefKey, f64>,
    references: Vec<Reference>,
    /// Variables that deployments in an environment showed, where any was measured.
    shown: BTreeMap<Environment, BTreeSet<&'static str>>,
}

/// What a rank would teach about one mechanism.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Teaching {
    /// The mechanism.
    pub(super) mechanism: String,
    /// a_M · U_M.
    pub(super) own: f64,
    /// Σ over its edges and itself.
    pub(super) gain: f64,
    /// Masks behind it.
    pub(super) masks: Masks,
}

impl<'a> Exploration<'a> {
    /// `None` while contrasts say nothing about power.
    #[must_use]
    pub fn of(
        snapshot: &'a Snapshot,
        context: &'a PlanningContext<'a>,
        beliefs: &BTreeMap<BeliefKey, Belief>,
    ) -> Option<Self> {
        let powers = snapshot.edge_powers.as_ref()?;
        let uncertainty = beliefs
            .iter()
            .map(|(key, b)| (key.clone(), b.uncertainty()));
        Some(Self {
            context,
            powers,
            uncertainty: uncertainty.collect(),
            references: references(snapshot),
            shown: shown(snapshot),
        })
    }

    /// What a rank teaches when it commits this mechanism.
    pub(super) fn teaching(&self, record: &JobRecord, rank: &Rank, id: &str) -> Option<Teaching> {
        let mechanism = self.context.causal.mechanism(id)?;
        Some(self.of_mechanism(record, rank, &features(record, rank), mechanism))
    }

    /// Masks of the links that a ladder puts to the test: those of the mechanism that its first rank
    /// commits.
    pub(super) fn masks(&self, record: &JobRecord, ladder: &Ladder) -> Masks {
        let rank = ladder.ranks.first();
        let taught = rank.and_then(|r| self.teaching(record, r, r.mechanism_id.as_deref()?));
        taught.map_or_else(Masks::default, |t| t.masks)
    }

    /// What masks add to those that were counted before.
    pub(super) fn adds(&self, counted: &Masks, own: &Masks) -> f64 {
        marginal_gain(counted, own, &self.uncertainty, self.context.params)
    }

    /// The applicable mechanism that the rank teaches most about: largest a_M·U, ties by id. With
    /// `edges`, only of those that put one of these edges to the test.
    pub(super) fn most_taught(
        &self,
        record: &JobRecord,
        rank: &Rank,
        edges: Option<&BTreeSet<String>>,
    ) -> Option<Teaching> {
        let features = features(record, rank);
        let speaking = applicable(self.context.causal, &features, None);
        let taught = speaking
            .iter()
            .filter_map(|a| self.context.causal.mechanism(&a.id))
            .map(|m| self.of_mechanism(record, rank, &features, m));
        let tests = |t: &Teaching| {
            edges.is_none_or(|wanted| {
                t.masks.keys().any(|key| match key {
                    BeliefKey::Edge(id) => wanted.contains(id),
                    BeliefKey::Mechanism(_) => false,
                })
            })
        };
        taught.filter(|t| t.own > 0.0 && tests(t)).max_by(|a, b| {
            a.own
                .total_cmp(&b.own)
                .then_with(|| b.mechanism.cmp(&a.mechanism))
        })
    }

    /// Edges without power of the mechanisms that running jobs commit.
    pub(super) fn unpowered(&self, snapshot: &Snapshot) -> BTreeSet<String> {
        let active = snapshot
            .state
            .jobs
            .values()
            .filter_map(|j| j.active.as_ref());
        let committed: BTreeSet<&String> = active
            .flat_map(|l| &l.ladder.ranks)
            .filter_map(|r| r.mechanism_id.as_ref())
            .collect();
        let mechanisms = committed
            .into_iter()
            .filter_map(|id| self.context.causal.mechanism(id));
        let edges = mechanisms
            .flat_map(|m| &m.edges)
            .filter_map(|e| self.context.causal.edge(e));
        let weak = |e: &&Edge| {
            !self
                .powers
                .is_powered(&e.id, e.smallest_effect, self.context.params)
        };
        edges.filter(weak).map(|e| e.id.clone()).collect()
    }

    fn of_mechanism(
        &self,
        record: &JobRecord,
        rank: &Rank,
        features: &FeatureValues,
        mechanism: &Mechanism,
    ) -> Teaching {
        let causal = self.context.causal;
        let edge_masks = self.edge_masks(record, rank, features, mechanism);
        let masks = rank_masks(mechanism, causal, &edge_masks);
        let key = BeliefKey::Mechanism(mechanism.id.clone());
        let own = mechanism_mask(mechanism, causal, &edge_masks)
            * self.uncertainty.get(&key).copied().unwrap_or(1.0);
        Teaching {
            mechanism: mechanism.id.clone(),
            own,
            gain: information_gain(&masks, &self.uncertainty, self.context.params),
            masks,
        }
    }

    /// a_e of every edge of a mechanism; edges out of a mediator count where an eligible edge
    /// enters it.
    fn edge_masks(
        &self,
        record: &JobRecord,
        rank: &Rank,
        features: &FeatureValues,
        mechanism: &Mechanism,
    ) -> BTreeMap<String, f64> {
        let mut masks = BTreeMap::new();
        let mut entered: BTreeSet<Mediator> = BTreeSet::new();
        let known = || {
            mechanism
                .edges
                .iter()
                .filter_map(|id| self.context.causal.edge(id))
        };
        // Edges out of features come first: the others hang on them. Mediators form no circle.
        for _ in 0..=mechanism.mediators.len() {
            for edge in known() {
                let child = edge.ends.destination();
                let (source_is_set, contrast) = match &edge.ends {
                    EdgeEnds::FeatureToMediator(feature, _) => (
                        features.get(feature).is_some(),
                        self.contrast(record, rank, (feature, features), mechanism),
                    ),
                    EdgeEnds::MediatorToMediator(v, _) | EdgeEnds::MediatorToOutcome(v, _) => {
                        let set = entered.contains(v);
                        (set, set.then(|| rank.environment.to_string()))
                    }
                };
                let gates = EdgeGates {
                    source_is_set,
                    child_is_observable: self.is_shown(&rank.environment, child),
                    points_expected: self.points(record, edge),
                    makes_contrast: contrast.is_some(),
                };
                let place = contrast.unwrap_or_else(|| rank.environment.to_string());
                let at = (edge.id.as_str(), place.as_str());
                let mask = edge_mask(&gates, at, self.powers, self.context.params);
                if gates.are_open() {
                    entered.extend(edge.ends.destination_mediator());
                }
                masks.insert(edge.id.clone(), mask);
            }
        }
        masks
    }

    /// The environment key of the contrast that the rank would make in a feature, if some running
    /// deployment differs from it there: by who sets the feature, the same place or another one.
    fn contrast(
        &self,
        record: &JobRecord,
        rank: &Rank,
        (feature, own): (&str, &FeatureValues),
        mechanism: &Mechanism,
    ) -> Option<String> {
        let value = own.get(feature)?;
        let set_by = self.context.catalog.feature(feature)?.set_by;
        let model = &record.spec.model.id;
        let found = self.references.iter().find(|r| {
            let same_model = r.job == record.id || r.model == *model;
            let same_place = r.environment == rank.environment;
            let fits = match set_by {
                SetBy::Planner | SetBy::Job | SetBy::Workload => same_place && same_model,
                SetBy::Model => same_place && r.model != *model,
                SetBy::Environment => !same_place && same_model,
            };
            let differs = || r.features.get(feature).is_some_and(|v| differs(v, value));
            let inside = || mechanism.scope.matches(&r.features) == ScopeMatch::Exact;
            r.class == record.spec.class && fits && differs() && inside()
        })?;
        let (here, there) = (&rank.environment, &found.environment);
        Some(match here.cmp(there) {
            std::cmp::Ordering::Equal => here.to_string(),
            std::cmp::Ordering::Less => format!("{here}|{there}"),
            std::cmp::Ordering::Greater => format!("{there}|{here}"),
        })
    }

    fn is_shown(&self, environment: &Environment, variable: &str) -> bool {
        let shown = self.shown.get(environment);
        shown.is_none_or(|names| names.contains(variable))
    }

    /// Points of an edge's child in the time over which a verdict looks back.
    fn points(&self, record: &JobRecord, edge: &Edge) -> f64 {
        let params = self.context.params;
        let seconds = f64::from(params.tick_interval_seconds * params.trajectory_lookback_ticks);
        let workload = &record.spec.workload;
        let is_percentile = matches!(
            edge.ends.outcome(),
            Some(Outcome::P99TtftMs | Outcome::P99TpotMs)
        );
        if record.spec.class == JobClass::Batch || !is_percentile {
            // Every window of a serving rank is a point.
            return seconds / 10.0;
        }
        workload.arrival_rate_rps * seconds / OBSERVATIONS_PER_POINT
    }
}

fn references(snapshot: &Snapshot) -> Vec<Reference> {
    let jobs = snapshot.state.jobs.values();
    let running = jobs.filter_map(|j| Some((j, j.active.as_ref()?)));
    let of = |(job, active): (&JobRecord, &crate::ladder::CommittedLadder)| -> Vec<Reference> {
        let ranks = active.ladder.ranks.iter().filter(|r| r.n_replicas > 0);
        ranks
            .map(|rank| Reference {
                job: job.id,
                class: job.spec.class,
                model: job.spec.model.id.clone(),
                environment: rank.environment.clone(),
                features: features(job, rank),
            })
            .collect()
    };
    running.flat_map(of).collect()
}

fn shown(snapshot: &Snapshot) -> BTreeMap<Environment, BTreeSet<&'static str>> {
    let mut shown: BTreeMap<Environment, BTreeSet<&'static str>> = BTreeMap::new();
    for (id, measured) in &snapshot.measured {
        let active = snapshot.state.jobs.get(id).and_then(|j| j.active.as_ref());
        for rank in active.into_iter().flat_map(|l| &l.ladder.ranks) {
            let names = shown.entry(rank.environment.clone()).or_default();
            names.extend(measured.mediators.present().map(|(v, _)| v.name()));
            names.extend(measured.outcomes.present().map(|(y, _)| y.name()));
        }
    }
    shown
}

/// Another level, or a number that differs by a factor.
fn differs(a: &FeatureValue, b: &FeatureValue) -> bool {
    match (a, b) {
        (FeatureValue::Number(a), FeatureValue::Number(b)) if *a > 0.0 && *b > 0.0 => {
            (a / b).ln().abs() >= MATERIAL_LOG_RATIO
        }
        (FeatureValue::Number(a), FeatureValue::Number(b)) => a.total_cmp(b).is_ne(),
        _ => a != b,
    }
}
