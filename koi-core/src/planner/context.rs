//! What the planner reads besides the snapshot.

use crate::catalog::Catalog;
use crate::causal::CausalModel;
use crate::params::Params;
use crate::surrogate::points::MeasuredPoints;

/// Everything a plan depends on besides the snapshot. Equal contexts and snapshots give equal
/// plans.
#[derive(Debug, Clone, Copy)]
pub struct PlanningContext<'a> {
    /// X, V, Y, engines, hardware.
    pub catalog: &'a Catalog,
    /// Edges and mechanisms.
    pub causal: &'a CausalModel,
    /// Hyper-parameters.
    pub params: &'a Params,
    /// Performance that others measured; the snapshot carries its digest.
    pub points: &'a MeasuredPoints,
}
