//! Registry-wide: every knob is written, writes only what its row names, and is refused by name.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::draft;
use crate::catalog::{
    Catalog, Condition, Domain, EngineFlags, Feature, FlagRow, FlagWriter, Operator, SetBy, Value,
};
use crate::configuration::{ConfigurationDraft, engine_args};

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
        Domain::Text { .. } => Value::Text(format!("x{n}")),
    }
}

/// Values outside a domain.
fn outside(domain: &Domain) -> Vec<Value> {
    match domain {
        Domain::Bool => vec![Value::Int(1), "true".into()],
        Domain::Int { min, max } => {
            vec![
                Value::Int(min - 1),
                Value::Int(max + 1),
                Value::Float(1.5),
                Value::Bool(true),
            ]
        }
        Domain::IntChoice(choices) => vec![Value::Int(choices.iter().max().unwrap() + 1)],
        Domain::Float { min, max } => {
            vec![
                Value::Float(min - 1.0),
                Value::Float(max + 1.0),
                Value::Float(f64::NAN),
            ]
        }
        Domain::Choice(_) => vec!["no such name".into(), Value::Int(1)],
        Domain::Text { max_chars } => vec!["".into(), Value::Text("x".repeat(max_chars + 1))],
    }
}

/// Values under which the planner's own conditions of a row hold; `n` picks among several.
fn satisfying(row: &Feature, n: u64) -> BTreeMap<String, Value> {
    let catalog = Catalog::embedded();
    let mut values = BTreeMap::new();
    for Condition { feature, op, value } in &row.applies {
        let about = catalog.feature(feature).unwrap();
        if about.set_by != SetBy::Planner {
            continue;
        }
        let chosen = match op {
            Operator::Set => pick(&about.domain, n),
            Operator::Equal | Operator::AtLeast | Operator::AtMost => value.clone(),
            Operator::NotEqual => panic!("no row needs this: {feature}"),
        };
        values.extend(satisfying(about, n));
        values.insert(feature.clone(), chosen);
    }
    values
}

fn name(argument: &str) -> &str {
    argument.split('=').next().unwrap()
}

/// Some values of a knob that a row spells.
fn values(row: &Feature, flag: &FlagRow) -> Vec<Value> {
    let spelled: Vec<Value> = match (&flag.only, &flag.write) {
        (Some(only), _) => only.clone(),
        (None, FlagWriter::Choice(choices)) => choices.keys().map(|k| k.as_str().into()).collect(),
        (None, _) => [0, 1, 2, 3, 50].map(|n| pick(&row.domain, n)).to_vec(),
    };
    spelled
}

/// Arguments without a knob and with each of some values of it, in one version. The knobs that its
/// conditions need may have no spelling for one of their values there; then another is tried.
fn renderings(row: &Feature, table: &EngineFlags, flag: &FlagRow) -> Vec<Vec<String>> {
    let catalog = Catalog::embedded();
    let version = flag.since.to_string();
    let render = |values: BTreeMap<String, Value>| {
        let configuration = catalog.configuration(ConfigurationDraft(values)).ok()?;
        engine_args(catalog, &configuration, &version).ok()
    };
    let all = (0..8).map(|n| {
        let mut base = satisfying(row, n);
        base.insert("engine_name".to_owned(), table.engine.as_str().into());
        let drafts = values(row, flag).into_iter().map(|value| {
            let mut with = base.clone();
            with.insert(row.id.clone(), value);
            with
        });
        let drafts = std::iter::once(base.clone()).chain(drafts);
        drafts.filter_map(render).collect::<Vec<_>>()
    });
    all.max_by_key(Vec::len).unwrap_or_default()
}

#[test]
fn every_knob_changes_the_command_line_and_only_its_own_arguments() {
    let catalog = Catalog::embedded();
    let mut silent = Vec::new();
    for row in catalog.knobs().filter(|row| row.id != "engine_name") {
        let mut is_heard = false;
        for table in catalog.engines() {
            for flag in table.flags.iter().filter(|f| f.feature == row.id) {
                let found = renderings(row, table, flag);
                let sets: Vec<BTreeSet<&String>> =
                    found.iter().map(|args| args.iter().collect()).collect();
                for (one, other) in sets.iter().zip(sets.iter().skip(1)) {
                    is_heard |= one != other;
                    for argument in one.symmetric_difference(other) {
                        assert!(
                            flag.write.flags().contains(name(argument)),
                            "{argument} is not {}'s in {} {}",
                            row.id,
                            table.engine,
                            flag.since
                        );
                    }
                }
            }
        }
        if !is_heard {
            silent.push(row.id.clone());
        }
    }
    assert!(silent.is_empty(), "these knobs change nothing: {silent:?}");
}

#[test]
fn the_engine_changes_the_spelling_of_everything() {
    let catalog = Catalog::embedded();
    let render = |engine: &str, version: &str| {
        let configuration = catalog
            .configuration(draft(&[("engine_name", engine.into())]))
            .unwrap();
        engine_args(catalog, &configuration, version).unwrap()
    };
    assert_ne!(render("vllm", "0.32.0"), render("sglang", "0.5.10"));
    assert_eq!(render("vllm", "0.32.0"), render("sim", "0.32.0"));
}

#[test]
fn there_are_enough_knobs() {
    let catalog = Catalog::embedded();
    let vllm = catalog
        .knobs()
        .filter(|row| catalog.engine().knows(&row.id));
    assert!(vllm.count() >= 100);
    assert!(catalog.features().count() >= 200);
}

#[test]
fn values_outside_their_domain_are_refused_by_name() {
    let catalog = Catalog::embedded();
    for row in catalog.knobs() {
        for value in outside(&row.domain) {
            let problems = catalog
                .configuration(draft(&[(&row.id, value.clone())]))
                .unwrap_err();
            assert!(
                problems
                    .iter()
                    .any(|p| p.field == row.id && p.message.contains("is not legal")),
                "{} = {value}: {problems:?}",
                row.id
            );
        }
    }
}

proptest! {
    /// Whatever is drawn from the domains is accepted but for conditions, and what remains then
    /// survives JSON, a second check and an alias for every name.
    #[test]
    fn drafts_from_the_domains_are_accepted(seeds in prop::collection::vec(any::<u64>(), 160), engine in 0_usize..3) {
        let catalog = Catalog::embedded();
        let engine = ["vllm", "sim", "sglang"][engine];
        let mut values: BTreeMap<String, Value> = catalog
            .knobs()
            .zip(&seeds)
            .filter(|(_, n)| **n % 3 != 0)
            .map(|(row, n)| (row.id.clone(), pick(&row.domain, n / 3)))
            .collect();
        values.insert("engine_name".to_owned(), engine.into());
        let accepted = loop {
            match catalog.configuration(ConfigurationDraft(values.clone())) {
                Ok(configuration) => break configuration,
                Err(problems) => for problem in problems {
                    prop_assert!(problem.message.starts_with("does not apply"), "{problem:?}");
                    prop_assert!(values.remove(&problem.field).is_some());
                },
            }
        };
        let json = serde_json::to_string(&accepted.to_draft()).unwrap();
        let back: ConfigurationDraft = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(&catalog.configuration(back).unwrap(), &accepted);
        prop_assert_eq!(&catalog.recheck(&accepted).unwrap(), &accepted);
        let renamed = accepted.iter().map(|(id, value)| {
            let names: Vec<&str> = catalog.feature(id).unwrap().names().collect();
            ((*names.last().unwrap()).to_owned(), value.clone())
        });
        let renamed = ConfigurationDraft(renamed.collect());
        prop_assert_eq!(&catalog.configuration(renamed).unwrap(), &accepted);
    }
}
