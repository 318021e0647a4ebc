//! Tests of contrasts between the levels of a category.

use super::*;

fn claim(sign: Sign) -> EffectClaim {
    EffectClaim {
        sign,
        smallest_effect: 0.05,
        surrogate_error: 0.005,
        noise: 0.01,
    }
}

fn changes(rows: &[(&str, &str, f64)]) -> LevelPairSums {
    let mut sums = LevelPairSums::default();
    for (from, to, delta) in rows.iter().cycle().take(rows.len() * 4) {
        sums.add(from, to, *delta);
    }
    sums
}

#[test]
fn pairs_are_ordered_and_each_has_its_own_sum() {
    let sums = changes(&[("auto", "fp8", -0.5), ("fp8", "auto", 0.4)]);
    let pairs: Vec<_> = sums.pairs().map(|(a, b, s)| (a, b, s.n)).collect();
    assert_eq!(pairs, [("auto", "fp8", 4), ("fp8", "auto", 4)]);
    let text = serde_json::to_string(&sums).unwrap();
    assert_eq!(serde_json::from_str::<LevelPairSums>(&text).unwrap(), sums);
}

#[test]
fn a_pair_taken_back_is_gone() {
    let mut sums = LevelPairSums::default();
    sums.add("auto", "fp8", 0.5);
    sums.add("auto", "auto", 0.5);
    sums.add("auto", "fp8", f64::NAN);
    sums.remove("auto", "int8", 0.5);
    assert_eq!(sums.pairs().count(), 1);
    sums.remove("auto", "fp8", 0.5);
    assert_eq!(sums, LevelPairSums::default());
}

#[test]
fn one_pair_with_an_effect_upholds_the_edge() {
    let flat = changes(&[("a", "b", 0.0), ("b", "a", 0.0)]);
    let mixed = changes(&[("a", "b", 0.0), ("a", "c", -0.6)]);
    for sign in [Sign::NonMonotone, Sign::Positive] {
        assert_eq!(flat.verdict(&claim(sign)), EdgeVerdict::Contradicted);
        assert_eq!(mixed.verdict(&claim(sign)), EdgeVerdict::Exercised);
    }
    let empty = LevelPairSums::default();
    assert_eq!(
        empty.verdict(&claim(Sign::NonMonotone)),
        EdgeVerdict::Unexercised
    );
}

#[test]
fn an_environment_counts_once_however_many_pairs_it_has() {
    let claim = claim(Sign::NonMonotone);
    let many = changes(&[("a", "b", -0.5), ("a", "c", -0.6), ("b", "c", 0.3)]);
    let flat = changes(&[("a", "b", 0.0)]);
    let env = |s: &LevelPairSums| (s.clone(), claim);
    assert_eq!(level_invariance(&[env(&many)]), Icp::Undecided);
    assert_eq!(
        level_invariance(&[env(&many), env(&many), env(&many)]),
        Icp::Accept
    );
    assert_eq!(level_invariance(&[env(&many), env(&flat)]), Icp::Reject);
}
