//! Reads a draft from a YAML or JSON document that somebody else parsed.
//!
//! Not the file: paths, size limits and the text of `model.config` are the command line's business.

use serde_json::Value;

use super::reader::Reader;
use super::{
    ConstraintDraft, JobDraft, LengthDraft, ModelDraft, PreferenceDraft, SloDraft, WorkloadDraft,
};
use crate::job::JobSpec;
use crate::time::UtcMicros;
use crate::violation::{FieldViolation, Violations};

/// Problems reported for one document; more would bury the first.
const MAX_VIOLATIONS: usize = 100;

impl JobDraft {
    /// The draft that a document spells out, and everything wrong with its shape: wrong types,
    /// unknown keys with the nearest valid one, numbers written with a unit. What could be read is
    /// kept, so that validation can report the rest in the same answer.
    #[must_use]
    pub fn from_document(document: &Value) -> (Self, Vec<FieldViolation>) {
        let mut bad = Violations::default();
        if !document.is_object() {
            bad.add("", "a job is a mapping of fields that starts with name");
            return (Self::default(), bad.into_vec());
        }
        let mut top = Reader::new(Some(document), "", &mut bad);
        let draft = Self {
            name: top.text("name", &mut bad),
            tenant: top.text("tenant", &mut bad),
            class: top.text("class", &mut bad),
            engine: top.text("engine", &mut bad),
            model: model(top.section("model", &mut bad), &mut bad),
            workload: workload(top.section("workload", &mut bad), &mut bad),
            slo: slo(top.section("slo", &mut bad), &mut bad),
            preference: preference(top.section("preference", &mut bad), &mut bad),
            constraints: constraints(top.section("constraints", &mut bad), &mut bad),
            priority: top.whole("priority", &mut bad),
            on_disconnect: top.text("on_disconnect", &mut bad),
        };
        top.finish(&mut bad);
        (draft, at_most(bad.into_vec(), MAX_VIOLATIONS))
    }
}

fn at_most(mut violations: Vec<FieldViolation>, max: usize) -> Vec<FieldViolation> {
    if violations.len() > max {
        let left = violations.len() - max;
        violations.truncate(max);
        let message = format!("{left} more problems are not shown");
        violations.push(FieldViolation {
            field: String::new(),
            message,
        });
    }
    violations
}

fn model(mut r: Reader<'_>, bad: &mut Violations) -> ModelDraft {
    let id = r.text("id", bad);
    // A mapping is the config itself, written inline.
    let config_json = match r.raw("config_json") {
        Some(inline @ Value::Object(_)) => Some(inline.to_string()),
        _ => r.text("config_json", bad),
    };
    if r.raw("config").is_some() {
        bad.add(
            "model.config",
            "is a path that only the command line reads; send config_json here",
        );
    }
    r.finish(bad);
    ModelDraft { id, config_json }
}

fn workload(mut r: Reader<'_>, bad: &mut Violations) -> WorkloadDraft {
    let draft = WorkloadDraft {
        arrival_rate_rps: r.number("arrival_rate_rps", bad),
        arrival_pattern: r.text("arrival_pattern", bad),
        peak_to_mean: r.number("peak_to_mean", bad),
        isl: lengths(r.section("isl", bad), bad),
        osl: lengths(r.section("osl", bad), bad),
        shared_prefix_tokens: r.number("shared_prefix_tokens", bad),
        prefix_concentration: r.number("prefix_concentration", bad),
        multi_turn_ratio: r.number("multi_turn_ratio", bad),
        session_affinity: r.flag("session_affinity", bad),
    };
    r.finish(bad);
    draft
}

fn lengths(mut r: Reader<'_>, bad: &mut Violations) -> LengthDraft {
    let draft = LengthDraft {
        mean: r.number("mean", bad),
        p50: r.number("p50", bad),
        p95: r.number("p95", bad),
        p99: r.number("p99", bad),
    };
    r.finish(bad);
    draft
}

fn slo(mut r: Reader<'_>, bad: &mut Violations) -> SloDraft {
    let draft = SloDraft {
        p99_ttft_ms: r.number("p99_ttft_ms", bad),
        p99_tpot_ms: r.number("p99_tpot_ms", bad),
        total_token_budget: r.whole("total_token_budget", bad),
        deadline_hours: r.number("deadline_hours", bad),
        deadline_at_us: r.whole("deadline_at_us", bad),
    };
    r.finish(bad);
    draft
}

fn preference(mut r: Reader<'_>, bad: &mut Violations) -> PreferenceDraft {
    let draft = PreferenceDraft {
        weights: r.numbers("weights", bad).into_iter().collect(),
        hard: r.numbers("hard", bad).into_iter().collect(),
        tau: r.number("tau", bad),
    };
    r.finish(bad);
    draft
}

fn constraints(mut r: Reader<'_>, bad: &mut Violations) -> ConstraintDraft {
    let draft = ConstraintDraft {
        allowed_gpu_types: r.texts("allowed_gpu_types", bad),
        denied_gpu_types: r.texts("denied_gpu_types", bad),
        allowed_environments: r.texts("allowed_environments", bad),
        denied_environments: r.texts("denied_environments", bad),
        spot_allowed: r.flag("spot_allowed", bad),
        max_usd_per_hour: r.number("max_usd_per_hour", bad),
        min_replicas: r.whole("min_replicas", bad),
        max_replicas: r.whole("max_replicas", bad),
        min_available: r.whole("min_available", bad),
        allow_gap: r.flag("allow_gap", bad),
    };
    r.finish(bad);
    draft
}

/// Reads and validates a document: the problems of its shape and of its values in one list, each
/// field once.
///
/// # Errors
/// Every problem found.
pub fn check_document(document: &Value, now: UtcMicros) -> Result<JobSpec, Vec<FieldViolation>> {
    let (draft, shape) = JobDraft::from_document(document);
    match draft.validate(now) {
        Ok(spec) if shape.is_empty() => Ok(spec),
        Ok(_) => Err(shape),
        Err(values) => Err(at_most(merged(shape, values), MAX_VIOLATIONS)),
    }
}

/// Problems of values are dropped where the shape already explains them: a field that could not be
/// read is also absent, as is what may stand instead of it, and a misspelt key leaves its right spelling
/// missing.
fn merged(mut shape: Vec<FieldViolation>, values: Vec<FieldViolation>) -> Vec<FieldViolation> {
    let explained = |v: &FieldViolation| {
        let (parent, key) = v.field.rsplit_once('.').unwrap_or(("", &v.field));
        shape.iter().any(|s| {
            let (section, read) = s.field.rsplit_once('.').unwrap_or(("", &s.field));
            let same_or_inside = s.field == v.field || (section == v.field && !section.is_empty());
            let is_missing = v.message.starts_with("is required");
            let instead = is_missing && !read.is_empty() && v.message.contains(read);
            same_or_inside || (section == parent && (s.message.contains(key) || instead))
        })
    };
    let rest: Vec<FieldViolation> = values.into_iter().filter(|v| !explained(v)).collect();
    shape.extend(rest);
    shape
}
