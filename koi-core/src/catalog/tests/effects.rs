//! Effects: hostile rows are refused all at once with the fix, and the shipped ones say their source.

use super::*;
use crate::configuration::{Configuration, ConfigurationDraft, Term};

/// A knob of a test with the given effect; the catalog's own stay.
fn with_effect(domain: &str, effects: &str) -> Result<Catalog, String> {
    let row = format!(
        "\n[[feature]]\nid = \"test_knob\"\nfamily = \"engine\"\ndomain = {domain}\noptional = true\nunit = \"none\"\nset_by = \"planner\"\nchange = \"restart\"\nno_flag = \"a knob of a test\"\ndoc = \"A knob of a test.\"\n{effects}"
    );
    embedded_with("features/engine.toml", |text| text.push_str(&row)).map_err(|problems| {
        problems
            .iter()
            .map(|p| format!("{}: {}\n", p.field, p.message))
            .collect()
    })
}

fn effect(lines: &str) -> String {
    format!("[[feature.effect]]\n{lines}\n")
}

const PRIOR: &str = "basis = \"prior\"\nsource = \"unmeasured here; a number of a test\"";

#[test]
fn hostile_effects_are_refused_all_at_once_with_the_fix() {
    let rows = [
        format!("term = \"step_overhead_facto\"\nvalues = {{ true = 2.0 }}\n{PRIOR}"),
        format!("term = \"step_overhead_us\"\nvalues = {{ true = nan, maybe = 1.0 }}\n{PRIOR}"),
        format!("term = \"linear_compute_factor\"\nvalues = {{ true = 0.0, false = -1.0 }}\n{PRIOR}"),
        format!("term = \"lora_rank\"\nvalues = {{ true = inf }}\n{PRIOR}"),
        format!("term = \"bubble_factor\"\n{PRIOR}"),
        format!("term = \"bubble_factor\"\nformula = \"cubed\"\n{PRIOR}"),
        "term = \"bubble_factor\"\nvalues = { true = 1.5 }\nbasis = \"hearsay\"\nsource = \"\"".to_owned(),
        "term = \"bubble_factor\"\nvalues = { true = 1.5 }\nbasis = \"published\"\nsource = \"a paper of some year\"".to_owned(),
    ];
    let text: String = rows.iter().map(|row| effect(row)).collect();
    let refused = with_effect("\"bool\"", &text).unwrap_err();
    for expected in [
        "effect[0].term: \"step_overhead_facto\" is not a term; did you mean step_overhead_factor?",
        "effect[1].values.true: NaN is not legal: step_overhead_us takes a number from 0 to 100000",
        "effect[1].values.maybe: is no value of test_knob: true or false",
        "effect[2].values.true: 0 is not legal: linear_compute_factor takes a number from 0.05 to 4",
        "effect[2].values.false: -1 is not legal",
        "effect[3].values.true: inf is not legal",
        "effect[3].term: lora_rank is decided by max_lora_rank already",
        "effect[4]: has neither values nor a formula",
        "effect[5].formula: \"cubed\" is not one of value, times, amortised",
        "effect[6].basis: \"hearsay\" is not one of mechanism, measured, published, prior",
        "effect[6].source: says where the number comes from",
        "effect[7].source: a published or measured number has its year",
    ] {
        let at = format!("features/engine.toml.test_knob.{expected}");
        // Which of two rows that decide one term comes first is not said.
        let is_there = refused.contains(&at) || expected.contains("decided by");
        assert!(is_there, "{expected}\nin\n{refused}");
    }
    assert!(refused.contains("lora_rank is decided by"), "{refused}");
}

#[test]
fn formulas_must_be_legal_over_the_whole_domain() {
    let by_value = effect(&format!(
        "term = \"bubble_factor\"\nformula = \"value\"\n{PRIOR}"
    ));
    let refused = with_effect("{ int = { min = 0, max = 9 } }", &by_value).unwrap_err();
    assert!(
        refused.contains("gives 0 at 0: bubble_factor takes"),
        "{refused}"
    );
    assert!(refused.contains("gives 9 at 9"), "{refused}");
    let without = effect(&format!(
        "term = \"step_overhead_us\"\nformula = \"times\"\n{PRIOR}"
    ));
    let refused = with_effect("{ int = { min = 0, max = 9 } }", &without).unwrap_err();
    assert!(refused.contains("times needs `by`"), "{refused}");
    let refused = with_effect("\"bool\"", &by_value).unwrap_err();
    assert!(
        refused.contains("a formula needs a knob with numbers"),
        "{refused}"
    );
    let levels = effect(&format!(
        "term = \"step_overhead_us\"\nvalues = {{ 1 = 2.0 }}\n{PRIOR}"
    ));
    let refused = with_effect("{ float = { min = 0.0, max = 9.0 } }", &levels).unwrap_err();
    assert!(
        refused.contains("a knob without levels needs a formula"),
        "{refused}"
    );
}

#[test]
fn only_knobs_have_effects_and_unknown_fields_are_refused() {
    let of_context = embedded_with("features/model.toml", |text| {
        text.push_str(&effect(&format!(
            "term = \"bubble_factor\"\nvalues = {{ true = 1.5 }}\n{PRIOR}"
        )));
    });
    let problems = of_context.unwrap_err();
    assert!(
        problems
            .iter()
            .any(|p| p.message.contains("only a knob that can be set")),
        "{problems:?}"
    );
    let stray = effect(&format!("term = \"bubble_factor\"\nvalue = 2.0\n{PRIOR}"));
    assert!(
        with_effect("\"bool\"", &stray)
            .unwrap_err()
            .contains("unknown field")
    );
}

#[test]
fn an_effect_without_an_edge_to_where_it_shows_is_refused() {
    let text = CatalogText::embedded();
    let row = "[[feature.effect]]\nterm = \"bubble_factor\"\nvalues = { true = 0.9 }\nbasis = \"prior\"\nsource = \"unmeasured here; a number of a test\"\n";
    // The last row of the file is log_requests, which moves dispatch_overhead_ms alone.
    let batching = text.file("features/batching.toml").unwrap().to_owned() + row;
    let problems = check_all(&text.with("features/batching.toml", &batching)).unwrap_err();
    let of_row: Vec<_> = problems
        .iter()
        .filter(|p| p.field == "edges.toml.log_requests")
        .collect();
    assert_eq!(of_row.len(), 1, "{problems:?}");
    assert!(of_row[0].message.contains("pipeline_bubble_fraction"));
}

fn effects_of(entries: &[(&str, Value)]) -> crate::configuration::ShapeEffects {
    let draft = ConfigurationDraft(
        entries
            .iter()
            .map(|(id, v)| ((*id).to_owned(), v.clone()))
            .collect(),
    );
    let configuration: Configuration = Catalog::embedded().configuration(draft).unwrap();
    configuration.shape().effects
}

#[test]
fn effects_fold_from_a_configuration_and_defaults_say_nothing() {
    assert!(effects_of(&[]).is_neutral());
    let adapters = effects_of(&[("lora_enabled", true.into()), ("max_loras", 4_u32.into())]);
    assert!((adapters.get(Term::LoraSlots) - 4.0).abs() < 1e-12);
    assert!((adapters.get(Term::LoraRank) - 16.0).abs() < 1e-12);
    let offloaded = effects_of(&[("cpu_offload_gb", Value::Float(2.0))]);
    assert!((offloaded.get(Term::OffloadBytes) - 2.0_f64.powi(31)).abs() < 1.0);
    for row in Catalog::embedded().knobs() {
        let Some(default) = &row.default else {
            continue;
        };
        let draft = ConfigurationDraft([(row.id.clone(), default.clone())].into());
        // Rows that need another setting are refused; those are met beside it by the surrogate's test.
        if let Ok(configuration) = Catalog::embedded().configuration(draft) {
            assert!(configuration.shape().effects.is_neutral(), "{}", row.id);
        }
    }
}
