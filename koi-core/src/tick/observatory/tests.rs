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
