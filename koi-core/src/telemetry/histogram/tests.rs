//! Tests of histograms: refusals, deltas, quantiles, and the table of edges.

use super::*;

fn cumulative(counts: &[u64], sum: f64) -> CumulativeHistogram {
    CumulativeHistogram::new(vec![1.0, 2.0], counts.to_vec(), sum).unwrap()
}

#[test]
fn a_delta_holds_only_what_is_new() {
    let delta = cumulative(&[3, 5, 9], 20.0)
        .since(&cumulative(&[3, 4, 6], 12.5))
        .unwrap();
    assert_eq!(
        (delta.buckets.as_slice(), delta.count),
        (&[(1, 1), (2, 2)][..], 3)
    );
    assert_eq!(delta.mean(), Some(2.5));
    assert_eq!(delta.cumulative(&[1.0, 2.0]).unwrap(), [0.0, 1.0, 3.0]);
    assert_eq!(delta.cumulative(&[1.0]), None, "an index outside the edges");
}

#[test]
fn going_backwards_or_other_edges_give_no_delta() {
    assert_eq!(
        cumulative(&[0, 0, 1], 1.0).since(&cumulative(&[3, 4, 6], 12.5)),
        None
    );
    assert_eq!(
        cumulative(&[5, 5, 7], 1.0).since(&cumulative(&[3, 4, 6], 0.0)),
        None,
        "one bucket fell"
    );
    let other = CumulativeHistogram::new(vec![1.0], vec![0, 0], 0.0).unwrap();
    assert_eq!(cumulative(&[0, 0, 1], 1.0).since(&other), None);
}

#[test]
fn bad_parts_are_refused() {
    let bad = |edges: Vec<f64>, counts: Vec<u64>| {
        CumulativeHistogram::new(edges, counts, 0.0).unwrap_err()
    };
    assert_eq!(bad(vec![], vec![1]), BadHistogram::EdgeCount);
    assert_eq!(bad(vec![2.0, 1.0], vec![1, 1, 1]), BadHistogram::EdgeOrder);
    assert_eq!(bad(vec![f64::NAN], vec![1, 1]), BadHistogram::EdgeOrder);
    assert_eq!(bad(vec![1.0], vec![2, 1]), BadHistogram::Counts);
    assert_eq!(bad(vec![1.0], vec![2]), BadHistogram::Counts);
    assert_eq!(
        CumulativeHistogram::new(vec![1.0], vec![0, 1], f64::INFINITY),
        Err(BadHistogram::NoSum)
    );
}

#[test]
fn the_table_keeps_each_set_once_and_is_bounded() {
    let mut table = EdgesTable::default();
    let id = table.insert(&[0.1, 0.2]).unwrap();
    assert_eq!(table.insert(&[0.1, 0.2]), Ok(id));
    assert_eq!(table.get(id), Some(&[0.1, 0.2][..]));
    for i in 1..MAX_EDGE_SETS {
        table.insert(&[i as f64]).unwrap();
    }
    assert_eq!(table.insert(&[-1.0]), Err(BadHistogram::TooManySets));
    let text = serde_json::to_string(&table).unwrap();
    assert_eq!(serde_json::from_str::<EdgesTable>(&text).unwrap(), table);
}

#[test]
fn adding_needs_the_same_edges() {
    let mut delta = cumulative(&[1, 1, 2], 3.0)
        .since(&cumulative(&[0, 0, 0], 0.0))
        .unwrap();
    let again = delta.clone();
    assert!(delta.add(&again));
    assert_eq!(
        (delta.buckets.as_slice(), delta.count),
        (&[(0, 2), (2, 2)][..], 4)
    );
    assert!(!delta.add(&BucketDelta {
        edges: EdgesId(0),
        ..again
    }));
}

#[test]
fn the_series_of_a_page_must_fit_together() {
    let read = |buckets: &[(f64, f64)], sum, count| {
        CumulativeHistogram::from_series(buckets, sum, count).map(|h| h.cumulative().to_vec())
    };
    let infinity = f64::INFINITY;
    let good = [(1.0, 2.0), (2.0, 3.0), (infinity, 5.0)];
    assert_eq!(read(&good, Some(9.0), Some(5.0)), Ok(vec![2, 3, 5]));
    assert_eq!(read(&good, Some(9.0), None), Ok(vec![2, 3, 5]));
    type Case<'a> = (&'a [(f64, f64)], Option<f64>, Option<f64>, BadHistogram);
    let cases: [Case<'_>; 10] = [
        (&[], Some(1.0), None, BadHistogram::EdgeCount),
        (&[(infinity, 1.0)], Some(1.0), None, BadHistogram::EdgeCount),
        (&good[..2], Some(1.0), None, BadHistogram::NoInfinity),
        (&good, Some(9.0), Some(4.0), BadHistogram::CountDiffers),
        (&good, Some(9.0), Some(f64::NAN), BadHistogram::CountDiffers),
        (&good, None, Some(5.0), BadHistogram::NoSum),
        (&good, Some(f64::NAN), Some(5.0), BadHistogram::NoSum),
        (
            &[(1.0, 3.0), (infinity, 2.0)],
            Some(1.0),
            None,
            BadHistogram::Counts,
        ),
        (
            &[(1.0, -1.0), (infinity, 2.0)],
            Some(1.0),
            None,
            BadHistogram::CountRange,
        ),
        (
            &[(f64::NEG_INFINITY, 0.0), (infinity, 2.0)],
            Some(1.0),
            None,
            BadHistogram::EdgeOrder,
        ),
    ];
    for (buckets, sum, count, expected) in cases {
        assert_eq!(
            read(buckets, sum, count),
            Err(expected),
            "{buckets:?} {sum:?} {count:?}"
        );
    }
}

#[test]
fn why_there_is_no_delta_is_said() {
    let then = cumulative(&[3, 4, 6], 12.5);
    assert_eq!(
        cumulative(&[0, 0, 1], 1.0).delta_since(&then),
        Err(NoDelta::Reset)
    );
    // All counts up to an edge grew, but nobody unobserves the one request between 1 and 2.
    assert_eq!(
        cumulative(&[5, 5, 7], 20.0).delta_since(&then),
        Err(NoDelta::Reset)
    );
    let other = CumulativeHistogram::new(vec![1.0, 3.0], vec![3, 4, 6], 12.5).unwrap();
    assert_eq!(other.delta_since(&then), Err(NoDelta::EdgesChanged));
    assert_eq!(
        then.delta_since(&then).map(|d| (d.count, d.buckets)),
        Ok((0, vec![]))
    );
}

#[test]
fn quantiles_follow_the_buckets() {
    // 100 observations: 50 up to 1, 40 between 1 and 2, 10 above 2.
    let all = cumulative(&[50, 90, 100], 120.0);
    assert_eq!(all.quantile(0.5), Some(1.0));
    assert_eq!(all.quantile(0.7), Some(1.5));
    assert_eq!(
        all.quantile(0.99),
        Some(2.0),
        "+Inf answers with the last edge"
    );
    assert_eq!(
        (all.mean(), cumulative(&[0, 0, 0], 0.0).mean()),
        (Some(1.2), None)
    );
    let delta = all.since(&cumulative(&[50, 50, 60], 20.0)).unwrap();
    assert_eq!(
        delta.quantile(0.5, &[1.0, 2.0]),
        Some(1.5),
        "40 new ones, all between 1 and 2"
    );
    assert_eq!(delta.quantile(0.5, &[]), None);
}
