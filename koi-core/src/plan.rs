//! A cluster plan P_t: one action per job. Drafts are unchecked; a plan can be executed only as
//! `plan_check::CheckedPlan`. White paper V1, The Agentic Planner; spec §2, §11.

use serde::{Deserialize, Serialize};

use crate::ids::{HostId, JobId, ReplicaId};
use crate::ladder::{Ladder, Promise};
use crate::slow_loop::PlannedProbe;

/// Why a live ladder is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SwapReason {
    /// More of the same.
    ScaleUp,
    /// Less of the same.
    ScaleDown,
    /// Another environment.
    Migrate,
    /// Lost replicas.
    Replace,
    /// Other settings.
    Retune,
    /// For what it teaches, outside the swap budget.
    Probe,
}

impl SwapReason {
    /// The name in plans and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScaleUp => "scale_up",
            Self::ScaleDown => "scale_down",
            Self::Migrate => "migrate",
            Self::Replace => "replace",
            Self::Retune => "retune",
            Self::Probe => "probe",
        }
    }
}

/// What a plan does with one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// Start a waiting job.
    Place,
    /// Leave a running job as it is.
    Keep,
    /// Replace a running job's ladder.
    Swap,
    /// Leave a waiting job waiting.
    Defer,
    /// Stop a running job for another's sake.
    Preempt,
    /// Start a paused job again.
    Resume,
    /// Start a job whose launch failed.
    Retry,
    /// End a job.
    Terminate,
    /// Look at a job without changing it.
    Diagnose,
}

impl ActionKind {
    /// True for the actions that bring a ladder.
    #[must_use]
    pub const fn has_ladder(self) -> bool {
        matches!(self, Self::Place | Self::Swap | Self::Resume | Self::Retry)
    }

    /// The name in plans and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Place => "place",
            Self::Keep => "keep",
            Self::Swap => "swap",
            Self::Defer => "defer",
            Self::Preempt => "preempt",
            Self::Resume => "resume",
            Self::Retry => "retry",
            Self::Terminate => "terminate",
            Self::Diagnose => "diagnose",
        }
    }
}

/// One action, as proposed. `C0` to `C6` decide whether it may be executed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanAction {
    /// Whose.
    pub job: JobId,
    /// What.
    pub kind: ActionKind,
    /// The new ladder, for ladder actions.
    pub ladder: Option<Ladder>,
    /// What it promises, for ladder actions.
    pub promise: Option<Promise>,
    /// Host and devices of every replica, for ladder actions.
    pub slots: Vec<Slot>,
    /// Throughput the ladder is sized for, generated tokens per second.
    pub target_tps: Option<f64>,
    /// Hypothesis behind the choice.
    pub mechanism_id: Option<String>,
    /// Why a live ladder is replaced.
    pub swap_reason: Option<SwapReason>,
    /// Slice of the budget book.
    pub budget_ref: Option<String>,
    /// One sentence for people.
    pub rationale: String,
}

/// Where one replica of the new ladder goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Rank within the ladder.
    pub rank: u32,
    /// Index within the rank.
    pub index: u32,
    /// Host.
    pub host: HostId,
    /// Devices, in shard order.
    pub gpu_uuids: Vec<String>,
}

/// A proposed plan: typed, unchecked.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PlanDraft {
    /// Cluster-wide reasoning, for people.
    pub rationale: String,
    /// One action per visible job.
    pub actions: Vec<PlanAction>,
    /// Σ gain of the draft by the planner's own account.
    pub objective: f64,
    /// Upper bound on Σ gain over all plans, when the search proved one.
    pub bound: Option<f64>,
    /// What was not chosen, and why: the raw material of `koi explain`.
    pub considered: Vec<Considered>,
    /// Swaps that are probes: outside the swap budget, within the probe allowance.
    #[serde(default)]
    pub probes: Vec<PlannedProbe>,
    /// Swaps within the swap budget that only what they teach justifies: paid for like probes.
    #[serde(default)]
    pub explorations: Vec<PlannedProbe>,
}

/// What a committed plan changed by choice: the slow loop counts it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PlanTally {
    /// Jobs swapped or preempted voluntarily, probes left out.
    pub voluntary: Vec<JobId>,
    /// Probes.
    pub probes: Vec<PlannedProbe>,
    /// Voluntary swaps that only what they teach justifies.
    #[serde(default)]
    pub explorations: Vec<PlannedProbe>,
}

impl PlanTally {
    /// Every swap that is paid from the day's learning money.
    pub fn paid_learning(&self) -> impl Iterator<Item = &PlannedProbe> {
        self.probes.iter().chain(&self.explorations)
    }
}

/// An option of one job that was not chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Considered {
    /// Whose.
    pub job: JobId,
    /// One-line form of the ladder, e.g. `2 × H100 tp=1 pp=1 in reserved/…`.
    pub option: String,
    /// Score terms, when it was scored.
    pub sigma: Option<crate::score::SigmaTerms>,
    /// Gain over doing nothing, when it was scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// Predicted outcomes, when it was predicted.
    pub outcomes: Option<crate::variables::OutcomeValues>,
    /// Price, when known.
    pub usd_per_hour: Option<f64>,
    /// Stable code of what ruled it out: a check's code, `NO-FIT`, `SLO`, `CAPACITY`, `SCORE`, …
    pub code: String,
    /// One sentence with the numbers and the nearest change that would help.
    pub reason: String,
}

/// Identity of every replica that a slot list makes for a job's new generation.
#[must_use]
pub fn replica_id(
    job: &crate::ids::JobName,
    generation: crate::ids::Generation,
    slot: &Slot,
) -> ReplicaId {
    ReplicaId {
        job: job.clone(),
        generation,
        rank: slot.rank,
        index: slot.index,
    }
}
