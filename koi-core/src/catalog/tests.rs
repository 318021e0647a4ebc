//! Registry-wide checks of the embedded catalog, and one broken catalog per load check.

use super::*;

fn embedded_with(change: impl FnOnce(&mut Texts)) -> Result<Catalog, Vec<FieldViolation>> {
    let mut texts = Texts::default();
    change(&mut texts);
    Catalog::load(&CatalogText {
        features: &texts.features,
        mediators: &texts.mediators,
        outcomes: &texts.outcomes,
        hardware: &texts.hardware,
        engine_vllm: &texts.engine_vllm,
    })
}

struct Texts {
    features: String,
    mediators: String,
    outcomes: String,
    hardware: String,
    engine_vllm: String,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            features: EMBEDDED.features.to_owned(),
            mediators: EMBEDDED.mediators.to_owned(),
            outcomes: EMBEDDED.outcomes.to_owned(),
            hardware: EMBEDDED.hardware.to_owned(),
            engine_vllm: EMBEDDED.engine_vllm.to_owned(),
        }
    }
}

#[test]
fn the_embedded_catalog_loads() {
    let catalog = Catalog::load(&EMBEDDED).unwrap_or_else(|problems| panic!("{problems:#?}"));
    assert!(catalog.features().count() >= 30);
    assert_eq!(catalog.hash().len(), 16);
    assert_eq!(catalog.hash(), Catalog::embedded().hash());
}

#[test]
fn names_and_aliases_resolve() {
    let catalog = Catalog::embedded();
    for (name, kind, id) in [
        ("tensor_parallel_size", VariableKind::Feature, "tp"),
        ("max_num_seq", VariableKind::Feature, "max_num_seqs"),
        (
            "gpu_mem_util",
            VariableKind::Feature,
            "gpu_memory_utilization",
        ),
        ("pd_inbalance", VariableKind::Mediator, "pd_imbalance"),
        (
            "throughput_token_per_sec",
            VariableKind::Outcome,
            "throughput_tokens_per_sec",
        ),
        (
            "total_token_budget",
            VariableKind::Feature,
            "total_token_budget",
        ),
    ] {
        assert_eq!(catalog.kind_of(name), Some(kind), "{name}");
        assert_eq!(catalog.canonical(name), Some(id), "{name}");
    }
    assert_eq!(catalog.kind_of("nonsense"), None);
    assert_eq!(
        catalog.mediator_named("pd_inbalance"),
        Some(Mediator::PdImbalance)
    );
    assert_eq!(catalog.nearest_name("kv_cache_utl"), Some("kv_cache_util"));
}

#[test]
fn every_member_has_its_own_row() {
    let catalog = Catalog::embedded();
    for mediator in Mediator::ALL {
        assert_eq!(catalog.mediator(mediator).id, mediator.name());
    }
    for outcome in Outcome::ALL {
        assert_eq!(catalog.outcome(outcome).id, outcome.name());
    }
}

#[test]
fn drivers_names_find_the_gpu_type() {
    let catalog = Catalog::embedded();
    for (name, id) in [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("nvidia a100-sxm4-80gb", "A100"),
        ("NVIDIA L40S", "L40S"),
        ("a10g", "A10G"),
        ("CPU", "CPU"),
    ] {
        assert_eq!(
            catalog.gpu_type(name).map(|g| g.id.as_str()),
            Some(id),
            "{name}"
        );
    }
    assert!(
        catalog.gpu_type("NVIDIA H100").is_none(),
        "a guess is not a match"
    );
}

#[test]
fn peaks_are_dense() {
    // 1979 and 733 are figures with sparsity in 16 bits.
    let catalog = Catalog::embedded();
    assert!(catalog.gpu_type("H100").unwrap().peak_flops.bf16 < 1.0e15);
    assert!(catalog.gpu_type("L40S").unwrap().peak_flops.bf16 < 0.4e15);
}

/// One broken catalog and the words that its refusal must contain.
fn check_refused(words: &[&str], change: impl FnOnce(&mut Texts)) {
    let problems = embedded_with(change).unwrap_err();
    let text: String = problems
        .iter()
        .map(|p| format!("{}: {}\n", p.field, p.message))
        .collect();
    for word in words {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[test]
fn broken_catalogs_are_refused() {
    let replace = |from: &'static str, to: &'static str| {
        move |text: &mut String| {
            assert!(text.contains(from), "{from}");
            *text = text.replacen(from, to, 1);
        }
    };
    check_refused(&["kv_cache_util", "twice"], |t| {
        replace(
            "aliases = [\"max_num_seq\"]",
            "aliases = [\"kv_cache_util\"]",
        )(&mut t.features);
    });
    check_refused(&["max_num_seqs.default", "from 1 to 4096"], |t| {
        replace("default = 256", "default = 0")(&mut t.features);
    });
    check_refused(&["block_size.unit", "furlongs"], |t| {
        let at = t.features.find("id = \"block_size\"").unwrap();
        let tail = t
            .features
            .split_off(at)
            .replacen("unit = \"tokens\"", "unit = \"furlongs\"", 1);
        t.features.push_str(&tail);
    });
    check_refused(&["queue_depth", "has no row", "queue_deepness"], |t| {
        replace("id = \"queue_depth\"", "id = \"queue_deepness\"")(&mut t.mediators);
    });
    check_refused(&["slo_margin.maximise"], |t| {
        *t = Texts {
            outcomes: t.outcomes.replace("maximise = true", "maximise = false"),
            ..Texts::default()
        };
    });
    check_refused(&["tp.no_flag", "says why not"], |t| {
        replace("feature = \"tp\"", "feature = \"gpu_type\"")(&mut t.engine_vllm);
    });
    check_refused(&["L40S.fit.link_fraction"], |t| {
        replace("link_fraction = 0.45", "link_fraction = nan")(&mut t.hardware);
    });
    check_refused(&["g5.12xlarge", "not a GPU type"], |t| {
        replace("gpu_type = \"A10G\"", "gpu_type = \"A10\"")(&mut t.hardware);
    });
    check_refused(&["features.toml", "unknown field"], |t| {
        replace("optional = true", "optionl = true")(&mut t.features);
    });
}

#[test]
fn problems_of_several_files_come_back_together() {
    check_refused(&["hardware.toml", "mediators.toml"], |t| {
        t.hardware.push_str("\n[[gpu");
        t.mediators.push_str("\n= 3");
    });
}

#[test]
fn the_hash_changes_with_the_content() {
    let other = embedded_with(|t| t.features.push_str("\n# a comment\n")).unwrap();
    assert_ne!(other.hash(), Catalog::embedded().hash());
}

#[test]
fn versions_compare_as_numbers() {
    let version = |text: &str| text.parse::<EngineVersion>().unwrap();
    assert!(version("0.9.2") < version("0.32.0"));
    assert_eq!(version("0.32.0+cpu"), version("0.32"));
    for bad in ["", "v0.32", "0", "0.32.0.1", "0.x.1", "-1.0"] {
        assert!(bad.parse::<EngineVersion>().is_err(), "{bad}");
    }
}

#[test]
fn conditions_compare_numbers_and_names() {
    let holds = |op, left: Value, right: Value| {
        Condition {
            feature: "tp".to_owned(),
            op,
            value: right,
        }
        .holds(&left)
    };
    assert!(holds(Operator::AtLeast, Value::Int(4), Value::Float(2.0)));
    assert!(holds(Operator::Equal, Value::Int(1), Value::Float(1.0)));
    assert!(holds(Operator::NotEqual, "a".into(), "b".into()));
    assert!(!holds(Operator::AtMost, "a".into(), "b".into()));
    assert!(!holds(
        Operator::AtLeast,
        Value::Float(f64::NAN),
        Value::Int(1)
    ));
}
