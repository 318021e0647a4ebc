//! From draft to job: every field checked, every problem reported, every default named.
//!
//! Not the shape of a document (`draft/document.rs`) and not feasibility: whether the fleet can keep
//! the promise is the planner's business. Spec §2; reliability K2, K3, K5.
//!
//! Defaults: tenant `default`; engine `vllm` (the server fills in what its fleet has before); priority
//! 5; on_disconnect `keep_serving`; weights by class as in the paper; tau 0.10; 1 to 8 replicas;
//! min_available 1 for online and 0 for batch; spot allowed for batch only; no gap.

mod constraints;
mod model;
mod preference;
mod slo;
mod workload;

use std::str::FromStr;

pub use self::model::check_model_id;
use super::draft::JobDraft;
use super::{EngineName, JobClass, JobSpec, OnDisconnect};
use crate::ids::NotASlug;
use crate::time::UtcMicros;
use crate::violation::{FieldViolation, Violations, choice};

const DEFAULT_PRIORITY: u32 = 5;
const MAX_PRIORITY: u32 = 10;
const REPLACE_AFTER_SECONDS: std::ops::RangeInclusive<u32> = 30..=604_800;

impl JobDraft {
    /// The job this draft asks for.
    ///
    /// # Errors
    /// Every problem of every field, together.
    pub fn validate(&self, now: UtcMicros) -> Result<JobSpec, Vec<FieldViolation>> {
        let mut bad = Violations::default();
        let name = slug("name", self.name.as_deref(), None, &mut bad);
        if self.name.as_deref().is_some_and(is_like_an_id) {
            bad.add(
                "name",
                "looks like a job's id, and ids go before names; choose another",
            );
        }
        let tenant = slug("tenant", self.tenant.as_deref(), Some("default"), &mut bad);
        let class = class(self.class.as_deref(), &mut bad);
        let engine = engine(self.engine.as_deref(), &mut bad);
        let model = model::validate(&self.model, &mut bad);
        let workload = workload::validate(&self.workload, class, &mut bad);
        let slo = slo::validate(&self.slo, class, now, &mut bad);
        let preference = preference::validate(&self.preference, class, &mut bad);
        let constraints = constraints::validate(&self.constraints, class, &mut bad);
        let priority = priority(self.priority, &mut bad);
        let on_disconnect = on_disconnect(self.on_disconnect.as_deref(), &mut bad);
        if let (Some(model), Some(workload)) = (&model, &workload) {
            workload::check_context(workload, model, &mut bad);
        }
        let whole = (|| {
            Some(JobSpec {
                name: name?,
                tenant: tenant?,
                class: class?,
                engine: engine?,
                model: model?,
                workload: workload?,
                slo: slo?,
                preference: preference?,
                constraints: constraints?,
                priority: priority?,
                on_disconnect: on_disconnect?,
            })
        })();
        match whole {
            Some(job) => bad.finish(job),
            None => Err(bad.into_vec()),
        }
    }
}

/// A finite number of the closed range, or a problem that names range and unit. −0 becomes 0.
fn in_range(
    field: &str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
    unit: &str,
    bad: &mut Violations,
) -> Option<f64> {
    if value.is_finite() && range.contains(&value) {
        return Some(value + 0.0);
    }
    let (low, high) = (range.start(), range.end());
    bad.add(
        field,
        format!(
            "must be a number from {low} to {high} {unit}, got {}",
            short(value)
        )
        .replace("  ", " "),
    );
    None
}

/// A number as people write it: hundreds of digits become a power of ten.
fn short(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && size.is_finite() && !(1e-9..1e15).contains(&size) {
        format!("{value:e}")
    } else {
        value.to_string()
    }
}

fn slug<T: FromStr<Err = NotASlug>>(
    field: &str,
    text: Option<&str>,
    default: Option<&str>,
    bad: &mut Violations,
) -> Option<T> {
    let Some(text) = text.or(default) else {
        bad.add(field, "is required: 1 to 63 of a-z, 0-9 and '-'");
        return None;
    };
    text.parse()
        .map_err(|e: NotASlug| bad.add(field, e.to_string()))
        .ok()
}

/// Commands take a name or an id, so that no name may be one.
fn is_like_an_id(name: &str) -> bool {
    uuid::Uuid::parse_str(name).is_ok()
}

fn class(text: Option<&str>, bad: &mut Violations) -> Option<JobClass> {
    let Some(text) = text else {
        bad.add("class", "is required: online or batch");
        return None;
    };
    choice(
        "class",
        text,
        &[("online", JobClass::Online), ("batch", JobClass::Batch)],
        bad,
    )
}

fn engine(text: Option<&str>, bad: &mut Violations) -> Option<EngineName> {
    let Some(text) = text else {
        return Some(EngineName::Vllm);
    };
    choice(
        "engine",
        text,
        &[("vllm", EngineName::Vllm), ("sim", EngineName::Sim)],
        bad,
    )
}

fn priority(value: Option<u32>, bad: &mut Violations) -> Option<u8> {
    let value = value.unwrap_or(DEFAULT_PRIORITY);
    let fits = u8::try_from(value).ok().filter(|_| value <= MAX_PRIORITY);
    if fits.is_none() {
        bad.add(
            "priority",
            format!("must be from 0 to {MAX_PRIORITY}, larger is more important, got {value}"),
        );
    }
    fits
}

fn on_disconnect(text: Option<&str>, bad: &mut Violations) -> Option<OnDisconnect> {
    let text = text.unwrap_or("keep_serving");
    if text == "keep_serving" {
        return Some(OnDisconnect::KeepServing);
    }
    let seconds = text
        .strip_prefix("replace_after:")
        .and_then(|s| s.parse::<u32>().ok());
    let valid = seconds.filter(|s| REPLACE_AFTER_SECONDS.contains(s));
    if valid.is_none() {
        let shown: String = text.chars().take(48).collect();
        bad.add(
            "on_disconnect",
            format!("must be keep_serving or replace_after:SECONDS with 30 to 604800 seconds, got {shown:?}"),
        );
    }
    valid.map(|seconds| OnDisconnect::ReplaceAfter { seconds })
}
