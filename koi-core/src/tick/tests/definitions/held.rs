//! What layers with windows forget, and what a held batch leaves to the arrivals: both sides.

use super::*;

/// Every layer keeps 128 tokens.
const WINDOWED: &str = r#"{
    "architectures": ["MistralForCausalLM"], "model_type": "mistral", "torch_dtype": "bfloat16",
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
    "max_position_embeddings": 32768, "sliding_window": 128
}"#;
const WINDOW: f64 = 128.0;

fn windowed() -> JobSpec {
    let mut spec = chat("chat");
    spec.model.id = "mistralai/Mistral-7B-v0.1".to_owned();
    spec.model.facts = ModelFacts::from_config_json(WINDOWED).unwrap();
    spec.model.config_json = WINDOWED.to_owned();
    fixed_lengths(spec, RATE_RPS)
}

/// A sequence that is longer than the window holds the window and no more, on either side.
#[test]
fn what_windows_forget_presses_on_no_pool() {
    let sides = both_sides(windowed(), 1);
    let v = &sides.predicted.mediators;
    let of = |m: Mediator| v.get(m).unwrap();
    assert!((PROMPT + OUTPUT) as f64 > 2.0 * WINDOW);
    let tokens = sides.predicted.memory.kv_pool_tokens;
    let running = of(Mediator::RunningRequests);
    let all = running + of(Mediator::QueueDepth);
    for (mediator, held) in [
        (Mediator::KvPressureScore, all * WINDOW / tokens),
        (Mediator::KvCacheUtil, running * WINDOW / tokens),
    ] {
        let got = of(mediator);
        assert!(
            (got / held - 1.0).abs() < 1e-9,
            "{mediator}: {got} is not {held}"
        );
    }
    for mediator in EXACT {
        sides.assert_mediator(mediator, 1e-6);
    }
}

/// A batch that is held larger finishes more, and still no more requests come: by Little's law the
/// queue that is seen lasts as long as its arrivals say, so that what is left of the time to first
/// token is the time in prefill that is seen.
#[test]
fn a_held_batch_drains_no_queue_under_open_load() {
    let sides = sides_with(small(), 1, |plain| {
        let running = plain.mediators.get(Mediator::RunningRequests).unwrap();
        MediatorValues::absent()
            .with(Mediator::RunningRequests, 1.5 * running)
            .with(Mediator::QueueDepth, 6.0)
    });
    for mediator in [
        Mediator::RunningRequests,
        Mediator::QueueDepth,
        Mediator::KvPressureScore,
    ] {
        sides.assert_mediator(mediator, 1e-6);
    }
    let of = |v: &MediatorValues| v.get(Mediator::PdImbalance).unwrap();
    let (o, p) = (
        of(&sides.observed.mediators),
        of(&sides.predicted.mediators),
    );
    assert!((o - p).abs() < 0.02, "{o} is not {p}");
}

/// The same where the queue is not held: it stays as long as it was.
#[test]
fn a_held_batch_alone_leaves_the_queue_as_it_was() {
    let plain = both_sides(small(), 1).predicted;
    let held = sides_with(small(), 1, |plain| {
        let running = plain.mediators.get(Mediator::RunningRequests).unwrap();
        MediatorValues::absent().with(Mediator::RunningRequests, 1.5 * running)
    });
    let queue = |p: &Prediction| p.mediators.get(Mediator::QueueDepth).unwrap();
    assert!((queue(&held.predicted) / queue(&plain) - 1.0).abs() < 1e-9);
    held.assert_mediator(Mediator::KvPressureScore, 1e-6);
    assert!(held.predicted.ttft_mean_ms > plain.ttft_mean_ms);
}
