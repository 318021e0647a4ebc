//! Tests of trajectory points: when they close, what is late, what is not believed.

use super::*;
use crate::telemetry::test_engine::{TestEngine, builder, replica, steady_windows};
use crate::telemetry::window::WindowBuilder;

fn facts() -> ObserveFacts {
    ObserveFacts {
        tp: 1,
        pp: 1,
        ..ObserveFacts::default()
    }
}

fn steady(index: u32, seconds: u32) -> (Vec<Window>, WindowBuilder) {
    let (mut build, mut engine) = (builder(index), TestEngine::new(0));
    let windows = steady_windows(&mut build, &mut engine, seconds);
    (windows, build)
}

/// Windows of ten seconds with `requests` requests each.
fn slow(requests: usize, n_windows: u32) -> (Vec<Window>, WindowBuilder) {
    let (mut build, mut engine) = (builder(0), TestEngine::new(0));
    let mut windows: Vec<Window> = build.push(&engine.scrape()).into_iter().collect();
    for _ in 0..n_windows {
        engine.second += 10.0;
        engine.ttft.extend(vec![0.15; requests]);
        engine.tpot.extend(vec![0.015; requests]);
        windows.extend(build.push(&engine.scrape()));
    }
    (windows, build)
}

#[test]
fn a_busy_rank_closes_a_point_per_window() {
    let (windows, build) = steady(0, 60);
    let points = Trajectory::default().push(&windows, build.edges(), &facts());
    assert_eq!(points.len(), 6);
    assert!(
        points
            .iter()
            .all(|p| !p.observation.mean_based && p.windows == 1)
    );
    for pair in points.windows(2) {
        assert_eq!(pair[0].end, pair[1].start);
    }
}

#[test]
fn points_do_not_depend_on_how_the_windows_arrive() {
    let (windows, build) = slow(30, 20);
    let whole = Trajectory::default().push(&windows, build.edges(), &facts());
    let mut trajectory = Trajectory::default();
    let mut pieces = Vec::new();
    for chunk in windows.chunks(3) {
        pieces.extend(trajectory.push(chunk, build.edges(), &facts()));
        let stored = serde_json::to_string(&trajectory).unwrap();
        trajectory = serde_json::from_str(&stored).unwrap();
    }
    assert_eq!(pieces, whole);
    assert_eq!(whole.len(), 5, "120 requests in four windows each");
    assert!(
        whole
            .iter()
            .all(|p| p.windows == 4 && p.observation.ttft_observations == 120)
    );
}

#[test]
fn replicas_are_pooled_per_slot() {
    let (first, build) = steady(0, 20);
    let (second, _) = steady(1, 20);
    let points = Trajectory::default().push(&[first, second].concat(), build.edges(), &facts());
    assert_eq!(
        points
            .iter()
            .map(|p| p.observation.replicas)
            .collect::<Vec<_>>(),
        [2, 2]
    );
}

#[test]
fn a_quiet_rank_falls_back_to_the_mean_after_fifteen_minutes() {
    let (windows, build) = slow(1, 95);
    let mut trajectory = Trajectory::default();
    let points = trajectory.push(&windows, build.edges(), &facts());
    assert_eq!(points.len(), 1);
    let point = &points[0];
    assert_eq!((point.windows, point.observation.mean_based), (90, true));
    let ttft = point
        .observation
        .outcomes
        .get(crate::variables::Outcome::P99TtftMs)
        .unwrap();
    assert!((ttft - 150.0).abs() < 1e-9);
    assert_eq!(
        trajectory.flush(build.edges(), &facts()).unwrap().windows,
        5
    );
    assert_eq!(trajectory.flush(build.edges(), &facts()), None);
}

#[test]
fn hazard_c14_no_windows_close_no_point() {
    let build = builder(0);
    assert_eq!(Trajectory::default().push(&[], build.edges(), &facts()), []);
}

#[test]
fn hazard_c3_hours_old_windows_never_reopen_a_closed_point() {
    let (windows, build) = steady(0, 100);
    let mut trajectory = Trajectory::default();
    let closed = trajectory.push(&windows, build.edges(), &facts());
    let mut old = windows[0].clone();
    old.replica = replica(1);
    assert_eq!(trajectory.push(&[old], build.edges(), &facts()), []);
    assert_eq!((trajectory.late_windows, closed.len()), (1, 10));
    let mut a_little_late = windows[9].clone();
    a_little_late.replica = replica(1);
    assert_eq!(
        trajectory
            .push(&[a_little_late], build.edges(), &facts())
            .len(),
        1
    );
}

#[test]
fn hazard_c5_windows_with_a_stepped_clock_teach_nothing() {
    let (mut windows, build) = steady(0, 20);
    windows[0].flags.insert(WindowFlag::ClockStepped);
    let mut trajectory = Trajectory::default();
    assert_eq!(trajectory.push(&windows, build.edges(), &facts()).len(), 1);
    assert_eq!(trajectory.untrusted_windows, 1);
}
