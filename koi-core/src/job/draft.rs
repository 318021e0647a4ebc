//! A job as a user wrote it: every field may be absent, nothing is checked yet.
//!
//! Not a job: [`JobDraft::validate`] is the only way from here to a [`super::JobSpec`]. The shape
//! mirrors `koi.v1.JobSpec`; `draft/document.rs` reads it from YAML or JSON. Spec §2.

mod document;
pub mod reader;

pub use super::validate::check_model_id;

pub use document::check_document;

use std::collections::BTreeMap;

use serde::Serialize;

use super::{JobSpec, LengthStats, OnDisconnect, Slo};
use crate::variables::Outcome;

/// Longest config.json accepted, in bytes.
pub const MAX_CONFIG_JSON_BYTES: usize = 256 * 1024;

/// What a user asks for, unchecked. An absent field takes the default named in `validate.rs`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct JobDraft {
    /// Unique name among live jobs.
    pub name: Option<String>,
    /// Owner.
    pub tenant: Option<String>,
    /// `online` or `batch`.
    pub class: Option<String>,
    /// `vllm` or `sim`; the server fills in what its fleet has before it validates.
    pub engine: Option<String>,
    /// What is served.
    pub model: ModelDraft,
    /// What arrives.
    pub workload: WorkloadDraft,
    /// What is promised.
    pub slo: SloDraft,
    /// What is preferred.
    pub preference: PreferenceDraft,
    /// What is allowed.
    pub constraints: ConstraintDraft,
    /// User priority.
    pub priority: Option<u32>,
    /// `keep_serving` or `replace_after:SECONDS`.
    pub on_disconnect: Option<String>,
}

/// The model of a draft.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ModelDraft {
    /// `owner/name[@revision]` or an alias.
    pub id: Option<String>,
    /// Text of the model's config.json.
    pub config_json: Option<String>,
}

/// The workload of a draft.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct WorkloadDraft {
    /// Mean arrivals in requests per second.
    pub arrival_rate_rps: Option<f64>,
    /// `poisson`, `bursty` or `trace`.
    pub arrival_pattern: Option<String>,
    /// Peak over mean rate.
    pub peak_to_mean: Option<f64>,
    /// Prompt lengths.
    pub isl: LengthDraft,
    /// Generated lengths.
    pub osl: LengthDraft,
    /// Prompt tokens that many requests share.
    pub shared_prefix_tokens: Option<f64>,
    /// Share of requests with the most common prefix.
    pub prefix_concentration: Option<f64>,
    /// Share of requests that continue a conversation.
    pub multi_turn_ratio: Option<f64>,
    /// True when a session stays on one replica.
    pub session_affinity: Option<bool>,
}

/// A length distribution of a draft, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct LengthDraft {
    /// Mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
}

/// The promise of a draft.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct SloDraft {
    /// Target for the 99th percentile of time to first token.
    pub p99_ttft_ms: Option<f64>,
    /// Target for the 99th percentile of time per output token.
    pub p99_tpot_ms: Option<f64>,
    /// Batch: output tokens to generate.
    pub total_token_budget: Option<u64>,
    /// Batch: hours from acceptance.
    pub deadline_hours: Option<f64>,
    /// Batch: absolute deadline in microseconds since the Unix epoch.
    pub deadline_at_us: Option<i64>,
}

/// The preference of a draft.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PreferenceDraft {
    /// Weight by outcome name; empty takes the default of the class.
    pub weights: BTreeMap<String, f64>,
    /// Hard limit by outcome name.
    pub hard: BTreeMap<String, f64>,
    /// Breach probability allowed.
    pub tau: Option<f64>,
}

/// The constraints of a draft.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ConstraintDraft {
    /// The only GPU types allowed; empty allows all.
    pub allowed_gpu_types: Vec<String>,
    /// GPU types refused.
    pub denied_gpu_types: Vec<String>,
    /// The only environments allowed; empty allows all.
    pub allowed_environments: Vec<String>,
    /// Environments refused.
    pub denied_environments: Vec<String>,
    /// True when spot capacity may be used.
    pub spot_allowed: Option<bool>,
    /// Upper bound on the job's price.
    pub max_usd_per_hour: Option<f64>,
    /// Smallest number of replicas.
    pub min_replicas: Option<u32>,
    /// Largest number of replicas.
    pub max_replicas: Option<u32>,
    /// Replicas available through planned changes.
    pub min_available: Option<u32>,
    /// True when a planned change may leave a gap.
    pub allow_gap: Option<bool>,
}

impl From<LengthStats> for LengthDraft {
    fn from(s: LengthStats) -> Self {
        Self {
            mean: Some(s.mean),
            p50: Some(s.p50),
            p95: Some(s.p95),
            p99: Some(s.p99),
        }
    }
}

impl From<Slo> for SloDraft {
    fn from(slo: Slo) -> Self {
        match slo {
            Slo::Online {
                p99_ttft_ms,
                p99_tpot_ms,
            } => Self {
                p99_ttft_ms,
                p99_tpot_ms,
                ..Self::default()
            },
            Slo::Batch {
                total_token_budget,
                deadline,
            } => Self {
                total_token_budget: Some(total_token_budget),
                deadline_at_us: Some(deadline.0),
                ..Self::default()
            },
        }
    }
}

/// The text form of an on-disconnect policy, as job files and the wire spell it.
#[must_use]
pub fn on_disconnect_text(policy: OnDisconnect) -> String {
    match policy {
        OnDisconnect::KeepServing => "keep_serving".to_owned(),
        OnDisconnect::ReplaceAfter { seconds } => format!("replace_after:{seconds}"),
    }
}

impl From<&JobSpec> for JobDraft {
    /// The draft that validates to this job, with every default written out.
    fn from(job: &JobSpec) -> Self {
        let (w, c) = (&job.workload, &job.constraints);
        let texts = |set: &std::collections::BTreeSet<String>| set.iter().cloned().collect();
        let places = |set: &std::collections::BTreeSet<crate::environment::Environment>| {
            set.iter().map(ToString::to_string).collect()
        };
        let weight = |o: Outcome| (o.name().to_owned(), job.preference.weights[o.index()]);
        Self {
            name: Some(job.name.to_string()),
            tenant: Some(job.tenant.to_string()),
            class: Some(job.class.name().to_owned()),
            engine: Some(job.engine.name().to_owned()),
            model: ModelDraft {
                id: Some(job.model.id.clone()),
                config_json: Some(job.model.config_json.clone()),
            },
            workload: WorkloadDraft {
                arrival_rate_rps: Some(w.arrival_rate_rps),
                arrival_pattern: Some(w.arrival_pattern.name().to_owned()),
                peak_to_mean: Some(w.peak_to_mean),
                isl: w.isl.into(),
                osl: w.osl.into(),
                shared_prefix_tokens: Some(w.shared_prefix_tokens),
                prefix_concentration: Some(w.prefix_concentration),
                multi_turn_ratio: Some(w.multi_turn_ratio),
                session_affinity: Some(w.session_affinity),
            },
            slo: job.slo.into(),
            preference: PreferenceDraft {
                // Weights written out would be pinned.
                weights: Outcome::ALL
                    .into_iter()
                    .filter(|_| job.preference.pinned)
                    .map(weight)
                    .collect(),
                hard: job
                    .preference
                    .hard
                    .iter()
                    .map(|(o, x)| (o.name().to_owned(), *x))
                    .collect(),
                tau: Some(job.preference.tau),
            },
            constraints: ConstraintDraft {
                allowed_gpu_types: texts(&c.allowed_gpu_types),
                denied_gpu_types: texts(&c.denied_gpu_types),
                allowed_environments: places(&c.allowed_environments),
                denied_environments: places(&c.denied_environments),
                spot_allowed: Some(c.spot_allowed),
                max_usd_per_hour: c.max_usd_per_hour,
                min_replicas: Some(c.min_replicas),
                max_replicas: Some(c.max_replicas),
                min_available: Some(c.min_available),
                allow_gap: Some(c.allow_gap),
            },
            priority: Some(u32::from(job.priority)),
            on_disconnect: Some(on_disconnect_text(job.on_disconnect)),
        }
    }
}
