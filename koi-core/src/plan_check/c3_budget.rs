//! C3: the ladder lies inside the job's own constraints and its tenant's slice. In this version
//! there is one tenant without limits and no budget book, so naming a slice is refused.
//! Spec §11.

use super::{Checked, Findings};
use crate::environment::Market;
use crate::job::Constraints;
use crate::ladder::{Ladder, Rank};
use crate::plan::PlanAction;

pub(super) fn check(checked: &Checked<'_>, findings: &mut Findings) {
    for action in checked.actions.iter().filter(|a| a.budget_ref.is_some()) {
        findings.add(
            "C3-SLICE",
            action.job,
            "names a budget slice, and there is no budget book",
        );
    }
    for (action, ladder, job) in checked.ladder_actions() {
        let constraints = &job.spec.constraints;
        for rank in &ladder.ranks {
            check_place(action, rank, constraints, findings);
        }
        check_amounts(action, ladder, constraints, findings);
    }
}

/// Why a place is outside a job's constraints: code and sentence.
pub(crate) fn place_refusal(
    environment: &crate::environment::Environment,
    constraints: &Constraints,
) -> Option<(&'static str, String)> {
    let c = constraints;
    let gpu = &environment.gpu_type;
    if c.denied_environments.contains(environment)
        || !(c.allowed_environments.is_empty() || c.allowed_environments.contains(environment))
    {
        return Some((
            "C3-ENVIRONMENT",
            format!("the job does not allow {environment}"),
        ));
    }
    if c.denied_gpu_types.contains(gpu)
        || !(c.allowed_gpu_types.is_empty() || c.allowed_gpu_types.contains(gpu))
    {
        return Some(("C3-GPU-TYPE", format!("the job does not allow {gpu}")));
    }
    if environment.market == Market::Spot && !c.spot_allowed {
        return Some((
            "C3-SPOT",
            format!("{environment} is spot and the job has spot_allowed: false"),
        ));
    }
    None
}

fn check_place(action: &PlanAction, rank: &Rank, c: &Constraints, findings: &mut Findings) {
    if let Some((code, detail)) = place_refusal(&rank.environment, c) {
        findings.add(code, action.job, detail);
    }
}

fn check_amounts(action: &PlanAction, ladder: &Ladder, c: &Constraints, findings: &mut Findings) {
    let n = ladder.n_replicas();
    if !(c.min_replicas..=c.max_replicas).contains(&n) {
        let detail = format!(
            "{n} replicas, the job allows {} to {}",
            c.min_replicas, c.max_replicas
        );
        findings.add("C3-REPLICAS", action.job, detail);
    }
    let Some(limit) = c.max_usd_per_hour else {
        return;
    };
    match action.promise.as_ref().and_then(|p| p.usd_per_hour) {
        Some(usd) if usd <= limit => {}
        Some(usd) => {
            let detail = format!("{usd:.2} USD/h, the job allows {limit:.2}");
            findings.add("C3-USD", action.job, detail);
        }
        None => {
            let detail = "has a price limit, and a host of the ladder states no price";
            findings.add("C3-USD", action.job, detail);
        }
    }
}
