//! The agent alone: what it accepts, how it restarts, what it never does.

use proptest::prelude::*;

use super::*;
use crate::ids::{Epoch, HostGeneration, PlanSeq};
use crate::job::{EngineName, OnDisconnect};
use crate::rollout::{ObservedPhase, ReplicaMode};

fn want(id: &str, devices: &[&str]) -> DesiredReplica {
    DesiredReplica {
        id: id.parse().unwrap(),
        mode: ReplicaMode::Serve,
        engine: EngineName::Sim,
        engine_version: "0".to_owned(),
        engine_args: vec!["--x=1".to_owned()],
        model_id: "org/tiny".to_owned(),
        model_config_json: String::new(),
        gpu_uuids: devices.iter().map(|d| (*d).to_owned()).collect(),
        start_deadline_s: 1200,
        drain_grace_s: 120,
        on_disconnect: OnDisconnect::KeepServing,
    }
}

fn set(epoch: i64, generation: i64, replicas: Vec<DesiredReplica>) -> DesiredSet {
    DesiredSet {
        version: DesiredVersion {
            epoch: Epoch(epoch),
            plan_seq: PlanSeq(1),
            host_generation: HostGeneration(generation),
        },
        replicas,
    }
}

fn agent() -> AgentMachine {
    let gpus = ["G0", "G1", "G2"].map(str::to_owned).into_iter().collect();
    AgentMachine::new(
        AgentParams::default(),
        gpus,
        DesiredSet::default(),
        Vec::new(),
    )
}

fn at(seconds: i64) -> UtcMicros {
    UtcMicros(0).plus_seconds(seconds)
}

fn launches(effects: &[AgentEffect]) -> Vec<String> {
    let launched = |e: &AgentEffect| match e {
        AgentEffect::Launch(want) => Some(want.id.to_string()),
        _ => None,
    };
    effects.iter().filter_map(launched).collect()
}

fn launched(id: &str) -> AgentInput {
    AgentInput::Launched {
        id: id.parse().unwrap(),
        port: 8000,
        engine_version: "0".to_owned(),
        engine_args: Vec::new(),
    }
}

fn exited(id: &str) -> AgentInput {
    AgentInput::Exited {
        id: id.parse().unwrap(),
        reason: "exit code 1".to_owned(),
    }
}

fn phase(agent: &AgentMachine, id: &str) -> ObservedPhase {
    let id = id.parse().unwrap();
    agent.observed().iter().find(|r| r.id == id).unwrap().phase
}

/// Serves `chat.g1.r0.0` on G0.
fn serving() -> AgentMachine {
    let mut agent = agent();
    let effects = agent.step(
        at(0),
        AgentInput::Desired(set(1, 1, vec![want(CHAT, &["G0"])])),
    );
    assert_eq!(launches(&effects), [CHAT]);
    agent.step(at(1), launched(CHAT));
    agent.step(at(2), AgentInput::Ready(CHAT.parse().unwrap()));
    assert_eq!(phase(&agent, CHAT), ObservedPhase::Ready);
    agent
}

const CHAT: &str = "chat.g1.r0.0";

#[test]
fn a_set_is_made_durable_before_anything_follows_from_it() {
    let mut agent = agent();
    let effects = agent.step(
        at(0),
        AgentInput::Desired(set(1, 1, vec![want(CHAT, &["G0"])])),
    );
    assert!(matches!(effects[0], AgentEffect::Persist(_)), "{effects:?}");
}

#[test]
fn hazard_d17_a_set_that_does_not_fit_is_refused_whole() {
    let other = "two.g1.r0.0";
    let misfits = [
        vec![want(other, &["G1"]), want("x.g1.r0.0", &["G9"])],
        vec![want(other, &["G1"]), want("x.g1.r0.0", &["G1"])],
        vec![want(other, &["G1", "G1"])],
        vec![want(other, &["G1"]), want(other, &["G2"])],
    ];
    for misfit in misfits {
        let mut agent = serving();
        let before = agent.observed();
        let effects = agent.step(at(3), AgentInput::Desired(set(1, 2, misfit.clone())));
        assert_eq!(effects, [AgentEffect::Report], "{misfit:?}");
        assert!(agent.refusal().is_some());
        assert_eq!(
            (agent.observed(), agent.highest().host_generation.0),
            (before, 1)
        );
        // The next one that fits is taken.
        agent.step(
            at(4),
            AgentInput::Desired(set(1, 3, vec![want(CHAT, &["G0"])])),
        );
        assert_eq!(
            (agent.refusal(), agent.highest().host_generation.0),
            (None, 3)
        );
    }
}

proptest! {
    /// Repeated and in any order: the agent ends where the newest set says, and starts nothing that
    /// only an older one asked for once it has seen a newer.
    #[test]
    fn hazard_d15_repeated_and_reordered_sets_end_at_the_newest(
        order in prop::collection::vec(0_i64..6, 1..30),
    ) {
        let mut agent = agent();
        let mut highest = -1;
        for (i, n) in order.iter().enumerate() {
            let device = ["G0", "G1", "G2"][(*n % 3) as usize];
            let id = format!("chat.g{n}.r0.0");
            let newest = set(1 + n / 3, n % 3, vec![want(&id, &[device])]);
            let version = newest.version;
            let before = agent.observed();
            let effects = agent.step(at(i as i64), AgentInput::Desired(newest));
            if *n < highest {
                prop_assert_eq!(&effects, &[AgentEffect::Report]);
                prop_assert!(agent.refusal().is_some());
            } else {
                prop_assert_eq!(agent.highest(), version);
            }
            if *n <= highest {
                prop_assert!(launches(&effects).is_empty());
                prop_assert_eq!(before, agent.observed());
            }
            prop_assert!(launches(&effects).iter().all(|launched| *launched == id));
            highest = highest.max(*n);
        }
    }
}

#[test]
fn a_crash_loop_backs_off_and_gives_up() {
    let mut agent = serving();
    let mut now = 10;
    let mut waits = Vec::new();
    loop {
        agent.step(at(now), exited(CHAT));
        agent.step(at(now), AgentInput::ExitProven(CHAT.parse().unwrap()));
        if phase(&agent, CHAT) == ObservedPhase::Failed {
            break;
        }
        let crashed = now;
        while launches(&agent.step(at(now), AgentInput::Timer)).is_empty() {
            now += 1;
        }
        waits.push(now - crashed);
        agent.step(at(now), launched(CHAT));
    }
    assert_eq!(waits, [1, 10, 20, 40]);
    let observed = agent.observed().remove(0);
    assert_eq!(
        (observed.n_starts, observed.reason.as_str()),
        (5, "exit code 1")
    );
    assert!(observed.exit_proven);
    assert!(launches(&agent.step(at(now + 100_000), AgentInput::Timer)).is_empty());
}

#[test]
fn old_starts_do_not_count_against_a_replica_that_served_for_days() {
    let mut agent = serving();
    let mut now = 10;
    for _ in 0..4 {
        agent.step(at(now), exited(CHAT));
        agent.step(at(now), AgentInput::ExitProven(CHAT.parse().unwrap()));
        while launches(&agent.step(at(now), AgentInput::Timer)).is_empty() {
            now += 1;
        }
        agent.step(at(now), launched(CHAT));
    }
    agent.step(at(now), AgentInput::Ready(CHAT.parse().unwrap()));
    now += 10 * 86_400;
    agent.step(at(now), exited(CHAT));
    agent.step(at(now), AgentInput::ExitProven(CHAT.parse().unwrap()));
    assert_eq!(phase(&agent, CHAT), ObservedPhase::Backoff);
    assert_eq!(
        launches(&agent.step(at(now + 1), AgentInput::Timer)),
        [CHAT]
    );
}

#[test]
fn a_replica_that_is_to_go_while_it_is_launched_is_stopped_once_it_is_known() {
    let mut agent = agent();
    agent.step(
        at(0),
        AgentInput::Desired(set(1, 1, vec![want(CHAT, &["G0"])])),
    );
    let mut drain = want(CHAT, &["G0"]);
    drain.mode = ReplicaMode::Drain;
    agent.step(at(1), AgentInput::Desired(set(1, 2, vec![drain])));
    for second in 2..100 {
        let effects = agent.step(at(second), AgentInput::Timer);
        assert!(effects.is_empty(), "{effects:?}");
    }
    let effects = agent.step(at(100), launched(CHAT));
    let stops = |e: &AgentEffect| matches!(e, AgentEffect::Terminate { .. });
    assert!(effects.iter().any(stops), "{effects:?}");
    assert_eq!(phase(&agent, CHAT), ObservedPhase::Draining);
    agent.step(at(101), AgentInput::ExitProven(CHAT.parse().unwrap()));
    assert_eq!(phase(&agent, CHAT), ObservedPhase::Stopped);
    // A late word of the launch changes nothing.
    let late = AgentInput::LaunchFailed {
        id: CHAT.parse().unwrap(),
        reason: "late".to_owned(),
        fatal: false,
    };
    agent.step(at(102), late);
    assert_eq!(phase(&agent, CHAT), ObservedPhase::Stopped);
}

#[test]
fn words_of_an_earlier_life_do_not_end_the_next_one() {
    let mut agent = serving();
    let hung = agent.step(at(10), AgentInput::Hung(CHAT.parse().unwrap()));
    assert!(hung.contains(&AgentEffect::ProveExit(CHAT.parse().unwrap())));
    agent.step(at(11), AgentInput::ExitProven(CHAT.parse().unwrap()));
    assert_eq!(launches(&agent.step(at(13), AgentInput::Timer)), [CHAT]);
    let late = agent.step(at(14), exited(CHAT));
    assert!(late.is_empty(), "{late:?}");
    agent.step(at(15), launched(CHAT));
    agent.step(at(16), AgentInput::Ready(CHAT.parse().unwrap()));
    assert_eq!(phase(&agent, CHAT), ObservedPhase::Ready);
}

#[test]
fn an_engine_whose_port_refuses_is_taken_out_of_service_and_stopped_with_grace() {
    let mut agent = serving();
    let id: ReplicaId = CHAT.parse().unwrap();
    let effects = agent.step(at(10), AgentInput::Refusing(id.clone()));
    assert_eq!(phase(&agent, CHAT), ObservedPhase::Backoff);
    let stop = AgentEffect::Terminate {
        id: id.clone(),
        grace_s: AgentParams::default().stop_grace_s,
    };
    assert!(effects.contains(&stop), "{effects:?}");
    assert!(effects.contains(&AgentEffect::ProveExit(id.clone())));
    assert_eq!(agent.observed()[0].reason, "its port refuses connections");
    agent.step(at(11), AgentInput::ExitProven(id));
    assert_eq!(launches(&agent.step(at(13), AgentInput::Timer)), [CHAT]);
}

#[test]
fn an_adopted_replica_that_never_answers_is_given_up_at_its_deadline() {
    let found = LocalReplica::adopted(CHAT.parse().unwrap(), 8000, "0".to_owned(), Vec::new());
    let gpus = BTreeSet::from(["G0".to_owned()]);
    let cached = set(1, 1, vec![want(CHAT, &["G0"])]);
    let mut agent = AgentMachine::new(AgentParams::default(), gpus, cached.clone(), vec![found]);
    agent.step(at(1_000_000), AgentInput::Desired(cached));
    agent.step(at(1_001_200), AgentInput::Timer);
    assert_eq!(phase(&agent, CHAT), ObservedPhase::Launching);
    let effects = agent.step(at(1_001_201), AgentInput::Timer);
    assert!(effects.contains(&AgentEffect::ProveExit(CHAT.parse().unwrap())));
    assert_eq!(phase(&agent, CHAT), ObservedPhase::Failed);
    assert!(!agent.observed()[0].exit_proven);
}

#[test]
fn nothing_starts_on_devices_that_an_unknown_replica_may_hold() {
    let found = LocalReplica::adopted(
        "x.g1.r0.0".parse().unwrap(),
        8000,
        "0".to_owned(),
        Vec::new(),
    );
    let gpus = BTreeSet::from(["G0".to_owned()]);
    let mut agent = AgentMachine::new(
        AgentParams::default(),
        gpus,
        DesiredSet::default(),
        vec![found],
    );
    let first = agent.step(
        at(0),
        AgentInput::Desired(set(1, 1, vec![want(CHAT, &["G0"])])),
    );
    assert!(launches(&first).is_empty());
    agent.step(at(1), AgentInput::Timer);
    assert!(launches(&agent.step(at(2), AgentInput::Timer)).is_empty());
    let proven = agent.step(at(3), AgentInput::ExitProven("x.g1.r0.0".parse().unwrap()));
    let next = agent.step(at(4), AgentInput::Timer);
    assert_eq!([launches(&proven), launches(&next)].concat(), [CHAT]);
}
