//! A job i = (model M, workload W, class κ, SLO, preference), validated.
//!
//! Not the text a user wrote: that is [`draft::JobDraft`], whose only way out is validation.
//! White paper V1, Problem Formulation; spec §2.

pub mod draft;
mod validate;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::ids::{JobName, TenantId};
use crate::model::ModelFacts;
use crate::time::UtcMicros;
use crate::variables::Outcome;

/// What the job is served for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobClass {
    /// Latency-bound requests.
    Online,
    /// A token budget with a deadline.
    Batch,
}

impl JobClass {
    /// The name in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Batch => "batch",
        }
    }
}

/// A length distribution in tokens: mean and three quantiles, `p50 ≤ p95 ≤ p99`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LengthStats {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl LengthStats {
    /// Stretches the distribution to another mean; its shape is kept.
    pub fn scale_to_mean(&mut self, mean: f64) {
        let scale = mean / self.mean.max(1e-9);
        self.mean = mean;
        self.p50 *= scale;
        self.p95 *= scale;
        self.p99 *= scale;
    }
}

/// How requests arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrivalPattern {
    /// Independent arrivals.
    Poisson,
    /// Arrivals in bursts.
    Bursty,
    /// Replay of a recorded trace.
    Trace,
}

/// The workload profile W of a job as the user states it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Mean arrival rate in requests per second; 0 for a batch that brings its own queue.
    pub arrival_rate_rps: f64,
    /// How requests arrive.
    pub arrival_pattern: ArrivalPattern,
    /// Peak rate over mean rate, ≥ 1.
    pub peak_to_mean: f64,
    /// Prompt lengths.
    pub isl: LengthStats,
    /// Generated lengths.
    pub osl: LengthStats,
    /// Tokens of the prompt that many requests share.
    pub shared_prefix_tokens: f64,
    /// Share of requests that carry the most common prefix, 0..=1.
    pub prefix_concentration: f64,
    /// Share of requests that continue a conversation, 0..=1.
    pub multi_turn_ratio: f64,
    /// True when a session's requests go to the same replica.
    pub session_affinity: bool,
}

/// The promise: latency targets for online jobs, a budget and a deadline for batch jobs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Slo {
    /// At least one of the two targets is present.
    Online {
        /// Target for the 99th percentile of time to first token.
        p99_ttft_ms: Option<f64>,
        /// Target for the 99th percentile of time per output token.
        p99_tpot_ms: Option<f64>,
    },
    /// Generate so many tokens until then.
    Batch {
        /// Output tokens to generate.
        total_token_budget: u64,
        /// Absolute deadline.
        deadline: UtcMicros,
    },
}

const fn pinned() -> bool {
    true
}

/// The operator's preference over outcomes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Preference {
    /// Weights on the simplex in the order of [`Outcome::ALL`].
    pub weights: [f64; 5],
    /// The operator chose the weights: the slow loop leaves them alone. Jobs stored before this was
    /// kept count as pinned.
    #[serde(default = "pinned")]
    pub pinned: bool,
    /// Outcomes promoted to hard limits, in the outcome's unit.
    pub hard: BTreeMap<Outcome, f64>,
    /// Breach probability allowed.
    pub tau: f64,
}

/// Where and within what bounds the job may run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Constraints {
    /// When not empty, the only GPU types allowed.
    pub allowed_gpu_types: BTreeSet<String>,
    /// GPU types refused.
    pub denied_gpu_types: BTreeSet<String>,
    /// When not empty, the only environments allowed.
    pub allowed_environments: BTreeSet<Environment>,
    /// Environments refused.
    pub denied_environments: BTreeSet<Environment>,
    /// True when spot capacity may be used.
    pub spot_allowed: bool,
    /// Upper bound on the job's price.
    pub max_usd_per_hour: Option<f64>,
    /// Smallest number of replicas.
    pub min_replicas: u32,
    /// Largest number of replicas.
    pub max_replicas: u32,
    /// Replicas that must stay available through planned changes.
    pub min_available: u32,
    /// True when a planned change may stop the old replicas before the new ones are ready.
    pub allow_gap: bool,
}

/// What a host does with the job's replicas when it loses the server for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// Replicas serve on; the job waits for the host. The default.
    KeepServing,
    /// The planner may replace them elsewhere after this many seconds.
    ReplaceAfter {
        /// Silence in seconds before replacement.
        seconds: u32,
    },
}

/// Which engine serves the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineName {
    /// Real `vllm serve`.
    Vllm,
    /// The simulated engine: same command line, HTTP API and metric names.
    Sim,
}

impl EngineName {
    /// The name in job files and host facts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sim => "sim",
        }
    }
}

/// The model a job serves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobModel {
    /// `owner/name` or a registered alias; also the served model name.
    pub id: String,
    /// Facts read from its config.json.
    pub facts: ModelFacts,
    /// The config.json itself, so that a host without the files can be given it.
    pub config_json: String,
}

/// A validated job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Unique among live jobs.
    pub name: JobName,
    /// Owner.
    pub tenant: TenantId,
    /// Latency-bound or deadline-bound.
    pub class: JobClass,
    /// Engine family; planner and agents never mix families in one job.
    pub engine: EngineName,
    /// What is served.
    pub model: JobModel,
    /// What arrives.
    pub workload: Workload,
    /// What was promised.
    pub slo: Slo,
    /// What is preferred.
    pub preference: Preference,
    /// What is allowed.
    pub constraints: Constraints,
    /// User priority, 0..=10, larger is more important.
    pub priority: u8,
    /// What hosts do when the server is away.
    pub on_disconnect: OnDisconnect,
}
