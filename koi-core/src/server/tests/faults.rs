//! The database goes away, servers and agents are replaced, hosts are cut off: nothing that serves
//! stops, nothing is done twice.

use super::host::Fate;
use super::sim::{Sim, machine};
use super::*;
use crate::agent::AgentInput;
use crate::planner::test_world::job_id;
use crate::rollout::DesiredVersion;
use crate::rollout::desired::desired_set;
use crate::store::ServerState;

fn launches(sim: &Sim) -> u32 {
    sim.hosts.values().flat_map(|h| h.n_launches.values()).sum()
}

#[test]
fn while_the_database_is_away_serving_goes_on_and_dead_engines_are_unpublished() {
    let mut sim = Sim::new(&[("a", 2)]);
    sim.serving(1, "chat", 2);
    sim.is_away = true;
    assert!(matches!(sim.submit(2, "two"), Err(Refusal::Unavailable(_))));
    assert!(sim.open_tick().is_err());
    sim.host("a").fate = Fate::NeverReady;
    sim.host("a").crash(&id("chat.g1.r0.1"));
    sim.seconds(1800);
    assert_eq!(sim.endpoints("chat"), ["chat.g1.r0.0"]);
    assert!(sim.server.database_error().is_some());
    sim.is_away = false;
    sim.host("a").fate = Fate::Healthy;
    sim.seconds(5);
    assert_eq!(sim.server.database_error(), None);
    assert_eq!(&sim.stored, sim.server.state());
    assert!(sim.submit(2, "two").is_ok());
}

#[test]
fn what_happened_while_the_database_was_away_is_written_when_it_is_back() {
    let mut sim = Sim::new(&[("a", 2)]);
    sim.submit(1, "chat").unwrap();
    sim.tick(1, 2).unwrap();
    sim.is_away = true;
    sim.seconds(30);
    assert_eq!(
        sim.endpoints("chat").len(),
        2,
        "published from the agents' word"
    );
    assert!(sim.job(1).active.is_none());
    sim.is_away = false;
    sim.seconds(3);
    assert_eq!(sim.job(1).active.as_ref().unwrap().generation.0, 1);
}

#[test]
fn a_known_agent_is_let_in_while_the_database_is_away() {
    let mut sim = Sim::new(&[("a", 2)]);
    sim.serving(1, "chat", 1);
    sim.is_away = true;
    sim.restart_agent("a");
    assert!(sim.connect("a"));
    sim.seconds(5);
    assert_eq!(sim.endpoints("chat"), ["chat.g1.r0.0"]);
    assert_eq!(launches(&sim), 1);
}

#[test]
fn a_new_server_moves_no_engine() {
    let mut sim = Sim::new(&[("a", 2), ("b", 2)]);
    sim.serving(1, "chat", 2);
    sim.serving(2, "two", 1);
    let (engines, versions) = (sim.engines(), sim.published.clone());
    sim.restart_server();
    sim.second();
    // Before any agent has spoken, what was ready is presumed to serve.
    assert_eq!(sim.endpoints("chat").len(), 2);
    sim.reconnect_all();
    sim.seconds(60);
    assert_eq!((sim.engines(), launches(&sim)), (engines, 3));
    for (job, before) in versions {
        let after = &sim.published[&job];
        assert_eq!(after.endpoints, before.endpoints);
        assert!(
            after.version > before.version,
            "gateways keep the newer set"
        );
    }
}

#[test]
fn hazard_a8_a_plan_that_was_committed_is_carried_out_by_the_next_server() {
    // The old server reaches none, one or all of its agents.
    for reached in [&[][..], &["a"], &["a", "b"]] {
        let mut sim = Sim::new(&[("a", 1), ("b", 1)]);
        sim.submit(1, "chat").unwrap();
        for host in ["a", "b"].iter().filter(|h| !reached.contains(h)) {
            sim.host(host).connected = false;
        }
        sim.tick(1, 2).unwrap();
        sim.second();
        assert_eq!(launches(&sim) as usize, reached.len());
        sim.restart_server();
        sim.reconnect_all();
        sim.seconds(5);
        assert_eq!(sim.endpoints("chat").len(), 2);
        assert_eq!(launches(&sim), 2, "every agent applies it once");
        assert_eq!(sim.job(1).active.as_ref().unwrap().generation.0, 1);
    }
}

#[test]
fn hazard_a10_a_server_that_slept_through_a_change_of_leader_changes_nothing() {
    let mut sim = Sim::new(&[("a", 2)]);
    sim.serving(1, "chat", 1);
    let asleep = machine(&sim.stored, sim.stored.epoch);
    let old_set = desired_set(
        asleep.state(),
        &"a".parse().unwrap(),
        Catalog::embedded(),
        &RolloutParams::default(),
    );
    sim.restart_server();
    sim.reconnect_all();
    sim.tick(1, 1).unwrap();
    sim.seconds(3);
    let engines = sim.engines();
    let stored = sim.stored.clone();
    // Its push is refused by the agent.
    sim.feed(&"a".parse().unwrap(), AgentInput::Desired(old_set));
    sim.settle();
    assert!(sim.host("a").machine.refusal().unwrap().contains("older"));
    sim.seconds(5);
    assert_eq!(sim.engines(), engines);
    // Its write is refused by the database, and it steps down for good.
    let awake = std::mem::replace(&mut sim.server, asleep);
    sim.published.clear();
    let result = sim.cancel(1);
    assert!(matches!(result, Err(Refusal::Unavailable(_))), "{result:?}");
    assert!(sim.stepped_down);
    assert!(matches!(sim.cancel(1), Err(Refusal::Unavailable(_))));
    assert_eq!(sim.stored, stored);
    sim.server = awake;
}

#[test]
fn hazard_h11_the_next_server_honours_the_deadline_of_an_open_canary() {
    let mut sim = Sim::new(&[("a", 4)]);
    sim.serving(1, "chat", 1);
    sim.set_fate(Fate::NeverReady);
    sim.tick(1, 1).unwrap();
    let deadline = sim.job(1).rollout.as_ref().unwrap().deadline;
    sim.seconds(600);
    sim.restart_server();
    sim.reconnect_all();
    sim.tick(1, 1).unwrap();
    assert_eq!(
        sim.job(1).last_generation.0,
        2,
        "never two canaries of a job"
    );
    while sim.job(1).rollout.is_some() {
        sim.second();
    }
    assert!(sim.now > deadline && sim.now <= deadline.plus_seconds(2));
    // One that was ready is judged at the end of its stored window, on a fresh word of its agent.
    sim.set_fate(Fate::Healthy);
    sim.seconds(10);
    sim.tick(1, 1).unwrap();
    sim.seconds(250);
    sim.restart_server();
    sim.seconds(100);
    assert_eq!(sim.job(1).active.as_ref().unwrap().generation.0, 1);
    sim.reconnect_all();
    sim.seconds(2);
    assert_eq!(sim.job(1).active.as_ref().unwrap().generation.0, 3);
}

#[test]
fn hazard_h3_capacity_that_went_before_the_commit_costs_only_the_job_that_wanted_it() {
    let mut sim = Sim::new(&[("a", 1), ("b", 1)]);
    sim.submit(1, "one").unwrap();
    sim.submit(2, "two").unwrap();
    let snapshot = sim.open_tick().unwrap();
    let job = crate::planner::test_world::job_id;
    let mut actions = vec![
        super::ticks::ladder_action(&snapshot, job(1), 1).unwrap(),
        super::ticks::ladder_action(&snapshot, job(2), 1).unwrap(),
    ];
    actions[1].slots[0].host = "b".parse().unwrap();
    actions[1].slots[0].gpu_uuids = vec!["GPU-b-0".to_owned()];
    // Host a comes back from a repair with another device.
    let host = sim.host("a");
    host.facts.gpus[0].uuid = "GPU-new".to_owned();
    host.restart();
    sim.disconnect("a");
    sim.connect("a");
    sim.commit_plan(&snapshot, actions).unwrap();
    sim.close_tick(snapshot.tick).unwrap();
    sim.seconds(5);
    assert!(sim.endpoints("one").is_empty());
    assert!(
        sim.job(1)
            .note
            .as_deref()
            .unwrap()
            .contains("GPU-a-0 left node a")
    );
    assert_eq!(sim.endpoints("two"), ["two.g1.r0.0"]);
    assert_eq!(sim.host("a").machine.refusal(), None);
}

#[test]
fn hazard_g10_a_host_that_returns_after_its_replacement_is_drained() {
    let mut sim = Sim::new(&[("a", 1), ("b", 1)]);
    sim.serving(1, "chat", 1);
    let (old, new) = (id("chat.g1.r0.0"), id("chat.g2.r0.0"));
    assert_eq!(sim.server.state().replicas[&old].host.as_str(), "a");
    sim.disconnect("a");
    sim.seconds(700);
    sim.tick(1, 1).unwrap();
    sim.seconds(320);
    assert_eq!(sim.endpoints("chat"), ["chat.g2.r0.0"]);
    sim.seconds(3600);
    // Cut off, it still serves, and its device is not given away.
    assert!(sim.engines().contains(&old));
    assert!(sim.server.state().replicas.contains_key(&old));
    sim.connect("a");
    sim.seconds(10);
    assert_eq!(sim.engines().into_iter().collect::<Vec<_>>(), [new]);
    assert!(!sim.server.state().replicas.contains_key(&old));
    assert_eq!(sim.endpoints("chat"), ["chat.g2.r0.0"]);
}

#[test]
fn a_canary_on_a_host_that_fell_silent_is_not_promoted() {
    let mut sim = Sim::new(&[("a", 1), ("b", 1)]);
    sim.serving(1, "chat", 1);
    sim.tick(1, 1).unwrap();
    sim.seconds(100);
    sim.disconnect("b");
    sim.seconds(400);
    assert_eq!(sim.job(1).active.as_ref().unwrap().generation.0, 1);
    sim.seconds(1100);
    assert!(sim.job(1).rollout.is_none(), "reverted in bounded time");
    assert!(sim.endpoints("chat").contains(&"chat.g1.r0.0".to_owned()));
}

#[test]
fn agents_ahead_of_a_restored_database_are_overtaken() {
    let mut sim = Sim::new(&[("a", 4)]);
    sim.serving(1, "chat", 1);
    let backup = sim.stored.clone();
    for _ in 0..3 {
        sim.restart_server();
        sim.reconnect_all();
    }
    sim.tick(1, 1).unwrap();
    sim.seconds(3);
    let ahead = sim.host("a").machine.highest();
    sim.stored = ServerState {
        epoch: crate::ids::Epoch(1),
        ..backup
    };
    sim.restart_server();
    sim.reconnect_all();
    sim.seconds(5);
    assert!(sim.host("a").machine.highest() > ahead);
    assert_eq!(sim.host("a").machine.refusal(), None);
    assert!(sim.engines().contains(&id("chat.g1.r0.0")));
    // Its generation 2 is known to an agent; the number is not used again.
    sim.tick(1, 1).unwrap();
    assert_eq!(sim.job(1).last_generation.0, 3);
}

#[test]
fn an_agent_that_claims_absurd_versions_moves_no_counter() {
    let mut sim = Sim::new(&[("a", 2)]);
    let hello = Command::HostHello {
        facts: Box::new(super::sim::facts("b")),
        highest: DesiredVersion {
            epoch: crate::ids::Epoch(i64::MAX),
            ..DesiredVersion::default()
        },
    };
    assert!(is_conflict(&sim.ask(hello)));
    sim.second();
    assert_eq!(sim.server.state().epoch.0, 1);
}

#[test]
fn a_rebooted_host_starts_nothing_before_the_server_has_spoken() {
    let mut sim = Sim::new(&[("a", 2)]);
    sim.serving(1, "chat", 1);
    sim.disconnect("a");
    sim.host("a").reboot();
    sim.seconds(3600);
    assert!(sim.engines().is_empty());
    sim.connect("a");
    assert!(sim.endpoints("chat").is_empty());
    sim.seconds(5);
    assert_eq!(sim.endpoints("chat"), ["chat.g1.r0.0"]);
    assert_eq!(launches(&sim), 2);
}

#[test]
fn an_engine_that_nobody_wants_stops_only_after_a_confirmed_set() {
    let mut sim = Sim::new(&[("a", 1)]);
    sim.serving(1, "chat", 1);
    let replica = id("chat.g1.r0.0");
    sim.restart_agent("a");
    let host = sim.host("a");
    host.persisted = crate::rollout::DesiredSet::default();
    host.restart();
    sim.seconds(600);
    assert!(
        sim.engines().contains(&replica),
        "its cache is empty, not its host"
    );
    sim.connect("a");
    sim.seconds(5);
    assert_eq!(sim.endpoints("chat"), ["chat.g1.r0.0"]);
    assert_eq!(launches(&sim), 1);
    // Now the server itself says that it is not wanted.
    sim.disconnect("a");
    sim.stored.replicas.clear();
    sim.stored.jobs.clear();
    sim.restart_server();
    sim.seconds(60);
    assert!(sim.engines().contains(&replica));
    sim.reconnect_all();
    sim.seconds(10);
    assert!(sim.engines().is_empty());
}

#[test]
fn a_row_that_the_database_refuses_holds_up_no_other() {
    let mut sim = Sim::new(&[("a", 8), ("b", 8)]);
    for (n, name) in [(1, "one"), (2, "two"), (3, "three"), (4, "four")] {
        sim.submit(n, name).unwrap();
        sim.tick(n, 2).unwrap();
    }
    let bad = id("two.g1.r0.1");
    sim.refused = Some((bad.clone(), 0));
    sim.seconds(20);
    for (n, is_running) in [(1, true), (2, true), (3, true), (4, true)] {
        assert_eq!(sim.job(n).state == JobState::Running, is_running, "job {n}");
    }
    let replicas = &sim.server.state().replicas;
    let launching = |r: &&crate::store::ReplicaRecord| r.phase == ReplicaPhase::Launching;
    let behind: Vec<_> = replicas.values().filter(launching).map(|r| &r.id).collect();
    assert_eq!(behind, [&bad]);
    assert_eq!(&sim.stored, sim.server.state());
    // What happens later is written as well, and the bad row is not tried all the time.
    let tries = sim.refused.as_ref().unwrap().1;
    sim.cancel(4).unwrap();
    sim.seconds(300);
    assert!(!sim.stored.jobs.contains_key(&job_id(4)));
    let again = sim.refused.as_ref().unwrap().1 - tries;
    assert!((1..=12).contains(&again), "{again} tries in 300 s");
    sim.refused = None;
    sim.seconds(40);
    assert_eq!(sim.stored.replicas[&bad].phase, ReplicaPhase::Ready);
}

#[test]
fn a_job_that_ends_before_it_had_an_endpoint_is_spoken_of_a_last_time() {
    let mut sim = Sim::new(&[("a", 2)]);
    sim.submit(1, "chat").unwrap();
    let first = sim.published["chat"].version;
    sim.cancel(1).unwrap();
    assert!(sim.server.state().jobs.is_empty());
    let last = sim.published["chat"].clone();
    assert!(last.version > first && last.endpoints.is_empty());
    assert!(sim.server.published().is_empty());
    sim.seconds(10);
    assert_eq!(sim.published["chat"], last, "once");
    // A new job of the name goes on from there.
    sim.submit(2, "chat").unwrap();
    sim.tick(2, 1).unwrap();
    sim.seconds(5);
    assert_eq!(sim.endpoints("chat").len(), 1);
}

#[test]
fn a_node_that_is_not_there_is_refused_with_the_nearest_name() {
    let mut sim = Sim::new(&[("h100-a", 2), ("l40s-b", 2)]);
    let refusal = |sim: &mut Sim, name: &str| sim.try_cordon(name, true).unwrap_err().to_string();
    let near = refusal(&mut sim, "h100-aa");
    assert_eq!(near, "node h100-aa (did you mean h100-a?) does not exist");
    assert_eq!(refusal(&mut sim, "zzz"), "node zzz does not exist");
}
