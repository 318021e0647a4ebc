//! C4: voluntary swaps and preemptions stay within B_t. Replacing what is lost and emptying a
//! draining host is not voluntary. When many hosts fall silent together, nothing that runs is
//! touched. Spec §9, §11; reliability.md G8.

use super::{Checked, Findings};
use crate::plan::{ActionKind, PlanAction};
use crate::planner::standing::{is_braked, standing};

/// True when an action counts against the swap budget.
fn is_voluntary(checked: &Checked<'_>, action: &PlanAction) -> bool {
    let disturbs = matches!(action.kind, ActionKind::Swap | ActionKind::Preempt);
    let forced = || {
        checked
            .job(action)
            .is_some_and(|job| standing(checked.snapshot, job).is_forced())
    };
    disturbs && (action.kind == ActionKind::Preempt || !forced())
}

pub(super) fn check(checked: &Checked<'_>, findings: &mut Findings) {
    let budget = checked.snapshot.state.slow.swap_budget;
    let voluntary = checked
        .actions
        .iter()
        .filter(|a| is_voluntary(checked, a))
        .count();
    if voluntary > budget as usize {
        let detail =
            format!("{voluntary} voluntary swaps and preemptions, this tick allows {budget}");
        findings.add("C4-BUDGET", None, detail);
    }
    if is_braked(checked.snapshot) {
        for action in checked.actions {
            if matches!(action.kind, ActionKind::Swap | ActionKind::Preempt) {
                let detail = "too many hosts are silent at once: what runs is left as it is";
                findings.add("C4-BRAKE", action.job, detail);
            }
        }
    }
}
