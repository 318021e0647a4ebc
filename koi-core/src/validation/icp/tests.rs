//! Tests of the invariance tests against the vectors.

use super::*;
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
fn the_default_rule_of_this_version_stays_undecided() {
    let far = |m: f64| (0..20).map(|i| m + f64::from(i) * 1e-3).collect::<Vec<_>>();
    let groups: BTreeMap<String, Vec<f64>> = [0.0, 5.0, 9.0]
        .into_iter()
        .map(|m| (m.to_string(), far(m)))
        .collect();
    assert_eq!(invariance(&groups, &Params::default()), Icp::Undecided);
    let tail = Params {
        invariance_rule: InvarianceRule::Tail,
        ..Params::default()
    };
    assert_eq!(invariance(&groups, &tail), Icp::Reject);
}
