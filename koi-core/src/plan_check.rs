//! S5: a draft becomes a [`CheckedPlan`] or a list of everything that is wrong with it.
//!
//! The checks stand one per file in the order of the specification. C0 short-circuits, because
//! the others read what it guarantees; all others are reported together. C7, the chance
//! constraint as a check, comes with the budget book. White paper V1, C0–C7; spec §11.

mod c0_structure;
mod c1_legality;
mod c2_coverage;
mod c3_budget;
mod c4_swap_budget;
mod c5_capacity;
mod c6_physics;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::plan::{PlanAction, PlanDraft, PlanTally};
use crate::planner::PlanningContext;
use crate::slow_loop::PlannedProbe;
use crate::snapshot::Snapshot;
use crate::store::JobRecord;

pub(crate) use c2_coverage::leave_alone;
pub(crate) use c3_budget::place_refusal;

/// Violations reported at most; a draft with more is not worth reading further.
const VIOLATIONS_MAX: usize = 200;

/// One thing wrong with a draft.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PlanViolation {
    /// Stable code, e.g. `C6-VRAM`.
    pub code: String,
    /// Whose action; absent when it concerns the whole plan.
    pub job: Option<JobId>,
    /// The numbers, and what would be right.
    pub detail: String,
}

impl fmt::Display for PlanViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.job {
            Some(job) => write!(f, "{} job {job}: {}", self.code, self.detail),
            None => write!(f, "{}: {}", self.code, self.detail),
        }
    }
}

/// Collects violations in the order of the checks.
#[derive(Debug, Default)]
struct Findings(Vec<PlanViolation>);

impl Findings {
    fn add(&mut self, code: &str, job: impl Into<Option<JobId>>, detail: impl Into<String>) {
        if self.0.len() < VIOLATIONS_MAX {
            let (job, detail) = (job.into(), detail.into());
            self.0.push(PlanViolation {
                code: code.to_owned(),
                job,
                detail,
            });
        }
    }
}

/// What every check looks at.
struct Checked<'a> {
    snapshot: &'a Snapshot,
    context: &'a PlanningContext<'a>,
    actions: &'a [PlanAction],
    probes: &'a [PlannedProbe],
    explorations: &'a [PlannedProbe],
}

impl Checked<'_> {
    fn job(&self, action: &PlanAction) -> Option<&JobRecord> {
        self.snapshot.state.jobs.get(&action.job)
    }

    /// Ladder actions whose job exists, with both.
    fn ladder_actions(
        &self,
    ) -> impl Iterator<Item = (&PlanAction, &crate::ladder::Ladder, &JobRecord)> {
        self.actions
            .iter()
            .filter_map(|action| Some((action, action.ladder.as_ref()?, self.job(action)?)))
    }
}

/// A plan that passed every check on one snapshot; made by [`check`] alone.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedPlan {
    draft: PlanDraft,
    tally: PlanTally,
    snapshot_hash: String,
}

impl CheckedPlan {
    /// One action per visible job, in order of job id.
    #[must_use]
    pub fn actions(&self) -> &[PlanAction] {
        &self.draft.actions
    }

    /// The whole plan as it was proposed, omitted jobs filled in.
    #[must_use]
    pub const fn draft(&self) -> &PlanDraft {
        &self.draft
    }

    /// A plan that only the machine that commits it judges: for tests of that machine.
    #[cfg(test)]
    pub(crate) fn for_tests(draft: PlanDraft) -> Self {
        Self {
            draft,
            tally: PlanTally::default(),
            snapshot_hash: String::new(),
        }
    }

    /// What it changes by choice.
    #[must_use]
    pub const fn tally(&self) -> &PlanTally {
        &self.tally
    }

    /// Hash of the snapshot on which it was checked; on any other it proves nothing.
    #[must_use]
    pub fn snapshot_hash(&self) -> &str {
        &self.snapshot_hash
    }
}

/// Checks a draft on the snapshot that it was made from.
///
/// Omitted jobs are kept as they are (C2); everything else that is wrong refuses the whole draft.
///
/// # Errors
/// The violations of C0, or else those of C1 to C6 together in that order.
///
/// # Source
/// White paper V1, C0–C7; spec §11.
pub fn check(
    draft: PlanDraft,
    snapshot: &Snapshot,
    context: &PlanningContext<'_>,
) -> Result<CheckedPlan, Vec<PlanViolation>> {
    let mut findings = Findings::default();
    c0_structure::check(&draft, &mut findings);
    if !findings.0.is_empty() {
        return Err(findings.0);
    }
    let mut draft = draft;
    c2_coverage::fill(&mut draft, snapshot);
    let checked = Checked {
        snapshot,
        context,
        actions: &draft.actions,
        probes: &draft.probes,
        explorations: &draft.explorations,
    };
    c1_legality::check(&checked, &mut findings);
    c3_budget::check(&checked, &mut findings);
    c4_swap_budget::check(&checked, &mut findings);
    c5_capacity::check(&checked, &mut findings);
    c6_physics::check(&checked, &mut findings);
    if findings.0.is_empty() {
        let tally = c4_swap_budget::tally(&checked);
        Ok(CheckedPlan {
            draft,
            tally,
            snapshot_hash: snapshot.hash(),
        })
    } else {
        Err(findings.0)
    }
}
