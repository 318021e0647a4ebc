//! Tests of job specs: every problem at once, with the field and the fix.

use serde_json::{Value, json};

use super::draft::{JobDraft, check_document, check_model_id};
use super::*;
use crate::violation::FieldViolation;

const NOW: UtcMicros = UtcMicros(1_800_000_000_000_000);
const CONFIG: &str = include_str!("../../../configs/models/Llama-3.1-8B.json");

fn online() -> Value {
    json!({
        "name": "chat", "class": "online",
        "model": {"id": "meta-llama/Llama-3.1-8B", "config_json": CONFIG},
        "workload": {"arrival_rate_rps": 12, "isl": {"mean": 1000}, "osl": {"mean": 200}},
        "slo": {"p99_ttft_ms": 2000, "p99_tpot_ms": 80},
    })
}

fn batch() -> Value {
    json!({
        "name": "eval", "class": "batch",
        "model": {"id": "Qwen/Qwen2.5-7B-Instruct", "config_json": CONFIG},
        "workload": {"isl": {"mean": 500}, "osl": {"mean": 200}},
        "slo": {"total_token_budget": 1_000_000, "deadline_hours": 2},
    })
}

/// The document with one field replaced; `path` is a JSON pointer.
fn with(mut document: Value, path: &str, value: Value) -> Value {
    let (parent, key) = path.rsplit_once('/').unwrap();
    let parent = document.pointer_mut(parent).unwrap();
    parent
        .as_object_mut()
        .unwrap()
        .insert(key.to_owned(), value);
    document
}

fn problems(document: &Value) -> Vec<FieldViolation> {
    check_document(document, NOW).err().unwrap_or_default()
}

/// Exactly one problem, of this field, whose message contains `part`.
fn check_one(document: &Value, field: &str, part: &str) {
    let got = problems(document);
    assert_eq!(got.len(), 1, "{field}: {got:?}");
    assert_eq!(got[0].field, field, "{got:?}");
    assert!(got[0].message.contains(part), "{field}: {}", got[0].message);
}

#[test]
fn defaults_are_the_documented_ones() {
    let job = check_document(&online(), NOW).unwrap();
    assert_eq!(job.tenant.as_str(), "default");
    assert_eq!((job.engine, job.priority), (EngineName::Vllm, 5));
    assert_eq!(
        format!("{:?}", job.preference.weights),
        "[0.1, 0.35, 0.35, 0.1, 0.1]"
    );
    assert!((job.preference.tau - 0.10).abs() < 1e-12);
    let c = &job.constraints;
    assert_eq!((c.min_replicas, c.max_replicas, c.min_available), (1, 8, 1));
    assert!(!c.spot_allowed && !c.allow_gap);
    let batch = check_document(&batch(), NOW).unwrap();
    assert_eq!(
        format!("{:?}", batch.preference.weights),
        "[0.35, 0.05, 0.05, 0.35, 0.2]"
    );
    assert!(batch.constraints.spot_allowed);
    assert_eq!(batch.constraints.min_available, 0);
    let deadline = NOW.plus_seconds(7200);
    assert_eq!(
        batch.slo,
        Slo::Batch {
            total_token_budget: 1_000_000,
            deadline
        }
    );
}

#[test]
fn length_quantiles_follow_a_log_normal_of_the_stated_mean() {
    let job = check_document(&online(), NOW).unwrap();
    // CV 0.6: s = √ln 1.36 = 0.554516; median 1000/√1.36 = 857.4929.
    let isl = job.workload.isl;
    assert!((isl.p50 - 857.4929).abs() < 1e-3, "{isl:?}");
    assert!(
        (isl.p95 / isl.p50 - (1.644_853_627_f64 * 0.554_516).exp()).abs() < 1e-4,
        "{isl:?}"
    );
    assert!(isl.p50 < isl.p95 && isl.p95 < isl.p99);
    // A stated p95 holds the filled p99 above it and the filled p50 below it.
    let tight = with(
        online(),
        "/workload/isl",
        json!({"mean": 1000, "p95": 5000}),
    );
    let isl = check_document(&tight, NOW).unwrap().workload.isl;
    assert!(isl.p50 <= isl.p95 && isl.p99 >= 5000.0, "{isl:?}");
}

#[test]
fn five_mistakes_give_five_messages() {
    let document = json!({
        "name": "Chat Bot", "class": "onlin",
        "model": {"id": "../evil;rm", "config_json": CONFIG},
        "workload": {"arrival_rate_rps": "12 rps", "isl": {"mean": 1000}, "osl": {"mean": 200}},
        "slo": {"p99_ttft_s": 2, "p99_tpot_ms": 80},
    });
    let got = problems(&document);
    let fields: Vec<&str> = got.iter().map(|v| v.field.as_str()).collect();
    assert_eq!(fields.len(), 5, "{got:#?}");
    for field in [
        "name",
        "class",
        "model.id",
        "workload.arrival_rate_rps",
        "slo.p99_ttft_s",
    ] {
        assert!(fields.contains(&field), "{field} in {got:#?}");
    }
}

#[test]
fn unknown_keys_name_the_nearest_valid_one() {
    check_one(
        &with(online(), "/slo/p99_ttft_s", json!(2)),
        "slo.p99_ttft_s",
        "write p99_ttft_ms, in milliseconds",
    );
    check_one(
        &with(online(), "/workload/arival_pattern", json!("poisson")),
        "workload.arival_pattern",
        "did you mean arrival_pattern?",
    );
    check_one(
        &with(online(), "/constraint", json!({})),
        "constraint",
        "did you mean constraints?",
    );
    check_one(
        &with(online(), "/zzzzzzzzzzzz", json!(1)),
        "zzzzzzzzzzzz",
        "valid keys are name",
    );
    check_one(
        &with(online(), "/model/config", json!("x.json")),
        "model.config",
        "only the command line",
    );
}

#[test]
fn wrong_types_and_units_are_named() {
    check_one(
        &with(online(), "/slo/p99_ttft_ms", json!("2s")),
        "slo.p99_ttft_ms",
        "in milliseconds, without a unit",
    );
    check_one(
        &with(online(), "/slo", json!([1])),
        "slo",
        "must be a mapping",
    );
    for id in [
        "01939b6e-8f2a-7c3d-9e4f-5a6b7c8d9e0f",
        "01939b6e8f2a7c3d9e4f5a6b7c8d9e0f",
    ] {
        check_one(
            &with(online(), "/name", json!(id)),
            "name",
            "like a job's id",
        );
    }
    check_one(
        &with(online(), "/priority", json!(1.5)),
        "priority",
        "whole number",
    );
    check_one(
        &with(online(), "/priority", json!(-1)),
        "priority",
        "must not be negative",
    );
    check_one(
        &with(batch(), "/slo/total_token_budget", json!(-5)),
        "slo.total_token_budget",
        "negative",
    );
    check_one(
        &with(online(), "/workload/session_affinity", json!("yes")),
        "workload.session_affinity",
        "true or false",
    );
    assert_eq!(
        problems(&json!([1, 2])).first().map(|v| v.field.as_str()),
        Some("")
    );
}

#[test]
fn rates_of_nothing_and_beyond_everything_are_refused_in_few_digits() {
    check_one(
        &with(online(), "/workload/arrival_rate_rps", json!(1e-300)),
        "workload.arrival_rate_rps",
        "at least 0.000001, got 1e-300",
    );
    check_one(
        &with(online(), "/workload/arrival_rate_rps", json!(1e300)),
        "workload.arrival_rate_rps",
        "got 1e300",
    );
}

#[test]
fn values_out_of_bounds_are_refused() {
    let slo = |path: &str, v: Value| with(online(), &format!("/slo/{path}"), v);
    check_one(&slo("p99_ttft_ms", json!(-1)), "slo.p99_ttft_ms", "above 0");
    check_one(&slo("p99_ttft_ms", json!(0)), "slo.p99_ttft_ms", "above 0");
    check_one(
        &slo("p99_tpot_ms", json!(1e300)),
        "slo.p99_tpot_ms",
        "86400000",
    );
    check_one(
        &slo("deadline_hours", json!(1)),
        "slo.deadline_hours",
        "class online",
    );
    check_one(
        &with(online(), "/slo", json!({})),
        "slo",
        "p99_ttft_ms, p99_tpot_ms or both",
    );
    check_one(
        &with(online(), "/workload/arrival_rate_rps", json!(0)),
        "workload.arrival_rate_rps",
        "above 0",
    );
    check_one(
        &with(online(), "/workload/peak_to_mean", json!(0.5)),
        "workload.peak_to_mean",
        "from 1 to 1000",
    );
    check_one(
        &with(
            online(),
            "/workload/isl",
            json!({"mean": 10, "p50": 9, "p95": 8}),
        ),
        "workload.isl",
        "must rise",
    );
    check_one(
        &with(online(), "/workload/isl", json!({"mean": 1_000_000})),
        "workload",
        "context",
    );
    check_one(
        &with(online(), "/workload/shared_prefix_tokens", json!(99_999)),
        "workload.shared_prefix_tokens",
        "longer",
    );
    check_one(
        &with(online(), "/priority", json!(11)),
        "priority",
        "from 0 to 10",
    );
    check_one(
        &with(online(), "/on_disconnect", json!("replace_after:1")),
        "on_disconnect",
        "604800",
    );
    check_one(
        &with(online(), "/engine", json!("vlm")),
        "engine",
        "did you mean vllm?",
    );
}

#[test]
fn batch_deadlines_lie_in_the_future() {
    let slo = |v: Value| with(batch(), "/slo", v);
    check_one(
        &slo(json!({"total_token_budget": 1, "deadline_hours": -1})),
        "slo.deadline_hours",
        "future",
    );
    check_one(
        &slo(json!({"total_token_budget": 1, "deadline_at_us": 1000})),
        "slo.deadline_at_us",
        "future",
    );
    check_one(
        &slo(json!({"total_token_budget": 1})),
        "slo.deadline_hours",
        "required",
    );
    check_one(
        &slo(json!({"total_token_budget": 0, "deadline_hours": 1})),
        "slo.total_token_budget",
        "from 1",
    );
    check_one(
        &slo(json!({"total_token_budget": 1, "deadline_hours": 1, "deadline_at_us": NOW.0 + 1})),
        "slo.deadline_hours",
        "exclude each other",
    );
    check_one(
        &slo(json!({"total_token_budget": 1, "deadline_at_us": i64::MAX})),
        "slo.deadline_at_us",
        "hours from now",
    );
}

#[test]
fn weights_lie_on_the_simplex() {
    let weights = |v: Value| with(online(), "/preference", json!({ "weights": v }));
    let five = |cost: f64, margin: f64| {
        weights(
            json!({"cost_per_token": cost, "p99_ttft_ms": 0.2, "p99_tpot_ms": 0.2,
                       "throughput_tokens_per_sec": 0.2, "slo_margin": margin}),
        )
    };
    assert!(check_document(&five(0.2, 0.2), NOW).is_ok());
    assert!(check_document(&five(0.2 + 5e-7, 0.2), NOW).is_ok());
    check_one(&five(0.2 + 2e-6, 0.2), "preference.weights", "sum to 1");
    check_one(
        &five(-0.2, 0.6),
        "preference.weights.cost_per_token",
        "from 0 to 1",
    );
    check_one(
        &weights(json!({"cost_per_token": 1.0})),
        "preference.weights",
        "missing: p99_ttft_ms",
    );
    check_one(
        &weights(json!({"cost": 1.0})),
        "preference.weights.cost",
        "must be one of",
    );
}

#[test]
fn constraints_agree_with_each_other() {
    let c = |v: Value| with(online(), "/constraints", v);
    check_one(
        &c(json!({"min_replicas": 3, "max_replicas": 2})),
        "constraints.min_replicas",
        "more than max_replicas",
    );
    check_one(
        &c(json!({"min_available": 2})),
        "constraints.min_available",
        "more than min_replicas (1)",
    );
    check_one(
        &c(json!({"min_replicas": 0, "min_available": 0})),
        "constraints.min_replicas",
        "from 1 to 1024",
    );
    check_one(
        &c(json!({"allowed_environments": ["spot/aws"]})),
        "constraints.allowed_environments[0]",
        "market/cloud",
    );
    check_one(
        &c(json!({"allowed_gpu_types": ["H100"], "denied_gpu_types": ["H100"]})),
        "constraints.denied_gpu_types",
        "keep it in one list",
    );
    check_one(
        &c(json!({"allowed_gpu_types": ["H100; rm"]})),
        "constraints.allowed_gpu_types[0]",
        "GPU type",
    );
    check_one(
        &c(json!({"max_usd_per_hour": -1})),
        "constraints.max_usd_per_hour",
        "USD per hour",
    );
}

#[test]
fn model_ids_become_neither_paths_nor_options() {
    for good in [
        "meta-llama/Llama-3.1-8B",
        "Qwen/Qwen3-32B@main",
        "tiny",
        "a/b_c.d@0123abcd",
    ] {
        assert_eq!(check_model_id(good), Ok(()), "{good}");
    }
    let long = "a".repeat(300);
    for bad in [
        "",
        "/etc/passwd",
        "../x",
        "a/../b",
        "a/b/c",
        "-a/b",
        "a/-b",
        "a;b",
        "a b",
        "https://x/y",
        "a//b",
        "~root",
        "\\\\host\\share",
        "a/b@",
        "a/b@-x",
        "a\0b",
        "a/b@m/../x",
        "\u{202e}abc",
        "аdmin/model",
        &long,
        ".hidden",
        "$(id)",
        "a\nb",
    ] {
        assert!(check_model_id(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn drafts_with_numbers_that_are_none_are_refused() {
    let (draft, shape) = JobDraft::from_document(&online());
    assert!(shape.is_empty(), "{shape:?}");
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, f64::MAX] {
        let mut d = draft.clone();
        d.workload.arrival_rate_rps = Some(bad);
        d.slo.p99_ttft_ms = Some(if bad > 1e300 { f64::INFINITY } else { bad });
        d.workload.isl.p99 = Some(bad);
        d.preference.tau = Some(bad);
        d.constraints.max_usd_per_hour = Some(bad);
        let fields: Vec<String> = d
            .validate(NOW)
            .unwrap_err()
            .into_iter()
            .map(|v| v.field)
            .collect();
        assert_eq!(fields.len(), 5, "{bad}: {fields:?}");
    }
    let mut zero = draft;
    zero.workload.shared_prefix_tokens = Some(-0.0);
    let job = zero.validate(NOW).unwrap();
    assert!(job.workload.shared_prefix_tokens.is_sign_positive());
}

#[test]
fn hostile_documents_are_bounded() {
    let flood: serde_json::Map<String, Value> = (0..10_000)
        .map(|i| (format!("k\u{1b}{i}"), json!(i)))
        .collect();
    let (_, got) = JobDraft::from_document(&Value::Object(flood));
    assert_eq!(got.len(), 101);
    assert!(
        got.iter()
            .all(|v| !v.field.contains('\u{1b}') && v.message.len() < 400),
        "control bytes are escaped"
    );
    let many = vec!["H100"; 100_000];
    check_one(
        &with(online(), "/constraints", json!({"allowed_gpu_types": many})),
        "constraints.allowed_gpu_types",
        "at most 256",
    );
    let large = " ".repeat(256 * 1024 + 1);
    check_one(
        &with(online(), "/model/config_json", json!(large)),
        "model.config_json",
        "at most 256 KiB",
    );
    let name = "n".repeat(1_000_000);
    assert!(
        problems(&with(online(), "/name", json!(name)))[0]
            .message
            .len()
            < 300
    );
}

#[test]
fn config_json_may_be_written_inline() {
    let inline: Value = serde_json::from_str(CONFIG).unwrap();
    let job = check_document(&with(online(), "/model/config_json", inline), NOW).unwrap();
    assert_eq!(job.model.facts.layers, 32);
    let got = problems(&with(online(), "/model/config_json", json!("{")));
    assert!(
        got.iter().all(|v| v.field.starts_with("model.config_json")) && !got.is_empty(),
        "{got:?}"
    );
}

#[test]
fn a_job_written_out_as_a_draft_validates_to_itself() {
    for document in [online(), batch()] {
        let job = check_document(&document, NOW).unwrap();
        assert_eq!(JobDraft::from(&job).validate(NOW).unwrap(), job);
    }
}
