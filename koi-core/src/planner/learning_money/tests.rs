//! A lesson is paid for or not had.

use std::collections::BTreeMap;

use crate::ids::TickId;
use crate::params::Params;
use crate::plan::{ActionKind, PlanDraft};
use crate::plan_check::check;
use crate::planner::test_world::{World, chat, context, job_id};
use crate::planner::{PlanningContext, plan};
use crate::score::eig::EdgePowers;

/// Jobs that run, with contrasts kept and a fresh fleet's thirst for information.
fn world(n_jobs: u128) -> World {
    let mut world = World::fleet();
    for n in 1..=n_jobs {
        let mut spec = chat(&format!("job-{n}"));
        spec.workload.arrival_rate_rps = 4.0;
        world.job(n, spec);
    }
    world.tick();
    world.snapshot.edge_powers = Some(EdgePowers::default());
    world.snapshot.state.slow.explore_weight = 2.0;
    world.snapshot.state.slow.swap_budget = 10;
    world
}

fn rich() -> Params {
    Params {
        probe_usd_per_day: 10_000.0,
        ..Params::default()
    }
}

fn with(params: &Params, world: &World) -> PlanDraft {
    let context = PlanningContext {
        params,
        ..context()
    };
    let draft = plan(&world.snapshot, &context);
    check(draft.clone(), &world.snapshot, &context).unwrap();
    draft
}

fn prices(draft: &PlanDraft) -> Vec<f64> {
    let paid = draft.explorations.iter().chain(&draft.probes);
    paid.map(|p| p.usd).collect()
}

#[test]
fn a_swap_for_its_lesson_is_recorded_with_its_price() {
    let draft = with(&rich(), &world(2));
    assert!(!draft.explorations.is_empty(), "{}", draft.rationale);
    for explored in &draft.explorations {
        assert!(explored.usd > 0.0 && explored.information_gain > 0.0);
        let action = draft.actions.iter().find(|a| a.job == explored.job);
        assert_eq!(action.unwrap().kind, ActionKind::Swap);
        let words = &action.unwrap().rationale;
        assert!(words.contains("for what it teaches (EIG"), "{words}");
    }
}

#[test]
fn without_money_or_soon_after_the_last_no_swap_is_for_its_lesson() {
    let mut world = world(2);
    let poor = Params {
        probe_usd_per_day: 0.01,
        ..rich()
    };
    let draft = with(&poor, &world);
    assert!(draft.explorations.is_empty() && draft.probes.is_empty());
    let said = |draft: &PlanDraft| draft.considered.iter().any(|c| c.code == "LEARNING");
    assert!(said(&draft), "an unpaid lesson is explained");
    world.snapshot.state.slow.probes.last_tick =
        BTreeMap::from([(job_id(1), TickId(1)), (job_id(2), TickId(1))]);
    let rested = with(&rich(), &world);
    assert!(rested.explorations.is_empty() && rested.probes.is_empty());
    assert!(said(&rested));
}

#[test]
fn all_lessons_of_a_tick_together_stay_within_the_money() {
    let world = world(3);
    let all = prices(&with(&rich(), &world));
    assert!(all.len() >= 2, "{all:?}");
    let most = all.iter().copied().fold(0.0, f64::max);
    let tight = Params {
        probe_usd_per_day: (all.iter().sum::<f64>() * 0.95).max(most),
        ..rich()
    };
    let spent: f64 = prices(&with(&tight, &world)).iter().sum();
    assert!(spent > 0.0 && spent <= tight.probe_usd_per_day, "{spent}");
}

#[test]
fn a_first_placement_costs_nothing_more_for_what_it_teaches() {
    let mut calm = World::fleet();
    calm.job(1, chat("first"));
    let mut thirsty = World::fleet();
    thirsty.job(1, chat("first"));
    thirsty.snapshot.edge_powers = Some(EdgePowers::default());
    thirsty.snapshot.state.slow.explore_weight = 2.0;
    let usd = |world: &World| {
        let draft = world.plan();
        draft.actions[0].promise.as_ref().unwrap().usd_per_hour
    };
    let (calm, thirsty) = (usd(&calm).unwrap(), usd(&thirsty).unwrap());
    assert!(thirsty <= calm + 1e-9, "{thirsty} against {calm} USD/h");
}
