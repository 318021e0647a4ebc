//! Scheduling, conservation and the counters, on small engines.

use proptest::prelude::*;

use super::*;
use crate::memory::Sharding;
use crate::model::Precision;
use crate::model::tests::llama_8b;
use crate::truth::{Switches, TruthInput};

fn config(n_blocks: u32) -> EngineConfig {
    EngineConfig {
        n_blocks,
        block_size: 16,
        max_num_seqs: 8,
        max_num_batched_tokens: 256,
        max_model_len: 512,
        long_prefill_token_threshold: 0,
        prefix_caching: true,
        chunked_prefill: true,
        seed: 1,
    }
}

fn engine_at(config: EngineConfig, environment: &str) -> EngineSim {
    let truth = Truth::new(&TruthInput {
        gpu_type: "H100",
        environment,
        model: &llama_8b(),
        precision: Precision::Half,
        kv_value_bytes: 2.0,
        cut: Sharding {
            tensor: 1,
            pipeline: 1,
        },
        switches: Switches::default(),
    });
    EngineSim::new(config, truth.unwrap()).unwrap()
}

fn engine(config: EngineConfig) -> EngineSim {
    engine_at(config, "reserved/aws/us-east-1/a/H100")
}

fn request(id: u64, prefix: u32, unique: u32, max_tokens: u32) -> Request {
    Request {
        id,
        arrival: UtcMicros(0),
        prompt: TokenChain::synthetic((1, prefix), (1000 + id, unique), 16),
        max_tokens,
        natural_end: None,
        answer_seed: id,
    }
}

/// Runs to the end; all events and the time of the last one.
fn drain(engine: &mut EngineSim, mut now: UtcMicros) -> (Vec<TokenEvent>, UtcMicros) {
    let mut events = Vec::new();
    for _ in 0..100_000 {
        let Some(step) = engine.begin_step(now) else {
            return (events, now);
        };
        now = step.ends;
        events.extend(engine.finish_step(now));
    }
    panic!("the engine does not come to rest");
}

#[test]
fn one_request_gets_its_tokens_in_order_and_is_counted() {
    let mut engine = engine(config(64));
    engine.submit(UtcMicros(0), request(1, 0, 300, 5)).unwrap();
    let (events, end) = drain(&mut engine, UtcMicros(0));
    assert_eq!(
        events.iter().map(|e| e.position).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );
    assert_eq!(events.last().unwrap().finish, Some(FinishReason::Length));
    let m = engine.metrics();
    assert_eq!(
        (m.prompt_tokens, m.generation_tokens, m.finished_length),
        (300, 5, 1)
    );
    // Two chunks of the prompt, the first of which has no output and is not counted.
    assert_eq!(m.iteration_tokens.count(), 5);
    assert!((m.iteration_tokens.sum - 305.0).abs() < 1e-9);
    assert_eq!(
        (
            m.inter_token_latency_s.count(),
            m.time_to_first_token_s.count()
        ),
        (4, 1)
    );
    let phases = m.request_prefill_time_s.sum + m.request_decode_time_s.sum;
    assert!((phases - end.seconds_since(UtcMicros(0))).abs() < 1e-9);
    assert_eq!(engine.blocks_free_and_total(), (63, 63));
}

#[test]
fn shared_prefixes_hit_in_whole_blocks_of_tokens() {
    let mut engine = engine(config(64));
    for id in [1, 2] {
        engine
            .submit(UtcMicros(0), request(id, 100, 20, 2))
            .unwrap();
        drain(&mut engine, UtcMicros(0));
    }
    let m = engine.metrics();
    assert_eq!((m.prefix_cache_queries, m.prefix_cache_hits), (240, 96));
    assert_eq!((m.prompt_tokens, m.prompt_tokens_cached), (240, 96));
    assert!((m.request_prefill_kv_computed_tokens.sum - 144.0).abs() < 1e-9);
}

#[test]
fn a_repeated_prompt_still_computes_its_last_token() {
    let mut engine = engine(config(64));
    for id in [1, 2] {
        engine
            .submit(
                UtcMicros(0),
                Request {
                    id,
                    ..request(7, 0, 64, 1)
                },
            )
            .unwrap();
        drain(&mut engine, UtcMicros(0));
    }
    assert_eq!(engine.metrics().prefix_cache_hits, 48);
}

#[test]
fn without_prefix_caching_nothing_hits() {
    let mut engine = engine(EngineConfig {
        prefix_caching: false,
        ..config(64)
    });
    for id in [1, 2] {
        engine
            .submit(UtcMicros(0), request(id, 100, 20, 2))
            .unwrap();
        drain(&mut engine, UtcMicros(0));
    }
    assert_eq!(engine.metrics().prefix_cache_hits, 0);
}

#[test]
fn preemption_happens_and_recovers() {
    let mut engine = engine(config(34));
    for id in 0..8 {
        engine
            .submit(UtcMicros(0), request(id, 0, 60, 120))
            .unwrap();
    }
    let (events, _) = drain(&mut engine, UtcMicros(0));
    let m = engine.metrics();
    assert!(m.num_preemptions > 0);
    assert_eq!((events.len(), m.finished_length), (8 * 120, 8));
    assert!((m.request_num_preemptions.sum - m.num_preemptions as f64).abs() < 1e-9);
    assert_eq!((m.prefix_cache_queries, m.prompt_tokens), (480, 480));
    assert_eq!(engine.blocks_free_and_total(), (33, 33));
}

#[test]
fn a_long_prompt_leaves_room_for_others_below_its_threshold() {
    let mut engine = engine(EngineConfig {
        long_prefill_token_threshold: 64,
        ..config(64)
    });
    engine.submit(UtcMicros(0), request(1, 0, 400, 1)).unwrap();
    engine.submit(UtcMicros(0), request(2, 0, 30, 1)).unwrap();
    let step = engine.begin_step(UtcMicros(0)).unwrap();
    assert_eq!((step.load.prefill_seqs, step.load.prefill_tokens), (2, 94));
    assert_eq!(engine.finish_step(step.ends).len(), 1);
}

#[test]
fn saturation_makes_a_queue() {
    let mut engine = engine(config(400));
    for id in 0..20 {
        engine.submit(UtcMicros(0), request(id, 0, 50, 50)).unwrap();
    }
    let step = engine.begin_step(UtcMicros(0)).unwrap();
    engine.finish_step(step.ends);
    engine.begin_step(step.ends).unwrap();
    let m = engine.metrics();
    assert_eq!((m.num_requests_running, m.num_requests_waiting), (8, 12));
    assert!(m.kv_cache_usage_fraction > 0.05);
}

#[test]
fn longer_contexts_decode_slower_and_environments_differ() {
    let last_step = |prompt: u32, environment: &str| {
        let wide = EngineConfig {
            max_model_len: 8192,
            max_num_batched_tokens: 65_536,
            ..config(8000)
        };
        let mut engine = engine_at(wide, environment);
        for id in 0..8 {
            engine
                .submit(UtcMicros(0), request(id, 0, prompt, 50))
                .unwrap();
        }
        let first = engine.begin_step(UtcMicros(0)).unwrap();
        engine.finish_step(first.ends);
        let (_, end) = drain(&mut engine, first.ends);
        end.seconds_since(first.ends) / 49.0
    };
    let near = last_step(100, "reserved/aws/us-east-1/a/H100");
    assert!(last_step(8000, "reserved/aws/us-east-1/a/H100") > 1.15 * near);
    let far = last_step(100, "spot/gcp/europe-west4/b/H100");
    assert!((far / near - 1.0).abs() > 0.005, "{near} {far}");
}

#[test]
fn natural_ends_stop_and_bad_requests_are_refused() {
    let mut engine = engine(config(64));
    engine
        .submit(
            UtcMicros(0),
            Request {
                natural_end: Some(3),
                ..request(1, 0, 10, 50)
            },
        )
        .unwrap();
    assert_eq!(
        engine.submit(UtcMicros(0), request(1, 0, 10, 5)),
        Err(SubmitError::Duplicate(1))
    );
    let (events, _) = drain(&mut engine, UtcMicros(0));
    assert_eq!(events.last().unwrap().finish, Some(FinishReason::Stop));
    assert_eq!(events.len(), 3);
    let refused = |r: Request| engine_refusal(&mut engine_of_64(), r);
    assert_eq!(refused(request(2, 0, 0, 5)), SubmitError::EmptyPrompt);
    assert_eq!(refused(request(2, 0, 5, 0)), SubmitError::NoTokens);
    assert!(matches!(
        refused(request(2, 0, 512, 5)),
        SubmitError::PromptTooLong { .. }
    ));
}

fn engine_of_64() -> EngineSim {
    engine(config(64))
}

fn engine_refusal(engine: &mut EngineSim, request: Request) -> SubmitError {
    engine.submit(UtcMicros(0), request).unwrap_err()
}

#[test]
fn impossible_settings_are_refused() {
    assert!(matches!(
        config(32).check(),
        Err(EngineConfigError::CacheTooSmall { .. })
    ));
    assert_eq!(
        config(0).check(),
        Err(EngineConfigError::Zero("num_gpu_blocks"))
    );
    let whole = EngineConfig {
        chunked_prefill: false,
        ..config(64)
    };
    assert!(matches!(
        whole.check(),
        Err(EngineConfigError::BatchTooSmall { .. })
    ));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed: u64| {
        let mut engine = engine(EngineConfig { seed, ..config(40) });
        for id in 0..12 {
            engine
                .submit(UtcMicros(0), request(id, 40, 30, 60))
                .unwrap();
        }
        let (events, end) = drain(&mut engine, UtcMicros(0));
        (events, end, engine.metrics())
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).1, run(6).1);
}

#[derive(Debug, Clone)]
enum Action {
    Submit {
        prefix: u32,
        unique: u32,
        max_tokens: u32,
    },
    Cancel(u64),
    Steps(u32),
    CancelInStep(u64),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (0..150_u32, 1..150_u32, 1..80_u32)
            .prop_map(|(prefix, unique, max_tokens)| Action::Submit { prefix, unique, max_tokens }),
        1 => (0..40_u64).prop_map(Action::Cancel),
        4 => (1..12_u32).prop_map(Action::Steps),
        1 => (0..40_u64).prop_map(Action::CancelInStep),
    ]
}

proptest! {
    /// Whatever happens, every token of every request that is not cancelled arrives exactly once,
    /// and all blocks come back.
    #[test]
    fn tokens_and_blocks_are_conserved(
        actions in prop::collection::vec(action(), 1..60),
        chunked in any::<bool>(),
        caching in any::<bool>(),
    ) {
        let mut engine = engine(EngineConfig {
            prefix_caching: caching,
            chunked_prefill: chunked,
            max_num_batched_tokens: if chunked { 96 } else { 512 },
            ..config(36)
        });
        let mut now = UtcMicros(0);
        let mut expected: BTreeMap<u64, u32> = BTreeMap::new();
        let mut received: BTreeMap<u64, u32> = BTreeMap::new();
        let mut count = |events: Vec<TokenEvent>| {
            for event in events {
                let next = received.entry(event.id).or_default();
                assert_eq!(event.position, *next);
                *next += 1;
            }
        };
        let mut next_id = 0;
        for action in actions {
            match action {
                Action::Submit { prefix, unique, max_tokens } => {
                    engine.submit(now, request(next_id, prefix, unique, max_tokens)).unwrap();
                    expected.insert(next_id, max_tokens);
                    next_id += 1;
                }
                Action::Cancel(id) => {
                    if engine.cancel(id) {
                        expected.remove(&id);
                    }
                }
                Action::CancelInStep(id) => {
                    let step = engine.begin_step(now);
                    if engine.cancel(id) {
                        expected.remove(&id);
                    }
                    if let Some(step) = step {
                        now = step.ends;
                        count(engine.finish_step(now));
                    }
                }
                Action::Steps(n) => {
                    for _ in 0..n {
                        let Some(step) = engine.begin_step(now) else { break };
                        prop_assert!(step.load.prefill_tokens + step.load.decode_seqs <= 512);
                        now = step.ends;
                        count(engine.finish_step(now));
                    }
                }
            }
        }
        count(drain(&mut engine, now).0);
        for (id, tokens) in &expected {
            prop_assert_eq!(received.get(id), Some(tokens));
        }
        prop_assert_eq!(engine.n_unfinished(), 0);
        prop_assert_eq!(engine.blocks_free_and_total(), (35, 35));
        let total: u32 = received.values().sum();
        prop_assert_eq!(engine.metrics().generation_tokens, u64::from(total));
    }
}
