//! Shifts out of bucketed percentiles.

use super::*;

const SPREAD: Spread = Spread {
    mu: 2.5,
    sigma: 0.08,
};

fn p99(spread: Spread) -> f64 {
    let seconds = through_buckets(0.99, &TPOT_EDGES_SECONDS, |s| spread.cdf(s * 1e3));
    seconds.unwrap() * 1e3
}

fn shifted(by: f64) -> Spread {
    Spread {
        mu: SPREAD.mu + by,
        ..SPREAD
    }
}

fn learned(by: f64) -> f64 {
    let seen = Seen {
        observed: p99(shifted(by)),
        predicted: p99(SPREAD),
    };
    shift_between(Some(seen), Some(SPREAD), &TPOT_EDGES_SECONDS).unwrap()
}

#[test]
fn a_shift_explains_the_percentile_that_was_seen_even_when_a_little_of_it_is_lost() {
    for by in [-1.0, -0.5, 0.4, 0.8, 1.3, 2.0] {
        // On the edge of a bucket a percentile moves much faster than the distribution.
        for (kept, bound) in [(1.0, 0.02), (0.95, 0.4)] {
            let said = p99(shifted(kept * learned(by)));
            let seen = p99(shifted(by));
            assert!((said / seen - 1.0).abs() < bound, "{by}: {said} {seen}");
        }
    }
}

#[test]
fn inside_one_bucket_everything_looks_alike_and_nothing_is_learned() {
    // 12.2 and 14 ms both lie between 10 and 25.
    assert!(learned(0.14).abs() < 1e-9);
    let nothing = Seen {
        observed: f64::NAN,
        predicted: 10.0,
    };
    let edges = &TPOT_EDGES_SECONDS;
    assert_eq!(shift_between(Some(nothing), Some(SPREAD), edges), None);
    assert_eq!(shift_between(None, Some(SPREAD), edges), None);
}
