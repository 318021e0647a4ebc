//! The planner on whole snapshots: who gets what, when nothing is changed, and what it says.

use std::collections::BTreeSet;

use super::test_world::{LLAMA_70B, World, batch, chat, job_id};
use crate::host::Liveness;
use crate::ids::JobId;
use crate::job::{JobSpec, OnDisconnect, Slo};
use crate::model::ModelFacts;
use crate::plan::{ActionKind, PlanAction, PlanDraft, SwapReason};
use crate::rng::Rng;
use crate::snapshot::MeasuredJob;
use crate::store::{JobState, ReplicaPhase};
use crate::variables::{MediatorValues, OutcomeValues};

fn action(draft: &PlanDraft, job: JobId) -> &PlanAction {
    draft.actions.iter().find(|a| a.job == job).unwrap()
}

fn big(name: &str) -> JobSpec {
    let mut spec = chat(name);
    spec.model.id = "meta-llama/Llama-3.1-70B".to_owned();
    spec.model.facts = ModelFacts::from_config_json(LLAMA_70B).unwrap();
    spec
}

fn measured(rate_rps: f64) -> MeasuredJob {
    MeasuredJob {
        rate_rps,
        lengths: None,
        mediators: MediatorValues::absent(),
        outcomes: OutcomeValues::absent(),
        tokens_done: 0,
    }
}

fn gpu_of(action: &PlanAction) -> &str {
    &action.ladder.as_ref().unwrap().ranks[0]
        .environment
        .gpu_type
}

#[test]
fn the_demo_fleet_serves_its_jobs_cheaply() {
    let mut world = World::fleet();
    let online = world.job(1, chat("chat"));
    let mut rag = chat("rag");
    rag.workload.isl.mean = 3_000.0;
    let rag = world.job(2, rag);
    let deadline = world.job(3, batch("batch", 2_000_000, 7_200));
    let draft = world.checked().draft().clone();
    for job in [online, rag, deadline] {
        let placed = action(&draft, job);
        assert_eq!(placed.kind, ActionKind::Place, "{}", placed.rationale);
        assert!(
            !placed.rationale.starts_with("at risk"),
            "{}",
            placed.rationale
        );
        let promise = placed.promise.as_ref().unwrap();
        assert!(promise.sigma.slo_risk.any <= 0.10);
        assert_eq!(promise.ranks.len(), promise.bands.len());
        // Two requests a second of an 8 B model need no eight-GPU chain.
        assert!(promise.usd_per_hour.unwrap() <= 6.0, "{}", placed.rationale);
    }
    assert!(draft.bound.unwrap() >= draft.objective - 1e-9);
    assert!(
        draft
            .considered
            .iter()
            .any(|c| c.code == "SCORE" && c.sigma.is_some())
    );
}

#[test]
fn equal_snapshots_give_equal_plans() {
    let mut world = World::fleet();
    for n in 1..=6 {
        world.job(n, chat(&format!("chat-{n}")));
    }
    assert_eq!(world.plan(), world.clone().plan());
}

#[test]
fn a_placed_job_is_kept_and_says_the_same_every_tick() {
    let mut world = World::fleet();
    let job = world.job(1, chat("chat"));
    world.tick();
    let first = world.tick();
    let second = world.tick();
    assert_eq!(action(first.draft(), job).kind, ActionKind::Keep);
    assert_eq!(first.actions(), second.actions());
    assert!(first.draft().considered.iter().any(|c| c.code == "CURRENT"));
}

/// The large GPUs go to the job that can run nowhere else, although the other would like it.
#[test]
fn scarce_gpus_go_where_the_gain_is_largest() {
    let mut world = World::new();
    world.host("h100", "H100", 4, "reserved", 1.0);
    world.host("l40s", "L40S", 8, "on_demand", 40.0);
    let small = world.job(1, chat("small"));
    let mut large = big("large");
    large.constraints.allowed_gpu_types = BTreeSet::from(["H100".to_owned()]);
    large.constraints.min_replicas = 2;
    large.workload.arrival_rate_rps = 4.0;
    let alone = action(&world.plan(), small).clone();
    assert_eq!(
        gpu_of(&alone),
        "H100",
        "without a rival the cheap GPU is the better one"
    );
    let large = world.job(2, large);
    let draft = world.checked().draft().clone();
    assert_eq!(gpu_of(action(&draft, large)), "H100");
    assert_eq!(action(&draft, large).ladder.as_ref().unwrap().n_gpus(), 4);
    assert_eq!(gpu_of(action(&draft, small)), "L40S");
    let reason = draft
        .considered
        .iter()
        .find(|c| c.job == small && c.code == "CAPACITY")
        .unwrap();
    assert!(
        reason.reason.contains("worth more to other jobs"),
        "{}",
        reason.reason
    );
}

#[test]
fn priority_decides_who_waits() {
    let mut world = World::new();
    world.host("l40s", "L40S", 1, "reserved", 1.0);
    let mut low = chat("low");
    low.priority = 1;
    let low = world.job(1, low);
    let mut high = chat("high");
    high.priority = 9;
    let high = world.job(2, high);
    let draft = world.checked().draft().clone();
    assert_eq!(action(&draft, high).kind, ActionKind::Place);
    assert_eq!(action(&draft, low).kind, ActionKind::Defer);
    assert!(
        action(&draft, low).rationale.starts_with("outbid"),
        "{}",
        action(&draft, low).rationale
    );
}

#[test]
fn infeasible_jobs_say_why() {
    let said = |world: &World| {
        let draft = world.checked().draft().clone();
        let action = action(&draft, job_id(1)).clone();
        assert_eq!(action.kind, ActionKind::Defer);
        action.rationale
    };
    let mut world = World::new();
    world.job(1, chat("chat"));
    assert!(said(&world).starts_with("no hosts"));
    world.host("a10g", "A10G", 1, "reserved", 1.0);
    world.job_mut(job_id(1)).spec = big("chat");
    assert!(said(&world).contains("NO-FIT"), "{}", said(&world));
    world.job_mut(job_id(1)).spec = chat("chat");
    world
        .job_mut(job_id(1))
        .spec
        .constraints
        .denied_gpu_types
        .insert("A10G".to_owned());
    assert!(said(&world).contains("C3-GPU-TYPE"), "{}", said(&world));
    world.job_mut(job_id(1)).spec = chat("chat");
    world.host_mut("a10g").facts.engines.clear();
    assert!(said(&world).contains("ENGINE"), "{}", said(&world));
    world.host_mut("a10g").cordoned = true;
    assert!(said(&world).starts_with("no hosts"));
}

#[test]
fn a_chain_is_never_spread_over_hosts() {
    let mut world = World::new();
    for name in ["a", "b", "c", "d"] {
        world.host(name, "A100", 1, "reserved", 1.0);
    }
    let job = world.job(1, big("big"));
    assert_eq!(action(world.checked().draft(), job).kind, ActionKind::Defer);
    world.host("e", "A100", 4, "reserved", 4.0);
    let draft = world.checked().draft().clone();
    let slots = &action(&draft, job).slots;
    assert!(slots.iter().all(|s| s.host.as_str() == "e"), "{slots:?}");
}

#[test]
fn an_impossible_slo_runs_at_least_risk_and_says_so() {
    let mut world = World::fleet();
    let mut spec = chat("chat");
    spec.slo = Slo::Online {
        p99_ttft_ms: Some(1.0),
        p99_tpot_ms: None,
    };
    let job = world.job(1, spec);
    let draft = world.checked().draft().clone();
    let placed = action(&draft, job);
    assert_eq!(placed.kind, ActionKind::Place);
    assert!(
        placed.rationale.starts_with("at risk"),
        "{}",
        placed.rationale
    );
    assert!(
        placed.rationale.contains("p99_ttft_ms"),
        "{}",
        placed.rationale
    );
}

#[test]
fn load_is_met_by_more_replicas_and_fewer_suffice_later() {
    let mut world = World::fleet();
    let job = world.job(1, chat("chat"));
    world.tick();
    let n_gpus = |world: &World| {
        let active = world.snapshot.state.jobs[&job].active.as_ref().unwrap();
        active.ladder.n_gpus()
    };
    let before = n_gpus(&world);
    world.snapshot.measured.insert(job, measured(60.0));
    let swap = world.tick();
    assert_eq!(action(swap.draft(), job).kind, ActionKind::Swap);
    assert!(action(swap.draft(), job).swap_reason.is_some());
    assert!(n_gpus(&world) > before);
    world.snapshot.measured.insert(job, measured(1.0));
    world.tick();
    assert!(
        n_gpus(&world) <= before,
        "{} GPUs for a quiet job",
        n_gpus(&world)
    );
}

/// ±3 % of noise in price and load around a tie, 200 plans: at most one swap.
#[test]
fn noise_around_a_tie_never_churns_a_live_ladder() {
    let mut world = World::new();
    world.host("a", "A100", 8, "reserved", 16.0);
    world.host("b", "A100", 8, "on_demand", 16.0);
    world.host("c", "H100", 8, "on_demand", 24.0);
    let mut spec = chat("chat");
    spec.workload.arrival_rate_rps = 20.0;
    let job = world.job(1, spec);
    world.tick();
    let mut rng = Rng::from_seed(5);
    let mut n_swaps = 0;
    for _ in 0..200 {
        for (name, usd) in [("a", 16.0), ("b", 16.0), ("c", 24.0)] {
            let noisy = usd * (0.97 + 0.06 * rng.unit());
            world
                .host_mut(name)
                .facts
                .price
                .as_mut()
                .unwrap()
                .usd_per_hour = noisy;
        }
        world
            .snapshot
            .measured
            .insert(job, measured(20.0 * (0.97 + 0.06 * rng.unit())));
        let plan = world.tick();
        n_swaps += usize::from(action(plan.draft(), job).kind == ActionKind::Swap);
    }
    assert!(n_swaps <= 1, "{n_swaps} swaps");
}

#[test]
fn lost_replicas_are_replaced_outside_the_swap_budget() {
    let mut world = World::fleet();
    let mut spec = chat("chat");
    spec.workload.arrival_rate_rps = 60.0;
    spec.constraints.allowed_gpu_types = BTreeSet::from(["L40S".to_owned(), "A100".to_owned()]);
    spec.constraints.min_replicas = 2;
    let job = world.job(1, spec);
    world.tick();
    world.snapshot.state.slow.swap_budget = 0;
    let n_before = world.snapshot.state.replicas.len();
    let first = world.snapshot.state.replicas.values_mut().next().unwrap();
    first.phase = ReplicaPhase::Failed {
        reason: "XID 79".to_owned(),
    };
    let plan = world.tick();
    let replaced = action(plan.draft(), job);
    assert_eq!(replaced.kind, ActionKind::Swap, "{}", replaced.rationale);
    assert_eq!(replaced.swap_reason, Some(SwapReason::Replace));
    assert!(world.snapshot.state.replicas.len() >= n_before);
}

#[test]
fn a_draining_host_is_emptied_by_a_migration() {
    let mut world = World::fleet();
    let job = world.job(1, chat("chat"));
    world.tick();
    world.snapshot.state.slow.swap_budget = 0;
    let host = world
        .snapshot
        .state
        .replicas
        .values()
        .next()
        .unwrap()
        .host
        .clone();
    world.host_mut(host.as_str()).draining_since = Some(super::test_world::NOW);
    let plan = world.tick();
    let moved = action(plan.draft(), job);
    assert_eq!(
        (moved.kind, moved.swap_reason),
        (ActionKind::Swap, Some(SwapReason::Migrate))
    );
    assert!(moved.slots.iter().all(|s| s.host != host));
}

#[test]
fn silent_hosts_are_replaced_only_when_the_job_says_so_and_few_are_silent() {
    let mut world = World::fleet();
    let mut spec = chat("chat");
    spec.on_disconnect = OnDisconnect::ReplaceAfter { seconds: 60 };
    let job = world.job(1, spec);
    world.tick();
    let host = world
        .snapshot
        .state
        .replicas
        .values()
        .next()
        .unwrap()
        .host
        .clone();
    world.snapshot.liveness.insert(host, Liveness::Unreachable);
    assert_eq!(action(&world.plan(), job).kind, ActionKind::Swap);
    world.job_mut(job).spec.on_disconnect = OnDisconnect::KeepServing;
    assert_eq!(action(&world.plan(), job).kind, ActionKind::Keep);
    world.job_mut(job).spec.on_disconnect = OnDisconnect::ReplaceAfter { seconds: 60 };
    world
        .snapshot
        .liveness
        .insert("l40s-a".parse().unwrap(), Liveness::Unreachable);
    world
        .snapshot
        .liveness
        .insert("l40s-b".parse().unwrap(), Liveness::Unreachable);
    world
        .snapshot
        .liveness
        .insert("a100-b".parse().unwrap(), Liveness::Unreachable);
    let braked = world.checked().draft().clone();
    assert_eq!(
        action(&braked, job).kind,
        ActionKind::Keep,
        "many silent hosts: the brake holds"
    );
    assert!(action(&braked, job).rationale.contains("silent"));
}

#[test]
fn launch_failures_are_retried_with_growing_waits() {
    let mut world = World::fleet();
    let job = world.job(1, chat("chat"));
    let record = world.job_mut(job);
    record.state = JobState::LaunchFailed {
        reason: "out of memory".to_owned(),
    };
    record.recent_failures = 1;
    assert_eq!(action(world.checked().draft(), job).kind, ActionKind::Retry);
    world.job_mut(job).recent_failures = 3;
    let waits = world.checked().draft().clone();
    assert_eq!(action(&waits, job).kind, ActionKind::Defer);
    assert!(action(&waits, job).rationale.contains("out of memory"));
    world.job_mut(job).ticks_waited = 3;
    assert_eq!(action(world.checked().draft(), job).kind, ActionKind::Retry);
}

#[test]
fn a_batch_gets_enough_to_finish_in_time_and_no_more() {
    let mut world = World::fleet();
    let easy = world.job(1, batch("easy", 1_000_000, 36_000));
    let mut world_hard = World::fleet();
    let hard = world_hard.job(1, batch("hard", 200_000_000, 7_200));
    let n = |w: &World, job| {
        let draft = w.checked().draft().clone();
        action(&draft, job).ladder.as_ref().unwrap().n_gpus()
    };
    assert!(n(&world_hard, hard) > n(&world, easy));
    // Nearly done: what is left decides.
    world_hard.job_mut(hard).tokens_done = 199_000_000;
    assert!(n(&world_hard, hard) <= 2);
}

/// Random fleets and jobs over several ticks: every plan passes the check, which counts devices,
/// hosts, environments and swaps on its own.
#[test]
fn no_plan_breaks_the_check() {
    let mut rng = Rng::from_seed(9);
    for _ in 0..25 {
        let mut world = World::new();
        for h in 0..2 + rng.below(5) {
            let gpu = ["H100", "A100", "L40S"][rng.below(3)];
            let n = [1, 2, 4, 8][rng.below(4)];
            let market = ["reserved", "spot"][rng.below(2)];
            world.host(
                &format!("h{h}"),
                gpu,
                n,
                market,
                f64::from(n) * (0.5 + 2.0 * rng.unit()),
            );
        }
        for j in 0..1 + rng.below(6) {
            let mut spec = if rng.below(4) == 0 {
                big("x")
            } else {
                chat("x")
            };
            spec.name = format!("job-{j}").parse().unwrap();
            spec.workload.arrival_rate_rps = 30.0 * rng.unit();
            spec.constraints.spot_allowed = rng.below(2) == 0;
            spec.priority = rng.below(11) as u8;
            world.job(j as u128 + 1, spec);
        }
        world.snapshot.state.slow.swap_budget = rng.below(3) as u32;
        for tick in 0..3 {
            world.snapshot.seed = tick;
            for job in world
                .snapshot
                .state
                .jobs
                .keys()
                .copied()
                .collect::<Vec<_>>()
            {
                world
                    .snapshot
                    .measured
                    .insert(job, measured(40.0 * rng.unit()));
            }
            let budget = world.snapshot.state.slow.swap_budget as usize;
            let plan = world.tick();
            let swaps = plan
                .actions()
                .iter()
                .filter(|a| a.kind == ActionKind::Swap)
                .count();
            assert!(
                swaps <= budget,
                "{swaps} swaps, nothing was lost and {budget} are allowed"
            );
            let mut devices = BTreeSet::new();
            for replica in world.snapshot.state.replicas.values() {
                assert!(replica.gpu_uuids.iter().all(|u| devices.insert(u.clone())));
            }
        }
    }
}

#[test]
fn twenty_jobs_on_six_hosts_are_planned_well_under_a_second() {
    let mut world = World::fleet();
    for n in 1..=20 {
        let mut spec = if n % 5 == 0 { big("x") } else { chat("x") };
        spec.name = format!("job-{n}").parse().unwrap();
        spec.workload.arrival_rate_rps = 0.5 * n as f64;
        world.job(n, spec);
    }
    #[expect(clippy::disallowed_methods, reason = "a test may look at the clock")]
    let start = std::time::Instant::now();
    let draft = world.plan();
    let seconds = start.elapsed().as_secs_f64();
    println!("{seconds:.3} s: {}", draft.rationale);
    // Ten times what it takes on an idle machine, because tests share theirs.
    assert!(seconds < 5.0, "{seconds} s");
}
