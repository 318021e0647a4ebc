//! Tests of what an edge's claim survives.

use super::*;

fn claim(sign: Sign) -> EffectClaim {
    EffectClaim {
        sign,
        smallest_effect: 0.05,
        surrogate_error: 0.005,
        noise: 0.01,
    }
}

/// Eight contrasts along a slope, with a scatter that is even in z.
fn along(slope: f64, scatter: f64) -> ContrastSums {
    let mut sums = ContrastSums::default();
    for i in 0..4 {
        let z = 0.5 + 0.25 * f64::from(i);
        sums.add(z, slope * z + scatter);
        sums.add(z, slope * z - scatter);
    }
    sums
}

#[test]
fn a_wrong_sign_and_a_proven_zero_contradict_a_wide_interval_does_not() {
    let positive = claim(Sign::Positive);
    assert_eq!(
        edge_verdict(&along(0.4, 0.01), &positive),
        EdgeVerdict::Exercised
    );
    assert_eq!(
        edge_verdict(&along(-0.4, 0.01), &positive),
        EdgeVerdict::Contradicted
    );
    assert_eq!(
        edge_verdict(&along(0.0, 0.01), &positive),
        EdgeVerdict::Contradicted
    );
    assert_eq!(
        edge_verdict(&along(0.0, 0.5), &positive),
        EdgeVerdict::Exercised
    );
    assert_eq!(
        edge_verdict(&along(-0.4, 0.01), &claim(Sign::Negative)),
        EdgeVerdict::Exercised
    );
}

#[test]
fn a_claim_without_direction_needs_some_effect() {
    let any = claim(Sign::NonMonotone);
    assert_eq!(
        edge_verdict(&along(-0.4, 0.01), &any),
        EdgeVerdict::Exercised
    );
    assert_eq!(
        edge_verdict(&along(0.0, 0.01), &any),
        EdgeVerdict::Contradicted
    );
}

#[test]
fn invariance_needs_three_powered_environments_of_the_claimed_sign() {
    let positive = claim(Sign::Positive);
    let holds = (along(0.4, 0.01), positive);
    let larger = (along(2.0, 0.01), positive);
    let vague = (along(0.4, 0.5), positive);
    assert_eq!(effect_invariance(&[holds, larger]), Icp::Undecided);
    assert_eq!(effect_invariance(&[holds, larger, vague]), Icp::Undecided);
    assert_eq!(effect_invariance(&[holds, larger, holds]), Icp::Accept);
    assert_eq!(effect_invariance(&[]), Icp::Undecided);
}

#[test]
fn half_the_environments_or_two_signs_reject() {
    let positive = claim(Sign::Positive);
    let holds = (along(0.4, 0.01), positive);
    let absent = (along(0.0, 0.01), positive);
    let reversed = (along(-0.4, 0.01), positive);
    assert_eq!(effect_invariance(&[holds, absent]), Icp::Reject);
    assert_eq!(
        effect_invariance(&[holds, holds, holds, absent]),
        Icp::Accept
    );
    assert_eq!(
        effect_invariance(&[holds, holds, holds, reversed]),
        Icp::Reject
    );
    // True in one environment only, the kind that a residual cannot see.
    assert_eq!(effect_invariance(&[holds, absent, absent]), Icp::Reject);
    let any = |s: ContrastSums| (s, claim(Sign::NonMonotone));
    let turned = [any(holds.0), any(holds.0), any(reversed.0)];
    assert_eq!(effect_invariance(&turned), Icp::Accept);
}
