//! What a client that does not use `koi submit` may send: every refusal has a clear status, names its
//! fields, and leaves no job behind.

use koi_cli::client::{Client, Target, idempotency_key};
use koi_cli::failure::Failure;
use koi_cli::secrets::read_token;
use koi_proto::v1;
use koi_tests::workspace_root;
use tonic::{Code, Status};

use super::koi::Koi;

fn lengths(tokens: f64) -> v1::LengthStats {
    v1::LengthStats {
        mean: Some(tokens),
        p50: Some(tokens),
        p95: Some(tokens),
        p99: Some(tokens),
    }
}

/// A job that would be accepted.
pub(super) fn good() -> v1::JobSpec {
    let config = workspace_root().join("configs/models/Llama-3.1-8B.json");
    v1::JobSpec {
        name: "sound".to_owned(),
        class: "online".to_owned(),
        model: Some(v1::ModelSpec {
            id: "meta-llama/Llama-3.1-8B".to_owned(),
            config_json: std::fs::read_to_string(config).unwrap(),
        }),
        workload: Some(v1::WorkloadSpec {
            arrival_rate_rps: Some(1.0),
            arrival_pattern: "poisson".to_owned(),
            isl: Some(lengths(500.0)),
            osl: Some(lengths(100.0)),
            ..v1::WorkloadSpec::default()
        }),
        slo: Some(v1::SloSpec {
            p99_ttft_ms: Some(2_000.0),
            p99_tpot_ms: Some(80.0),
            ..v1::SloSpec::default()
        }),
        ..v1::JobSpec::default()
    }
}

fn changed(change: impl FnOnce(&mut v1::JobSpec)) -> v1::JobSpec {
    let mut spec = good();
    change(&mut spec);
    spec
}

async fn submit(
    client: &Client,
    key: &str,
    spec: v1::JobSpec,
) -> Result<v1::SubmitJobReply, Status> {
    let request = v1::SubmitJobRequest {
        idempotency_key: key.to_owned(),
        spec: Some(spec),
        validate_only: false,
    };
    let reply = client.jobs().submit_job(request).await?;
    Ok(reply.into_inner())
}

/// Fields that a refusal names.
pub(super) fn fields(status: &Status) -> Vec<String> {
    let failure = Failure::from_status(status, "the server");
    let mut fields: Vec<String> = failure.violations.into_iter().map(|v| v.field).collect();
    fields.sort();
    fields.dedup();
    fields
}

pub(super) fn target(koi: &Koi, token: Option<String>) -> Target {
    let settings = std::fs::read_to_string(koi.data().join("client.toml")).unwrap();
    let line = settings.lines().find(|l| l.starts_with("server")).unwrap();
    Target {
        server: line.split('"').nth(1).unwrap().to_owned(),
        token,
        ca: None,
        timeout: std::time::Duration::from_secs(30),
    }
}

pub(super) fn operator_token(koi: &Koi) -> String {
    let settings = std::fs::read_to_string(koi.data().join("client.toml")).unwrap();
    let line = settings.lines().find(|l| l.starts_with("token_file"));
    let file = line.and_then(|l| l.split('"').nth(1)).unwrap();
    read_token(&koi.data().join(file)).unwrap()
}

async fn job_names(client: &Client) -> Vec<String> {
    let request = v1::ListJobsRequest::default();
    let reply = client.jobs().list_jobs(request).await.unwrap().into_inner();
    let names = reply.jobs.into_iter().filter_map(|j| j.spec);
    names.map(|s| s.name).collect()
}

async fn refuses_bad_fields(client: &Client) {
    let workload = |s: &mut v1::JobSpec| s.workload.clone().unwrap();
    let cases: [(&str, v1::JobSpec); 6] = [
        (
            "workload.arrival_rate_rps",
            changed(|s| {
                s.workload = Some(v1::WorkloadSpec {
                    arrival_rate_rps: Some(f64::NAN),
                    ..workload(s)
                });
            }),
        ),
        (
            "workload.isl.mean",
            changed(|s| {
                s.workload = Some(v1::WorkloadSpec {
                    isl: Some(lengths(f64::INFINITY)),
                    ..workload(s)
                });
            }),
        ),
        (
            "model.id",
            changed(|s| s.model.as_mut().unwrap().id = "../../etc;rm -rf".to_owned()),
        ),
        (
            "slo.p99_ttft_ms",
            changed(|s| s.slo.as_mut().unwrap().p99_ttft_ms = Some(-5.0)),
        ),
        ("name", changed(|s| s.name = "a/../b;c".to_owned())),
        (
            "model.config_json",
            changed(|s| s.model.as_mut().unwrap().config_json = "{".repeat(9_000)),
        ),
    ];
    for (field, spec) in cases {
        let status = submit(client, &idempotency_key(), spec).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{field}: {status:?}");
        let named = fields(&status);
        assert!(
            named
                .iter()
                .any(|f| f.starts_with(field) || field.starts_with(f.as_str())),
            "{field}: {named:?}"
        );
    }
}

async fn refuses_five_at_once(client: &Client) {
    let spec = changed(|s| {
        s.name = "Not A Name".to_owned();
        s.class = "sometimes".to_owned();
        s.model.as_mut().unwrap().id = "../x".to_owned();
        s.workload.as_mut().unwrap().arrival_rate_rps = Some(-1.0);
        s.slo.as_mut().unwrap().p99_tpot_ms = Some(f64::NAN);
    });
    let named = fields(&submit(client, &idempotency_key(), spec).await.unwrap_err());
    let wanted = [
        "class",
        "model.id",
        "name",
        "slo.p99_tpot_ms",
        "workload.arrival_rate_rps",
    ];
    for field in wanted {
        assert!(
            named.iter().any(|f| f == field),
            "{field} is not in {named:?}"
        );
    }
}

async fn refuses_strangers(koi: &Koi) {
    for token in [None, Some("not-the-token".to_owned())] {
        let client = Client::connect(&target(koi, token)).await.unwrap();
        let status = submit(&client, &idempotency_key(), good())
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
    }
}

/// A map on the wire has no order, so a client's retries are other bytes; and ticks and jobs that are
/// asked for at once under one key are one.
async fn repeats_get_the_first_answer(client: &Client) {
    let weighed = |name: &str| {
        changed(|s| {
            s.name = name.to_owned();
            let outcomes = koi_core::variables::Outcome::ALL;
            let weights = outcomes.map(|o| (o.name().to_owned(), 0.2));
            s.preference = Some(v1::PreferenceSpec {
                weights: weights.into(),
                ..v1::PreferenceSpec::default()
            });
        })
    };
    let first = submit(client, "weighed", weighed("weighed")).await.unwrap();
    for _ in 0..8 {
        let again = submit(client, "weighed", weighed("weighed")).await.unwrap();
        assert_eq!(again.job_id, first.job_id);
    }
    let at_once = || submit(client, "at-once", weighed("at-once"));
    let (a, b, c) = tokio::join!(at_once(), at_once(), at_once());
    let ids = [a, b, c].map(|answer| answer.unwrap().job_id);
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");

    let tick = async |key: &str| {
        let request = v1::RunTickRequest {
            idempotency_key: key.to_owned(),
        };
        let reply = client.ticks().run_tick(request).await.unwrap();
        reply.into_inner().tick.unwrap().tick_id
    };
    let (one, same) = tokio::join!(tick("tick"), tick("tick"));
    assert_eq!(one, same);
    assert_eq!(tick("tick").await, one);
    assert!(tick("another").await > one);
}

async fn a_text_that_nothing_can_have_is_named(client: &Client) {
    let request = v1::ListRowsRequest {
        model: "a\0b".to_owned(),
        gpu_type: "x".repeat(100_000),
        ..v1::ListRowsRequest::default()
    };
    let status = client.performance().list_rows(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(fields(&status), ["gpu_type", "model"]);
}

#[tokio::test]
async fn hostile_submissions_are_refused_and_leave_nothing() {
    let koi = tokio::task::spawn_blocking(|| {
        let koi = Koi::new("hostile");
        let up = koi.up_with(&["--no-jobs".into()]);
        assert_eq!(up.code, Some(0), "{}{}", up.out, up.err);
        koi
    });
    let koi = koi.await.unwrap();
    let client = Client::connect(&target(&koi, Some(operator_token(&koi))))
        .await
        .unwrap();

    refuses_bad_fields(&client).await;
    refuses_five_at_once(&client).await;
    refuses_strangers(&koi).await;
    let huge = changed(|s| s.model.as_mut().unwrap().config_json = " ".repeat(10 << 20));
    let status = submit(&client, "one-key", huge).await.unwrap_err();
    let refused = [Code::OutOfRange, Code::ResourceExhausted];
    assert!(refused.contains(&status.code()), "{status:?}");

    assert_eq!(job_names(&client).await, Vec::<String>::new());
    // A refusal does not use up its key.
    let accepted = submit(&client, "one-key", good()).await.unwrap();
    let again = submit(&client, "one-key", good()).await.unwrap();
    assert_eq!(accepted.job_id, again.job_id);
    let other = submit(&client, "one-key", changed(|s| s.priority = Some(9))).await;
    assert!(other.is_err(), "the key belongs to another job: {other:?}");
    assert_eq!(job_names(&client).await, ["sound"]);
    Box::pin(repeats_get_the_first_answer(&client)).await;
    a_text_that_nothing_can_have_is_named(&client).await;
    tokio::task::spawn_blocking(move || drop(koi))
        .await
        .unwrap();
}
