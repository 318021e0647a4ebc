//! Checks of the effects that rows have on the analytic member.

use std::collections::BTreeMap;

use super::super::effect::{Effect, EffectRow, Formula, extremes};
use super::super::load::{Located, Rows};
use super::super::{Basis, Domain, Feature, SetBy, Status};
use crate::configuration::{Rule, Term};
use crate::violation::{Violations, nearest};

/// Most effects of one row.
const MAX_EFFECTS: usize = 8;
/// Longest source.
const MAX_SOURCE_CHARS: usize = 400;
/// Years that a published number may be from.
const YEARS: std::ops::RangeInclusive<u32> = 1990..=2100;

/// Every problem of every effect.
pub(in crate::catalog) fn check(rows: &Rows, problems: &mut Violations) {
    let mut deciders: BTreeMap<Term, &str> = BTreeMap::new();
    for located in &rows.features {
        let (file, row) = located;
        let at = |what: &str| format!("{file}.{}.{what}", row.id);
        if row.effect.is_empty() {
            continue;
        }
        if row.set_by != SetBy::Planner || row.status != Status::Active {
            let message = "only a knob that can be set has effects; remove them";
            problems.add(at("effect"), message);
        }
        if row.effect.len() > MAX_EFFECTS {
            problems.add(at("effect"), format!("at most {MAX_EFFECTS} effects"));
        }
        for (n, effect) in row.effect.iter().enumerate() {
            check_one(located, &at(&format!("effect[{n}]")), effect, problems);
            let alone = Term::from_name(&effect.term).filter(|t| t.rule() == Rule::Alone);
            let before = alone.and_then(|term| deciders.insert(term, &row.id));
            if let Some(other) = before.filter(|other| *other != row.id) {
                let message = format!("{} is decided by {other} already", effect.term);
                problems.add(at(&format!("effect[{n}].term")), message);
            }
        }
    }
}

fn check_one((_, row): &Located<Feature>, at: &str, effect: &EffectRow, problems: &mut Violations) {
    if Term::from_name(&effect.term).is_none() {
        let near = nearest(&effect.term, Term::ALL.into_iter().map(Term::name));
        let hint = near.map_or_else(String::new, |n| format!("; did you mean {n}?"));
        let shown: String = effect.term.chars().take(80).collect();
        problems.add(
            format!("{at}.term"),
            format!("{shown:?} is not a term{hint}"),
        );
    }
    check_source(at, effect, problems);
    check_shape(at, row, effect, problems);
    if let Some(resolved) = effect.resolve() {
        check_amounts(at, row, effect, &resolved, problems);
    }
}

fn check_source(at: &str, effect: &EffectRow, problems: &mut Violations) {
    let basis = effect.named_basis();
    if basis.is_none() {
        let known: Vec<&str> = Basis::ALL.into_iter().map(Basis::name).collect();
        let message = format!("{:?} is not one of {}", effect.basis, known.join(", "));
        problems.add(format!("{at}.basis"), message);
    }
    let source = format!("{at}.source");
    let length = effect.source.chars().count();
    if !(8..=MAX_SOURCE_CHARS).contains(&length) {
        let message =
            format!("says where the number comes from, in 8 to {MAX_SOURCE_CHARS} characters");
        problems.add(source, message);
    } else if matches!(basis, Some(Basis::Published | Basis::Measured)) && !has_year(&effect.source)
    {
        problems.add(source, "a published or measured number has its year");
    }
}

fn has_year(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_digit())
        .filter(|word| word.len() == 4)
        .any(|word| word.parse().is_ok_and(|year: u32| YEARS.contains(&year)))
}

/// Either values or a formula, and what belongs to it.
fn check_shape(at: &str, row: &Feature, effect: &EffectRow, problems: &mut Violations) {
    match (&effect.formula, effect.values.is_empty()) {
        (None, true) => problems.add(at, "has neither values nor a formula; give one of them"),
        (Some(_), false) => problems.add(at, "has values and a formula; keep one of them"),
        (None, false) => {
            if matches!(row.domain, Domain::Float { .. } | Domain::Text { .. }) {
                problems.add(
                    format!("{at}.values"),
                    "a knob without levels needs a formula",
                );
            }
        }
        (Some(name), true) => match effect.named_formula() {
            None => {
                let known: Vec<&str> = Formula::ALL.into_iter().map(Formula::name).collect();
                let message = format!("{name:?} is not one of {}", known.join(", "));
                problems.add(format!("{at}.formula"), message);
            }
            Some(_)
                if matches!(
                    row.domain,
                    Domain::Bool | Domain::Choice(_) | Domain::Text { .. }
                ) =>
            {
                problems.add(
                    format!("{at}.formula"),
                    "a formula needs a knob with numbers; give values",
                );
            }
            Some(formula) if formula.needs_constant() != effect.by.is_some() => {
                let fix = if effect.by.is_some() {
                    "takes no `by`"
                } else {
                    "needs `by`"
                };
                problems.add(format!("{at}.by"), format!("{name} {fix}"));
            }
            Some(_) => {}
        },
    }
}

/// Every contribution is legal, every named value is one of the knob's.
fn check_amounts(
    at: &str,
    row: &Feature,
    written: &EffectRow,
    effect: &Effect,
    problems: &mut Violations,
) {
    let term = effect.term;
    for (name, amount) in &written.values {
        if !is_value_of(&row.domain, name) {
            let message = format!("is no value of {}: {}", row.id, row.domain);
            problems.add(format!("{at}.values.{name}"), message);
        }
        if !term.accepts(*amount) {
            let message = format!(
                "{amount} is not legal: {} takes {}",
                term.name(),
                term.range()
            );
            problems.add(format!("{at}.values.{name}"), message);
        }
    }
    if written.formula.is_none() {
        return;
    }
    for value in extremes(&row.domain) {
        // A default contributes nothing, so it may lie outside.
        let amount = effect
            .contribution(&value)
            .filter(|_| row.default.as_ref() != Some(&value));
        if amount.is_some_and(|amount| !term.accepts(amount)) {
            let message = format!(
                "gives {} at {value}: {} takes {}",
                amount.unwrap_or(f64::NAN),
                term.name(),
                term.range()
            );
            problems.add(format!("{at}.formula"), message);
        }
    }
}

fn is_value_of(domain: &Domain, name: &str) -> bool {
    match domain {
        Domain::Bool => matches!(name, "true" | "false"),
        Domain::Choice(choices) => choices.iter().any(|c| c == name),
        Domain::IntChoice(choices) => choices.iter().any(|c| c.to_string() == name),
        Domain::Int { min, max } => name.parse().is_ok_and(|n: i64| (*min..=*max).contains(&n)),
        Domain::Float { .. } | Domain::Text { .. } => false,
    }
}
