//! Real vLLM through the whole system: server, agent, shim, engine, telemetry, cancel. No GPU is
//! needed: vLLM's CPU build serves a tiny model with random weights.
//!
//! Off unless `KOI_VLLM_TESTS=1`, because it needs 6 GB of Python (`scripts/setup-vllm.sh DIR`) and
//! minutes; `KOI_VLLM_PYTHON` names the interpreter. Needs the programs: `cargo build` first.

mod cluster;
mod requests;
mod tiny_model;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use koi_cli::client::{Client, idempotency_key};
use koi_proto::v1;

use cluster::{Cluster, Crash, Victim};
use requests::{OUTPUT_TOKENS, PROMPT_TOKENS, stream_completion};

/// Importing vLLM and making its workers takes over a minute on two busy cores.
const START_LIMIT: Duration = Duration::from_secs(600);
/// From the first request until every wanted value was measured.
const MEASURE_LIMIT: Duration = Duration::from_secs(240);
/// From cancelling until nothing is left.
const STOP_LIMIT: Duration = Duration::from_secs(90);
/// Between looks.
const LOOK: Duration = Duration::from_millis(250);
/// Between requests: a few are always in flight, and the engine keeps up.
const REQUEST_PAUSE: Duration = Duration::from_millis(200);

const JOB: &str = "tiny";

/// Mediators that a real engine without a GPU lets us see.
const WANTED_MEDIATORS: [&str; 8] = [
    "decode_steps_per_sec",
    "input_length_observed",
    "kv_cache_util",
    "kvcache_hit_rate",
    "output_length_observed",
    "prefill_tokens_per_sec",
    "queue_depth",
    "running_requests",
];
const WANTED_OUTCOMES: [&str; 4] = [
    "cost_per_token",
    "p99_tpot_ms",
    "p99_ttft_ms",
    "throughput_tokens_per_sec",
];

/// The interpreter, or `None` (said aloud) where the test is not wanted.
fn python() -> Option<PathBuf> {
    if std::env::var("KOI_VLLM_TESTS").as_deref() != Ok("1") {
        println!("SKIPPED: real vLLM is tested with KOI_VLLM_TESTS=1, see scripts/setup-vllm.sh");
        return None;
    }
    let python = std::env::var_os("KOI_VLLM_PYTHON")
        .expect("KOI_VLLM_PYTHON names the Python that has vLLM, e.g. /opt/koi-vllm/bin/python");
    Some(PathBuf::from(python))
}

#[tokio::test]
async fn a_job_on_real_vllm_is_served_measured_and_leaves_nothing() {
    let Some(python) = python() else { return };
    let cluster = Cluster::start(&python).await;
    let client = cluster.client();
    submit(&client).await;
    let address = ready(&cluster, &client).await;
    let job = measure(&cluster, &client, address).await;
    show_values(&job);
    check_values(&job.measured.unwrap());
    cancel(&cluster, &client).await;
    cluster.stop();
}

/// One process of the engine is killed: the others must not live on, and the job must run again.
#[tokio::test]
async fn hazard_e8_a_killed_process_takes_its_engine_along_and_is_replaced() {
    let Some(python) = python() else { return };
    let cluster = Cluster::start(&python).await;
    let client = cluster.client();
    submit(&client).await;
    ready(&cluster, &client).await;
    for victim in [Victim::Api, Victim::EngineCore] {
        let crash = Crash::cause(&cluster, victim);
        say(&format!("killed {victim:?} of {:?}", crash.family));
        gone(&cluster, &crash).await;
        ready(&cluster, &client).await;
    }
    cancel(&cluster, &client).await;
    cluster.stop();
}

/// Waits until the endpoint is withdrawn (at most 3 s) and no process is left (at most 10 s).
async fn gone(cluster: &Cluster, crash: &Crash) {
    let killed = Instant::now();
    while endpoint(cluster).is_some() {
        assert!(killed.elapsed() < Duration::from_secs(3), "still published");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    say(&format!(
        "unpublished after {:.2} s",
        killed.elapsed().as_secs_f64()
    ));
    while !crash.survivors().is_empty() {
        let survivors = crash.survivors();
        assert!(
            killed.elapsed() < Duration::from_secs(10),
            "{survivors:?} live on"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    say(&format!(
        "nothing of it after {:.2} s",
        killed.elapsed().as_secs_f64()
    ));
}

fn say(line: &str) {
    println!("[real vLLM] {line}");
}

fn lengths(tokens: f64) -> v1::LengthStats {
    v1::LengthStats {
        mean: Some(tokens),
        p50: Some(tokens),
        p95: Some(tokens),
        p99: Some(tokens),
    }
}

async fn submit(client: &Client) {
    let spec = v1::JobSpec {
        name: JOB.to_owned(),
        class: "online".to_owned(),
        engine: "vllm".to_owned(),
        model: Some(v1::ModelSpec {
            id: tiny_model::ID.to_owned(),
            config_json: tiny_model::config_json(),
        }),
        workload: Some(v1::WorkloadSpec {
            arrival_rate_rps: Some(1.0 / REQUEST_PAUSE.as_secs_f64()),
            arrival_pattern: "poisson".to_owned(),
            isl: Some(lengths(f64::from(PROMPT_TOKENS))),
            osl: Some(lengths(f64::from(OUTPUT_TOKENS))),
            ..v1::WorkloadSpec::default()
        }),
        slo: Some(v1::SloSpec {
            p99_ttft_ms: Some(20_000.0),
            p99_tpot_ms: Some(2_000.0),
            ..v1::SloSpec::default()
        }),
        ..v1::JobSpec::default()
    };
    let request = v1::SubmitJobRequest {
        idempotency_key: idempotency_key(),
        spec: Some(spec),
        validate_only: false,
    };
    client.jobs().submit_job(request).await.unwrap();
    let request = v1::RunTickRequest {
        idempotency_key: idempotency_key(),
    };
    // A tick that runs already sees the job or is followed by one that does.
    drop(client.ticks().run_tick(request).await);
}

async fn job(client: &Client) -> v1::Job {
    let request = v1::GetJobRequest {
        job: JOB.to_owned(),
        ..v1::GetJobRequest::default()
    };
    let reply = client.jobs().get_job(request).await.unwrap().into_inner();
    reply.job.unwrap()
}

/// The one published endpoint, as a gateway reads it.
fn endpoint(cluster: &Cluster) -> Option<SocketAddr> {
    let text = std::fs::read(cluster.endpoint_file(JOB)).ok()?;
    let file: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let endpoint = file["endpoints"].as_array()?.first()?.clone();
    let port = u16::try_from(endpoint["port"].as_u64()?).unwrap();
    Some(SocketAddr::new(
        endpoint["address"].as_str()?.parse().unwrap(),
        port,
    ))
}

/// Waits for the endpoint and for a first token through it.
async fn ready(cluster: &Cluster, client: &Client) -> SocketAddr {
    let begun = Instant::now();
    let address = loop {
        if let Some(address) = endpoint(cluster) {
            break address;
        }
        if begun.elapsed() > START_LIMIT {
            panic!("not ready: {:#?}\n{}", job(client).await, cluster.logs());
        }
        tokio::time::sleep(LOOK).await;
    };
    say(&format!(
        "published after {:.1} s at {address}",
        begun.elapsed().as_secs_f64()
    ));
    let first = stream_completion(address, tiny_model::ID, 0).await.unwrap();
    say(&format!(
        "first token after {:.0} ms, {} events in {:.0} ms",
        first.first_token.as_secs_f64() * 1e3,
        first.n_events,
        first.total.as_secs_f64() * 1e3
    ));
    address
}

fn value_of(list: &[v1::NamedValue], name: &str) -> Option<f64> {
    list.iter().find(|v| v.name == name).map(|v| v.value)
}

/// Sends requests until the server has measured everything that is wanted.
async fn measure(cluster: &Cluster, client: &Client, address: SocketAddr) -> v1::Job {
    let begun = Instant::now();
    let mut sent = 0_u32;
    let mut running = tokio::task::JoinSet::new();
    loop {
        running.spawn(stream_completion(address, tiny_model::ID, sent));
        sent += 1;
        tokio::time::sleep(REQUEST_PAUSE).await;
        while let Some(done) = running.try_join_next() {
            done.unwrap().unwrap();
        }
        let job = job(client).await;
        let measured = job.measured.clone().unwrap_or_default();
        let has = |list: &[v1::NamedValue], names: &[&str]| {
            names.iter().all(|name| value_of(list, name).is_some())
        };
        let runs = value_of(&measured.mediators, "running_requests");
        if measured.n_requests >= 20
            && runs.is_some_and(|n| n > 0.0)
            && has(&measured.mediators, &WANTED_MEDIATORS)
            && has(&measured.outcomes, &WANTED_OUTCOMES)
        {
            while let Some(done) = running.join_next().await {
                done.unwrap().unwrap();
            }
            say(&format!(
                "{sent} requests, measured after {:.1} s",
                begun.elapsed().as_secs_f64()
            ));
            return job;
        }
        assert!(
            begun.elapsed() < MEASURE_LIMIT,
            "measured only {measured:#?}\n{}",
            cluster.logs()
        );
    }
}

/// Measured beside predicted.
fn show_values(job: &v1::Job) {
    let measured = job.measured.clone().unwrap_or_default();
    let active = job.active.clone().unwrap_or_default();
    let mediators = active.rank_predictions.first().map(|p| p.mediators.clone());
    say(&format!(
        "{} finished requests; means for {:?}",
        measured.n_requests, measured.mean_based
    ));
    for (kind, seen, predicted) in [
        ("V", measured.mediators, mediators.unwrap_or_default()),
        ("Y", measured.outcomes, active.outcomes),
    ] {
        for v in seen {
            let expected = value_of(&predicted, &v.name)
                .map_or_else(|| "nothing".to_owned(), |x| format!("{x:.4e}"));
            say(&format!(
                "{kind} {} = {:.4e}, predicted {expected}",
                v.name, v.value
            ));
        }
    }
}

/// The values are of these requests, and all are numbers.
fn check_values(measured: &v1::Measured) {
    let of = |list: &[v1::NamedValue], name: &str| value_of(list, name).unwrap();
    let output = of(&measured.mediators, "output_length_observed");
    // The agent's own question for a first token has one token and one word.
    assert!(
        output <= f64::from(OUTPUT_TOKENS) && output > f64::from(OUTPUT_TOKENS) * 0.8,
        "{output}"
    );
    let input = of(&measured.mediators, "input_length_observed");
    assert!(
        input <= f64::from(PROMPT_TOKENS) && input > f64::from(PROMPT_TOKENS) * 0.8,
        "{input}"
    );
    for name in WANTED_OUTCOMES {
        assert!(of(&measured.outcomes, name) > 0.0, "{name}");
    }
    let hits = of(&measured.mediators, "kvcache_hit_rate");
    assert!((0.0..=1.0).contains(&hits), "{hits}");
}

/// Cancels the job and waits until no process of it is left and its endpoint is gone.
async fn cancel(cluster: &Cluster, client: &Client) {
    let begun = Instant::now();
    let request = v1::CancelJobRequest {
        idempotency_key: idempotency_key(),
        job: JOB.to_owned(),
        reason: "the test is over".to_owned(),
    };
    client.jobs().cancel_job(request).await.unwrap();
    while endpoint(cluster).is_some() || !cluster.engine_processes().is_empty() {
        if begun.elapsed() > STOP_LIMIT {
            panic!(
                "left: {:#?}\n{}",
                cluster.engine_processes(),
                cluster.logs()
            );
        }
        tokio::time::sleep(LOOK).await;
    }
    say(&format!(
        "nothing left {:.1} s after cancelling",
        begun.elapsed().as_secs_f64()
    ));
}
