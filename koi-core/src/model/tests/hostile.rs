//! Input from strangers: refused with the field and the fix, without a panic or an overflow.

use serde_json::{Value, json};

use super::*;

#[test]
fn what_is_not_modelled_is_refused_by_name() {
    let unsupported = refusals(&config_with("model_type", "rwkv".into()));
    assert!(unsupported[0].contains("rwkv") && unsupported[0].contains("qwen3_moe"));
    let near = refusals(&config_with("model_type", "qwen3moe".into()));
    assert!(near[0].contains("did you mean qwen3_moe"), "{near:?}");
    assert!(refusals(&config_with("model_type", Value::Null))[0].contains("missing"));
    let encoder = refusals(&config_with("is_encoder_decoder", true.into()));
    assert!(encoder[0].contains("encoder-decoder"));
    let experts = refusals(&config_with("num_local_experts", 8.into()));
    assert!(experts[0].contains("another model_type"), "{experts:?}");
    let layers: Vec<&str> = vec!["mamba"; 32];
    let mixed = refusals(&config_with("layer_types", json!(layers)));
    assert!(mixed[0].contains("mamba"), "{mixed:?}");
    assert!(refusals("[]")[0].contains("object"));
    assert!(refusals(&" ".repeat(300_000))[0].contains("bytes"));
    assert!(refusals(&"[".repeat(100_000))[0].contains("not JSON"));
    assert!(refusals(&format!("{{\"a\":{}", "{\"a\":".repeat(50_000)))[0].contains("not JSON"));
}

#[test]
fn a_class_that_is_not_modelled_is_refused_whatever_the_model_type() {
    let classes = |class: &str| refusals(&config_with("architectures", json!([class])));
    for (class, word) in [
        ("MambaForCausalLM", "not modelled"),
        ("FooForCausalLM", "not modelled"),
        ("MixtralForCausalLM", "mixtral model"),
        ("LlamaForSequenceClassification", "generates text"),
    ] {
        let found = classes(class);
        assert!(found.len() == 1 && found[0].contains(class), "{found:?}");
        assert!(found[0].contains(word), "{found:?}");
    }
    assert!(refusals(&config_with("architectures", json!("x")))[0].contains("list"));
    for fine in [json!(["LlamaForCausalLM"]), json!([]), Value::Null] {
        let text = config_with("architectures", fine);
        assert!(ModelFacts::from_config_json(&text).is_ok());
    }
}

#[test]
fn a_quantization_that_means_nothing_is_refused() {
    let weights = |group: Value| {
        json!({"quant_method": "compressed-tensors", "config_groups": {"g": {
            "targets": ["Linear"], "weights": {"type": "int", "num_bits": 4, "strategy": "group",
            "group_size": group}}}})
    };
    let config = |q: Value| config_with("quantization_config", q);
    for bad in [json!(0), json!(1_u64 << 62), json!("x"), json!(-2)] {
        let found = refusals(&config(weights(bad)));
        assert!(found[0].contains("group_size"), "{found:?}");
    }
    assert!(ModelFacts::from_config_json(&config(weights(json!(128)))).is_ok());
    let mut elsewhere = weights(json!(128));
    elsewhere["config_groups"]["g"]["targets"] = json!(["re:.*nothing_here.*"]);
    let found = refusals(&config(elsewhere));
    assert!(found[0].contains("applies to no matrix"), "{found:?}");
    let mut seven = weights(json!(128));
    seven["config_groups"]["g"]["weights"]["num_bits"] = json!(7);
    let found = refusals(&config(seven));
    assert!(found[0].contains("7 bits"), "{found:?}");
}

#[test]
fn numbers_out_of_range_are_refused_with_their_field() {
    for key in [
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
        "max_position_embeddings",
        "head_dim",
    ] {
        for bad in [
            json!(0),
            json!(-1),
            json!(1e99),
            json!(1.5),
            json!(u64::MAX),
            json!("8"),
            json!([8]),
        ] {
            let found = refusals(&config_with(key, bad.clone()));
            let named = found.iter().any(|v| v.starts_with(&format!("{key}:")));
            assert!(named, "{key} = {bad}: {found:?}");
        }
        let nan = config_with(key, json!(987_654)).replace("987654", "NaN");
        let found = refusals(&nan);
        assert!(
            found
                .iter()
                .any(|v| v.starts_with(&format!("{key}:")) && v.contains("NaN")),
            "{found:?}"
        );
    }
}

#[test]
fn the_largest_legal_numbers_do_not_overflow() {
    let big = json!({"model_type": "deepseek_v32", "num_hidden_layers": 1024, "hidden_size": 262_144,
        "num_attention_heads": 4096, "num_key_value_heads": 4096, "intermediate_size": 262_144,
        "vocab_size": 4_194_304, "max_position_embeddings": 134_217_728,
        "moe_intermediate_size": 262_144, "n_routed_experts": 4096, "n_shared_experts": 1,
        "num_experts_per_tok": 4096, "first_k_dense_replace": 0, "kv_lora_rank": 262_144,
        "q_lora_rank": 262_144, "qk_nope_head_dim": 8192, "qk_rope_head_dim": 8192,
        "v_head_dim": 8192, "index_n_heads": 4096, "index_head_dim": 8192,
        "index_topk": 134_217_728, "torch_dtype": "float32"});
    let model = facts(&big.to_string());
    assert!(model.params_total > 1 << 59);
    let bytes = model.weight_bytes_per_gpu(WeightDtype::Auto, 4096, 1024);
    assert!(bytes.is_finite() && bytes > 0.0);
    assert!(model.kv_bytes_of_context(1e9, KvDtype::Auto).is_finite());
    let mamba = json!({"model_type": "jamba", "num_hidden_layers": 1024, "hidden_size": 262_144,
        "num_attention_heads": 4096, "num_key_value_heads": 4096, "intermediate_size": 262_144,
        "vocab_size": 4_194_304, "max_position_embeddings": 134_217_728, "num_experts": 4096,
        "num_experts_per_tok": 1, "mamba_expand": 8, "mamba_d_state": 4096, "mamba_d_conv": 64,
        "mamba_dt_rank": 262_144});
    assert!(facts(&mamba.to_string()).totals.state_bytes.is_finite());
}

/// Values that no field expects.
fn strange_values() -> [Value; 11] {
    [
        Value::Null,
        json!({}),
        json!([]),
        json!(""),
        json!(true),
        json!(i64::MIN),
        json!(3),
        json!(4_000),
        json!([[[]]]),
        json!({"quant_method": {"a": 1}}),
        json!("\u{1b}[31m"),
    ]
}

#[test]
fn any_field_of_any_type_is_refused_or_read() {
    let rows: Value = serde_json::from_str(include_str!("further.json")).unwrap();
    let mut bases: Vec<Value> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["config"].clone())
        .collect();
    bases.push(serde_json::from_str(QWEN3_30B_A3B).unwrap());
    bases.extend(
        ["deepseek-v3", "falcon-180b", "bloom-7b1"].map(|name| {
            serde_json::from_str(KnownModel::find(name).unwrap().config_json()).unwrap()
        }),
    );
    let extra = [
        "layer_types",
        "quantization_config",
        "text_config",
        "mlp_only_layers",
        "sliding_window",
        "block_configs",
        "hybrid_override_pattern",
        "no_rope_layers",
        "moe_layers",
    ];
    for base in bases {
        let keys: Vec<String> = base.as_object().unwrap().keys().cloned().collect();
        for key in keys.iter().map(String::as_str).chain(extra) {
            for value in strange_values() {
                let mut config = base.clone();
                config[key] = value;
                // Any answer is right here but a panic; what is read adds up.
                if let Ok(model) = ModelFacts::from_config_json(&config.to_string()) {
                    let sum: u64 = model.parts.iter().map(|p| p.params).sum();
                    assert_eq!(sum, model.params_total, "{key} of {config}");
                    assert!(
                        model
                            .weight_bytes_per_gpu(WeightDtype::Auto, 2, 2)
                            .is_finite()
                    );
                    assert!(model.split_refusals(6, 1).len() < 50);
                }
            }
        }
    }
}

#[test]
fn names_that_disagree_are_reported() {
    let text = config_with("num_local_experts", Value::Null);
    assert!(ModelFacts::from_config_json(&text).is_ok());
    let mut config: Value = serde_json::from_str(QWEN3_30B_A3B).unwrap();
    config["num_local_experts"] = json!(64);
    let found = refusals(&config.to_string());
    assert!(found[0].contains("num_experts is 128"), "{found:?}");
}

#[test]
fn defaults_are_named() {
    let nested = json!({"model_type": "llava", "vision_config": {}, "torch_dtype": "float16",
        "text_config": {"model_type": "llama", "max_position_embeddings": 4096}});
    let model = facts(&nested.to_string());
    assert_eq!(model.hidden, 4096);
    assert!(model.sources["hidden"].contains("default of LlamaConfig"));
    assert!(model.notes.iter().any(|n| n.field == "hidden_size"));
    assert!(
        model
            .notes
            .iter()
            .any(|n| n.field == "vision_config" && n.message.contains("unknown"))
    );
    // At the top a missing shape is a problem, not a default.
    let found = refusals(r#"{"model_type": "llama", "max_position_embeddings": 4096}"#);
    assert!(found.len() >= 4, "{found:?}");
    let plain = facts(&config_with("torch_dtype", Value::Null));
    assert!(plain.notes.iter().any(|n| n.field == "torch_dtype"));
}

#[test]
fn windows_are_read_or_missed_by_name() {
    let mut mistral: Value = serde_json::from_str(LLAMA_8B).unwrap();
    mistral["model_type"] = "mistral".into();
    mistral["architectures"] = json!(["MistralForCausalLM"]);
    let by_class = facts(&mistral.to_string());
    assert_eq!(by_class.kinds[0].window, Some(4096));
    assert!(by_class.sources["sliding_window"].contains("default of MistralConfig"));
    mistral["sliding_window"] = Value::Null;
    assert_eq!(facts(&mistral.to_string()).kinds[0].mixer, MixerKind::Full);
    mistral["sliding_window"] = json!(1 << 20);
    // Longer than the context: nothing is forgotten.
    assert_eq!(facts(&mistral.to_string()).kinds[0].mixer, MixerKind::Full);
    let mut qwen: Value = serde_json::from_str(QWEN25_7B).unwrap();
    qwen["use_sliding_window"] = json!(true);
    qwen["sliding_window"] = json!(4096);
    qwen["max_window_layers"] = json!(20);
    let split: Vec<u32> = facts(&qwen.to_string())
        .kinds
        .iter()
        .map(|k| k.layers)
        .collect();
    assert_eq!(split, [20, 8]);
    qwen["sliding_window"] = Value::Null;
    assert!(refusals(&qwen.to_string())[0].contains("sliding_window"));
}
