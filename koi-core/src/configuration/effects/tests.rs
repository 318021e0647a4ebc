//! Folding of contributions, and that a stored view comes back.

use std::collections::BTreeSet;

use super::*;

#[test]
fn contributions_meet_by_the_rule_of_their_term() {
    let mut effects = ShapeEffects::NEUTRAL;
    assert!(effects.is_neutral());
    for (term, values, expected) in [
        (Term::StepOverheadFactor, [0.5, 0.5], 0.25),
        (Term::StepOverheadUs, [10.0, 5.0], 15.0),
        (Term::ActiveSequences, [64.0, 32.0], 32.0),
        (Term::LoraSlots, [1.0, 4.0], 4.0),
        (Term::LoraRank, [64.0, 8.0], 8.0),
    ] {
        for value in values {
            effects.add(term, value);
        }
        assert!((effects.get(term) - expected).abs() < 1e-12, "{term:?}");
    }
    let before = effects;
    effects.add(Term::StepOverheadUs, f64::NAN);
    effects.add(Term::LoraRank, f64::INFINITY);
    assert_eq!(effects, before, "what is not finite says nothing");
    assert_eq!(effects.set_terms().count(), 5);
}

#[test]
fn a_stored_view_comes_back_and_a_bad_one_is_refused() {
    let mut effects = ShapeEffects::NEUTRAL;
    effects.add(Term::OffloadBytes, 2e9);
    effects.add(Term::ActiveSequences, 32.0);
    let json = serde_json::to_string(&effects).unwrap();
    assert_eq!(
        serde_json::from_str::<ShapeEffects>(&json).unwrap(),
        effects
    );
    assert_eq!(
        serde_json::from_str::<ShapeEffects>("{}").unwrap(),
        ShapeEffects::NEUTRAL
    );
    for bad in [r#"{"no_such_term":1}"#, r#"{"step_overhead_factor":0}"#] {
        assert!(serde_json::from_str::<ShapeEffects>(bad).is_err(), "{bad}");
    }
}

#[test]
fn terms_are_named_once_and_each_shows_somewhere() {
    let names: BTreeSet<&str> = Term::ALL.into_iter().map(Term::name).collect();
    assert_eq!(names.len(), TERM_COUNT);
    for term in Term::ALL {
        assert_eq!(Term::from_name(term.name()), Some(term));
        assert!(
            !term.shows_in().is_empty() && term.doc().ends_with('.'),
            "{term:?}"
        );
        let (min, max) = term.bounds();
        assert!(min <= max && term.neutral().total_cmp(&f64::NAN).is_ne());
    }
}
