//! What stored evidence says to the next plan: residual sets for risk, past outcomes for z*.
//!
//! Built once per tick from evidence rows; nothing here learns. White paper V1, Risk and
//! Appendix A (ideal point); spec §7.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::job::JobClass;
use crate::store::ServerState;
use crate::validation::EvidenceRow;
use crate::variables::{Outcome, OutcomeValues};

/// Residuals kept per pool and objective; older ones drop out.
const MAX_RESIDUALS: usize = 200;
/// A pool with fewer residuals falls back to the next wider one.
const MIN_POOL: usize = 20;
/// Past outcomes kept.
const MAX_OUTCOMES: usize = 2000;

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

/// Evidence as the planner uses it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Experience {
    /// Pools from narrow to wide: `mechanism|gpu`, `gpu`, and `` for all.
    residuals: BTreeMap<String, Pool>,
    /// Past outcomes, newest last.
    pub outcomes: Vec<PastOutcome>,
}

impl Experience {
    /// Collects rows, oldest first.
    #[must_use]
    pub fn from_rows(rows: &[EvidenceRow], state: &ServerState) -> Self {
        let mut all = Self::default();
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

    /// The narrowest residual set that is large enough, else the widest there is.
    #[must_use]
    pub fn residuals(&self, mechanism: Option<&str>, gpu: &str, outcome: Outcome) -> &[f64] {
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
            .find(|set| set.len() >= MIN_POOL)
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

fn push_newest<T>(items: &mut Vec<T>, item: T, bound: usize) {
    if items.len() == bound {
        items.remove(0);
    }
    items.push(item);
}
