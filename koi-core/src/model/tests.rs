//! Published parameter counts, the arithmetic vectors, and refusals.

mod folder;
mod hostile;
mod kinds;
mod quantized;
mod stored_rows;

use super::tests_support::{read, shared};
use super::*;

const LLAMA_8B: &str = include_str!("../../../configs/models/Llama-3.1-8B.json");
const LLAMA_70B: &str = include_str!("../../../configs/models/Llama-3.1-70B.json");
const QWEN25_7B: &str = include_str!("../../../configs/models/Qwen2.5-7B.json");
const QWEN3_32B: &str = include_str!("../../../configs/models/Qwen3-32B.json");
const QWEN3_30B_A3B: &str = include_str!("../../../configs/models/Qwen3-30B-A3B.json");
const MIXTRAL: &str = include_str!("../../../configs/models/Mixtral-8x7B.json");

fn facts(text: &str) -> ModelFacts {
    ModelFacts::from_config_json(text).unwrap()
}

fn refusals(text: &str) -> Vec<String> {
    ModelFacts::from_config_json(text)
        .unwrap_err()
        .into_iter()
        .map(|v| format!("{}: {}", v.field, v.message))
        .collect()
}

/// A small valid config with one field replaced or (with `null`) removed.
fn config_with(key: &str, value: serde_json::Value) -> String {
    let mut config: serde_json::Value = serde_json::from_str(LLAMA_8B).unwrap();
    config[key] = value;
    config.to_string()
}

#[test]
fn parameter_counts_are_the_published_ones() {
    for (text, total) in [
        (LLAMA_8B, 8_030_261_248),
        (LLAMA_70B, 70_553_706_496),
        (QWEN25_7B, 7_615_616_512),
        (QWEN3_32B, 32_762_123_264),
        (QWEN3_30B_A3B, 30_532_122_624),
        (MIXTRAL, 46_702_792_704),
    ] {
        assert_eq!(facts(text).params_total, total);
    }
    assert_eq!(facts(MIXTRAL).params_active, 12_879_925_248);
    assert_eq!(facts(QWEN3_30B_A3B).params_active / 100_000_000, 33);
}

#[test]
fn classes_follow_size_and_routing() {
    assert_eq!(facts(LLAMA_8B).class(), ModelClass::DenseSmall);
    assert_eq!(facts(LLAMA_70B).class(), ModelClass::DenseLarge);
    assert_eq!(facts(MIXTRAL).class(), ModelClass::Moe);
}

#[test]
fn explicit_head_dim_wins_and_null_is_absent() {
    // 64 heads × 128 ≠ hidden 5120.
    assert_eq!(facts(QWEN3_32B).head_dim, 128);
    assert_eq!(facts(&config_with("head_dim", 64.into())).head_dim, 64);
    let derived = facts(&config_with("head_dim", serde_json::Value::Null));
    assert_eq!(derived.head_dim, 128);
    assert_eq!(
        derived.sources["head_dim"],
        "hidden_size / num_attention_heads"
    );
}

#[test]
fn nested_text_config_is_read_and_named() {
    let inner: serde_json::Value = serde_json::from_str(LLAMA_8B).unwrap();
    let outer =
        serde_json::json!({"model_type": "wrapper", "hidden_size": 7, "text_config": inner});
    let nested = facts(&outer.to_string());
    assert_eq!(nested.hidden, 4096);
    assert_eq!(nested.sources["hidden"], "text_config.hidden_size");
}

#[test]
fn tied_embeddings_are_counted_once() {
    let tied = facts(&config_with("tie_word_embeddings", true.into()));
    assert_eq!(
        facts(LLAMA_8B).params_total - tied.params_total,
        128_256 * 4096
    );
}

#[test]
fn stretched_positions_are_the_longest_context() {
    let with = |scaling: serde_json::Value| {
        let facts = facts(&config_with("rope_scaling", scaling));
        (facts.max_position, facts.sources["max_position"].clone())
    };
    let stated = facts(LLAMA_8B).max_position;
    let (longest, source) = with(serde_json::json!({"type": "dynamic", "factor": 2.0}));
    assert_eq!(longest, 2 * stated);
    assert!(source.contains("rope_scaling.factor"), "{source}");
    for (scaling, expected) in [
        (
            serde_json::json!({"rope_type": "linear", "factor": 4.0}),
            4 * stated,
        ),
        (
            serde_json::json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": stated}),
            4 * stated,
        ),
        // What the config states is stretched already, or there is nothing to stretch it by.
        (
            serde_json::json!({"type": "yarn", "factor": 40, "original_max_position_embeddings": 128}),
            stated,
        ),
        (
            serde_json::json!({"rope_type": "llama3", "factor": 8.0}),
            stated,
        ),
        (serde_json::json!({"type": "linear", "factor": "x"}), stated),
        (
            serde_json::json!({"type": "linear", "factor": 1e300}),
            stated,
        ),
        (serde_json::json!(7), stated),
    ] {
        assert_eq!(with(scaling.clone()).0, expected, "{scaling}");
    }
}

#[test]
fn all_problems_come_back_at_once() {
    let text = r#"{"model_type": "llama", "num_hidden_layers": 0, "hidden_size": "x",
        "num_attention_heads": 30, "num_key_value_heads": 7, "vocab_size": 1e99,
        "intermediate_size": 11008, "quantization_config": {"quant_method": "bitsandbytes"}}"#;
    let found = refusals(text);
    for field in [
        "num_hidden_layers",
        "hidden_size",
        "num_key_value_heads",
        "vocab_size",
        "max_position_embeddings",
        "quantization_config.quant_method",
    ] {
        assert!(
            found.iter().any(|v| v.starts_with(&format!("{field}:"))),
            "{field} in {found:?}"
        );
    }
}

#[test]
fn splits_are_refused_with_the_numbers() {
    let model = facts(QWEN25_7B);
    assert!(model.legal_tp(4).is_ok());
    assert!(model.legal_tp(8).unwrap_err().contains("28"));
    assert!(model.legal_tp(3).is_err());
    assert!(facts(LLAMA_70B).legal_tp(16).is_ok());
    assert!(model.legal_pp(29).unwrap_err().contains("28"));
    assert!(model.legal_pp(2).is_ok());
    assert!(model.legal_ep(2, 2).unwrap_err().contains("dense"));
    assert!(facts(MIXTRAL).legal_ep(4, 4).is_ok());
    assert!(facts(MIXTRAL).legal_ep(2, 4).is_err());
    let awq = serde_json::json!({"quant_method": "awq", "bits": 4, "group_size": 4096});
    let cut = facts(&config_with("quantization_config", awq))
        .legal_tp(2)
        .unwrap_err();
    assert!(cut.contains("quantization group"), "{cut}");
}

#[test]
fn experts_touched_grow_with_the_batch_to_all() {
    let model = facts(MIXTRAL);
    let one = model.linear_params_touched(1.0);
    assert!((one - model.linear_params(true) as f64).abs() < 1e-3 * one);
    let many = model.linear_params_touched(500.0);
    assert!((many - model.linear_params(false) as f64).abs() < 1e-6 * many);
}

#[test]
fn weights_per_gpu_add_up_but_for_what_is_replicated() {
    let model = facts(LLAMA_70B);
    let whole = model.weight_bytes_per_gpu(WeightDtype::Auto, 1, 1);
    assert!((whole - 2.0 * 70_553_706_496.0).abs() < 1.0);
    let eighth = model.weight_bytes_per_gpu(WeightDtype::Auto, 8, 1);
    // Two norms a layer and the last one are whole on every shard.
    let norms = 2.0 * (2.0 * 80.0 + 1.0) * 8192.0;
    assert!((8.0 * (eighth - norms) - (whole - norms)).abs() < 1.0);
    assert!(model.weight_bytes_per_gpu(WeightDtype::Auto, 16, 1) > whole / 16.0);
}

#[test]
fn bytes_read_grow_with_the_experts_touched() {
    let model = facts(MIXTRAL);
    let linear = model.linear_params(false) as f64;
    let touched = |dtype, tokens| model.linear_bytes_touched(dtype, tokens);
    assert!((touched(WeightDtype::Auto, 1e6) - 2.0 * linear).abs() < 1.0);
    assert!((touched(WeightDtype::Fp8, 1e6) - linear).abs() < 1.0);
    let one = 2.0 * model.linear_params(true) as f64;
    assert!((touched(WeightDtype::Auto, 1.0) - one).abs() < 1e-6 * one);
    // On one GPU, all experts touched: everything but the two tables and the last norm.
    let layers = model.layer_bytes_touched_per_gpu(WeightDtype::Auto, 1e6, 1, 1);
    let all = model.weight_bytes_per_gpu(WeightDtype::Auto, 1, 1);
    let rest = 2.0 * (model.embedding_params() as f64 + 4096.0);
    assert!((layers + rest - all).abs() < 1.0, "{layers} {all}");
    let shard = model.layer_bytes_touched_per_gpu(WeightDtype::Auto, 4.0, 8, 2);
    assert!(shard < layers / 16.0 && shard > layers / 40.0, "{shard}");
}

#[test]
fn the_fullest_stage_has_its_layers_and_one_table() {
    let model = facts(LLAMA_8B);
    let whole = model.weight_bytes_per_gpu(WeightDtype::Auto, 1, 1);
    let half = model.weight_bytes_per_gpu(WeightDtype::Auto, 1, 2);
    // Embedding and head are alike; the last stage has the last norm.
    assert!((half - (whole + 2.0 * 4096.0) / 2.0).abs() < 1.0, "{half}");
    let layers: Vec<u32> = (0..4).map(|s| stage_layers(30, 4, s)).collect();
    assert_eq!(layers, [7, 8, 8, 7]);
    assert_eq!((0..3).map(|s| stage_layers(61, 3, s)).sum::<u32>(), 61);
}

fn vector(name: &str) -> Option<serde_json::Value> {
    let path = shared(&format!("vectors/{name}"))?;
    Some(serde_json::from_str(&read(&path)).unwrap())
}

#[test]
fn vector_model_arithmetic() {
    let Some(file) = vector("model_arithmetic.json") else {
        return;
    };
    let cases = file["cases"].as_array().unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let (input, out) = (&case["in"], &case["out"]);
        let n = |key: &str| u32::try_from(input[key].as_u64().unwrap()).unwrap();
        let kv = KvDtype::from_name(input["dtype"].as_str().unwrap()).unwrap();
        let bytes = kv.bytes(2.0);
        let shape = (n("layers"), n("kv_heads"), n("head_dim"));
        let close = |key: &str, got: f64| {
            let want = out[key].as_f64().unwrap();
            assert!(
                (got - want).abs() <= 1e-9 * want.abs(),
                "{} {key}: {got} {want}",
                case["name"]
            );
        };
        close(
            "kv_bytes_per_token",
            kv_bytes_per_token_of(shape, bytes, 1, 1),
        );
        close(
            "kv_bytes_per_token_gpu",
            kv_bytes_per_token_of(shape, bytes, n("tp"), n("pp")),
        );
        close(
            "bubble",
            pipeline_bubble_fraction(n("pp"), f64::from(n("micro_batches"))),
        );
        let comm = comm_bytes_per_token(n("layers"), n("hidden"), bytes, n("tp"), n("pp"));
        close("comm_bytes_per_token", comm);
    }
}
