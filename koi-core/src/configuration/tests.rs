//! Refusals, defaults, the golden command line, and one-knob-one-argument.

use expect_test::expect;

use super::*;
use crate::catalog::Catalog;
use crate::job::EngineName;
use crate::model::{KvDtype, WeightDtype};

mod engines;
mod knobs;

const VERSION: &str = "0.32.0";

fn draft(entries: &[(&str, Value)]) -> ConfigurationDraft {
    ConfigurationDraft(
        entries
            .iter()
            .map(|(k, v)| ((*k).to_owned(), v.clone()))
            .collect(),
    )
}

fn refusals(entries: &[(&str, Value)]) -> String {
    let problems = Catalog::embedded()
        .configuration(draft(entries))
        .unwrap_err();
    problems
        .iter()
        .map(|p| format!("{}: {}\n", p.field, p.message))
        .collect()
}

#[test]
fn an_empty_draft_has_all_defaults() {
    let configuration = Catalog::embedded()
        .configuration(ConfigurationDraft::default())
        .unwrap();
    assert_eq!(configuration.shape(), EngineShape::default());
    assert_eq!(
        configuration.get("max_model_len"),
        None,
        "absent is not zero"
    );
}

#[test]
fn all_refusals_come_back_at_once() {
    let found = refusals(&[
        ("max_num_sequences", Value::Int(4)),
        ("tp", Value::Int(0)),
        ("gpu_memory_utilization", Value::Float(f64::NAN)),
        ("is_moe", Value::Bool(true)),
        ("kv_cache_util", Value::Float(0.5)),
        ("weight_dtype", "int3".into()),
        ("max_num_seq", Value::Int(8)),
        ("max_num_seqs", Value::Int(9)),
    ]);
    expect![[r#"
        gpu_memory_utilization: NaN is not legal: a number from 0.1 to 0.98
        is_moe: is set by the model, not by the planner
        kv_cache_util: is a mediator or an outcome; only X variables can be set
        max_num_seqs: max_num_seqs is given twice, under two names
        max_num_sequences: is not a variable of the catalog; did you mean max_num_seqs?
        tp: 0 is not legal: a whole number from 1 to 16
        weight_dtype: int3 is not legal: one of auto, fp32, bf16, fp16, fp8
    "#]]
    .assert_eq(&found);
}

#[test]
fn a_variable_that_does_not_apply_is_refused_when_given_and_left_out_when_not() {
    let text = Catalog::embedded_text();
    let features = text.file("features/engine.toml").unwrap().to_owned()
        + "
[[feature]]
id = \"sim_only\"
family = \"engine\"
domain = \"bool\"
default = true
unit = \"none\"
set_by = \"planner\"
change = \"restart\"
no_flag = \"a knob of a test\"
applies = [{ feature = \"engine_name\", op = \"==\", value = \"sim\" }]
doc = \"A knob of the simulated engine.\"
";
    let catalog = Catalog::load(&text.with("features/engine.toml", &features)).unwrap();
    let problems = catalog
        .configuration(draft(&[("sim_only", Value::Bool(true))]))
        .unwrap_err();
    assert!(problems[0].message.contains("engine_name"), "{problems:?}");
    let without = catalog
        .configuration(ConfigurationDraft::default())
        .unwrap();
    assert_eq!(without.get("sim_only"), None);
    let with = catalog
        .configuration(draft(&[("engine_name", "sim".into())]))
        .unwrap();
    assert_eq!(with.get("sim_only"), Some(&Value::Bool(true)));
}

#[test]
fn shapes_round_trip() {
    let shape = EngineShape {
        tp: 4,
        pp: 2,
        max_num_seqs: 64,
        weight_dtype: WeightDtype::Fp8,
        kv_dtype: KvDtype::Fp8,
        max_model_len: Some(8192),
        enforce_eager: true,
        ..EngineShape::default()
    };
    let configuration = Configuration::from_shape(&shape, EngineName::Sim).unwrap();
    assert_eq!(configuration.shape(), shape);
    assert_eq!(configuration.get("engine_name"), Some(&"sim".into()));
    assert!(Configuration::from_shape(&EngineShape { tp: 99, ..shape }, EngineName::Sim).is_err());
}

#[test]
fn json_round_trips_and_rechecks() {
    let catalog = Catalog::embedded();
    let configuration = catalog
        .configuration(draft(&[("tp", Value::Int(2))]))
        .unwrap();
    let json = serde_json::to_string(&configuration).unwrap();
    let back: Configuration = serde_json::from_str(&json).unwrap();
    assert_eq!(back, configuration);
    assert_eq!(catalog.recheck(&back).unwrap(), configuration);
}

#[test]
fn the_command_line_is_golden() {
    let shape = EngineShape {
        tp: 4,
        ep: 4,
        weight_dtype: WeightDtype::Fp8,
        max_model_len: Some(32_768),
        chunked_prefill: false,
        ..EngineShape::default()
    };
    let configuration = Configuration::from_shape(&shape, EngineName::Vllm).unwrap();
    let args = engine_args(Catalog::embedded(), &configuration, VERSION).unwrap();
    expect![[r#"
        --tensor-parallel-size=4
        --pipeline-parallel-size=1
        --enable-expert-parallel
        --max-num-seqs=256
        --max-num-batched-tokens=8192
        --no-enable-chunked-prefill
        --long-prefill-token-threshold=0
        --scheduling-policy=fcfs
        --gpu-memory-utilization=0.9
        --block-size=16
        --enable-prefix-caching
        --max-model-len=32768
        --no-enforce-eager
        --no-disable-custom-all-reduce
        --dtype=auto
        --quantization=fp8
        --kv-cache-dtype=auto"#]]
    .assert_eq(&args.join("\n"));
}

#[test]
fn versions_outside_the_table_are_refused() {
    let configuration = Catalog::embedded()
        .configuration(ConfigurationDraft::default())
        .unwrap();
    for (version, word) in [
        ("0.5.5", "outside"),
        ("0.34.0", "outside"),
        ("latest", "not an engine"),
    ] {
        let problems = engine_args(Catalog::embedded(), &configuration, version).unwrap_err();
        assert!(
            problems[0].message.contains(word),
            "{version}: {problems:?}"
        );
    }
}
