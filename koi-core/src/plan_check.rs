//! Placeholder of this series: the checked plan.
/// A plan that passed every check.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedPlan(crate::plan::PlanDraft);
impl CheckedPlan {
    /// Actions.
    #[must_use]
    pub fn actions(&self) -> &[crate::plan::PlanAction] {
        &self.0.actions
    }
    /// Draft.
    #[must_use]
    pub fn draft(&self) -> &crate::plan::PlanDraft {
        &self.0
    }
}
