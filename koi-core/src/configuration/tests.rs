//! Refusals, defaults, the golden command line, and one-knob-one-argument.

use std::collections::BTreeSet;

use expect_test::expect;
use proptest::prelude::*;

use super::*;
use crate::catalog::{Catalog, CatalogText, Domain, FlagWriter, SetBy};
use crate::job::EngineName;
use crate::model::{KvDtype, WeightDtype};

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
    let features = text.features.to_owned()
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
    let catalog = Catalog::load(&CatalogText {
        features: &features,
        ..text
    })
    .unwrap();
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
        ("0.9.0", "outside"),
        ("1.0.0", "outside"),
        ("latest", "not an engine"),
    ] {
        let problems = engine_args(Catalog::embedded(), &configuration, version).unwrap_err();
        assert!(
            problems[0].message.contains(word),
            "{version}: {problems:?}"
        );
    }
}

#[test]
fn a_value_without_a_flag_in_the_version_is_refused() {
    let text = Catalog::embedded_text();
    let flags = text
        .engine_vllm
        .replacen("oldest = \"0.32.0\"", "oldest = \"0.31.0\"", 1)
        .replacen("bf16 = [\"--kv-cache-dtype=bfloat16\"]\n", "", 1);
    let catalog = Catalog::load(&CatalogText {
        engine_vllm: &flags,
        ..text
    })
    .unwrap();
    let bf16 = catalog
        .configuration(draft(&[("kvcache_dtype", "bf16".into())]))
        .unwrap();
    let spelled = engine_args(&catalog, &bf16, VERSION).unwrap_err();
    assert_eq!(spelled.len(), 1);
    assert!(spelled[0].message.contains("no spelling"), "{spelled:?}");
    let older = engine_args(&catalog, &bf16, "0.31.0").unwrap_err();
    assert!(
        older
            .iter()
            .any(|p| p.field == "tp" && p.message.contains("no flag")),
        "{older:?}"
    );
}

/// A legal value of a domain, picked by a number.
fn pick(domain: &Domain, n: u64) -> Value {
    let nth = |len: usize| usize::try_from(n % len as u64).unwrap();
    match domain {
        Domain::Bool => Value::Bool(n.is_multiple_of(2)),
        Domain::Int { min, max } => {
            Value::Int(min + i64::try_from(n % u64::try_from(max - min + 1).unwrap()).unwrap())
        }
        Domain::IntChoice(choices) => Value::Int(choices[nth(choices.len())]),
        Domain::Float { min, max } => Value::Float(min + (max - min) * (n % 101) as f64 / 100.0),
        Domain::Choice(choices) => Value::Text(choices[nth(choices.len())].clone()),
        Domain::Text { .. } => Value::Text("x".to_owned()),
    }
}

/// Arguments that a row's flag may write, up to the `=`.
fn prefixes(id: &str) -> BTreeSet<String> {
    let table = Catalog::embedded().engine();
    let row = table.row(id, VERSION.parse().unwrap()).unwrap();
    match &row.write {
        FlagWriter::Value(flag) | FlagWriter::AboveOne(flag) => [flag.clone()].into(),
        FlagWriter::Switch { on, off } => [on.clone(), off.clone()].into(),
        FlagWriter::Choice(choices) => choices
            .values()
            .flatten()
            .map(|a| a.split('=').next().unwrap().to_owned())
            .collect(),
    }
}

proptest! {
    #[test]
    fn drafts_from_the_domains_are_accepted(seeds in prop::collection::vec(any::<u64>(), 64)) {
        let catalog = Catalog::embedded();
        let knobs = catalog.features().filter(|row| row.set_by == SetBy::Planner);
        let values = knobs.zip(&seeds).map(|(row, n)| (row.id.clone(), pick(&row.domain, *n)));
        let configuration = catalog.configuration(ConfigurationDraft(values.collect()));
        prop_assert!(configuration.is_ok(), "{configuration:?}");
        prop_assert!(engine_args(catalog, &configuration.unwrap(), VERSION).is_ok());
    }

    #[test]
    fn one_knob_changes_only_its_own_arguments(knob in 0_usize..64, n in any::<u64>()) {
        let catalog = Catalog::embedded();
        let knobs: Vec<_> = catalog.features().filter(|row| row.set_by == SetBy::Planner).collect();
        let row = knobs[knob % knobs.len()];
        let base = catalog.configuration(ConfigurationDraft::default()).unwrap();
        let value = pick(&row.domain, n);
        let changed = catalog.configuration(draft(&[(&row.id, value.clone())])).unwrap();
        let before: BTreeSet<String> =
            engine_args(catalog, &base, VERSION).unwrap().into_iter().collect();
        let after: BTreeSet<String> =
            engine_args(catalog, &changed, VERSION).unwrap().into_iter().collect();
        let allowed = if row.no_flag.is_some() { BTreeSet::new() } else { prefixes(&row.id) };
        for argument in before.symmetric_difference(&after) {
            let name = argument.split('=').next().unwrap();
            prop_assert!(allowed.contains(name), "{argument} is not {}'s", row.id);
        }
        let same = base.get(&row.id) == Some(&value);
        let silent = row.no_flag.is_some();
        prop_assert!(same || silent || before != after, "{} = {value} changed nothing", row.id);
    }
}
