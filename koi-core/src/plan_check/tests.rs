//! One corrupted draft per code: each mistake is found, and found under its own name.

use std::collections::BTreeSet;

use super::{PlanViolation, check};
use crate::catalog::Catalog;
use crate::host::Liveness;
use crate::ids::JobId;
use crate::plan::{ActionKind, PlanAction, PlanDraft, SwapReason};
use crate::planner::PlanningContext;
use crate::planner::test_world::{World, chat, context, job_id};
use crate::slow_loop::PlannedProbe;
use crate::store::{JobState, Rollout, RolloutKind};

/// A fleet with one waiting job (1) and one that runs (2).
fn world() -> World {
    let mut world = World::fleet();
    world.job(2, chat("running"));
    world.tick();
    let mut spec = chat("waiting");
    spec.constraints.min_replicas = 2;
    world.job(1, spec);
    world
}

fn of(draft: &mut PlanDraft, n: u128) -> &mut PlanAction {
    draft
        .actions
        .iter_mut()
        .find(|a| a.job == job_id(n))
        .unwrap()
}

/// The action of the waiting job.
fn place(draft: &mut PlanDraft) -> &mut PlanAction {
    of(draft, 1)
}

/// Makes the running job's action a swap onto the ladder that the waiting one would get.
fn make_swap(draft: &mut PlanDraft) {
    let mut swap = place(draft).clone();
    swap.job = job_id(2);
    swap.kind = ActionKind::Swap;
    swap.swap_reason = Some(SwapReason::Retune);
    *of(draft, 2) = swap;
    draft.actions.retain(|a| a.job == job_id(2));
}

fn set_knob(action: &mut PlanAction, knob: &str, value: serde_json::Value) {
    let rank = &mut action.ladder.as_mut().unwrap().ranks[0];
    let mut map = serde_json::to_value(&rank.configuration).unwrap();
    map[knob] = value;
    rank.configuration = serde_json::from_value(map).unwrap();
}

fn violations(world: &World, draft: PlanDraft, ctx: &PlanningContext<'_>) -> Vec<PlanViolation> {
    check(draft, &world.snapshot, ctx).err().unwrap_or_default()
}

/// Corrupts a plan and expects the code among what is found.
fn corrupt(code: &str, spoil: impl FnOnce(&mut World, &mut PlanDraft)) {
    let mut world = world();
    let mut draft = world.plan();
    assert_eq!(place(&mut draft).kind, ActionKind::Place);
    spoil(&mut world, &mut draft);
    let found = violations(&world, draft, &context());
    assert!(
        found.iter().any(|v| v.code == code),
        "{code} not among {found:#?}"
    );
    assert!(found.iter().all(|v| !v.detail.is_empty()));
}

#[test]
fn a_sound_plan_passes_and_covers_every_visible_job() {
    let world = world();
    let plan = check(world.plan(), &world.snapshot, &context()).unwrap();
    assert_eq!(plan.snapshot_hash(), world.snapshot.hash());
    let empty = check(PlanDraft::default(), &world.snapshot, &context()).unwrap();
    let kinds: Vec<ActionKind> = empty.actions().iter().map(|a| a.kind).collect();
    assert_eq!(
        kinds,
        [ActionKind::Defer, ActionKind::Keep],
        "C2 fills in what is omitted"
    );
}

#[test]
fn c0_structure() {
    corrupt("C0-SIZE", |_, d| place(d).rationale = "x".repeat(5_000));
    corrupt("C0-NUMBER", |_, d| d.objective = f64::NAN);
    corrupt("C0-NUMBER", |_, d| {
        place(d).target_tps = Some(f64::INFINITY)
    });
    corrupt("C0-DUPLICATE", |_, d| d.actions.push(d.actions[0].clone()));
    corrupt("C0-LADDER", |_, d| place(d).ladder = None);
    corrupt("C0-LADDER", |_, d| place(d).kind = ActionKind::Defer);
    corrupt("C0-REASON", |_, d| {
        place(d).swap_reason = Some(SwapReason::Migrate)
    });
    corrupt("C0-RANKS", |_, d| {
        place(d).ladder.as_mut().unwrap().ranks.clear()
    });
    corrupt("C0-RANKS", |_, d| {
        place(d).ladder.as_mut().unwrap().ranks[0].n_replicas = u32::MAX
    });
    corrupt("C0-SLOTS", |_, d| drop(place(d).slots.pop()));
    corrupt("C0-SLOTS", |_, d| place(d).slots[1].index = 0);
    corrupt("C0-PROMISE", |_, d| place(d).promise = None);
    corrupt("C0-PROMISE", |_, d| {
        place(d).promise.as_mut().unwrap().bands.clear()
    });
}

#[test]
fn c1_legality() {
    corrupt("C1-JOB", |_, d| place(d).job = job_id(99));
    corrupt("C1-JOB", |w, _| {
        w.job_mut(job_id(1)).state = JobState::Finished {
            reason: "cancelled".to_owned(),
        };
    });
    corrupt("C1-STATE", |w, _| {
        w.job_mut(job_id(1)).state = JobState::Running
    });
    corrupt("C1-STATE", |_, d| of(d, 2).kind = ActionKind::Defer);
    corrupt("C1-MECHANISM", |_, d| {
        place(d).mechanism_id = Some("M_nobody".to_owned())
    });
    corrupt("C1-ROLLOUT", |w, d| {
        make_swap(d);
        let job = w.job_mut(job_id(2));
        job.rollout = Some(Rollout {
            kind: RolloutKind::Canary,
            target: job.active.clone().unwrap(),
            ready_at: None,
            deadline: crate::planner::test_world::NOW,
            reason: "test".to_owned(),
        });
    });
}

#[test]
fn c3_budget() {
    corrupt("C3-SLICE", |_, d| {
        place(d).budget_ref = Some("slice-1".to_owned())
    });
    let rank_environment = |d: &mut PlanDraft| {
        place(d).ladder.as_ref().unwrap().ranks[0]
            .environment
            .clone()
    };
    corrupt("C3-ENVIRONMENT", |w, d| {
        let e = rank_environment(d);
        w.job_mut(job_id(1))
            .spec
            .constraints
            .denied_environments
            .insert(e);
    });
    corrupt("C3-GPU-TYPE", |w, _| {
        w.job_mut(job_id(1)).spec.constraints.allowed_gpu_types = BTreeSet::from(["B300".into()]);
    });
    corrupt("C3-SPOT", |w, d| {
        w.job_mut(job_id(1)).spec.constraints.spot_allowed = false;
        let rank = &mut place(d).ladder.as_mut().unwrap().ranks[0];
        rank.environment.market = crate::environment::Market::Spot;
    });
    corrupt("C3-REPLICAS", |w, _| {
        w.job_mut(job_id(1)).spec.constraints.min_replicas = 9
    });
    corrupt("C3-USD", |w, _| {
        w.job_mut(job_id(1)).spec.constraints.max_usd_per_hour = Some(0.01);
    });
    corrupt("C3-USD", |w, d| {
        w.job_mut(job_id(1)).spec.constraints.max_usd_per_hour = Some(1e6);
        place(d).promise.as_mut().unwrap().usd_per_hour = None;
    });
}

#[test]
fn c4_swap_budget() {
    corrupt("C4-BUDGET", |w, d| {
        make_swap(d);
        w.snapshot.state.slow.swap_budget = 0;
    });
    corrupt("C4-BRAKE", |w, d| {
        make_swap(d);
        for host in ["h100-a", "h100-b", "a100-a"] {
            w.snapshot
                .liveness
                .insert(host.parse().unwrap(), Liveness::Unreachable);
        }
    });
}

/// The swap of the running job as a probe.
fn probe(draft: &mut PlanDraft, usd: f64) {
    make_swap(draft);
    draft.probes = vec![PlannedProbe {
        job: job_id(2),
        usd,
        information_gain: 1.0,
    }];
}

#[test]
fn c4_probes() {
    let shut = |w: &mut World| w.snapshot.state.slow.swap_budget = 0;
    let (mut world, mut draft) = (world(), world().plan());
    probe(&mut draft, 1.0);
    shut(&mut world);
    let checked = check(draft, &world.snapshot, &context()).unwrap();
    assert_eq!(
        checked.tally().voluntary,
        [],
        "a probe is outside the swap budget"
    );
    assert_eq!(checked.tally().probes.len(), 1);
    corrupt("C4-PROBE", |_, d| probe(d, 1e9));
    corrupt("C4-PROBE", |_, d| probe(d, f64::NAN));
    corrupt("C4-PROBE", |_, d| {
        probe(d, 1.0);
        d.probes.push(d.probes[0].clone());
    });
    corrupt("C4-PROBE", |_, d| {
        probe(d, 1.0);
        d.probes[0].job = job_id(1);
    });
    corrupt("C4-PROBE", |w, d| {
        probe(d, 1.0);
        let last = crate::ids::TickId(w.snapshot.tick.0 - 23);
        w.snapshot
            .state
            .slow
            .probes
            .last_tick
            .insert(job_id(2), last);
    });
}

#[test]
fn c5_capacity() {
    corrupt("C5-TWICE", |_, d| {
        let slots = &mut place(d).slots;
        slots[1] = crate::plan::Slot {
            index: 1,
            ..slots[0].clone()
        };
    });
    corrupt("C5-RESERVED", |w, d| {
        let held = w
            .snapshot
            .state
            .replicas
            .values()
            .next()
            .unwrap()
            .gpu_uuids
            .clone();
        place(d).slots[0].gpu_uuids = held;
    });
    corrupt("C5-WIDTH", |_, d| drop(place(d).slots[0].gpu_uuids.pop()));
    corrupt("C5-HOST", |_, d| {
        place(d).slots[0].host = "nowhere".parse().unwrap()
    });
    corrupt("C5-HOST", |w, d| {
        w.host_mut(place(d).slots[0].host.as_str()).cordoned = true
    });
    corrupt("C5-PLACE", |_, d| {
        place(d).ladder.as_mut().unwrap().ranks[0].instance_type = "other".to_owned();
    });
    corrupt("C5-ENGINE", |w, d| {
        w.host_mut(place(d).slots[0].host.as_str())
            .facts
            .engines
            .clear();
    });
    corrupt("C5-DEVICE", |_, d| {
        place(d).slots[0].gpu_uuids[0] = "GPU-unknown".to_owned()
    });
    corrupt("C5-ENVIRONMENT", |w, d| {
        let e = place(d).ladder.as_ref().unwrap().ranks[0]
            .environment
            .clone();
        for host in w
            .snapshot
            .state
            .hosts
            .values_mut()
            .filter(|h| h.facts.environment == e)
        {
            host.cordoned = true;
        }
    });
}

#[test]
fn c6_physics() {
    corrupt("C6-TP", |_, d| set_knob(place(d), "tp", 3.into()));
    corrupt("C6-PP", |_, d| set_knob(place(d), "pp", 5.into()));
    corrupt("C6-EP", |_, d| set_knob(place(d), "ep", 2.into()));
    corrupt("C6-DOMAIN", |_, d| {
        set_knob(place(d), "max_num_seqs", 1_000_000.into())
    });
    corrupt("C6-DOMAIN", |_, d| set_knob(place(d), "made_up", 1.into()));
    corrupt("C6-APPLIES", |_, d| {
        set_knob(place(d), "moe_backend", "triton".into())
    });
    corrupt("C6-GPU-TYPE", |_, d| {
        place(d).ladder.as_mut().unwrap().ranks[0]
            .environment
            .gpu_type = "Z9".to_owned();
    });
    corrupt("C6-VRAM", |_, d| {
        set_knob(place(d), "gpu_memory_utilization", 0.1.into())
    });
    corrupt("C6-ENGINE", |w, d| {
        let host = w.host_mut(place(d).slots[0].host.as_str());
        host.facts.engines[0].version = "9.9.9".to_owned();
    });
    corrupt("C6-ENGINE-NAME", |_, d| {
        set_knob(place(d), "engine_name", "vllm".into())
    });
}

/// A dense model has no use for a choice of MoE kernels; what the engine does by itself is no choice.
#[test]
fn c6_applies_names_the_knob_and_the_reason() {
    let world = world();
    let found = |value: &str| {
        let mut draft = world.plan();
        set_knob(place(&mut draft), "moe_backend", value.into());
        let mut found = violations(&world, draft, &context());
        found.retain(|v| v.code == "C6-APPLIES");
        found
    };
    let bad = found("triton");
    assert_eq!(bad.len(), 1, "{bad:#?}");
    assert!(
        bad[0].detail.contains("moe_backend") && bad[0].detail.contains("is_moe is false"),
        "{}",
        bad[0].detail
    );
    assert_eq!(found("auto"), []);
}

/// A knob whose flag came later than the engine on the host.
#[test]
fn c6_flag() {
    let embedded = Catalog::embedded_text();
    let path = "engines/vllm.toml";
    let flags = embedded.file(path).unwrap();
    let late = flags.replacen("since = \"0.6.0\"", "since = \"0.33.0\"", 1);
    let catalog = Catalog::load(&embedded.with(path, &late)).unwrap();
    let world = world();
    let found = violations(
        &world,
        world.plan(),
        &PlanningContext {
            catalog: &catalog,
            ..context()
        },
    );
    assert!(found.iter().any(|v| v.code == "C6-FLAG"), "{found:#?}");
}

#[test]
fn c0_stops_the_others_and_the_others_come_together_in_order() {
    let world = world();
    let mut draft = world.plan();
    place(&mut draft).budget_ref = Some("slice".to_owned());
    place(&mut draft).mechanism_id = Some("M_nobody".to_owned());
    set_knob(place(&mut draft), "pp", 5.into());
    let codes: Vec<String> = violations(&world, draft.clone(), &context())
        .into_iter()
        .map(|v| v.code)
        .collect();
    assert!(codes.is_sorted_by_key(|c| c[..2].to_owned()), "{codes:?}");
    for code in ["C1-MECHANISM", "C3-SLICE", "C5-WIDTH", "C6-PP"] {
        assert!(codes.iter().any(|c| c == code), "{code} not in {codes:?}");
    }
    draft.objective = f64::NAN;
    let codes: Vec<String> = violations(&world, draft, &context())
        .into_iter()
        .map(|v| v.code)
        .collect();
    assert_eq!(codes, ["C0-NUMBER"]);
}

#[test]
fn violations_read_well() {
    let v = PlanViolation {
        code: "C6-VRAM".to_owned(),
        job: Some(JobId(uuid::Uuid::nil())),
        detail: "too large".to_owned(),
    };
    assert_eq!(
        v.to_string(),
        "C6-VRAM job 00000000-0000-0000-0000-000000000000: too large"
    );
}
