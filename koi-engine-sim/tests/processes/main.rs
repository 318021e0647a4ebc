//! The binary as two processes on loopback: streams, metrics, signals, kills.

mod harness;

use std::time::{Duration, Instant};

use harness::{Engine, Options, SimHost};
use serde_json::{Value, json};

fn completion(prompt_tokens: u32, max_tokens: u32, stream: bool) -> Value {
    json!({
        "model": "chat", "prompt": (0..prompt_tokens).collect::<Vec<_>>(), "max_tokens": max_tokens,
        "ignore_eos": true, "stream": stream, "stream_options": {"include_usage": true},
    })
}

#[test]
fn it_streams_counts_and_holds_memory() {
    let host = SimHost::new("streams", "H100", 1);
    let engine = Engine::start(&host, &Options::default());
    let events = engine.post_stream("/v1/completions", &completion(100, 12, true));
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    let chunks: Vec<Value> = events[..events.len() - 1]
        .iter()
        .map(|e| serde_json::from_str(e).unwrap())
        .collect();
    assert_eq!(chunks.len(), 13);
    assert_eq!(chunks[11]["choices"][0]["finish_reason"], "length");
    let usage = json!({"prompt_tokens": 100, "total_tokens": 112, "completion_tokens": 12});
    assert_eq!(chunks[12]["usage"], usage);
    let text: String = chunks
        .iter()
        .filter_map(|c| c["choices"][0]["text"].as_str())
        .collect();
    assert_eq!(text.split_whitespace().count(), 12);

    let (status, whole) = engine.post("/v1/completions", &completion(100, 12, false));
    assert_eq!(
        (status, whole["choices"][0]["text"].as_str()),
        (200, Some(text.as_str()))
    );
    let chat = json!({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4});
    let (status, reply) = engine.post("/v1/chat/completions", &chat);
    assert_eq!(
        (status, &reply["usage"]["completion_tokens"]),
        (200, &json!(4))
    );

    let page = engine.get("/metrics").1;
    for line in [
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"chat\"} 28.0",
        "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"chat\"} 96.0",
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"chat\"} 3.0",
        "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"} 2.0",
    ] {
        assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");
    }
    assert!(engine.get("/version").1.contains("0.32.0+sim"));
    assert!(
        engine
            .get("/v1/models")
            .1
            .contains("\"max_model_len\":4096")
    );
    let held = host.held_bytes();
    assert!((60e9..80e9).contains(&(held as f64)), "{held}");
    harness::eventually("busy device", || host.energy_millijoules() > 0);
}

#[test]
fn it_refuses_what_the_real_one_refuses() {
    let host = SimHost::new("refuses", "H100", 1);
    let engine = Engine::start(&host, &Options::default());
    let check = |body: Value, status: u16, words: &str| {
        let (got, reply) = engine.post("/v1/completions", &body);
        assert_eq!(got, status, "{reply}");
        assert_eq!(reply["error"]["code"], status);
        assert!(
            reply["error"]["message"].as_str().unwrap().contains(words),
            "{reply}"
        );
    };
    check(
        json!({"model": "other", "prompt": "a"}),
        404,
        "does not exist",
    );
    check(
        json!({"model": "chat", "prompt": 3, "n": 2}),
        400,
        "n must be 1",
    );
    check(
        completion(4096, 1, false),
        400,
        "maximum context length is 4096",
    );
    check(completion(4000, 200, false), 400, "too large: 200");
    assert_eq!(
        engine
            .post_text("/v1/completions", "{\"prompt\": \"a\", ")
            .0,
        400
    );
    assert_eq!(
        engine.post_text("/v1/completions", &" ".repeat(9 << 20)).0,
        413
    );
    assert_eq!(engine.get("/nowhere").0, 404);
}

#[test]
fn a_dropped_client_frees_its_blocks() {
    let host = SimHost::new("dropped", "H100", 1);
    let engine = Engine::start(&host, &Options::default());
    let stream = engine.open_stream("/v1/completions", &completion(500, 3000, true));
    harness::eventually("a running request", || {
        engine.gauge("num_requests_running") == Some(1.0)
    });
    drop(stream);
    harness::eventually("no running request", || {
        engine.gauge("num_requests_running") == Some(0.0)
    });
    assert_eq!(engine.gauge("kv_cache_usage_perc"), Some(0.0));
    assert_eq!(engine.gauge("request_generation_tokens_count"), Some(0.0));
}

#[test]
fn killing_the_child_fails_what_is_in_flight_and_ends_the_parent() {
    let host = SimHost::new("child", "H100", 1);
    let mut engine = Engine::start(&host, &Options::default());
    let stream = engine.open_stream("/v1/completions", &completion(50, 3000, true));
    std::thread::sleep(Duration::from_millis(300));
    let killed = Instant::now();
    harness::signal(engine.child_pid(), "KILL");
    let rest = stream.read_to_end();
    assert!(
        rest.contains("InternalServerError") && !rest.contains("[DONE]"),
        "{rest}"
    );
    assert_eq!(engine.wait_for_exit(), Some(1));
    assert!(killed.elapsed() < Duration::from_secs(3));
    assert_eq!(host.held_bytes(), 0);
}

#[test]
fn killing_the_parent_leaves_the_child_with_its_memory() {
    let host = SimHost::new("parent", "H100", 1);
    let mut engine = Engine::start(&host, &Options::default());
    let child = engine.child_pid();
    harness::signal(engine.pid(), "KILL");
    engine.wait_for_exit();
    std::thread::sleep(Duration::from_millis(500));
    assert!(harness::is_alive(child));
    assert!(host.held_bytes() > 60_000_000_000);
    // Another engine cannot have the device now.
    let output = Engine::fail(&host, &Options::default());
    assert!(
        output.contains("ValueError: Free memory on device cuda:0"),
        "{output}"
    );
    harness::signal(child, "TERM");
    harness::eventually("the orphan's end", || !harness::is_alive(child));
    assert_eq!(host.held_bytes(), 0);
}

#[test]
fn asked_to_end_it_finishes_what_is_in_flight_and_refuses_the_rest() {
    let host = SimHost::new("drain", "H100", 1);
    let mut engine = Engine::start(&host, &Options::default());
    let stream = engine.open_stream("/v1/completions", &completion(50, 150, true));
    std::thread::sleep(Duration::from_millis(200));
    harness::signal(engine.pid(), "TERM");
    harness::eventually("refusal", || {
        engine.post("/v1/completions", &completion(5, 5, false)).0 == 503
    });
    assert!(stream.read_to_end().contains("data: [DONE]"));
    assert_eq!(engine.wait_for_exit(), Some(0));
    assert_eq!(host.held_bytes(), 0);
}

#[test]
fn starts_that_must_fail() {
    let host = SimHost::new("fails", "H100", 2);
    let fail = |extra: &[&str]| Engine::fail(&host, &Options { extra });
    let check = |extra: &[&str], words: &str| {
        let output = fail(extra);
        assert!(output.contains(words), "{extra:?}: {output}");
        assert!(
            output.contains("Engine core initialization failed"),
            "{output}"
        );
    };
    check(
        &["-tp=3"],
        "attention heads (32) must be divisible by tensor parallel size (3)",
    );
    check(
        &["-tp=4"],
        "World size (4) is larger than the number of available GPUs (2)",
    );
    check(
        &["--gpu-memory-utilization=0.1"],
        "No available memory for the cache blocks",
    );
    check(
        &["--num-gpu-blocks-override=50"],
        "To serve at least one request",
    );
    check(
        &["--quantization=rot13"],
        "Unknown quantization method: rot13",
    );
    assert_eq!(host.held_bytes(), 0);
}

#[test]
fn wrong_flags_exit_with_2() {
    let (code, output) = harness::run(&["serve", "m", "--disable-log-requests", "--port=x"]);
    assert_eq!(code, Some(2));
    assert!(
        output.contains("unrecognized arguments: --disable-log-requests"),
        "{output}"
    );
    assert!(output.contains("invalid int value: 'x'"));
    assert_eq!(
        harness::run(&["--version"]),
        (Some(0), "0.32.0+sim\n".to_owned())
    );
}
