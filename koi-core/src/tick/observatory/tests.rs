//! Views over an interval: what counts, what survives a planned change, what is forgotten.

use super::*;
use crate::ids::Generation;
use crate::planner::test_world::{World, chat};
use crate::telemetry::series::HistogramSeries;
use crate::telemetry::test_engine::{TestEngine, builder, steady_windows};

/// One job that runs, and 120 s of windows of its first replica, made by generation 1.
fn running() -> (World, JobId, Vec<Window>, EdgesTable) {
    let mut world = World::fleet();
    let job = world.job(1, chat("chat"));
    world.tick();
    let first = world.snapshot.state.replicas_of(job).next().unwrap();
    let replica = first.id.clone();
    let (mut build, mut engine) = (builder(0), TestEngine::new(0));
    let mut windows = steady_windows(&mut build, &mut engine, 120);
    for window in &mut windows {
        window.replica = replica.clone();
    }
    (world, job, windows, build.edges().clone())
}

/// The job's ladder and replicas as a new generation.
fn swap(world: &mut World, job: JobId) -> ReplicaId {
    let record = world.job_mut(job);
    let active = record.active.as_mut().unwrap();
    active.generation = Generation(2);
    let state = &mut world.snapshot.state;
    let old: Vec<ReplicaRecord> = state.replicas_of(job).cloned().collect();
    state.replicas.clear();
    for mut replica in old {
        replica.id.generation = Generation(2);
        state.replicas.insert(replica.id.clone(), replica);
    }
    state.replicas.keys().next().unwrap().clone()
}

fn requests(view: Option<CurrentView>) -> u64 {
    view.map_or(0, |v| {
        v.pooled.observations(HistogramSeries::TimeToFirstToken)
    })
}

#[test]
fn a_view_over_an_interval_spans_a_planned_change() {
    let (mut world, job, windows, edges) = running();
    let catalog = Catalog::embedded();
    let (early, late) = windows.split_at(6);
    let mut observatory = Observatory::default();
    observatory.add(&world.snapshot.state, catalog, &edges, early.to_vec());
    let replica = swap(&mut world, job);
    let mut late = late.to_vec();
    for window in &mut late {
        window.replica = replica.clone();
    }
    let state = &world.snapshot.state;
    observatory.add(state, catalog, &edges, late.clone());
    let end = late.last().unwrap().end;
    observatory.retain_live(state, end);

    let record = &state.jobs[&job];
    let now = observatory.now(state, catalog, record, end);
    assert_eq!(requests(now), 1_200, "60 s of the new generation");
    let over = |to, seconds| {
        let interval = Interval::before(to, seconds);
        let judged = observatory.tally(job, interval).judged;
        let view = observatory.over(state, catalog, record, interval);
        (requests(view), judged)
    };
    assert_eq!(over(end, 600), (2_400, 12));
    assert_eq!(over(end, 20), (400, 2), "a window counts where it ends");
    assert_eq!(over(end.plus_seconds(-70), 30), (600, 3));
    assert_eq!(over(end.plus_seconds(-600), 60), (0, 0));
}

#[test]
fn old_windows_and_ranks_are_forgotten() {
    let (mut world, job, windows, edges) = running();
    let catalog = Catalog::embedded();
    let mut observatory = Observatory::default();
    let end = windows.last().unwrap().end;
    observatory.add(&world.snapshot.state, catalog, &edges, windows.clone());
    let mut later = windows.last().unwrap().clone();
    later.start = end.plus_seconds(KEPT_SECONDS - 10);
    later.end = end.plus_seconds(KEPT_SECONDS);
    observatory.add(&world.snapshot.state, catalog, &edges, vec![later]);
    let kept = observatory.ranks.values().next().unwrap().recent.len();
    assert_eq!(kept, 2, "the newest and one just inside");

    swap(&mut world, job);
    let at = |seconds| end.plus_seconds(KEPT_SECONDS + seconds);
    observatory.retain_live(&world.snapshot.state, at(KEPT_SECONDS));
    assert_eq!(observatory.keys().count(), 1);
    observatory.retain_live(&world.snapshot.state, at(KEPT_SECONDS + 1));
    assert_eq!(observatory.keys().count(), 0);
}

#[test]
fn a_job_that_is_over_leaves_nothing() {
    let (mut world, job, windows, edges) = running();
    let mut observatory = Observatory::default();
    let end = windows.last().unwrap().end;
    let catalog = Catalog::embedded();
    observatory.add(&world.snapshot.state, catalog, &edges, windows);
    world.snapshot.state.replicas.clear();
    world.snapshot.state.jobs.remove(&job);
    observatory.retain_live(&world.snapshot.state, end);
    assert_eq!(observatory.keys().count(), 0);
}

/// Telemetry of the minutes before a restart is read back; what has been judged of it is not judged
/// again, and what has not been is.
#[test]
fn nothing_is_judged_a_second_time_after_a_restart() {
    let (world, job, windows, edges) = running();
    let (state, catalog) = (&world.snapshot.state, Catalog::embedded());
    let (early, late) = windows.split_at(6);
    let mut before = Observatory::default();
    before.add(state, catalog, &edges, early.to_vec());
    let key = before.keys().next().unwrap();
    let judged = before.take_points(key).unwrap();
    let until = judged.iter().map(|p| p.end).max().unwrap();
    let mut row = crate::validation::evidence::testing::row(3, Vec::new());
    (row.job, row.rank, row.generation) = (job, key.rank, key.generation);
    row.basis = Some(crate::validation::Basis {
        engine: "vllm 0.10".to_owned(),
        until,
    });
    let mut after = Observatory::resume(&Calibration::default(), &[row]);
    after.add(state, catalog, &edges, windows.clone());
    let fresh = after.take_points(key).unwrap();
    let mut steady = Observatory::default();
    steady.add(state, catalog, &edges, early.to_vec());
    steady.take_points(key).unwrap();
    steady.add(state, catalog, &edges, late.to_vec());
    assert_eq!(fresh, steady.take_points(key).unwrap());
    assert!(fresh.iter().all(|p| p.start >= until));
    let interval = Interval::before(windows.last().unwrap().end, 600);
    assert_eq!(
        after.tally(job, interval).judged,
        12,
        "people see all of it"
    );
}
