//! C4: voluntary swaps and preemptions stay within B_t, probes within their allowance. Replacing
//! what is lost and emptying a draining host is not voluntary. When many hosts fall silent
//! together, nothing that runs is touched. Spec §9, §11; reliability.md G8.

use std::collections::BTreeSet;

use super::{Checked, Findings};
use crate::ids::JobId;
use crate::plan::{ActionKind, PlanAction, PlanTally};
use crate::planner::standing::{is_braked, standing};
use crate::slow_loop::probe::allowance;

/// True when an action is made by choice: it counts against the swap budget unless it is a probe.
fn is_voluntary(checked: &Checked<'_>, action: &PlanAction) -> bool {
    let disturbs = matches!(action.kind, ActionKind::Swap | ActionKind::Preempt);
    let forced = || {
        checked
            .job(action)
            .is_some_and(|job| standing(checked.snapshot, job).is_forced())
    };
    disturbs && (action.kind == ActionKind::Preempt || !forced())
}

/// What the plan changes by choice.
pub(super) fn tally(checked: &Checked<'_>) -> PlanTally {
    let probed: BTreeSet<JobId> = checked.probes.iter().map(|p| p.job).collect();
    let by_choice = checked.actions.iter().filter(|a| is_voluntary(checked, a));
    let is_probe = |a: &PlanAction| a.kind == ActionKind::Swap && probed.contains(&a.job);
    PlanTally {
        voluntary: by_choice.filter(|a| !is_probe(a)).map(|a| a.job).collect(),
        probes: checked.probes.to_vec(),
        explorations: checked.explorations.to_vec(),
    }
}

pub(super) fn check(checked: &Checked<'_>, findings: &mut Findings) {
    let budget = checked.snapshot.state.slow.swap_budget;
    let voluntary = tally(checked).voluntary.len();
    if voluntary > budget as usize {
        let detail =
            format!("{voluntary} voluntary swaps and preemptions, this tick allows {budget}");
        findings.add("C4-BUDGET", None, detail);
    }
    check_probes(checked, findings);
    if is_braked(checked.snapshot) {
        for action in checked.actions {
            if matches!(action.kind, ActionKind::Swap | ActionKind::Preempt) {
                let detail = "too many hosts are silent at once: what runs is left as it is";
                findings.add("C4-BRAKE", action.job, detail);
            }
        }
    }
}

/// Probes are swaps of running jobs, few, rare per job and paid for; explorations are within the swap
/// budget, and as rare and paid for.
fn check_probes(checked: &Checked<'_>, findings: &mut Findings) {
    let (snapshot, params) = (checked.snapshot, checked.context.params);
    let ledger = &snapshot.state.slow.probes;
    let allowed = allowance(snapshot.active_jobs(), params);
    if checked.probes.len() > allowed as usize {
        let detail = format!(
            "{} probes, this tick allows {allowed}",
            checked.probes.len()
        );
        findings.add("C4-PROBE", None, detail);
    }
    let paid = || checked.probes.iter().chain(checked.explorations);
    let mut seen = BTreeSet::new();
    for probe in paid() {
        let action = checked.actions.iter().find(|a| a.job == probe.job);
        if !action.is_some_and(|a| a.kind == ActionKind::Swap && is_voluntary(checked, a)) {
            findings.add(
                "C4-PROBE",
                probe.job,
                "what is made for what it teaches is a voluntary swap of a running job",
            );
        }
        if !seen.insert(probe.job) || !ledger.is_free(probe.job, snapshot.tick, params) {
            let period = params.probe_period_ticks;
            let detail = format!("at most one swap of a job in {period} ticks for what it teaches");
            findings.add("C4-PROBE", probe.job, detail);
        }
    }
    let usd: f64 = paid().map(|p| p.usd).sum();
    let left = ledger.usd_left(snapshot.now, params);
    // A cost that is not a number is over every limit.
    let is_paid = usd <= left + 1e-6 && paid().all(|p| p.usd >= 0.0);
    if paid().next().is_some() && !is_paid {
        let detail = format!(
            "what is made for what it teaches costs {usd:.2} USD, {left:.2} are left for today"
        );
        findings.add("C4-PROBE", None, detail);
    }
}
