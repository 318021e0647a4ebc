//! Server and agents together, as inputs and effects: what a roll-out does, and what it never does.

mod faults;
mod host;
mod mechanisms;
mod prices;
mod sim;
mod ticks;
mod walk;

use host::Fate;
use sim::Sim;

use super::*;
use crate::ids::ReplicaId;
use crate::store::{JobState, ReplicaPhase, ReplicaRole, RolloutKind};
use crate::tick::{Phase, TickCause};

fn id(text: &str) -> ReplicaId {
    text.parse().unwrap()
}

fn is_conflict<T>(result: &Result<T, Refusal>) -> bool {
    matches!(result, Err(Refusal::Conflict(_)))
}

#[test]
fn a_placed_job_serves_and_its_endpoints_share_the_load() {
    let mut sim = Sim::new(&[("a", 4)]);
    sim.submit(1, "chat").unwrap();
    assert!(sim.endpoints("chat").is_empty());
    sim.tick(1, 2).unwrap();
    assert_eq!(
        sim.job(1).rollout.as_ref().unwrap().kind,
        RolloutKind::Place
    );
    sim.seconds(5);
    assert_eq!(sim.endpoints("chat"), ["chat.g1.r0.0", "chat.g1.r0.1"]);
    let weights = sim.published["chat"].endpoints.iter().map(|e| e.weight);
    assert!((weights.sum::<f64>() - 1.0).abs() < 1e-12);
    assert_eq!(sim.job(1).active.as_ref().unwrap().generation.0, 1);
    assert!(sim.job(1).rollout.is_none());
    let host = &sim.server.live().hosts[&"a".parse().unwrap()];
    let wanted = sim.server.state().hosts[&"a".parse().unwrap()].generation;
    assert_eq!(host.applied.host_generation, wanted);
}

#[test]
fn nothing_is_written_or_sent_while_nothing_changes() {
    let mut sim = Sim::new(&[("a", 4)]);
    sim.serving(1, "chat", 2);
    let (writes, sets) = (sim.n_writes, sim.published.clone());
    sim.seconds(600);
    assert_eq!(sim.n_writes, writes);
    assert_eq!(sim.published, sets);
}

#[test]
fn a_canary_that_holds_is_promoted_and_the_old_ladder_leaves_in_order() {
    let mut sim = Sim::new(&[("a", 4)]);
    sim.serving(1, "chat", 1);
    sim.tick(1, 1).unwrap();
    assert_eq!(
        sim.job(1).rollout.as_ref().unwrap().kind,
        RolloutKind::Canary
    );
    sim.seconds(5);
    // Both generations serve, the old one is the job's ladder until the verdict.
    assert_eq!(sim.endpoints("chat"), ["chat.g1.r0.0", "chat.g2.r0.0"]);
    assert_eq!(sim.job(1).active.as_ref().unwrap().generation.0, 1);
    let old = id("chat.g1.r0.0");
    sim.host("a").engines.get_mut(&old).unwrap().in_flight = 3;
    while sim.job(1).rollout.is_some() {
        sim.second();
    }
    // Taken from the endpoints first, drained only when clients have noticed.
    assert_eq!(sim.endpoints("chat"), ["chat.g2.r0.0"]);
    let role = |sim: &Sim| sim.server.state().replicas[&old].role;
    assert!(matches!(role(&sim), ReplicaRole::Withdrawn { .. }));
    sim.seconds(4);
    assert!(matches!(role(&sim), ReplicaRole::Drain { .. }));
    sim.seconds(60);
    assert!(
        sim.engines().contains(&old),
        "it finishes what is in flight"
    );
    assert!(sim.server.state().replicas.contains_key(&old));
    sim.host("a").engines.get_mut(&old).unwrap().in_flight = 0;
    sim.seconds(6);
    assert!(!sim.engines().contains(&old));
    assert!(!sim.server.state().replicas.contains_key(&old));
}

#[test]
fn requests_that_never_end_do_not_hold_a_drain_for_ever() {
    let mut sim = Sim::new(&[("a", 2)]);
    sim.serving(1, "chat", 1);
    let replica = id("chat.g1.r0.0");
    sim.host("a").engines.get_mut(&replica).unwrap().in_flight = 1;
    sim.cancel(1).unwrap();
    assert!(sim.endpoints("chat").is_empty(), "unpublished at once");
    sim.seconds(110);
    assert!(sim.engines().contains(&replica));
    // 3 s to notice, 120 s of grace, 30 s from asking to killing.
    sim.seconds(60);
    assert!(sim.engines().is_empty());
    assert!(sim.server.state().jobs.is_empty());
}

#[test]
fn devices_are_free_only_after_the_exit_is_proven() {
    let mut sim = Sim::new(&[("a", 1)]);
    sim.serving(1, "chat", 1);
    sim.disconnect("a");
    sim.cancel(1).unwrap();
    sim.seconds(3600);
    let replica = id("chat.g1.r0.0");
    assert!(sim.server.state().replicas.contains_key(&replica));
    sim.submit(2, "chat").unwrap();
    assert!(sim.tick(2, 1).is_ok());
    assert!(sim.job(2).rollout.is_none(), "no device is free");
    sim.connect("a");
    sim.seconds(10);
    assert!(sim.server.state().replicas.is_empty());
    sim.tick(2, 1).unwrap();
    sim.seconds(5);
    // A new job of the same name never takes over ids of the old one.
    assert_eq!(sim.endpoints("chat"), ["chat.g2.r0.0"]);
}

#[test]
fn hazard_h1_one_failed_rank_reverts_the_whole_new_ladder() {
    let mut sim = Sim::new(&[("a", 2), ("b", 2)]);
    sim.serving(1, "chat", 1);
    sim.host("b").fate = Fate::LaunchFails { fatal: true };
    sim.tick(1, 3).unwrap();
    sim.seconds(3);
    assert!(sim.job(1).rollout.is_none());
    let job = sim.job(1);
    assert_eq!(job.active.as_ref().unwrap().generation.0, 1);
    assert_eq!((job.recent_failures, job.state.name()), (1, "running"));
    assert!(job.note.as_deref().unwrap().contains("no such engine"));
    sim.seconds(20);
    assert_eq!(sim.endpoints("chat"), ["chat.g1.r0.0"]);
    assert_eq!(
        sim.engines().len(),
        1,
        "the other new replicas are gone too"
    );
    assert_eq!(sim.server.state().replicas.len(), 1);
}

#[test]
fn a_first_ladder_that_fails_says_why_and_frees_its_devices() {
    let mut sim = Sim::new(&[("a", 2)]);
    sim.set_fate(Fate::LaunchFails { fatal: true });
    sim.submit(1, "chat").unwrap();
    sim.tick(1, 2).unwrap();
    sim.seconds(10);
    assert!(
        matches!(&sim.job(1).state, JobState::LaunchFailed { reason } if reason.contains("no such engine"))
    );
    assert!(sim.server.state().replicas.is_empty());
    sim.set_fate(Fate::Healthy);
    sim.tick(1, 2).unwrap();
    sim.seconds(5);
    assert_eq!(sim.endpoints("chat").len(), 2);
    assert_eq!(sim.job(1).recent_failures, 0);
}

#[test]
fn a_replica_that_does_not_start_says_why_before_its_agent_gives_up() {
    let mut sim = Sim::new(&[("a", 2)]);
    sim.set_fate(Fate::LaunchFails { fatal: false });
    sim.submit(1, "chat").unwrap();
    sim.tick(1, 1).unwrap();
    sim.seconds(5);
    let note = sim.job(1).note.clone().unwrap_or_default();
    assert!(
        note.contains("chat.g1.r0.0 does not start yet: no such engine"),
        "{note}"
    );
    sim.set_fate(Fate::Healthy);
    sim.seconds(60);
    let job = sim.job(1);
    assert_eq!(job.state.name(), "running");
    let note = job.note.as_deref().unwrap_or_default();
    assert!(!note.contains("does not start"), "{note}");
}

#[test]
fn hazard_h2_a_canary_that_is_worse_or_never_ready_is_reverted_in_time() {
    let mut sim = Sim::new(&[("a", 4)]);
    sim.serving(1, "chat", 1);
    sim.tally(1, 1, 100, 90);
    sim.tick(1, 1).unwrap();
    sim.seconds(200);
    sim.tally(1, 2, 30, 3);
    sim.seconds(120);
    assert!(
        sim.job(1)
            .note
            .as_deref()
            .unwrap()
            .contains("10 % of its windows")
    );
    assert_eq!(sim.endpoints("chat"), ["chat.g1.r0.0"]);
    sim.set_fate(Fate::NeverReady);
    sim.tick(1, 1).unwrap();
    sim.seconds(1190);
    assert!(sim.job(1).rollout.is_some());
    sim.seconds(30);
    assert!(sim.job(1).rollout.is_none());
    sim.seconds(10);
    assert_eq!(sim.endpoints("chat"), ["chat.g1.r0.0"]);
    assert_eq!(sim.server.state().replicas.len(), 1);
    assert_eq!(sim.job(1).recent_failures, 2);
}

#[test]
fn a_canary_no_worse_than_a_bad_old_ladder_is_promoted() {
    let mut sim = Sim::new(&[("a", 4)]);
    sim.serving(1, "chat", 1);
    sim.tally(1, 1, 100, 5);
    sim.tick(1, 1).unwrap();
    sim.seconds(100);
    sim.tally(1, 2, 20, 4);
    sim.seconds(220);
    assert_eq!(sim.job(1).active.as_ref().unwrap().generation.0, 2);
}

#[test]
fn a_canary_that_died_after_it_was_ready_is_not_promoted() {
    let mut sim = Sim::new(&[("a", 4)]);
    sim.serving(1, "chat", 1);
    sim.tick(1, 1).unwrap();
    sim.seconds(290);
    sim.host("a").fate = Fate::NeverReady;
    sim.host("a").crash(&id("chat.g2.r0.0"));
    sim.seconds(100);
    assert_eq!(sim.job(1).active.as_ref().unwrap().generation.0, 1);
    sim.seconds(1500);
    assert!(sim.job(1).rollout.is_none());
    assert_eq!(sim.job(1).active.as_ref().unwrap().generation.0, 1);
    assert_eq!(sim.endpoints("chat"), ["chat.g1.r0.0"]);
}

#[test]
fn hazard_h5_a_cancel_during_roll_out_stops_both_ladders_and_frees_the_devices() {
    for wait in [0, 1, 2, 60] {
        let mut sim = Sim::new(&[("a", 4)]);
        sim.serving(1, "chat", 1);
        sim.tick(1, 2).unwrap();
        sim.seconds(wait);
        sim.cancel(1).unwrap();
        assert!(sim.endpoints("chat").is_empty());
        assert!(sim.cancel(1).is_ok(), "cancelling twice is no error");
        sim.seconds(30);
        assert!(sim.engines().is_empty(), "after {wait} s");
        assert!(sim.server.state().replicas.is_empty());
        assert!(sim.server.state().jobs.is_empty());
    }
}

#[test]
fn a_batch_whose_budget_is_generated_ends_and_drains() {
    let mut sim = Sim::new(&[("a", 1)]);
    let spec = crate::planner::test_world::batch("batch", 1000, 3600);
    let request = sim.request();
    let id = crate::planner::test_world::job_id(1);
    let submit = Command::SubmitJob {
        id,
        spec: Box::new(spec),
        request,
    };
    sim.ask(submit).unwrap();
    sim.tick(1, 1).unwrap();
    sim.seconds(5);
    assert_eq!(sim.endpoints("batch").len(), 1);
    let Ok(Reply::TickOpened(snapshot)) = sim.ask(Command::OpenTick {
        cause: TickCause::Operator,
        seed: 1,
        request: None,
    }) else {
        panic!("no tick");
    };
    let learned = Learned {
        tokens_done: BTreeMap::from([(id, 1000)]),
        ..Learned::default()
    };
    sim.ask(Command::AdvanceTick {
        tick: snapshot.tick,
        from: Phase::Freeze,
        to: Phase::Observe,
        learned: Box::new(learned),
    })
    .unwrap();
    assert!(
        matches!(&sim.job(1).state, JobState::Finished { reason } if reason.starts_with("completed"))
    );
    sim.seconds(20);
    assert!(sim.engines().is_empty());
    assert!(sim.server.state().jobs.is_empty());
}

#[test]
fn a_dead_engine_is_unpublished_and_comes_back() {
    let mut sim = Sim::new(&[("a", 2)]);
    sim.serving(1, "chat", 2);
    sim.host("a").crash(&id("chat.g1.r0.1"));
    sim.second();
    assert_eq!(sim.endpoints("chat"), ["chat.g1.r0.0"]);
    sim.seconds(6);
    assert_eq!(sim.endpoints("chat").len(), 2);
    assert_eq!(sim.job(1).active.as_ref().unwrap().generation.0, 1);
}

#[test]
fn a_ladder_whose_replicas_all_crash_in_a_loop_waits_again() {
    let mut sim = Sim::new(&[("a", 2)]);
    sim.serving(1, "chat", 2);
    sim.set_fate(Fate::Crashes);
    for replica in sim.engines() {
        sim.host("a").crash(&replica);
    }
    // Starts 2 to 5 come 1, 10, 20 and 40 s after the crash before.
    sim.seconds(60);
    assert_eq!(sim.job(1).state, JobState::Running);
    sim.seconds(60);
    assert_eq!(sim.job(1).state, JobState::Waiting);
    assert!(sim.server.state().replicas.is_empty());
    assert_eq!(sim.host("a").n_launches[&id("chat.g1.r0.0")], 5);
}

#[test]
fn a_plan_in_the_making_yields_to_what_happens_meanwhile() {
    let mut sim = Sim::new(&[("a", 1), ("b", 1), ("c", 1)]);
    for (n, name) in [(1, "one"), (2, "two"), (3, "three")] {
        sim.submit(n, name).unwrap();
    }
    let snapshot = sim.open_tick().unwrap();
    let mut actions: Vec<_> = (1..=3)
        .filter_map(|n| ticks::ladder_action(&snapshot, crate::planner::test_world::job_id(n), 1))
        .collect();
    for (action, host) in actions.iter_mut().zip(["a", "b", "c"]) {
        action.slots[0].host = host.parse().unwrap();
        action.slots[0].gpu_uuids = vec![format!("GPU-{host}-0")];
    }
    sim.cordon("a", true);
    sim.cancel(2).unwrap();
    sim.commit_plan(&snapshot, actions).unwrap();
    sim.close_tick(snapshot.tick).unwrap();
    sim.seconds(5);
    assert_eq!(sim.job(1).state, JobState::Waiting);
    assert!(
        sim.job(1)
            .note
            .as_deref()
            .unwrap()
            .contains("node a was cordoned")
    );
    assert_eq!(sim.endpoints("three"), ["three.g1.r0.0"]);
    assert_eq!(sim.engines().len(), 1);
}

#[test]
fn hazard_h8_a_plan_that_comes_a_tick_late_is_refused() {
    let mut sim = Sim::new(&[("a", 2)]);
    sim.submit(1, "chat").unwrap();
    let late = sim.open_tick().unwrap();
    let actions = ticks::ladder_action(&late, crate::planner::test_world::job_id(1), 1);
    let next = sim.open_tick().unwrap();
    assert_eq!(next.tick, late.tick.next());
    assert!(is_conflict(
        &sim.commit_plan(&late, actions.into_iter().collect())
    ));
    assert!(sim.server.state().replicas.is_empty());
    // The new tick is not harmed by the old one's words.
    assert!(sim.close_tick(next.tick).is_ok());
}

#[test]
fn a_tick_left_open_is_closed_by_the_next_one() {
    let mut sim = Sim::new(&[("a", 2)]);
    let open = sim.open_tick().unwrap();
    let next = sim.open_tick().unwrap();
    assert_eq!(next.tick, open.tick.next());
    assert_eq!(sim.stored.tick.as_ref().unwrap().id, next.tick);
}

#[test]
fn a_cloned_host_is_not_let_in_beside_the_first() {
    let mut sim = Sim::new(&[("a", 2)]);
    let mut clone = sim::facts("b");
    clone.gpus = sim.host("a").facts.gpus.clone();
    let hello = |facts: &crate::host::HostFacts| Command::HostHello {
        facts: Box::new(facts.clone()),
        highest: crate::rollout::DesiredVersion::default(),
    };
    assert!(is_conflict(&sim.ask(hello(&clone))));
    // A host that is gone may have been given another name.
    sim.disconnect("a");
    assert!(sim.ask(hello(&clone)).is_ok());
}

#[test]
fn stored_phases_follow_the_agents() {
    let mut sim = Sim::new(&[("a", 1)]);
    sim.serving(1, "chat", 1);
    let replica = &sim.stored.replicas[&id("chat.g1.r0.0")];
    assert_eq!(replica.phase, ReplicaPhase::Ready);
    assert_eq!(replica.n_starts, 1);
    assert_eq!(replica.endpoint.as_ref().unwrap().port, 8000);
    assert_eq!(
        &sim.stored,
        sim.server.state(),
        "memory is what the database holds"
    );
}
