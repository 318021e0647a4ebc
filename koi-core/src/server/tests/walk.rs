//! A seeded random walk over everything that can happen, with the invariants after every step.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::host::Fate;
use super::sim::Sim;
use crate::ids::{Generation, JobId};
use crate::planner::test_world::job_id;
use crate::rollout::ObservedPhase;
use crate::store::{ReplicaPhase, ReplicaRole};

const HOSTS: [&str; 3] = ["a", "b", "c"];
const JOBS: [&str; 3] = ["one", "two", "three"];

#[derive(Debug, Clone)]
enum Event {
    Submit(usize),
    Cancel(usize),
    Tick(usize, u32),
    Seconds(u32),
    Away(bool),
    Cut(usize),
    Connect(usize),
    AgentRestart(usize),
    ServerRestart,
    Reboot(usize),
    Crash(usize),
    Fate(usize, u8),
    Busy(usize, u64),
    Cordon(usize, bool),
}

fn event() -> impl Strategy<Value = Event> {
    let host = 0..HOSTS.len();
    let job = 0..JOBS.len();
    prop_oneof![
        3 => job.clone().prop_map(Event::Submit),
        1 => job.clone().prop_map(Event::Cancel),
        5 => (job, 1_u32..3).prop_map(|(j, n)| Event::Tick(j, n)),
        6 => prop_oneof![1_u32..8, 100_u32..400].prop_map(Event::Seconds),
        2 => any::<bool>().prop_map(Event::Away),
        1 => host.clone().prop_map(Event::Cut),
        2 => host.clone().prop_map(Event::Connect),
        1 => host.clone().prop_map(Event::AgentRestart),
        1 => Just(Event::ServerRestart),
        1 => host.clone().prop_map(Event::Reboot),
        2 => (0_usize..8).prop_map(Event::Crash),
        2 => (host.clone(), 0_u8..5).prop_map(|(h, f)| Event::Fate(h, f)),
        1 => (0_usize..8, 0_u64..3).prop_map(|(e, n)| Event::Busy(e, n)),
        1 => (host, any::<bool>()).prop_map(|(h, c)| Event::Cordon(h, c)),
    ]
}

fn fate(n: u8) -> Fate {
    match n {
        0 | 1 => Fate::Healthy,
        2 => Fate::Crashes,
        3 => Fate::NeverReady,
        _ => Fate::LaunchFails { fatal: false },
    }
}

fn apply(sim: &mut Sim, event: &Event) {
    match event {
        Event::Submit(j) => drop(sim.submit(1 + *j as u128, JOBS[*j])),
        Event::Cancel(j) => drop(sim.cancel(1 + *j as u128)),
        Event::Tick(j, n) => drop(sim.tick(1 + *j as u128, *n)),
        Event::Seconds(n) => sim.seconds(*n),
        Event::Away(away) => sim.is_away = *away,
        Event::Cut(h) => sim.disconnect(HOSTS[*h]),
        Event::Connect(h) => {
            if !sim.host(HOSTS[*h]).connected {
                sim.connect(HOSTS[*h]);
            }
        }
        Event::AgentRestart(h) => sim.restart_agent(HOSTS[*h]),
        Event::ServerRestart => sim.restart_server(),
        Event::Reboot(h) => {
            sim.disconnect(HOSTS[*h]);
            sim.host(HOSTS[*h]).reboot();
        }
        Event::Crash(e) => {
            if let Some(id) = sim.engines().iter().nth(*e) {
                for host in sim.hosts.values_mut() {
                    host.crash(id);
                }
            }
        }
        Event::Fate(h, n) => sim.host(HOSTS[*h]).fate = fate(*n),
        Event::Busy(e, n) => {
            let mut engines = sim.hosts.values_mut().flat_map(|h| h.engines.values_mut());
            if let Some(engine) = engines.nth(*e) {
                engine.in_flight = *n;
            }
        }
        Event::Cordon(h, c) => {
            if !sim.is_away
                && sim
                    .server
                    .state()
                    .hosts
                    .contains_key(&HOSTS[*h].parse().unwrap())
            {
                sim.cordon(HOSTS[*h], *c);
            }
        }
    }
}

/// What holds at every moment. That no device is started twice, sets and versions never go back and
/// one write is in flight is asserted by the simulation as it runs.
fn check(sim: &Sim) {
    let state = sim.server.state();
    let mut devices = BTreeSet::new();
    for replica in state.replicas.values() {
        for uuid in &replica.gpu_uuids {
            assert!(devices.insert(uuid), "{uuid} is reserved twice");
        }
    }
    for job in state.jobs.values() {
        let allowed: BTreeSet<Generation> = [
            job.active.as_ref().map(|l| l.generation),
            job.rollout.as_ref().map(|r| r.target.generation),
        ]
        .into_iter()
        .flatten()
        .collect();
        let published = sim.published.get(job.spec.name.as_str());
        for endpoint in published.iter().flat_map(|p| &p.endpoints) {
            let replica = &state.replicas[&endpoint.replica_id];
            assert_eq!(replica.role, ReplicaRole::Serve);
            assert!(allowed.contains(&replica.id.generation), "{}", replica.id);
            match sim.server.live().replica(&replica.host, &replica.id) {
                Some(seen) => assert_eq!(seen.phase, ObservedPhase::Ready),
                None => assert_eq!(replica.phase, ReplicaPhase::Ready),
            }
        }
    }
    for (job, set) in &sim.published {
        let is_known = state.jobs.values().any(|j| j.spec.name.as_str() == job);
        assert!(is_known || set.endpoints.is_empty(), "{job} is over");
    }
    for answers in sim.answers.values() {
        assert_eq!(answers.len(), 1);
    }
}

/// Faults end; everything converges: what runs is what is wanted, and every job serves.
fn heal(sim: &mut Sim) {
    sim.is_away = false;
    sim.set_fate(Fate::Healthy);
    for host in sim.hosts.values_mut() {
        for engine in host.engines.values_mut() {
            engine.in_flight = 0;
        }
    }
    sim.reconnect_all();
    // Longest bound: a roll-out's deadline, then its drain, then a second roll-out.
    sim.seconds(3200);
    for (n, name) in JOBS.iter().enumerate() {
        let id: JobId = job_id(1 + n as u128);
        let state = sim.server.state();
        let Some(job) = state.jobs.get(&id) else {
            assert!(sim.endpoints(name).is_empty());
            continue;
        };
        assert!(
            !job.state.is_finished(),
            "{name} is over and was not let go"
        );
        assert!(
            job.rollout.is_none(),
            "{name} is rolled out for ever: {job:?}"
        );
    }
    let wanted: BTreeSet<_> = sim.server.state().replicas.keys().cloned().collect();
    assert_eq!(sim.engines(), wanted, "observed is what is desired");
    for host in sim.hosts.values() {
        let generation = sim.server.state().hosts[&host.facts.host].generation;
        assert_eq!(host.machine.highest().host_generation, generation);
    }
    assert_eq!(&sim.stored, sim.server.state());
    let writes = sim.n_writes;
    sim.seconds(30);
    assert_eq!(sim.n_writes, writes, "at rest nothing is written");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_invariants_hold_and_everything_converges(
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut sim = Sim::new(&[("a", 2), ("b", 2), ("c", 1)]);
        for event in &events {
            apply(&mut sim, event);
            check(&sim);
        }
        heal(&mut sim);
        check(&sim);
    }
}
