//! What stored evidence says to the next plan: residual sets for risk, past outcomes for z*, and
//! what first principles missed where this fleet's own deployments stood.
//!
//! Built once per tick from evidence rows; nothing here learns. White paper V1, Risk and
//! Appendix A (ideal point); spec §7.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::job::JobClass;
use crate::model::WeightDtype;
use crate::params::Params;
use crate::store::ServerState;
use crate::surrogate::own::OwnRow;
use crate::surrogate::points::Matrices;
use crate::validation::EvidenceRow;
use crate::variables::{Outcome, OutcomeValues};

/// Residuals kept per pool and objective; older ones drop out.
const MAX_RESIDUALS: usize = 200;
/// Past outcomes kept.
const MAX_OUTCOMES: usize = 2000;
/// Rows kept of one model in one environment.
const MAX_OWN_ROWS: usize = 400;

/// Residuals per objective of one pool, newest last.
type Pool = BTreeMap<Outcome, Vec<f64>>;

/// An observed outcome of a past rank and what it belonged to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastOutcome {
    /// Class of the job, while the job is known.
    pub class: Option<JobClass>,
    /// Class of the model, while the job is known.
    pub model_class: Option<crate::model::ModelClass>,
    /// Means over the row.
    pub outcomes: OutcomeValues,
}

/// Where rows speak of each other: one model in one weight format in one environment. Rows of other
/// environments are silent as long as no invariance verdict lets them speak.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OwnScope {
    /// Where.
    pub environment: Environment,
    /// The model.
    pub matrices: Matrices,
    /// Its weights as served.
    pub weights: WeightDtype,
}

/// Evidence as the planner uses it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Experience {
    /// Pools from narrow to wide: `mechanism|gpu`, `gpu`, and `` for all.
    residuals: BTreeMap<String, Pool>,
    /// Past outcomes, newest last.
    pub outcomes: Vec<PastOutcome>,
    /// Own deployments by scope, newest last.
    own: Vec<(OwnScope, Vec<OwnRow>)>,
}

impl Experience {
    /// Collects rows, oldest first.
    #[must_use]
    pub fn from_rows(rows: &[EvidenceRow], state: &ServerState) -> Self {
        let mut all = Self {
            own: own_rows(rows),
            ..Self::default()
        };
        for row in rows {
            let gpu = &row.environment.gpu_type;
            let mechanism = row.committed_mechanism().unwrap_or("none");
            for key in [format!("{mechanism}|{gpu}"), gpu.clone(), String::new()] {
                let pool = all.residuals.entry(key).or_default();
                for (outcome, residual) in row.promise_residuals.present() {
                    push_newest(pool.entry(outcome).or_default(), residual, MAX_RESIDUALS);
                }
            }
            let job = state.jobs.get(&row.job);
            let past = PastOutcome {
                class: job.map(|j| j.spec.class),
                model_class: job.map(|j| j.spec.model.facts.class()),
                outcomes: row.observed,
            };
            push_newest(&mut all.outcomes, past, MAX_OUTCOMES);
        }
        all
    }

    /// Own deployments of a model, by scope.
    pub fn own(&self, matrices: Matrices) -> impl Iterator<Item = (&OwnScope, &[OwnRow])> {
        let of_model = self.own.iter().filter(move |(s, _)| s.matrices == matrices);
        of_model.map(|(scope, rows)| (scope, rows.as_slice()))
    }

    /// The narrowest residual set that needs no topping up, else the widest there is.
    #[must_use]
    pub fn residuals(
        &self,
        mechanism: Option<&str>,
        gpu: &str,
        outcome: Outcome,
        params: &Params,
    ) -> &[f64] {
        let enough = params.dro_residuals_min as usize;
        let keys = [
            format!("{}|{gpu}", mechanism.unwrap_or("none")),
            gpu.to_owned(),
            String::new(),
        ];
        let sets = || {
            keys.iter()
                .filter_map(|key| self.residuals.get(key)?.get(&outcome))
        };
        sets()
            .find(|set| set.len() >= enough)
            .or_else(|| sets().next_back())
            .map_or(&[], Vec::as_slice)
    }

    /// Outcomes of similar past deployments: same class of job and model, then same class of job,
    /// then all; wider while there are fewer than five.
    #[must_use]
    pub fn similar(
        &self,
        class: JobClass,
        model_class: crate::model::ModelClass,
    ) -> Vec<OutcomeValues> {
        let pick = |keep: &dyn Fn(&PastOutcome) -> bool| -> Vec<OutcomeValues> {
            let newest = self
                .outcomes
                .iter()
                .rev()
                .filter(|p| keep(p))
                .take(MAX_RESIDUALS);
            newest.map(|p| p.outcomes).collect()
        };
        let same_class = |p: &PastOutcome| p.class == Some(class);
        let narrow = pick(&|p| same_class(p) && p.model_class == Some(model_class));
        if narrow.len() >= 5 {
            return narrow;
        }
        let wider = pick(&|p| same_class(p));
        if wider.len() >= 5 {
            wider
        } else {
            pick(&|_| true)
        }
    }
}

fn own_rows(rows: &[EvidenceRow]) -> Vec<(OwnScope, Vec<OwnRow>)> {
    let mut own: BTreeMap<OwnScope, Vec<OwnRow>> = BTreeMap::new();
    for row in rows {
        let Some(stood) = &row.stood else {
            continue;
        };
        let scope = OwnScope {
            environment: row.environment.clone(),
            matrices: stood.matrices,
            weights: stood.weights,
        };
        let one = OwnRow {
            spot: stood.spot,
            log_errors: stood.log_errors,
            mechanism: row.committed_mechanism().map(str::to_owned),
            tick: row.tick.0,
        };
        push_newest(own.entry(scope).or_default(), one, MAX_OWN_ROWS);
    }
    own.into_iter().collect()
}

fn push_newest<T>(items: &mut Vec<T>, item: T, bound: usize) {
    if items.len() == bound {
        items.remove(0);
    }
    items.push(item);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::evidence::testing::{committed, row};

    fn rows(n: usize, gpu: &str, mechanism: &str, residual: f64) -> Vec<EvidenceRow> {
        let mut one = row(1, Vec::new());
        one.environment.gpu_type = gpu.to_owned();
        one.promise_residuals = OutcomeValues::absent().with(Outcome::P99TtftMs, residual);
        one.mechanisms = vec![committed(mechanism)];
        vec![one; n]
    }

    fn of(rows: &[EvidenceRow]) -> Experience {
        Experience::from_rows(rows, &ServerState::default())
    }

    #[test]
    fn the_narrowest_set_that_is_large_enough_is_used() {
        let all = [
            rows(20, "H100", "M_a", 0.1),
            rows(5, "H100", "M_b", 0.2),
            rows(3, "L40S", "M_b", 0.3),
        ]
        .concat();
        let experience = of(&all);
        let params = Params::default();
        let n = |mechanism, gpu| {
            let set = experience.residuals(mechanism, gpu, Outcome::P99TtftMs, &params);
            set.len()
        };
        assert_eq!(n(Some("M_a"), "H100"), 20);
        assert_eq!(n(Some("M_b"), "H100"), 25);
        assert_eq!(n(None, "H100"), 25);
        assert_eq!(n(Some("M_b"), "L40S"), 28);
        assert_eq!(n(Some("M_b"), "A100"), 28);
        let tpot = experience.residuals(None, "H100", Outcome::P99TpotMs, &params);
        assert!(tpot.is_empty());
    }

    #[test]
    fn sets_keep_the_newest() {
        let oldest_first = [rows(50, "H100", "M_a", 9.0), rows(200, "H100", "M_a", 0.1)].concat();
        let experience = of(&oldest_first);
        let params = Params::default();
        let set = experience.residuals(Some("M_a"), "H100", Outcome::P99TtftMs, &params);
        assert_eq!(set, [0.1; 200]);
    }
}
