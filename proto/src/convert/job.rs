//! `koi.v1.JobSpec` and the draft of a job. A draft is unchecked, so reading it cannot fail: what is
//! wrong with the values, `JobDraft::validate` says, all at once.

use koi_core::job::JobSpec;
use koi_core::job::draft::{
    ConstraintDraft, JobDraft, LengthDraft, ModelDraft, PreferenceDraft, SloDraft, WorkloadDraft,
};

use crate::v1;

/// proto3 has no presence for texts: the empty one means absent.
fn text(text: String) -> Option<String> {
    Some(text).filter(|t| !t.is_empty())
}

impl From<v1::JobSpec> for JobDraft {
    fn from(spec: v1::JobSpec) -> Self {
        Self {
            name: text(spec.name),
            tenant: text(spec.tenant),
            class: text(spec.class),
            engine: text(spec.engine),
            model: spec.model.map(Into::into).unwrap_or_default(),
            workload: spec.workload.map(Into::into).unwrap_or_default(),
            slo: spec.slo.map(Into::into).unwrap_or_default(),
            preference: spec.preference.map(Into::into).unwrap_or_default(),
            constraints: spec.constraints.map(Into::into).unwrap_or_default(),
            priority: spec.priority,
            on_disconnect: text(spec.on_disconnect),
        }
    }
}

impl From<v1::ModelSpec> for ModelDraft {
    fn from(m: v1::ModelSpec) -> Self {
        Self {
            id: text(m.id),
            config_json: text(m.config_json),
        }
    }
}

impl From<v1::WorkloadSpec> for WorkloadDraft {
    fn from(w: v1::WorkloadSpec) -> Self {
        Self {
            arrival_rate_rps: w.arrival_rate_rps,
            arrival_pattern: text(w.arrival_pattern),
            peak_to_mean: w.peak_to_mean,
            isl: w.isl.map(Into::into).unwrap_or_default(),
            osl: w.osl.map(Into::into).unwrap_or_default(),
            shared_prefix_tokens: w.shared_prefix_tokens,
            prefix_concentration: w.prefix_concentration,
            multi_turn_ratio: w.multi_turn_ratio,
            session_affinity: w.session_affinity,
        }
    }
}

impl From<v1::LengthStats> for LengthDraft {
    fn from(l: v1::LengthStats) -> Self {
        Self {
            mean: l.mean,
            p50: l.p50,
            p95: l.p95,
            p99: l.p99,
        }
    }
}

impl From<v1::SloSpec> for SloDraft {
    fn from(s: v1::SloSpec) -> Self {
        Self {
            p99_ttft_ms: s.p99_ttft_ms,
            p99_tpot_ms: s.p99_tpot_ms,
            total_token_budget: s.total_token_budget,
            deadline_hours: s.deadline_hours,
            deadline_at_us: s.deadline_at_us,
        }
    }
}

impl From<v1::PreferenceSpec> for PreferenceDraft {
    fn from(p: v1::PreferenceSpec) -> Self {
        Self {
            weights: p.weights.into_iter().collect(),
            hard: p.hard.into_iter().collect(),
            tau: p.tau,
        }
    }
}

impl From<v1::ConstraintSpec> for ConstraintDraft {
    fn from(c: v1::ConstraintSpec) -> Self {
        Self {
            allowed_gpu_types: c.allowed_gpu_types,
            denied_gpu_types: c.denied_gpu_types,
            allowed_environments: c.allowed_environments,
            denied_environments: c.denied_environments,
            spot_allowed: c.spot_allowed,
            max_usd_per_hour: c.max_usd_per_hour,
            min_replicas: c.min_replicas,
            max_replicas: c.max_replicas,
            min_available: c.min_available,
            allow_gap: c.allow_gap,
        }
    }
}

impl From<JobDraft> for v1::JobSpec {
    fn from(draft: JobDraft) -> Self {
        Self {
            name: draft.name.unwrap_or_default(),
            tenant: draft.tenant.unwrap_or_default(),
            class: draft.class.unwrap_or_default(),
            engine: draft.engine.unwrap_or_default(),
            model: Some(v1::ModelSpec {
                id: draft.model.id.unwrap_or_default(),
                config_json: draft.model.config_json.unwrap_or_default(),
            }),
            workload: Some(draft.workload.into()),
            slo: Some(draft.slo.into()),
            preference: Some(draft.preference.into()),
            constraints: Some(draft.constraints.into()),
            priority: draft.priority,
            on_disconnect: draft.on_disconnect.unwrap_or_default(),
        }
    }
}

impl From<WorkloadDraft> for v1::WorkloadSpec {
    fn from(w: WorkloadDraft) -> Self {
        Self {
            arrival_rate_rps: w.arrival_rate_rps,
            arrival_pattern: w.arrival_pattern.unwrap_or_default(),
            peak_to_mean: w.peak_to_mean,
            isl: Some(w.isl.into()),
            osl: Some(w.osl.into()),
            shared_prefix_tokens: w.shared_prefix_tokens,
            prefix_concentration: w.prefix_concentration,
            multi_turn_ratio: w.multi_turn_ratio,
            session_affinity: w.session_affinity,
        }
    }
}

impl From<LengthDraft> for v1::LengthStats {
    fn from(l: LengthDraft) -> Self {
        Self {
            mean: l.mean,
            p50: l.p50,
            p95: l.p95,
            p99: l.p99,
        }
    }
}

impl From<SloDraft> for v1::SloSpec {
    fn from(s: SloDraft) -> Self {
        Self {
            p99_ttft_ms: s.p99_ttft_ms,
            p99_tpot_ms: s.p99_tpot_ms,
            total_token_budget: s.total_token_budget,
            deadline_hours: s.deadline_hours,
            deadline_at_us: s.deadline_at_us,
        }
    }
}

impl From<PreferenceDraft> for v1::PreferenceSpec {
    fn from(p: PreferenceDraft) -> Self {
        Self {
            weights: p.weights.into_iter().collect(),
            hard: p.hard.into_iter().collect(),
            tau: p.tau,
        }
    }
}

impl From<ConstraintDraft> for v1::ConstraintSpec {
    fn from(c: ConstraintDraft) -> Self {
        Self {
            allowed_gpu_types: c.allowed_gpu_types,
            denied_gpu_types: c.denied_gpu_types,
            allowed_environments: c.allowed_environments,
            denied_environments: c.denied_environments,
            spot_allowed: c.spot_allowed,
            max_usd_per_hour: c.max_usd_per_hour,
            min_replicas: c.min_replicas,
            max_replicas: c.max_replicas,
            min_available: c.min_available,
            allow_gap: c.allow_gap,
        }
    }
}

impl From<&JobSpec> for v1::JobSpec {
    /// The job with every default written out.
    fn from(job: &JobSpec) -> Self {
        JobDraft::from(job).into()
    }
}

#[cfg(test)]
mod tests {
    use koi_core::time::UtcMicros;
    use prost::Message as _;

    use super::*;

    fn draft() -> JobDraft {
        let document = serde_json::json!({
            "name": "chat", "class": "online", "priority": 7, "on_disconnect": "replace_after:60",
            "model": {"id": "a/b", "config_json": include_str!("../../../configs/models/Llama-3.1-8B.json")},
            "workload": {"arrival_rate_rps": 3.5, "isl": {"mean": 100}, "osl": {"mean": 50, "p99": 200},
                         "session_affinity": true},
            "slo": {"p99_ttft_ms": 500},
            "preference": {"hard": {"p99_ttft_ms": 900}, "tau": 0.05},
            "constraints": {"denied_environments": ["spot/aws/us/a/H100"], "min_replicas": 2, "allow_gap": false},
        });
        let (draft, shape) = JobDraft::from_document(&document);
        assert!(shape.is_empty(), "{shape:?}");
        draft
    }

    fn over_the_wire(spec: v1::JobSpec) -> v1::JobSpec {
        v1::JobSpec::decode(spec.encode_to_vec().as_slice()).unwrap()
    }

    #[test]
    fn a_draft_survives_the_wire_with_presence() {
        let sent = draft();
        let got = JobDraft::from(over_the_wire(sent.clone().into()));
        assert_eq!(got, sent);
        assert_eq!(got.slo.p99_tpot_ms, None, "an absent number is not zero");
        assert_eq!(
            got.constraints.allow_gap,
            Some(false),
            "a stated false is not absent"
        );
    }

    #[test]
    fn a_job_survives_the_wire() {
        let now = UtcMicros(1_800_000_000_000_000);
        let job = draft().validate(now).unwrap();
        let got = JobDraft::from(over_the_wire((&job).into()))
            .validate(now)
            .unwrap();
        assert_eq!(got, job);
    }

    #[test]
    fn an_empty_message_is_an_empty_draft() {
        assert_eq!(JobDraft::from(v1::JobSpec::default()), JobDraft::default());
        assert!(
            JobDraft::default()
                .validate(UtcMicros(0))
                .unwrap_err()
                .len()
                >= 6
        );
    }
}
