//! The stand-in's probes: which single change of one job would narrow most what contrasts have not settled.
//!
//! Stands where the global planner's expected information gain will: it reads the same powers of edges
//! (`edge_powers`) and the same masks. It knows neither the truth nor which claims are false.

use koi_core::causal::{CausalModel, MechanismStatus};
use koi_core::configuration::Configuration;
use koi_core::params::Params;
use koi_core::score::eig::masks::edge_mask;
use koi_core::score::eig::{EdgeGates, EdgePowers};

/// Contrasts below which an edge is unsettled in an environment whatever their error.
const CONTRASTS_MIN: u32 = 3;
/// Points of a row: every window of a tick.
const POINTS: f64 = 30.0;

/// What the planner may know when it picks a probe.
pub(super) struct Knowledge<'a> {
    pub(super) model: &'a CausalModel,
    pub(super) powers: &'a EdgePowers,
    pub(super) params: &'a Params,
}

impl Knowledge<'_> {
    /// How much a change from one configuration to another in this environment narrows the edges of active
    /// mechanisms that are not settled there: those that start at a changed setting, and those that
    /// go on from where these lead.
    pub(super) fn gain(
        &self,
        (from, to): (&Configuration, &Configuration),
        environment: &str,
    ) -> f64 {
        let active = self
            .model
            .mechanisms()
            .filter(|m| m.status == MechanismStatus::Active);
        active
            .flat_map(|mechanism| {
                let edges: Vec<_> = mechanism
                    .edges
                    .iter()
                    .filter_map(|id| self.model.edge(id))
                    .collect();
                let turned = |source: &str| from.get(source) != to.get(source);
                let reached: Vec<&str> = edges
                    .iter()
                    .filter(|e| e.ends.source_mediator().is_none() && turned(e.ends.source()))
                    .map(|e| e.ends.destination())
                    .collect();
                let tested: Vec<f64> = edges
                    .iter()
                    .filter(|e| {
                        turned(e.ends.source()) && e.ends.source_mediator().is_none()
                            || reached.contains(&e.ends.source())
                    })
                    .map(|e| self.narrowing(&e.id, environment, e.smallest_effect))
                    .collect();
                tested
            })
            .sum()
    }

    fn narrowing(&self, edge: &str, environment: &str, smallest_effect: f64) -> f64 {
        let power = self.powers.power(edge, environment);
        let is_settled = power.is_some_and(|p| {
            let se = p.standard_error.unwrap_or(f64::INFINITY);
            p.n_contrasts >= CONTRASTS_MIN && 2.0 * se <= smallest_effect
        });
        let gates = EdgeGates {
            source_is_set: true,
            child_is_observable: true,
            points_expected: POINTS,
            makes_contrast: true,
        };
        if is_settled {
            return 0.0;
        }
        edge_mask(&gates, (edge, environment), self.powers, self.params)
    }
}
