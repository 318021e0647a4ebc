//! Every config of `shared/data/model_configs`: published totals, or a refusal with its reason.

use super::*;

/// How far a total may be from the published one.
enum Within {
    Exactly,
    /// The publisher rounds, or counts a tower that is not counted here.
    Percent(f64),
}

/// Published totals: parameters of the language model without multi-token prediction layers.
const TOTALS: [(&str, f64, Within); 50] = [
    ("MiniMaxAI--MiniMax-M2.5", 228.7e9, Within::Percent(0.1)),
    ("Qwen--Qwen3-0.6B", 596_049_920.0, Within::Exactly),
    ("Qwen--Qwen3-235B-A22B", 235_093_634_560.0, Within::Exactly),
    ("Qwen--Qwen3-30B-A3B", 30_532_122_624.0, Within::Exactly),
    ("Qwen--Qwen3-32B-FP8", 32_762_123_264.0, Within::Exactly),
    ("Qwen--Qwen3-32B", 32_762_123_264.0, Within::Exactly),
    ("Qwen--Qwen3-8B", 8_190_735_360.0, Within::Exactly),
    (
        "Qwen--Qwen3-VL-30B-A3B-Instruct",
        30_532_122_624.0,
        Within::Exactly,
    ),
    ("Qwen--Qwen3.5-397B-A17B", 397e9, Within::Percent(0.3)),
    (
        "codellama-34b-instruct-hf",
        33_743_970_304.0,
        Within::Exactly,
    ),
    (
        "deepseek-ai--DeepSeek-R1",
        671_026_419_200.0,
        Within::Exactly,
    ),
    (
        "deepseek-ai--DeepSeek-V3",
        671_026_419_200.0,
        Within::Exactly,
    ),
    ("deepseek-v2-lite", 15_706_484_224.0, Within::Exactly),
    ("google--gemma-4-26B-A4B", 25.2e9, Within::Percent(0.3)),
    ("llama-2-7b-hf", 6_738_415_616.0, Within::Exactly),
    (
        "llama-4-scout-17b-16e-instruct-fp8-dynamic",
        107_769_861_120.0,
        Within::Percent(0.1),
    ),
    (
        "meta-llama--Llama-4-Scout-17B-16E-Instruct",
        107_769_861_120.0,
        Within::Percent(0.1),
    ),
    (
        "meta-llama--Meta-Llama-3.1-405B",
        405_853_388_800.0,
        Within::Exactly,
    ),
    (
        "meta-llama--Meta-Llama-3.1-70B",
        70_553_706_496.0,
        Within::Exactly,
    ),
    (
        "meta-llama--Meta-Llama-3.1-8B",
        8_030_261_248.0,
        Within::Exactly,
    ),
    (
        "mistralai--Mixtral-8x22B-v0.1",
        140_620_634_112.0,
        Within::Exactly,
    ),
    (
        "mistralai--Mixtral-8x7B-v0.1",
        46_702_792_704.0,
        Within::Exactly,
    ),
    ("mlc-preset--aya-23", 8_028_033_024.0, Within::Exactly),
    ("mlc-preset--baichuan", 7_505_973_248.0, Within::Exactly),
    ("mlc-preset--chatglm", 6_243_584_000.0, Within::Exactly),
    ("mlc-preset--deepseek", 16_375_728_128.0, Within::Exactly),
    ("mlc-preset--gemma2_9b", 9_241_705_984.0, Within::Exactly),
    ("mlc-preset--gemma3_1b_it", 999_885_952.0, Within::Exactly),
    ("mlc-preset--gpt_j", 6_050_882_784.0, Within::Exactly),
    (
        "mlc-preset--internlm2_5_7b",
        7_737_708_544.0,
        Within::Exactly,
    ),
    ("mlc-preset--llama2_70b", 68_976_648_192.0, Within::Exactly),
    ("mlc-preset--llava", 6_738_939_904.0, Within::Exactly),
    (
        "mlc-preset--minicpm-moe-8x2b",
        13.87e9,
        Within::Percent(0.1),
    ),
    ("mlc-preset--mistral_7b", 7_241_732_096.0, Within::Exactly),
    ("mlc-preset--olmo2_32b", 32_234_279_936.0, Within::Exactly),
    ("mlc-preset--phi-2", 2_779_683_840.0, Within::Exactly),
    ("mlc-preset--phi-3_5", 3_821_079_552.0, Within::Exactly),
    ("mlc-preset--qwen2_7b", 7_615_616_512.0, Within::Exactly),
    ("mlc-preset--qwen2moe", 14_315_784_192.0, Within::Exactly),
    ("mlc-preset--stablelm", 2_795_443_200.0, Within::Exactly),
    ("mlc-preset--starcoder2", 7_173_923_840.0, Within::Exactly),
    (
        "moonshotai--Kimi-K2-Instruct",
        1.026e12,
        Within::Percent(0.1),
    ),
    ("mosaicml--mpt-7b.partial", 6_649_286_656.0, Within::Exactly),
    (
        "nvidia--Llama-3.1-70B-Instruct-FP8",
        70_553_706_496.0,
        Within::Exactly,
    ),
    (
        "nvidia--Llama-3_3-Nemotron-Super-49B-v1",
        49_867_145_216.0,
        Within::Exactly,
    ),
    (
        "nvidia--Nemotron-H-56B-Base-8K",
        56.3e9,
        Within::Percent(0.3),
    ),
    (
        "nvidia--Qwen3-235B-A22B-NVFP4",
        235_093_634_560.0,
        Within::Exactly,
    ),
    ("openai--gpt-oss-120b", 116_829_156_672.0, Within::Exactly),
    ("openai--gpt-oss-20b", 20_914_757_184.0, Within::Exactly),
    ("qwen2.5-7b-instruct", 7_615_616_512.0, Within::Exactly),
];

/// More files, in a table of their own because arrays have one length.
const MORE: [(&str, f64, Within); 4] = [
    (
        "tt-metal--falcon-40b.partial",
        41_303_293_952.0,
        Within::Exactly,
    ),
    ("tt-metal--phi-4", 14_659_507_200.0, Within::Exactly),
    ("yi-34b", 34_388_917_248.0, Within::Exactly),
    ("zai-org--GLM-5-FP8", 744e9, Within::Percent(0.3)),
];

/// A config of the folder with its side file; `None` without the folder.
pub(super) fn folder_facts(name: &str) -> Option<ModelFacts> {
    let folder = shared("data/model_configs")?;
    let config = read(&folder.join(format!("{name}.json")));
    let side = folder.join(format!("{name}.hf_quant_config.json"));
    let side = side.exists().then(|| read(&side));
    Some(
        ModelFacts::from_texts(&config, side.as_deref())
            .unwrap_or_else(|e| panic!("{name}: {e:#?}")),
    )
}

#[test]
fn every_config_has_its_published_total() {
    let mut wrong = vec![];
    for (name, want, within) in TOTALS.iter().chain(&MORE) {
        let Some(model) = folder_facts(name) else {
            return;
        };
        let got = model.params_total as f64;
        let allowed = match within {
            Within::Exactly => 0.5,
            Within::Percent(p) => want * p / 100.0,
        };
        if (got - want).abs() > allowed {
            wrong.push(format!("{name}: {got}, published {want}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_config_of_the_folder_is_left_out() {
    let Some(folder) = shared("data/model_configs") else {
        return;
    };
    let known: Vec<&str> = TOTALS.iter().chain(&MORE).map(|(name, ..)| *name).collect();
    for entry in folder.read_dir().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".json") else {
            continue;
        };
        let is_side_file = name.ends_with(".hf_quant_config");
        assert!(
            is_side_file || known.contains(&name),
            "{name} has no expected total"
        );
    }
}

#[test]
fn every_number_has_a_source() {
    for (name, ..) in TOTALS.iter().chain(&MORE) {
        let Some(model) = folder_facts(name) else {
            return;
        };
        let mut facts = vec![
            "layers",
            "hidden",
            "heads",
            "kv_heads",
            "head_dim",
            "vocab",
            "max_position",
            "tied_embeddings",
            "native_weight_dtype",
            "base_dtype",
            "layer_kinds",
            "params_total",
            "params_active",
            "weight_bytes",
            "kv_bytes_per_token",
        ];
        if model.intermediate > 0 {
            facts.push("intermediate");
        }
        if model.moe.is_some() {
            facts.extend([
                "moe.experts",
                "moe.experts_per_token",
                "moe.expert_intermediate",
            ]);
        }
        for fact in facts {
            assert!(
                model.sources.contains_key(fact),
                "{name}: no source of {fact}"
            );
        }
        let sum: u64 = model.parts.iter().map(|p| p.params).sum();
        assert_eq!(sum, model.params_total, "{name}");
        if model.quantization.is_none() {
            let each = model.base_dtype.activation_bytes() as u64;
            let bytes = model.weight_bytes(WeightDtype::Auto);
            assert_eq!(bytes, each * model.params_total, "{name}");
        }
        let layers: u32 = model.kinds.iter().map(|k| k.layers).sum();
        assert_eq!(layers, model.layers, "{name}");
    }
}
