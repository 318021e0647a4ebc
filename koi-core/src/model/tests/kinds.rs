//! Layer kinds: caches, windows, latents, states, and what a token computes and reads.

use serde_json::json;

use super::folder::folder_facts;
use super::*;

fn close(what: &str, got: f64, want: f64) {
    assert!(
        (got - want).abs() <= 1e-9 * want.abs(),
        "{what}: {got}, not {want}"
    );
}

#[test]
fn cache_bytes_per_token_are_the_published_ones() {
    for (name, want) in [
        (
            "meta-llama--Meta-Llama-3.1-70B",
            80.0 * 2.0 * 8.0 * 128.0 * 2.0,
        ),
        ("Qwen--Qwen3-235B-A22B", 94.0 * 2.0 * 4.0 * 128.0 * 2.0),
        ("llama-2-7b-hf", 524_288.0),
        // 61 layers of 512 + 64 numbers, whatever the number of heads.
        ("deepseek-ai--DeepSeek-V3", 61.0 * 576.0 * 2.0),
        ("moonshotai--Kimi-K2-Instruct", 61.0 * 576.0 * 2.0),
        ("deepseek-v2-lite", 27.0 * 576.0 * 2.0),
        // An 8-bit index key of 128 and its scale beside the latent.
        ("zai-org--GLM-5-FP8", 78.0 * (576.0 * 2.0 + 132.0)),
        ("openai--gpt-oss-120b", 36.0 * 2.0 * 8.0 * 64.0 * 2.0),
        // One layer in four caches.
        ("Qwen--Qwen3.5-397B-A17B", 15.0 * 2.0 * 2.0 * 256.0 * 2.0),
        (
            "nvidia--Nemotron-H-56B-Base-8K",
            10.0 * 2.0 * 8.0 * 128.0 * 2.0,
        ),
        // 49 of 80 layers have attention.
        (
            "nvidia--Llama-3_3-Nemotron-Super-49B-v1",
            49.0 * 2.0 * 8.0 * 128.0 * 2.0,
        ),
        // Sliding layers of 8 heads of 256, global ones of 2 of 512.
        (
            "google--gemma-4-26B-A4B",
            (25.0 * 8.0 * 256.0 + 5.0 * 2.0 * 512.0) * 4.0,
        ),
        ("mlc-preset--chatglm", 28.0 * 2.0 * 2.0 * 128.0 * 2.0),
        (
            "tt-metal--falcon-40b.partial",
            60.0 * 2.0 * 8.0 * 64.0 * 2.0,
        ),
    ] {
        let Some(model) = folder_facts(name) else {
            return;
        };
        close(name, model.kv_bytes_per_token(KvDtype::Auto), want);
    }
}

#[test]
fn layers_that_forget_stop_growing() {
    let Some(model) = folder_facts("openai--gpt-oss-120b") else {
        return;
    };
    let layer = 2.0 * 8.0 * 64.0 * 2.0;
    let bytes = |n: f64| model.kv_bytes_of_context(n, KvDtype::Auto);
    close("inside the window", bytes(100.0), 36.0 * layer * 100.0);
    close(
        "beyond it",
        bytes(10_000.0),
        18.0 * layer * (10_000.0 + 128.0),
    );
    let read = model.kv_bytes_read_per_step(10_000.0, KvDtype::Auto, 1);
    close("read", read, bytes(10_000.0));
    let flops = model.decode_attention_flops(10_000.0);
    close(
        "flops",
        flops,
        18.0 * 4.0 * 64.0 * 64.0 * (10_000.0 + 128.0),
    );
    // Chunked: three layers in four.
    let scout = folder_facts("meta-llama--Llama-4-Scout-17B-16E-Instruct").unwrap();
    let layer = 2.0 * 8.0 * 128.0 * 2.0;
    let got = scout.kv_bytes_of_context(100_000.0, KvDtype::Auto);
    close("scout", got, layer * (12.0 * 100_000.0 + 36.0 * 8_192.0));
}

#[test]
fn a_latent_is_whole_on_every_shard_and_dearer_to_decode() {
    let Some(model) = folder_facts("deepseek-ai--DeepSeek-V3") else {
        return;
    };
    let whole = model.kv_bytes_per_token(KvDtype::Auto);
    close(
        "shard",
        model.kv_bytes_per_token_per_gpu(KvDtype::Auto, 8, 1),
        whole,
    );
    close(
        "decode",
        model.decode_attention_flops(1.0),
        61.0 * 2.0 * 128.0 * (2.0 * 512.0 + 64.0),
    );
    close(
        "prefill",
        model.prefill_attention_flops(1.0),
        61.0 * 2.0 * 128.0 * (192.0 + 128.0),
    );
    assert_eq!(model.params_active / 100_000_000, 375);
    let dense: Vec<u32> = model.kinds.iter().map(|k| k.layers).collect();
    assert_eq!(dense, [3, 58]);
    let glm = folder_facts("zai-org--GLM-5-FP8").unwrap();
    let kind = glm.kinds[0];
    assert_eq!(kind.mixer, MixerKind::SparseLatent);
    close("selected", kind.read_tokens(50_000.0), 2_048.0);
}

#[test]
fn states_take_the_same_for_any_length() {
    let Some(model) = folder_facts("Qwen--Qwen3.5-397B-A17B") else {
        return;
    };
    // 64 value heads of 128 × 128 in 32 bits; three past inputs of 12,288 channels in 16 bits.
    let state = 45.0 * (64.0 * 128.0 * 128.0 * 4.0 + 3.0 * 12_288.0 * 2.0);
    close("state", model.totals.state_bytes, state);
    let shape = model.cache_shape(KvDtype::Auto, 1, 1);
    close("empty", shape.bytes(0.0), state);
    close(
        "half",
        model.cache_shape(KvDtype::Auto, 2, 1).state_bytes,
        state / 2.0,
    );
    let nemotron = folder_facts("nvidia--Nemotron-H-56B-Base-8K").unwrap();
    // 256 heads of 64 × 256, and a convolution over 16,384 + 2 · 8 · 256 channels, in 16 bits.
    let state = 54.0 * 2.0 * (256.0 * 64.0 * 256.0 + 3.0 * 20_480.0);
    close("nemotron", nemotron.totals.state_bytes, state);
}

#[test]
fn active_parameters_are_the_published_ones() {
    for (name, billions, percent) in [
        ("openai--gpt-oss-120b", 5.7, 1.0),
        ("Qwen--Qwen3-235B-A22B", 22.2, 0.5),
        ("Qwen--Qwen3-30B-A3B", 3.35, 0.5),
        ("Qwen--Qwen3.5-397B-A17B", 17.2, 3.0),
        ("mistralai--Mixtral-8x22B-v0.1", 39.1, 0.5),
        ("google--gemma-4-26B-A4B", 3.8, 2.0),
        ("moonshotai--Kimi-K2-Instruct", 32.9, 1.0),
    ] {
        let Some(model) = folder_facts(name) else {
            return;
        };
        let off = model.params_active as f64 / (billions * 1e9) - 1.0;
        assert!(
            off.abs() * 100.0 <= percent,
            "{name}: {}",
            model.params_active
        );
    }
}

#[test]
fn stages_differ_by_their_layers() {
    let Some(model) = folder_facts("deepseek-ai--DeepSeek-V3") else {
        return;
    };
    // Three dense layers are first: the last of two stages has routed layers only.
    let half = model.weight_bytes_per_gpu(WeightDtype::Auto, 8, 2);
    let whole = model.weight_bytes_per_gpu(WeightDtype::Auto, 8, 1);
    assert!(
        half > 0.51 * whole && half < 0.53 * whole,
        "{half} of {whole}"
    );
    let nemotron = folder_facts("nvidia--Nemotron-H-56B-Base-8K").unwrap();
    let shape = nemotron.cache_shape(KvDtype::Auto, 1, 2);
    close(
        "five of ten",
        shape.full_bytes_per_token,
        5.0 * 2.0 * 8.0 * 128.0 * 2.0,
    );
}

#[test]
fn further_architectures_have_their_published_totals() {
    let gemma3 = json!({"model_type": "gemma3", "vision_config": {"hidden_size": 1152},
        "text_config": {"model_type": "gemma3_text", "hidden_size": 2560,
            "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
            "head_dim": 256, "torch_dtype": "bfloat16"}});
    let jamba = json!({"model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 65536, "attn_layer_period": 8, "attn_layer_offset": 4,
        "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 16,
        "num_experts_per_tok": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
        "mamba_dt_rank": 256, "max_position_embeddings": 262144, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16"});
    let neox = json!({"model_type": "gpt_neox", "hidden_size": 6144, "intermediate_size": 24576,
        "num_hidden_layers": 44, "num_attention_heads": 64, "vocab_size": 50432,
        "max_position_embeddings": 2048, "tie_word_embeddings": false, "torch_dtype": "float16"});
    let gpt2 = json!({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
        "vocab_size": 50257, "n_positions": 1024});
    let olmoe = json!({"model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024,
        "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
        "num_experts": 64, "num_experts_per_tok": 8, "vocab_size": 50304,
        "max_position_embeddings": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16"});
    let next = json!({"model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120,
        "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2,
        "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
        "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "full_attention_interval": 4, "vocab_size": 151936, "max_position_embeddings": 262144,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16"});
    for (config, want) in [
        // Gemma 3 4B's 4,300,079,472 without its vision tower and projector.
        (gemma3, 3_880_263_168.0),
        (jamba, 51_570_323_328.0),
        (neox, 20_554_567_680.0),
        (gpt2, 124_439_808.0),
        (olmoe, 6_919_161_856.0),
        (next, 79_674_391_296.0),
    ] {
        close(
            "total",
            facts(&config.to_string()).params_total as f64,
            want,
        );
    }
}
