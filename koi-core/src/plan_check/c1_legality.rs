//! C1: every action fits the state of its job, and what it names exists. Spec §11, C1's table.

use super::{Checked, Findings};
use crate::plan::{ActionKind, PlanAction};
use crate::store::{JobRecord, JobState};

pub(super) fn check(checked: &Checked<'_>, findings: &mut Findings) {
    for action in checked.actions {
        let Some(job) = checked.job(action).filter(|j| !j.state.is_finished()) else {
            let detail = "is not a live job of the snapshot";
            findings.add("C1-JOB", action.job, detail);
            continue;
        };
        check_state(action, job, findings);
        let named = action
            .ladder
            .iter()
            .flat_map(|l| &l.ranks)
            .map(|r| r.mechanism_id.as_deref());
        for id in named.chain([action.mechanism_id.as_deref()]).flatten() {
            if checked.context.causal.mechanism(id).is_none() {
                let shown: String = id.chars().take(80).collect();
                findings.add(
                    "C1-MECHANISM",
                    action.job,
                    format!("no mechanism is called {shown:?}"),
                );
            }
        }
    }
}

/// Whether a job in this state may get this action.
///
/// A job that does not run may always be left so: `defer` is to it what `keep` is to a running
/// one.
const fn is_legal(kind: ActionKind, state: &JobState) -> bool {
    use ActionKind::{Defer, Diagnose, Keep, Place, Preempt, Resume, Retry, Swap, Terminate};
    match state {
        JobState::Waiting => matches!(kind, Place | Defer | Terminate | Diagnose),
        JobState::Running => matches!(kind, Keep | Swap | Preempt | Terminate | Diagnose),
        JobState::Paused => matches!(kind, Resume | Defer | Terminate | Diagnose),
        JobState::LaunchFailed { .. } => matches!(kind, Retry | Defer | Terminate | Diagnose),
        JobState::Finished { .. } => false,
    }
}

fn check_state(action: &PlanAction, job: &JobRecord, findings: &mut Findings) {
    let name = action.kind.name();
    if !is_legal(action.kind, &job.state) {
        let detail = format!("{name} does not fit a job that is {}", job.state.name());
        findings.add("C1-STATE", action.job, detail);
    }
    let leaves_alone = matches!(
        action.kind,
        ActionKind::Keep | ActionKind::Defer | ActionKind::Diagnose | ActionKind::Terminate
    );
    if job.rollout.is_some() && !leaves_alone {
        let detail = format!("{name} while another generation is on its way in; keep it");
        findings.add("C1-ROLLOUT", action.job, detail);
    }
}
