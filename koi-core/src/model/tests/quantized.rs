//! Bytes of quantized checkpoints: scales, zero points, and what is left out.

use serde_json::json;

use super::folder::folder_facts;
use super::*;

fn quantized(config: serde_json::Value) -> ModelFacts {
    facts(&config_with("quantization_config", config))
}

fn problem(config: serde_json::Value) -> String {
    refusals(&config_with("quantization_config", config)).join("; ")
}

#[test]
fn block_scaled_fp8_keeps_tables_at_two_bytes_and_adds_scales() {
    let block = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    let model = quantized(block);
    assert_eq!(model.native_weight_dtype, WeightDtype::Fp8);
    let linear = model.linear_params(false);
    // Every matrix of this model is whole blocks; one 32-bit scale each.
    let scales = linear / (128 * 128) * 4;
    let expected = linear + scales + 2 * (model.params_total - linear);
    assert_eq!(model.weight_bytes(WeightDtype::Auto), expected);
    assert_eq!(model.weight_bytes(WeightDtype::Fp8), expected);
    assert_eq!(model.quantization_group, Some(128));
}

#[test]
fn grouped_integers_have_scales_and_zero_points() {
    let awq =
        quantized(json!({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true}));
    assert_eq!(awq.native_weight_dtype, WeightDtype::Int4);
    assert_eq!(awq.quantization_group, Some(128));
    let linear = awq.linear_params(false);
    let rest = 2 * (awq.params_total - linear);
    // 16-bit scale and 4-bit zero point per 128 weights.
    let expected = linear / 2 + linear / 128 * 20 / 8 + rest;
    assert_eq!(awq.weight_bytes(WeightDtype::Auto), expected);
    let gptq =
        quantized(json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true}));
    // GPTQ also stores 32 bits per input element of every matrix.
    let inputs: u64 = 32 * (4 * 4096 + 2 * 4096 + 14_336) - 32 * 4096;
    assert_eq!(gptq.weight_bytes(WeightDtype::Auto), expected + 4 * inputs);
}

#[test]
fn what_a_list_leaves_out_stays_in_the_base_format() {
    let all = json!({"quant_method": "fp8"});
    let whole = quantized(all).weight_bytes(WeightDtype::Auto);
    let attention = 2 * 4096 * 4096 + 2 * 1024 * 4096;
    let one =
        json!({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.3.self_attn"]});
    let one = quantized(one);
    // One byte more per weight, and three scales fewer.
    assert_eq!(one.weight_bytes(WeightDtype::Auto), whole + attention - 12);
    assert_eq!(
        one.kinds.iter().map(|k| k.layers).collect::<Vec<_>>(),
        [31, 1]
    );
    assert_eq!(one.order.iter().position(|k| *k == 1), Some(3));
    let every = json!({"quant_method": "fp8", "ignored_layers": ["re:.*self_attn.*"]});
    let expected = whole + 32 * (attention - 12);
    assert_eq!(quantized(every).weight_bytes(WeightDtype::Auto), expected);
}

#[test]
fn the_side_file_of_modelopt_is_read() {
    let side = r#"{"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4",
        "group_size": 16, "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}"#;
    let model = ModelFacts::from_texts(LLAMA_8B, Some(side)).unwrap();
    assert_eq!(model.native_weight_dtype, WeightDtype::Nvfp4);
    let linear = model.linear_params(false);
    // q, k+v, o, gate+up, down in each of 32 layers, with two 32-bit scales a matrix.
    let matrices = 32 * (1 + 1 + 1 + 2 + 1);
    let expected = linear / 2 + linear / 16 + 8 * matrices + 2 * (model.params_total - linear);
    assert_eq!(model.weight_bytes(WeightDtype::Auto), expected);
    assert_eq!(model.quantization.unwrap().kv_dtype, Some(KvDtype::Fp8));
    assert!(
        model
            .notes
            .iter()
            .any(|n| n.field.ends_with("kv_cache_quant_algo"))
    );
}

#[test]
fn published_checkpoint_sizes_are_met() {
    // Sizes of the safetensors files in bytes, as the model pages state them; multi-token
    // prediction layers are not in the text models named here.
    for (name, gigabytes, percent) in [
        ("openai--gpt-oss-120b", 65.25, 0.2),
        ("openai--gpt-oss-20b", 13.76, 0.2),
        ("nvidia--Llama-3.1-70B-Instruct-FP8", 72.66, 0.2),
        ("Qwen--Qwen3-32B-FP8", 34.3, 1.0),
        ("meta-llama--Meta-Llama-3.1-70B", 141.1, 0.1),
    ] {
        let Some(model) = folder_facts(name) else {
            return;
        };
        let bytes = model.weight_bytes(WeightDtype::Auto) as f64;
        let off = bytes / (gigabytes * 1e9) - 1.0;
        assert!(off.abs() * 100.0 < percent, "{name}: {bytes}");
    }
}

#[test]
fn only_experts_of_gpt_oss_are_quantized() {
    let Some(model) = folder_facts("openai--gpt-oss-20b") else {
        return;
    };
    for part in &model.parts {
        let quantized = part.part == Part::RoutedExperts;
        assert_eq!(part.quantized_params > 0, quantized, "{part:?}");
    }
    let experts = model.part(Part::RoutedExperts).unwrap();
    assert_eq!(experts.quantized_params, 24 * 32 * 3 * 2880 * 2880);
}

#[test]
fn attention_that_llama_4_leaves_out_is_two_bytes() {
    let Some(model) = folder_facts("llama-4-scout-17b-16e-instruct-fp8-dynamic") else {
        return;
    };
    assert_eq!(model.native_weight_dtype, WeightDtype::Fp8);
    let part = |part: Part| *model.part(part).unwrap();
    let attention = part(Part::Attention);
    assert_eq!(attention.quantized_params, 0);
    assert_eq!(attention.stored_bytes, 2 * attention.params);
    assert_eq!(part(Part::Head).quantized_params, 0);
    let experts = part(Part::RoutedExperts);
    assert_eq!(experts.quantized_params, experts.params);
}

#[test]
fn methods_that_are_not_understood_are_refused() {
    let text = problem(json!({"quant_method": "bitsandbytes"}));
    assert!(
        text.contains("bitsandbytes") && text.contains("compressed-tensors"),
        "{text}"
    );
    assert!(problem(json!({"quant_method": "awq", "bits": 3, "group_size": 128})).contains("bits"));
    assert!(problem(json!({"quant_method": "awq", "bits": 4})).contains("group_size"));
    let block = json!({"quant_method": "fp8", "weight_block_size": [0, 128]});
    assert!(problem(block).contains("weight_block_size"));
    let list = json!({"quant_method": "fp8", "modules_to_not_convert": ["re:[ab]{2}"]});
    assert!(problem(list).contains("modules_to_not_convert"));
    let mixed = json!({"quant_method": "compressed-tensors", "config_groups": {
        "a": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}},
        "b": {"targets": ["re:.*mlp.*"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}},
    }});
    assert!(problem(mixed).contains("differ by module"));
}

#[test]
fn tiles_of_kernels_limit_the_split() {
    let Some(model) = folder_facts("Qwen--Qwen3-235B-A22B") else {
        return;
    };
    assert!(model.legal_tp(8).is_ok());
    let Some(folder) = shared("data/model_configs") else {
        return;
    };
    let text = read(&folder.join("Qwen--Qwen3-235B-A22B.json"));
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["quantization_config"] = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    let fp8 = facts(&config.to_string());
    // 1536 / 8 = 192 is not whole blocks; spread experts are not cut.
    assert!(fp8.legal_tp(8).unwrap_err().contains("quantization group"));
    assert!(fp8.legal_split(8, 8).is_ok());
    assert!(fp8.legal_tp(4).is_ok());
    // The engine pads MXFP4 experts.
    let oss = folder_facts("openai--gpt-oss-120b").unwrap();
    assert!(oss.legal_tp(8).is_ok());
}
