//! Rows become questions by stated rules, or are refused with every reason.

use super::*;
use crate::model::{KvDtype, WeightDtype};
use crate::surrogate::neighbours::NeighbourVoice;
use crate::surrogate::stack::{Calibration, StackPrediction};
use crate::surrogate::tests::{facts, gpu};
use crate::surrogate::{EngineGeneration, EngineProfile};

fn row() -> MeasuredRow {
    MeasuredRow {
        model: "llama-3.1-70b".to_owned(),
        gpu_type: "H100-SXM-80GB".to_owned(),
        num_gpus: Some(8),
        tp: Some(4),
        engine: "vllm".to_owned(),
        isl: Some(1_024.0),
        osl: Some(256.0),
        load: Some(64.0),
        load_kind: Some(LoadKind::Concurrency),
        ..MeasuredRow::default()
    }
}

fn question(row: &MeasuredRow) -> Question {
    Question::of(row, &facts("Llama-3.1-70B"), gpu("H100")).unwrap()
}

fn predicted(row: &MeasuredRow) -> RowPrediction {
    let question = question(row);
    let profile = EngineProfile::embedded(question.generation);
    match question.ask(gpu("H100"), profile) {
        RowAnswer::Prediction(prediction) => prediction,
        other => panic!("{other:?}"),
    }
}

#[test]
fn replicas_share_the_load_and_add_their_throughput() {
    let two = question(&row());
    assert_eq!((two.n_replicas, two.load_per_replica), (2, Some(32.0)));
    let one = MeasuredRow {
        num_gpus: Some(4),
        load: Some(32.0),
        ..row()
    };
    let (one, two) = (predicted(&one), predicted(&row()));
    assert_eq!(one.tpot_mean_ms, two.tpot_mean_ms);
    let ratio = two.out_tok_s_system.unwrap() / one.out_tok_s_system.unwrap();
    assert!((ratio - 2.0).abs() < 1e-9);
}

#[test]
fn replicas_without_a_request_generate_nothing() {
    let of = |replicas: u32, load: f64| {
        let row = MeasuredRow {
            num_gpus: Some(4 * replicas),
            load: Some(load),
            ..row()
        };
        let question = question(&row);
        let busy = (question.n_replicas, question.n_busy_replicas);
        let profile = EngineProfile::embedded(question.generation);
        let means = question.ask_means(gpu("H100"), profile);
        (busy, predicted(&row), means)
    };
    let (_, alone, _) = of(1, 1.0);
    let (busy, idle, means) = of(8, 1.0);
    assert_eq!(busy, (8, 1), "all are there, and paid for");
    assert_eq!(idle.out_tok_s_system, alone.out_tok_s_system);
    assert_eq!(idle.ttft_p99_ms, alone.ttft_p99_ms);
    assert_eq!(means[2], idle.out_tok_s_system);
    let (busy, three, _) = of(8, 3.0);
    assert_eq!(busy, (8, 3));
    let ratio = three.out_tok_s_system.unwrap() / alone.out_tok_s_system.unwrap();
    assert!((ratio - 3.0).abs() < 1e-9, "{ratio}");
    let (busy, eight, _) = of(8, 8.0);
    assert_eq!(busy, (8, 8));
    assert!(eight.out_tok_s_system > three.out_tok_s_system);
}

fn stacked(row: &MeasuredRow) -> StackPrediction {
    let generation = question(row).generation;
    let voice = |_| NeighbourVoice::default();
    Calibration::embedded().stack(&predicted(row), "H100", generation, voice)
}

#[test]
fn answers_of_one_token_come_out_as_fast_as_first_tokens() {
    let of = |kind: LoadKind, load: f64| {
        stacked(&MeasuredRow {
            num_gpus: Some(4),
            osl: Some(1.0),
            load: Some(load),
            load_kind: Some(kind),
            ..row()
        })
    };
    let open = of(LoadKind::RateRps, 1.5).out_tok_s_system.unwrap();
    assert!((open.mixed.value - 1.5).abs() < 1e-9, "{open:?}");
    assert!(open.hi80 < 1.6);
    for n in [1.0, 16.0] {
        let closed = of(LoadKind::Concurrency, n);
        let (rate, ttft) = (
            closed.out_tok_s_system.unwrap(),
            closed.ttft_mean_ms.unwrap(),
        );
        let expected = n / ttft.mixed.value * 1e3;
        assert!((rate.mixed.value / expected - 1.0).abs() < 1e-9, "{rate:?}");
        assert!(rate.lo80 < rate.mixed.value && rate.mixed.value < rate.hi80);
    }
    // Above capacity what comes in does not go out.
    let above = of(LoadKind::RateRps, 1e4);
    assert!(above.ttft_mean_ms.is_none());
    assert!(above.out_tok_s_system.unwrap().mixed.value < 1e3);
}

#[test]
fn every_gap_is_named_at_once() {
    let bare = Question::of(
        &MeasuredRow::default(),
        &facts("Llama-3.1-70B"),
        gpu("H100"),
    );
    let reasons = bare.unwrap_err();
    for what in ["isl", "osl", "load_kind", "engine", "num_gpus"] {
        assert!(reasons.contains(what), "{what}: {reasons}");
    }
    let apart = MeasuredRow {
        is_disaggregated: true,
        ..row()
    };
    let refused = Question::of(&apart, &facts("Llama-3.1-70B"), gpu("H100"));
    assert!(refused.unwrap_err().contains("separate devices"));
}

#[test]
fn formats_follow_the_row_and_the_engine() {
    let fp8 = MeasuredRow {
        weight_dtype: Some("fp8".to_owned()),
        ..row()
    };
    let vllm = question(&fp8);
    assert_eq!(vllm.shape.weight_dtype, WeightDtype::Fp8);
    assert_eq!(vllm.shape.kv_dtype, KvDtype::Auto);
    let tensorrt = question(&MeasuredRow {
        engine: "tensorrt-llm".to_owned(),
        engine_version: Some("1.0.0rc3".to_owned()),
        ..fp8
    });
    assert_eq!(tensorrt.generation, EngineGeneration::TensorrtPreview);
    assert_eq!(tensorrt.shape.kv_dtype, KvDtype::Fp8);
}

#[test]
fn a_request_ends_before_the_positions_do() {
    let longest = facts("Llama-3.1-70B").max_position;
    let of = |engine: &str, isl: u32| {
        let row = MeasuredRow {
            engine: engine.to_owned(),
            engine_version: Some("0.9.0".to_owned()),
            isl: Some(f64::from(isl)),
            ..row()
        };
        Question::of(&row, &facts("Llama-3.1-70B"), gpu("H100"))
    };
    assert!(of("vllm", longest - 256).is_ok());
    let why = of("vllm", longest - 255).unwrap_err();
    assert!(
        why.contains("131073") && why.contains("131072 (max_position"),
        "{why}"
    );
    // Built for a length, whatever the checkpoint says.
    assert!(of("tensorrt-llm", longest).is_ok());
}

#[test]
fn names_that_are_not_known_come_back_with_the_known_ones() {
    for engine in EngineGeneration::ENGINES {
        assert!(
            EngineGeneration::of(engine, None, None).is_some(),
            "{engine}"
        );
    }
    for kind in LoadKind::NAMES {
        assert!(LoadKind::from_name(kind).is_some(), "{kind}");
    }
    let row = MeasuredRow {
        engine: "tgi".to_owned(),
        load_kind: None,
        ..row()
    };
    let why = Question::of(&row, &facts("Llama-3.1-70B"), gpu("H100")).unwrap_err();
    for words in ["engine \"tgi\"", "deepspeed-mii", "load_kind", "rate_rps"] {
        assert!(why.contains(words), "{words} in {why}");
    }
}

#[test]
fn a_split_counted_twice_is_read_once() {
    let doubled = MeasuredRow {
        tp: Some(64),
        ep: Some(8),
        num_gpus: Some(64),
        ..row()
    };
    let question = Question::of(&doubled, &facts("Qwen3-30B-A3B"), gpu("H100")).unwrap();
    assert_eq!((question.shape.tp, question.n_replicas), (8, 1));
}

#[test]
fn a_backlog_waits_for_slots_and_a_closed_loop_does_not() {
    let at_once = MeasuredRow {
        load: Some(4_000.0),
        load_kind: Some(LoadKind::AllAtOnce),
        ..row()
    };
    let closed = predicted(&row()).ttft_mean_ms.unwrap();
    let queued = predicted(&at_once).ttft_mean_ms.unwrap();
    assert!(queued > 10.0 * closed, "{queued} {closed}");
}

#[test]
fn the_first_wave_decides_the_worst_hundredth_of_a_short_run() {
    let run = |requests: u32| {
        predicted(&MeasuredRow {
            num_gpus: Some(4),
            n_requests: Some(requests),
            ..row()
        })
    };
    // Of 640 requests 64 start at once; of 64,000 a thousandth, which no percentile shows.
    let (short, long) = (run(640), run(64_000));
    assert_eq!(short.ttft_mean_ms, long.ttft_mean_ms);
    assert_eq!(short.tpot_mean_ms, long.tpot_mean_ms);
    assert!(short.ttft_p99_ms > long.ttft_p99_ms, "{short:?} {long:?}");
    assert_eq!(short.tpot_p99_ms, long.tpot_p99_ms);
    // Where nothing is stated, ten requests for each client.
    let unstated = predicted(&MeasuredRow {
        num_gpus: Some(4),
        ..row()
    });
    assert_eq!(unstated, short);
    // The prompts of 63 others take longer than the one own prompt that a lone client waits for.
    let alone = predicted(&MeasuredRow {
        load: Some(1.0),
        num_gpus: Some(4),
        ..row()
    });
    assert!(short.ttft_p99_ms.unwrap() > 20.0 * alone.ttft_p99_ms.unwrap());
}
