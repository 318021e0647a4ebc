//! A deployment: one rank of one generation of a job, what it is and under which load it was seen.
//!
//! Not how it did: that is [`super::life`]. Spec §8, Contrast.

use serde::{Deserialize, Serialize};

use crate::causal::{FeatureValue, FeatureValues};
use crate::configuration::Configuration;
use crate::environment::Environment;
use crate::ids::{Generation, JobId};
use crate::job::{JobClass, Slo, Workload};
use crate::model::{MixerKind, ModelFacts};

/// Identity of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeploymentId {
    /// Job.
    pub job: JobId,
    /// Generation of its ladder.
    pub generation: Generation,
    /// Position in the ladder.
    pub rank: u32,
}

/// What a deployment is: fixed from its first row to its last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// Identity.
    pub id: DeploymentId,
    /// Where it runs.
    pub environment: Environment,
    /// One point of X.
    pub configuration: Configuration,
    /// Copies.
    pub n_replicas: u32,
    /// The model's name.
    pub model_id: String,
    /// The model's facts.
    pub model: ModelFacts,
    /// Latency-bound or deadline-bound.
    pub class: JobClass,
    /// Targets.
    pub slo: Slo,
    /// The stated workload; lengths and rate are those of [`Conditions`] where they were seen.
    pub workload: Workload,
}

impl Subject {
    /// What scopes compare.
    #[must_use]
    pub fn features(&self) -> FeatureValues {
        features(
            (self.class, &self.workload),
            &self.model,
            (&self.environment, &self.configuration),
        )
    }
}

/// The load under which a deployment was seen over one row: means over its points.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Conditions {
    /// Prompt tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isl_tokens: Option<f64>,
    /// Generated tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub osl_tokens: Option<f64>,
    /// Finished requests per second of one replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_rps_per_replica: Option<f64>,
    /// Replicas that took part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<f64>,
    /// Requests kept in flight at one replica of a batch job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<f64>,
    /// Price of one replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd_per_hour_per_replica: Option<f64>,
}

/// What an evidence row says of its deployment beside the verdicts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeploymentRow {
    /// What it is; in the first row alone, and again after it was forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Box<Subject>>,
    /// Under which load it was seen.
    pub conditions: Conditions,
    /// True once a later generation of the job was committed: the row before the first such row
    /// is the one that triggered the swap.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
}

/// What scopes compare: the configuration, the model, the place and the workload by catalog id.
#[must_use]
pub fn features(
    (class, workload): (JobClass, &Workload),
    model: &ModelFacts,
    (environment, configuration): (&Environment, &Configuration),
) -> FeatureValues {
    let mut values = FeatureValues::of_class(class);
    for (id, value) in configuration.iter() {
        values.insert(id, FeatureValue::from(value));
    }
    values
        .with_number("num_hidden_layers", f64::from(model.layers))
        .with_number("hidden_size", f64::from(model.hidden))
        .with_number("num_attn_heads", f64::from(model.heads))
        .with_number("num_kv_heads", f64::from(model.kv_heads))
        .with_number("model_params_b", model.params_total as f64 / 1e9)
        .with_flag("is_moe", model.moe.is_some())
        .with_flag("is_multimodal", model.has_other_parts())
        .with_flag(
            "has_recurrent_layers",
            model.kinds.iter().any(|k| k.state_bytes > 0),
        )
        .with_number("sliding_window_tokens", window_tokens(model))
        .with_number("isl_token_avg", workload.isl.mean)
        .with_number("osl_token_avg", workload.osl.mean)
        .with_number("request_arrival_rate", workload.arrival_rate_rps)
        .with_number("shared_prefix_length_avg", workload.shared_prefix_tokens)
        .with_number(
            "workload_prefix_concentration",
            workload.prefix_concentration,
        )
        .with_text("gpu_type", &environment.gpu_type)
        .with_text("market", environment.market.name())
}

/// The widest sliding window of the model's layers; 0 where none has one.
fn window_tokens(model: &ModelFacts) -> f64 {
    let sliding = model.kinds.iter().filter(|k| k.mixer == MixerKind::Sliding);
    f64::from(sliding.filter_map(|k| k.window).max().unwrap_or(0))
}
