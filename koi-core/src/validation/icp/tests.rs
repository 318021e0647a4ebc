//! Tests of the invariance tests against the vectors, and of the two legs together.

use std::collections::BTreeMap;

use super::*;
use crate::params::Params;
use crate::score::vectors;

#[derive(Deserialize)]
struct In {
    groups: BTreeMap<String, Vec<f64>>,
    alpha: f64,
    n_env_min: u32,
    n_b: u32,
}

#[derive(Deserialize)]
struct Out {
    verdict: Icp,
    p: Option<f64>,
    brown_forsythe_p_all_groups: f64,
}

#[test]
fn vector_icp() {
    for case in vectors::load::<In, Out>("icp", "icp_") {
        let params = Params {
            icp_significance: case.input.alpha,
            icp_environments_min: case.input.n_env_min,
            icp_samples_min: case.input.n_b,
            ..Params::default()
        };
        let (verdict, p) = tail_verdict(&case.input.groups, &params);
        assert_eq!(verdict, case.output.verdict, "{}", case.name);
        assert_eq!(p.is_some(), case.output.p.is_some(), "{}", case.name);
        if let (Some(got), Some(expected)) = (p, case.output.p) {
            vectors::assert_close(&case.name, got, expected);
        }
        let all: Vec<&[f64]> = case.input.groups.values().map(Vec::as_slice).collect();
        let spread = brown_forsythe_p_value(&all).unwrap();
        vectors::assert_close(&case.name, spread, case.output.brown_forsythe_p_all_groups);
    }
}

#[test]
fn a_test_without_spread_or_power_decides_nothing() {
    let flat = [1.0, 1.0];
    assert_eq!(anova_p_value(&[&flat, &flat]), None);
    assert_eq!(anova_p_value(&[&flat]), None);
    assert_eq!(anova_p_value(&[&[1.0, f64::NAN], &[2.0, 3.0]]), None);
}

#[test]
fn acceptance_needs_both_legs_and_either_rejects() {
    use Icp::{Accept, Reject, Undecided};
    let rule = InvarianceRule::Equivalence;
    assert_eq!(combined(rule, Accept, Some(Accept)), Accept);
    assert_eq!(combined(rule, Accept, Some(Undecided)), Undecided);
    assert_eq!(combined(rule, Undecided, Some(Accept)), Undecided);
    assert_eq!(combined(rule, Undecided, Some(Reject)), Reject);
    assert_eq!(combined(rule, Reject, Some(Accept)), Reject);
    // Contrasts switched off.
    assert_eq!(combined(rule, Accept, None), Accept);
    assert_eq!(combined(InvarianceRule::Tail, Accept, Some(Reject)), Accept);
    assert_eq!(
        combined(InvarianceRule::Undecided, Reject, Some(Reject)),
        Undecided
    );
}
