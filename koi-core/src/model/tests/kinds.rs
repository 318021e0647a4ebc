//! Layer kinds: caches, windows, latents, states, and what a token computes and reads.

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

/// Layers, key/value heads and head size as the configs say them, for plain attention in 16 bits.
const PLAIN: [(&str, f64, f64, f64); 34] = [
    ("MiniMaxAI--MiniMax-M2.5", 62.0, 8.0, 128.0),
    ("Qwen--Qwen3-0.6B", 28.0, 8.0, 128.0),
    ("Qwen--Qwen3-30B-A3B", 48.0, 4.0, 128.0),
    ("Qwen--Qwen3-32B", 64.0, 8.0, 128.0),
    ("Qwen--Qwen3-32B-FP8", 64.0, 8.0, 128.0),
    ("Qwen--Qwen3-8B", 36.0, 8.0, 128.0),
    ("Qwen--Qwen3-VL-30B-A3B-Instruct", 48.0, 4.0, 128.0),
    ("codellama-34b-instruct-hf", 48.0, 8.0, 128.0),
    (
        "meta-llama--Llama-4-Scout-17B-16E-Instruct",
        48.0,
        8.0,
        128.0,
    ),
    (
        "llama-4-scout-17b-16e-instruct-fp8-dynamic",
        48.0,
        8.0,
        128.0,
    ),
    ("meta-llama--Meta-Llama-3.1-405B", 126.0, 8.0, 128.0),
    ("meta-llama--Meta-Llama-3.1-8B", 32.0, 8.0, 128.0),
    ("mistralai--Mixtral-8x22B-v0.1", 56.0, 8.0, 128.0),
    ("mistralai--Mixtral-8x7B-v0.1", 32.0, 8.0, 128.0),
    ("mlc-preset--aya-23", 32.0, 8.0, 128.0),
    ("mlc-preset--baichuan", 32.0, 32.0, 128.0),
    ("mlc-preset--deepseek", 28.0, 16.0, 128.0),
    ("mlc-preset--gemma2_9b", 42.0, 8.0, 256.0),
    ("mlc-preset--gemma3_1b_it", 26.0, 1.0, 256.0),
    ("mlc-preset--gpt_j", 28.0, 16.0, 256.0),
    ("mlc-preset--internlm2_5_7b", 32.0, 8.0, 128.0),
    ("mlc-preset--llama2_70b", 80.0, 8.0, 128.0),
    ("mlc-preset--llava", 32.0, 32.0, 128.0),
    ("mlc-preset--minicpm-moe-8x2b", 40.0, 36.0, 64.0),
    ("mlc-preset--mistral_7b", 32.0, 8.0, 128.0),
    ("mlc-preset--phi-2", 32.0, 32.0, 80.0),
    ("mlc-preset--phi-3_5", 32.0, 32.0, 96.0),
    ("mlc-preset--qwen2_7b", 28.0, 4.0, 128.0),
    ("mlc-preset--qwen2moe", 24.0, 16.0, 128.0),
    ("mlc-preset--stablelm", 32.0, 32.0, 80.0),
    ("mlc-preset--starcoder2", 32.0, 4.0, 128.0),
    ("mosaicml--mpt-7b.partial", 32.0, 32.0, 128.0),
    ("tt-metal--phi-4", 40.0, 10.0, 128.0),
    ("yi-34b", 60.0, 8.0, 128.0),
];

#[test]
fn plain_caches_follow_from_three_numbers() {
    for (name, layers, kv_heads, head_dim) in PLAIN {
        let Some(model) = folder_facts(name) else {
            return;
        };
        let want = layers * 2.0 * kv_heads * head_dim * 2.0;
        close(name, model.kv_bytes_per_token(KvDtype::Auto), want);
        close(name, model.kv_bytes_per_token(KvDtype::Fp8), want / 2.0);
    }
    // A checkpoint in 32 bits.
    let Some(olmo) = folder_facts("mlc-preset--olmo2_32b") else {
        return;
    };
    let want = 64.0 * 2.0 * 8.0 * 128.0 * 4.0;
    close("olmo2", olmo.kv_bytes_per_token(KvDtype::Auto), want);
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
        // Published as 5.13 without the input embedding.
        ("openai--gpt-oss-120b", 5.71, 0.2),
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
    let rows: Vec<serde_json::Value> = serde_json::from_str(include_str!("further.json")).unwrap();
    assert!(rows.len() > 10);
    for row in rows {
        let model = facts(&row["config"].to_string());
        assert_eq!(
            Some(model.params_total),
            row["total"].as_u64(),
            "{}",
            row["published_as"]
        );
    }
}
