//! What a deployment's own earlier rows missed: a deployment that has run for some ticks is held
//! against the frozen prediction corrected by it, so that its rows test for a change and no longer for
//! the error that the surrogate has made about it all along.
//!
//! It follows slowly: a change is seen for some rows and is then the new normal. Derived from rows
//! and kept between ticks; after a restart the stored rows say the same again. Spec §8.

use std::collections::BTreeMap;

use super::contrast::DeploymentId;
use super::evidence::EvidenceRow;
use super::residual::Variable;
use crate::ids::TickId;

/// Rows after which a deployment is settled.
pub const SETTLED_ROWS: u32 = 3;
/// Rows over which the running mean forgets.
const MEMORY_ROWS: u32 = 8;
/// Ticks without a row after which a deployment is forgotten.
const KEPT_TICKS: i64 = 50;

/// What is known of one variable.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Running {
    rows: u32,
    mean: f64,
}

/// What one deployment's earlier rows missed, by variable.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OwnBias {
    variables: BTreeMap<Variable, Running>,
}

impl OwnBias {
    /// Mean residual of the earlier rows on the natural scale; `None` until it is settled.
    #[must_use]
    pub fn of(&self, variable: Variable) -> Option<f64> {
        let running = self.variables.get(&variable)?;
        (running.rows >= SETTLED_ROWS).then_some(running.mean)
    }

    /// Takes one more row's mean residual in.
    ///
    /// # Formula
    /// m ← m + (r − m)/min(n, 8), n counting this row
    pub fn add(&mut self, variable: Variable, residual_mean: f64) {
        if !residual_mean.is_finite() {
            return;
        }
        let running = self.variables.entry(variable).or_default();
        running.rows = running.rows.saturating_add(1);
        let weight = f64::from(running.rows.min(MEMORY_ROWS));
        running.mean += (residual_mean - running.mean) / weight;
    }
}

/// The same of every deployment that is seen.
#[derive(Debug, Clone, Default)]
pub struct OwnBiases {
    by_deployment: BTreeMap<DeploymentId, (TickId, OwnBias)>,
}

impl OwnBiases {
    /// What is known of a deployment.
    #[must_use]
    pub fn of(&self, id: DeploymentId) -> OwnBias {
        let known = self.by_deployment.get(&id);
        known.map_or_else(OwnBias::default, |(_, own)| own.clone())
    }

    /// Takes a judged row in.
    pub fn observe(&mut self, row: &EvidenceRow) {
        let fresh = || (row.tick, OwnBias::default());
        let entry = self.by_deployment.entry(row.deployment_id());
        let (newest, own) = entry.or_insert_with(fresh);
        *newest = row.tick;
        for variable in Variable::all() {
            let judged = row.variables.get(variable.name());
            if let Some(judged) = judged.filter(|j| j.verdict.is_some()) {
                own.add(variable, judged.residual_mean);
            }
        }
    }

    /// Forgets deployments that are gone.
    pub fn advance(&mut self, tick: TickId) {
        self.by_deployment
            .retain(|_, (newest, _)| newest.0 > tick.0 - KEPT_TICKS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variables::Mediator;

    const QUEUE: Variable = Variable::V(Mediator::QueueDepth);

    #[test]
    fn a_deployment_is_fresh_for_three_rows_and_then_known_by_their_mean() {
        let mut own = OwnBias::default();
        for (n, residual) in [0.3, 0.1, 0.2].into_iter().enumerate() {
            assert_eq!(own.of(QUEUE), None, "{n}");
            own.add(QUEUE, residual);
        }
        assert!((own.of(QUEUE).unwrap() - 0.2).abs() < 1e-12);
        own.add(QUEUE, f64::NAN);
        assert!((own.of(QUEUE).unwrap() - 0.2).abs() < 1e-12);
    }

    #[test]
    fn a_lasting_change_shows_for_some_rows_and_is_then_the_new_normal() {
        let mut own = OwnBias::default();
        (0..20).for_each(|_| own.add(QUEUE, 0.0));
        let seen: Vec<f64> = (0..40)
            .map(|_| {
                let residual = 0.26 - own.of(QUEUE).unwrap();
                own.add(QUEUE, 0.26);
                residual
            })
            .collect();
        assert!((seen[0] - 0.26).abs() < 1e-12 && seen[2] > 0.19);
        assert!(seen[39] < 0.005, "{seen:?}");
    }
}
