//! C2: every visible job has an action; an omitted one is left as it is. Never a violation.
//! Spec §11.

use crate::ids::JobId;
use crate::plan::{ActionKind, PlanAction, PlanDraft};
use crate::snapshot::Snapshot;
use crate::store::JobState;

/// An action that changes nothing.
pub(crate) fn leave_alone(job: JobId, state: &JobState, rationale: String) -> PlanAction {
    let kind = match state {
        JobState::Running => ActionKind::Keep,
        JobState::Waiting
        | JobState::Paused
        | JobState::LaunchFailed { .. }
        | JobState::Finished { .. } => ActionKind::Defer,
    };
    PlanAction {
        job,
        kind,
        ladder: None,
        promise: None,
        slots: Vec::new(),
        target_tps: None,
        mechanism_id: None,
        swap_reason: None,
        budget_ref: None,
        rationale,
    }
}

/// Adds what is missing and sorts by job.
pub(super) fn fill(draft: &mut PlanDraft, snapshot: &Snapshot) {
    for job in snapshot.visible_jobs() {
        if !draft.actions.iter().any(|a| a.job == job.id) {
            let rationale = "the plan does not speak of this job: left as it is".to_owned();
            draft
                .actions
                .push(leave_alone(job.id, &job.state, rationale));
        }
    }
    draft.actions.sort_by_key(|a| a.job);
}
