//! C0: the draft is well formed — one action per job, ladders exactly where they belong, one slot
//! per replica, finite numbers, bounded sizes. Looks at nothing but the draft. Spec §11.

use std::collections::BTreeSet;

use super::Findings;
use crate::ladder::Ladder;
use crate::plan::{ActionKind, PlanAction, PlanDraft};

/// Actions in one plan; more jobs than any installation plans for.
const ACTIONS_MAX: usize = 100_000;
/// Ranks of one ladder.
const RANKS_MAX: usize = 3;
/// Replicas of one ladder.
const REPLICAS_MAX: u32 = 10_000;
/// Characters of a sentence for people.
const RATIONALE_MAX: usize = 4_000;

pub(super) fn check(draft: &PlanDraft, findings: &mut Findings) {
    if draft.actions.len() > ACTIONS_MAX {
        let detail = format!("{} actions, at most {ACTIONS_MAX}", draft.actions.len());
        findings.add("C0-SIZE", None, detail);
        return;
    }
    if !draft.objective.is_finite() || draft.bound.is_some_and(|b| !b.is_finite()) {
        findings.add("C0-NUMBER", None, "objective and bound must be finite");
    }
    let mut seen = BTreeSet::new();
    for action in &draft.actions {
        if !seen.insert(action.job) {
            findings.add("C0-DUPLICATE", action.job, "has more than one action");
        }
        check_action(action, findings);
    }
}

fn check_action(action: &PlanAction, findings: &mut Findings) {
    let job = action.job;
    if action.rationale.chars().count() > RATIONALE_MAX {
        findings.add(
            "C0-SIZE",
            job,
            format!("rationale has more than {RATIONALE_MAX} characters"),
        );
    }
    if action
        .target_tps
        .is_some_and(|t| !(t.is_finite() && t >= 0.0))
    {
        findings.add(
            "C0-NUMBER",
            job,
            "target_tps must be finite and not negative",
        );
    }
    let name = action.kind.name();
    match (&action.ladder, action.kind.has_ladder()) {
        (None, true) => findings.add("C0-LADDER", job, format!("{name} needs a ladder")),
        (Some(_), false) => findings.add("C0-LADDER", job, format!("{name} takes no ladder")),
        (Some(ladder), true) => check_ladder(action, ladder, findings),
        (None, false) => {
            if !action.slots.is_empty() || action.promise.is_some() {
                findings.add(
                    "C0-LADDER",
                    job,
                    format!("{name} takes neither slots nor promise"),
                );
            }
        }
    }
    if action.swap_reason.is_some() != (action.kind == ActionKind::Swap) {
        findings.add(
            "C0-REASON",
            job,
            "a swap has a reason, and only a swap has one",
        );
    }
}

fn check_ladder(action: &PlanAction, ladder: &Ladder, findings: &mut Findings) {
    let job = action.job;
    if ladder.ranks.is_empty() || ladder.ranks.len() > RANKS_MAX {
        let detail = format!("{} ranks, must be 1 to {RANKS_MAX}", ladder.ranks.len());
        findings.add("C0-RANKS", job, detail);
        return;
    }
    let counts: Vec<u32> = ladder.ranks.iter().map(|r| r.n_replicas).collect();
    let total = counts.iter().map(|n| u64::from(*n)).sum::<u64>();
    if counts.contains(&0) || total > u64::from(REPLICAS_MAX) {
        let detail =
            format!("replicas {counts:?}: each at least 1, together at most {REPLICAS_MAX}");
        findings.add("C0-RANKS", job, detail);
        return;
    }
    let wanted: BTreeSet<(u32, u32)> = (0_u32..)
        .zip(&counts)
        .flat_map(|(rank, n)| (0..*n).map(move |i| (rank, i)))
        .collect();
    let given: BTreeSet<(u32, u32)> = action.slots.iter().map(|s| (s.rank, s.index)).collect();
    if given != wanted || action.slots.len() != wanted.len() {
        let detail = format!(
            "{} slots for {} replicas: one per rank and index is needed",
            action.slots.len(),
            wanted.len()
        );
        findings.add("C0-SLOTS", job, detail);
    }
    match &action.promise {
        Some(promise)
            if promise.ranks.len() == ladder.ranks.len()
                && promise.bands.len() == ladder.ranks.len() => {}
        Some(_) => {
            findings.add(
                "C0-PROMISE",
                job,
                "a promise has one prediction and one band per rank",
            );
        }
        None => findings.add("C0-PROMISE", job, "a ladder needs a promise"),
    }
}
