//! Tests of the window: running sums against a rescan, expiry, engine versions, power and size.

use proptest::prelude::*;

use super::*;
use crate::rng::Rng;
use crate::validation::icp::{Icp, brown_forsythe_p_value};
use crate::variables::Mediator;

const QUEUE: Variable = Variable::V(Mediator::QueueDepth);
const KV: Variable = Variable::V(Mediator::KvCacheUtil);

fn environment(i: usize) -> Environment {
    format!("reserved/aws/us-east-1/z{i}/H100").parse().unwrap()
}

fn record(window: &mut InvarianceWindow, tick: i64, engine: &str, place: usize, mean: f64) {
    let environment = environment(place);
    let seen = Seen {
        tick: TickId(tick),
        engine,
        environment: &environment,
    };
    window.record(
        seen,
        [BlockMean {
            variable: QUEUE,
            mean,
        }],
    );
}

/// Sum of twelve uniforms: mean 0, variance 1, near enough to normal.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0
}

fn verdict(window: &InvarianceWindow, params: &Params) -> ResidualInvariance {
    window.verdicts("0.10", |_| None, params)[&QUEUE]
}

/// Forty block means in each of four environments, around these centres and with these spreads.
fn fleet(seed: u64, centres: [f64; 4], spreads: [f64; 4]) -> InvarianceWindow {
    let params = Params::default();
    let mut rng = Rng::from_seed(seed);
    let mut window = InvarianceWindow::new(&params);
    for tick in 0..40 {
        for place in 0..4 {
            let mean = centres[place] + spreads[place] * normal(&mut rng);
            record(&mut window, tick, "0.10", place, mean);
        }
    }
    window
}

#[test]
fn alike_environments_are_accepted_and_a_far_one_is_rejected() {
    let params = Params::default();
    let (mut accepted, mut rejected, mut false_rejects) = (0, 0, 0);
    for seed in 0..200 {
        let alike = verdict(&fleet(seed, [0.02; 4], [0.05; 4]), &params);
        accepted += i32::from(alike.verdict == Icp::Accept);
        false_rejects += i32::from(alike.verdict == Icp::Reject);
        let far = fleet(seed, [0.0, 0.0, 0.0, 0.08], [0.05; 4]);
        rejected += i32::from(verdict(&far, &params).verdict == Icp::Reject);
    }
    println!("accepted {accepted}, rejected {rejected}, falsely {false_rejects} of 200");
    assert!(accepted >= 150, "{accepted}");
    assert!(rejected >= 195, "{rejected}");
    assert!(false_rejects <= 2, "{false_rejects}");
}

#[test]
fn a_significant_difference_that_does_not_matter_never_rejects() {
    let params = Params::default();
    let mut window = InvarianceWindow::new(&params);
    let mut rng = Rng::from_seed(5);
    for tick in 0..400 {
        for (place, centre) in [0.0, 0.0, 0.01].into_iter().enumerate() {
            record(
                &mut window,
                tick,
                "0.10",
                place,
                centre + 0.05 * normal(&mut rng),
            );
        }
    }
    let found = verdict(&window, &params);
    assert!(found.p_mean.unwrap() < 0.05, "{found:?}");
    assert_eq!(found.verdict, Icp::Accept, "{found:?}");
    let tail = Params {
        invariance_rule: crate::params::InvarianceRule::Tail,
        ..Params::default()
    };
    assert_eq!(verdict(&window, &tail).verdict, Icp::Reject);
}

#[test]
fn a_stored_sigma_widens_what_does_not_matter() {
    let params = Params::default();
    let window = fleet(3, [0.0, 0.0, 0.0, 0.08], [0.05; 4]);
    let wide = window.verdicts("0.10", |_| Some(0.3), &params)[&QUEUE];
    assert_eq!(wide.verdict, Icp::Accept, "{wide:?}");
}

#[test]
fn an_environment_that_scatters_more_is_not_accepted() {
    let params = Params::default();
    let mut accepted = 0;
    for seed in 0..50 {
        let found = verdict(&fleet(seed, [0.0; 4], [0.02, 0.02, 0.02, 0.2]), &params);
        assert!(found.p_spread.is_some_and(|p| p < 0.05), "{found:?}");
        accepted += i32::from(found.verdict == Icp::Accept);
    }
    assert_eq!(accepted, 0);
}

#[test]
fn two_environments_or_few_samples_stay_undecided() {
    let params = Params::default();
    let mut window = InvarianceWindow::new(&params);
    for tick in 0..14 {
        for place in 0..5 {
            record(&mut window, tick, "0.10", place, place as f64);
        }
    }
    let found = verdict(&window, &params);
    assert_eq!((found.verdict, found.environments), (Icp::Undecided, 0));
    record(&mut window, 14, "0.10", 0, 0.0);
    record(&mut window, 14, "0.10", 1, 1.0);
    let found = verdict(&window, &params);
    assert_eq!((found.verdict, found.environments), (Icp::Undecided, 2));
}

#[test]
fn engine_versions_are_never_mixed_and_old_ticks_expire() {
    let params = Params::default();
    let mut window = fleet(1, [0.0; 4], [0.05; 4]);
    record(&mut window, 40, "0.11", 0, 9.0);
    assert_eq!(window.samples("0.10", QUEUE).len(), 4);
    assert_eq!(window.samples("0.11", QUEUE).len(), 1);
    assert!(window.samples("0.10", KV).is_empty());
    assert_eq!(window.current_engine(), Some("0.11"));
    window.advance(TickId(509), &Params::default());
    assert!(
        window
            .samples("0.10", QUEUE)
            .iter()
            .all(|s| s.levels.n == 30)
    );
    window.advance(TickId(539), &Params::default());
    assert!(window.samples("0.10", QUEUE).is_empty());
    assert_eq!(window.samples("0.11", QUEUE).len(), 1);
    window.advance(TickId(i64::MAX), &Params::default());
    assert!(window.engines.is_empty());
    assert!(window.verdicts("0.10", |_| None, &params).is_empty());
}

#[test]
fn what_is_kept_does_not_grow_with_the_rows_of_the_past() {
    let mut window = InvarianceWindow::new(&Params::default());
    let size = |w: &InvarianceWindow| {
        let cells = w.engines["0.10"][&environment(0)][QUEUE.index()]
            .as_ref()
            .unwrap();
        cells.levels.buckets.len() + cells.distances.buckets.len() + cells.centre.newest.len()
    };
    for tick in 0..10_000 {
        window.advance(TickId(tick), &Params::default());
        for _ in 0..3 {
            record(&mut window, tick, "0.10", 0, 0.1);
        }
        assert!(size(&window) <= 2 * 51 + 32);
    }
    assert!((1_500..=1_530).contains(&window.samples("0.10", QUEUE)[0].levels.n));
}

#[test]
fn rows_before_the_window_and_numbers_that_are_none_are_left_out() {
    let mut window = InvarianceWindow::new(&Params::default());
    record(&mut window, 1_000, "0.10", 0, 1.0);
    record(&mut window, 10, "0.10", 0, 1.0);
    record(&mut window, 1_000, "0.10", 0, f64::NAN);
    record(&mut window, 900, "0.10", 0, 3.0);
    let samples = window.samples("0.10", QUEUE);
    assert_eq!((samples[0].levels.n, samples[0].levels.mean), (2, 2.0));
}

#[test]
fn the_running_test_of_spread_agrees_with_a_rescan() {
    let mut rng = Rng::from_seed(11);
    for spreads in [[0.05, 0.05, 0.05], [0.05, 0.05, 0.12]] {
        let mut window = InvarianceWindow::new(&Params::default());
        let mut groups = vec![Vec::new(); 3];
        for tick in 0..100 {
            for (place, spread) in spreads.into_iter().enumerate() {
                let mean = spread * normal(&mut rng);
                groups[place].push(mean);
                record(&mut window, tick, "0.10", place, mean);
            }
        }
        let views: Vec<&[f64]> = groups.iter().map(Vec::as_slice).collect();
        let exact = brown_forsythe_p_value(&views).unwrap();
        let running = verdict(&window, &Params::default()).p_spread.unwrap();
        assert_eq!(exact < 0.01, running < 0.01, "{exact} {running}");
    }
}

proptest! {
    #[test]
    fn the_sums_are_those_of_a_rescan(
        rows in prop::collection::vec((0_i64..1_200, 0_usize..3, -1.0..1.0_f64), 1..200),
    ) {
        let mut rows = rows;
        rows.sort_by_key(|r| r.0);
        let mut window = InvarianceWindow::new(&Params::default());
        for (tick, place, mean) in &rows {
            window.advance(TickId(*tick), &Params::default());
            record(&mut window, *tick, "0.10", *place, *mean);
        }
        let newest = rows.last().unwrap().0;
        // Buckets of ten ticks expire whole.
        let oldest = (newest - 499).div_euclid(10) * 10;
        let mut kept: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (_, place, mean) in rows.iter().filter(|r| r.0 >= oldest) {
            kept.entry(*place).or_default().push(*mean);
        }
        let samples = window.samples("0.10", QUEUE);
        prop_assert_eq!(samples.len(), kept.len());
        for (got, expected) in samples.iter().zip(kept.into_values()) {
            let expected: Moments = expected.into_iter().collect();
            prop_assert_eq!(got.levels.n, expected.n);
            prop_assert!((got.levels.mean - expected.mean).abs() < 1e-9);
            prop_assert!((got.levels.squares - expected.squares).abs() < 1e-9);
        }
    }
}
